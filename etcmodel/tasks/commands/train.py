"""`train`: the Model Garden's trainer on the TFRecords of `preprocess`."""

import os

from absl import flags

from etcmodel.tasks import registry
from etcmodel.tasks.commands import training

DESCRIPTION = """
Trains a model with the TensorFlow Model Garden: on CPU, all GPUs of the
machine, several machines (TF_CONFIG) or a TPU (--tpu). The experiment holds the
paper's hyperparameters; everything in it can be changed, for example

  --params_override=trainer.train_steps=500,task.model.encoder.preset=tiny

(warm-up and decay of the learning rate follow trainer.train_steps). The whole
configuration is written to MODEL_DIR/params.yaml. An interrupted run goes on
from its last checkpoint. With --mode=train_and_eval the checkpoint with the
best validation accuracy is kept in MODEL_DIR/best_ckpt. To watch it:

  tensorboard --logdir=MODEL_DIR
"""

EXAMPLE = """
python -m etcmodel train --experiment=etc/wikihop --mode=train_and_eval \\
    --model_dir=runs/1 --params_override=\\
task.train_data.input_path=data/train,task.validation_data.input_path=data/dev
"""

REQUIRED = ("experiment", "model_dir")


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the command.

    Args:
        flag_values: where to define them.
    """
    training.define_model_garden_flags(flag_values)
    flags.DEFINE_enum(
        "mode",
        "train",
        [
            "train",
            "eval",
            "train_and_eval",
            "continuous_eval",
            "train_and_post_eval",
        ],
        "What to do: train; train and evaluate from time to time; evaluate "
        "the last checkpoint, or every new one.",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command.

    Args:
        flag_values: the parsed flags.

    Raises:
        UserError: the configuration or the data cannot be used.
    """
    training.set_up_logging(flag_values.verbose)
    model_dir, mode = flag_values.model_dir, flag_values.mode
    entry, params = training.parse_params(flag_values, flag_values.experiment)
    training.check_data(params, mode)
    from official.core import train_utils

    training.set_precision(params)
    task, runner = training.make_runner(params, mode, model_dir)
    if "train" in mode:
        train_utils.serialize_config(params, model_dir)
        training.save_run(task, entry, flag_values.experiment, model_dir)
    training.run_mode(runner, params, mode)
    if "train" not in mode:
        return
    print(
        f"The trained model is in {model_dir}. To watch how it went:\n"
        f"  tensorboard --logdir={model_dir}"
    )
    if isinstance(registry.get_pipeline(entry.name), registry.TaskPipeline):
        print(
            "To make a SavedModel of it that answers raw text:\n"
            f"  python -m etcmodel export --model_dir={model_dir} "
            f"--output_dir={os.path.join(model_dir, 'saved_model')}"
        )
    else:
        print(
            "To train a task that begins with it, add to --params_override:\n"
            f"  task.init_checkpoint={model_dir}"
        )
