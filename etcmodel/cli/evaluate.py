"""`evaluate`: measures a trained model on TFRecords."""

import dataclasses
import json

from absl import flags

from etcmodel.cli import paths
from etcmodel.cli import training
from etcmodel.errors import UserError
from etcmodel.pipeline.atomic import atomic_file
from etcmodel.pipeline.options import option
from etcmodel.training import runs

DESCRIPTION = """
Measures a checkpoint of a run on validation records: the one that `export`
takes, which gives the same answers: both compute in float32 (but for
--mode=continuous_eval). The run's own configuration (MODEL_DIR/params.yaml) is
used otherwise; --config_file and --params_override change it.
Thresholds are those that the run's validation chose; --tune chooses them again.
Records may be longer than the training records with
--params_override=task.model.long_length=N, which `export` then needs, too.
To measure a SavedModel on a data file use `predict`, which prints the
official metric when the file has answers.
"""

EXAMPLE = """
python -m etcmodel evaluate --model_dir=runs/1 --validation_data=data/dev
"""


@dataclasses.dataclass(kw_only=True)
class Flags(training.TrainerFlags, runs.CheckpointFlags):
    """The flags.

    Attributes:
        mode: evaluate one checkpoint, or every new one as it appears.
        validation_data: the records, if not those of the run: the --output_dir
            of `preprocess --split=dev`.
        tune: choose thresholds with these records, and save them in the run.
        output: a JSON file to write the metrics to.
    """

    mode: str = option("eval", one_of=["eval", "continuous_eval"])
    # Unlike that of a training, it need not be writable.
    model_dir: str = option(path="any_run")
    validation_data: str | None = option(None, path="records")
    tune: bool = False
    output: str | None = option(None, path="metrics")


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command."""
    model_dir, mode = flag_values.model_dir, flag_values.mode
    own_files = list(flag_values.config_file or [])
    experiment = runs.use_saved_params(flag_values, model_dir)
    training.check_flags(flag_values, mode)
    if mode == "eval":
        runs.check_checkpoint(model_dir, flag_values.checkpoint)
    spec, params = training.parse_params(flag_values, experiment)
    training.check_data(params, mode)
    if flag_values.output:
        paths.check_params(params, "--output", flag_values.output, "metrics")
    from etcmodel.training import configuration
    from etcmodel.training import run_directory

    # The training records may be gone.
    params.task.train_data.input_path = ""
    metadata = configuration.find_metadata(params.task, spec)
    runs.check_records(model_dir, metadata, params.task.model)
    run_directory.prepare(model_dir)
    if flag_values.tune:
        _check_tuned(spec, params.task)
    checkpoint = None
    is_tuned = flag_values.tune or mode != "eval"
    if mode == "eval":
        checkpoint = runs.find_checkpoint(model_dir, flag_values.checkpoint)
        if not _names_precision(own_files, flag_values.params_override):
            # The served model computes in float32.
            params.runtime.mixed_precision_dtype = None
        # Other records must not decide which checkpoint is the best one.
        params.trainer.best_checkpoint_export_subdir = ""
        if not flag_values.tune:
            runs.use_tuned(spec, params.task, checkpoint, model_dir)
    with training.quiet(flag_values.verbose) as out:
        _, runner = training.make_runner(
            params, mode, model_dir, spec if is_tuned else None, out=out
        )
        if checkpoint is not None:
            with run_directory.restoring(checkpoint):
                runner.controller.restore_checkpoint(checkpoint)
        metrics = training.run_mode(runner, params, mode)
    if mode == "continuous_eval":
        return
    print(f"Checkpoint: {checkpoint}")
    metrics["step"] = int(runner.trainer.global_step.numpy())
    for name, value in sorted(metrics.items()):
        print(f"{name}: {value:.6g}")
    if flag_values.output:
        with atomic_file(flag_values.output) as stream:
            json.dump(metrics, stream, indent=2, sort_keys=True)
            stream.write("\n")


def _check_tuned(spec, task_params) -> None:
    """Raises an error if --tune has nothing to choose."""
    name = spec.tuned and spec.tuned.option
    value = name and getattr(task_params, name)
    if value is not None:
        raise UserError(
            f"--tune chooses no value, because task.{name} is {value}. Add "
            f"--params_override=task.{name}=null, here and in `export`."
        )


def _names_precision(files: list[str], text: str | None) -> bool:
    """Whether --config_file or --params_override says in what to compute."""
    from etcmodel.cli import overrides
    from etcmodel.cli import shortcut_flags

    given = [
        overrides.read_file(path, f"--config_file={path}") for path in files
    ]
    if text:
        given.append(overrides.read(text, "--params_override"))
    return "mixed_precision_dtype" in shortcut_flags.names_in(given, "runtime")
