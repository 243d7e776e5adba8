"""`evaluate`: measures a trained model on TFRecords."""

import json

from absl import flags

from etcmodel.errors import UserError
from etcmodel.tasks.atomic import atomic_file
from etcmodel.tasks.commands import training

DESCRIPTION = """
Measures the last checkpoint of a run on validation records. The run's own
configuration (MODEL_DIR/params.yaml) is used; --config_file and
--params_override change it. To measure a SavedModel on a data file use
`predict`, which prints the official metric when the file has answers.
"""

EXAMPLE = """
python -m etcmodel evaluate --model_dir=runs/1 \\
    --params_override=task.validation_data.input_path=data/dev
"""

REQUIRED = ("model_dir",)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the command.

    Args:
        flag_values: where to define them.
    """
    training.define_model_garden_flags(flag_values)
    flags.DEFINE_enum(
        "mode",
        "eval",
        ["eval", "continuous_eval"],
        "Evaluate the last checkpoint, or every new one as it appears.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "output",
        None,
        "A JSON file to write the metrics to.",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command.

    Args:
        flag_values: the parsed flags.

    Raises:
        UserError: there is no checkpoint, or the data cannot be used.
    """
    training.set_up_logging(flag_values.verbose)
    model_dir, mode = flag_values.model_dir, flag_values.mode
    experiment = training.use_saved_params(flag_values, model_dir)
    _, params = training.parse_params(flag_values, experiment)
    training.check_data(params, mode)
    import tensorflow as tf

    if mode == "eval" and tf.train.latest_checkpoint(model_dir) is None:
        raise UserError(
            f"{model_dir} has no checkpoint yet. Run `train` first."
        )
    # The training records need not be there any more.
    params.task.train_data.input_path = ""
    if mode == "eval":
        # Other records must not decide which checkpoint is the best one.
        params.trainer.best_checkpoint_export_subdir = ""
    training.set_precision(params)
    _, runner = training.make_runner(params, mode, model_dir)
    metrics = training.run_mode(runner, params, mode)
    metrics["step"] = int(runner.trainer.global_step.numpy())
    if mode == "continuous_eval":
        return
    for name, value in sorted(metrics.items()):
        print(f"{name}: {value:.6g}")
    if flag_values.output:
        with atomic_file(flag_values.output) as stream:
            json.dump(metrics, stream, indent=2, sort_keys=True)
            stream.write("\n")
