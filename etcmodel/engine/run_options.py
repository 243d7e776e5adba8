"""Configures a run: an experiment, and the options that override it."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from absl import logging

from etcmodel import run_paths
from etcmodel.engine import shortcuts
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.pipeline import metadata_files
from etcmodel.pipeline.options import option
from etcmodel.readers import files
from etcmodel.tasks import registry
from etcmodel.training import runs


@dataclasses.dataclass(kw_only=True)
class RunOptions:
    """Options for a run and its configuration.

    Attributes:
        model_dir: directory of the run, for checkpoints, TensorBoard logs and
            the configuration.
        experiment: the experiment, such as etc/hotpotqa or etc/nq;
            `python -m etcmodel experiments` lists them.
        config_file: YAML or JSON file with parameters that override those of
            the experiment.
        params_override: parameters that override those of the experiment and
            of `config_file`: a.b=1,c.d=x, YAML, JSON, or a file with one of
            these; in Python also a dict.
        verbose: show the trainer's whole log.
    """

    model_dir: str = option(path="new_run")
    experiment: str | None = None
    config_file: list[str] | None = option(None, several=True, path="file")
    params_override: Any = None
    verbose: bool = False


@dataclasses.dataclass(kw_only=True)
class CheckpointOptions(RunOptions):
    """Options for a run and one of its checkpoints.

    Attributes:
        checkpoint: the checkpoint: "best", "last", or a path. By default the
            best if there is one, otherwise the last.
    """

    checkpoint: str | None = option(None, path="checkpoint")


@dataclasses.dataclass(kw_only=True)
class TrainerOptions(RunOptions):
    """Options for a run and the machine to train on.

    Attributes:
        tpu: name or grpc:// address of a Cloud TPU, or "local".
    """

    tpu: str | None = None


def use_saved_params(
    options: RunOptions, reporter: Reporter
) -> tuple[str, RunOptions]:
    """Lets the configuration stored in a run override the experiment's.

    Puts the run's `params.yaml` before the files in `config_file`, unless the
    options name another experiment.

    Returns:
        Pair of the experiment and the options to use.

    Raises:
        UserError: the run lacks its configuration.
    """
    model_dir, wanted = options.model_dir, options.experiment
    if wanted and runs.find(model_dir) is None:
        if metadata_files.exists(model_dir):
            reporter.note(
                f"{model_dir} has no {run_paths.RUN_FILE}, so the "
                f"configuration is taken from `experiment={wanted}` and the "
                "options. The vocabulary and sizes of the records are not "
                "checked."
            )
        return wanted, options
    note = runs.read(model_dir)
    if wanted and wanted != note["experiment"]:
        return wanted, options
    runs.read_params(model_dir)
    own = os.path.join(model_dir, run_paths.PARAMS_FILE)
    given = [own, *(options.config_file or [])]
    return note["experiment"], dataclasses.replace(options, config_file=given)


@contextlib.contextmanager
def logging_level(verbose: bool) -> Iterator[None]:
    """Shows the trainer's whole log, or only its errors, in a with block."""
    import tensorflow as tf

    logger = tf.get_logger()
    before = logging.get_verbosity(), logger.level
    logging.set_verbosity(logging.INFO if verbose else logging.ERROR)
    logger.setLevel("INFO" if verbose else "ERROR")
    try:
        yield
    finally:
        logging.set_verbosity(before[0])
        logger.setLevel(before[1])


def _parse(options):
    """Returns the configuration that the Model Garden makes from options."""
    from official.core import train_utils

    try:
        return train_utils.parse_configuration(
            options, lock_return=False, print_return=True
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = error.args[0] if error.args else error
        raise UserError(
            f"The experiment {options.experiment} rejects the overrides, "
            f"`config_file` or `params_override`: {reason}"
        ) from error


def parse_params(options: RunOptions, experiment: str, reporter: Reporter):
    """Configures an experiment with all overrides.

    Returns:
        Pair of the task and the `ExperimentConfig`.
    """
    spec = registry.task_of_experiment(experiment)
    registry.register_experiments(spec.name)
    from official.core import exp_factory
    from official.core import train_utils

    from etcmodel.engine import overrides

    def given(name):
        return getattr(options, name, None)

    defaults = exp_factory.get_exp_config(experiment)
    # The Model Garden reads paths and texts, too, but its errors do not locate
    # a mistake.
    values = []
    if given("small"):
        values.append(shortcuts.small_values(given("train_data")))
    for path in options.config_file or []:
        source = f"`config_file={path}`"
        values.append(overrides.read_file(path, source))
        overrides.check(values[-1], defaults, source)
    last = {}
    if options.params_override:
        source = "`params_override`"
        last = overrides.read(options.params_override, source)
        overrides.check(last, defaults, source)
    params = _parse(
        train_utils.ParseConfigOptions(
            experiment=experiment,
            config_file=values,
            tpu=given("tpu"),
            params_override=last,
        )
    )
    named = shortcuts.names_in([*values, last])
    shortcuts.apply(params, options, spec, experiment, named, reporter)
    shortcuts.check(params)
    _choose_devices(params, defaults)
    shortcuts.follow_records(params, spec, experiment, options, named, reporter)
    shortcuts.follow_train_steps(params, defaults, reporter)
    shortcuts.choose_optimizer(params, options)
    return spec, params


def resolved(params, spec) -> dict:
    """Returns a configuration as nested dicts, with the preset's sizes.

    `vocab_size` is None if neither records nor a config file set it.
    """
    from etcmodel.training import configuration

    values, encoder = params.as_dict(), params.task.model.encoder
    metadata = configuration.find_metadata(params.task, spec) or {}
    sizes = encoder.to_config(metadata.get("vocab_size")).to_dict()
    if not metadata and not encoder.config_file:
        del sizes["vocab_size"]
    own = values["task"]["model"]["encoder"]
    own |= {x: sizes.get(x) for x, value in own.items() if value is None}
    return values


def _choose_devices(params, defaults) -> None:
    """Selects the TPU if `tpu` is set, otherwise all GPUs by default."""
    import tensorflow as tf

    runtime, trainer = params.runtime, params.trainer
    if runtime.tpu and runtime.distribution_strategy == "mirrored":
        runtime.distribution_strategy = "tpu"
    if runtime.distribution_strategy == "mirrored":
        number = len(tf.config.list_physical_devices("GPU"))
        if runtime.num_gpus > number:
            raise UserError(
                f"runtime.num_gpus is {runtime.num_gpus}, but TensorFlow finds "
                f"{number} GPUs. Set runtime.num_gpus to at most {number}."
            )
        runtime.num_gpus = runtime.num_gpus or number
    if trainer.steps_per_loop == defaults.trainer.steps_per_loop:
        # Only TPUs are faster with several steps per loop.
        trainer.steps_per_loop = (
            math.gcd(trainer.steps_per_loop, trainer.summary_interval)
            if runtime.distribution_strategy == "tpu"
            else 1
        )


# Part of a mode's name -> the option with the data that the mode reads.
_DATA = {"train": "train_data", "eval": "validation_data"}


def _check_named(mode: str, is_named: Callable[[str], bool]) -> None:
    """Raises a `UserError` if the mode reads data whose path is not set."""
    for word, field in _DATA.items():
        if word in mode and not is_named(field):
            raise UserError(
                f"There is no {field}. Give the `output_dir` of `preprocess`: "
                f"`{field}=DIR`."
            )


def check_data(params, mode: str) -> None:
    """Checks that the configuration has all data paths that a mode reads."""
    _check_named(mode, lambda field: getattr(params.task, field).input_path)


def check_options(options: RunOptions, mode: str) -> None:
    """Checks options as `check_data` does, but before TensorFlow is loaded.

    Accepts options that name a file which might set the paths.
    """
    _check_named(mode, lambda field: _may_name(options, field))


def _may_name(options, field) -> bool:
    """Returns whether options, or files they name, may set a data path."""
    override = options.params_override or ""
    if not isinstance(override, str):
        override = str(override)
    if (
        getattr(options, field, None)
        or "input_path" in override
        or os.path.exists(override)
    ):
        return True
    for path in options.config_file or []:
        if files.is_remote(path):
            return True
        try:
            with open(path, "rb") as stream:
                values = metadata_files.parse_yaml(stream.read())
            if values["task"][field]["input_path"]:
                return True
        except (KeyError, TypeError):
            pass  # The file does not set the path.
        except (OSError, ValueError):
            return True  # `overrides.read_file` raises the error later.
    return False
