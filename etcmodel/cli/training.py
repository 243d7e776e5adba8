"""What `train`, `evaluate` and `export` share: configuration and runner."""

import contextlib
import dataclasses
import io
import math
import os
import re
import sys
import time
from collections.abc import Callable

from absl import flags
from absl import logging

from etcmodel.cli import shortcut_flags
from etcmodel.errors import UserError
from etcmodel.pipeline import metadata_files
from etcmodel.readers import files
from etcmodel.tasks import registry
from etcmodel.training import runs


@dataclasses.dataclass(kw_only=True)
class TrainerFlags(runs.RunFlags):
    """Where the trainer runs.

    Attributes:
        tpu: name or grpc:// address of a Cloud TPU, or "local".
        tf_data_service: address of a tf.data service.
    """

    tpu: str | None = None
    tf_data_service: str | None = None


def _set_up_logging(verbose: bool) -> None:
    """Shows the trainer's whole log, or only its errors."""
    import tensorflow as tf

    logging.set_verbosity(logging.INFO if verbose else logging.ERROR)
    tf.get_logger().setLevel("INFO" if verbose else "ERROR")


def _parse(options):
    """The configuration that the Model Garden makes of its flags."""
    from official.core import train_utils

    try:
        return train_utils.parse_configuration(
            options, lock_return=False, print_return=True
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = error.args[0] if error.args else error
        raise UserError(
            "The overrides (--config_file, --params_override) do not fit the "
            f"experiment {options.experiment}: {reason}"
        ) from error


def parse_params(flag_values: flags.FlagValues, experiment: str):
    """Configures an experiment with all overrides, and sets up logging.

    Returns:
        Pair of the task and the `ExperimentConfig`.
    """
    _set_up_logging(flag_values.verbose)
    spec = registry.task_of_experiment(experiment)
    registry.register_experiments(spec.name)
    from official.core import exp_factory
    from official.core import train_utils

    from etcmodel.cli import overrides

    def given(name):
        return shortcut_flags.given(flag_values, name)

    defaults = exp_factory.get_exp_config(experiment)
    # The Model Garden takes paths and texts, too, but its errors name no
    # mistakes.
    values = []
    if given("small"):
        values.append(shortcut_flags.small_values(given("train_data")))
    for path in flag_values.config_file or []:
        source = f"--config_file={path}"
        values.append(overrides.read_file(path, source))
        overrides.check(values[-1], defaults, source)
    last = {}
    if flag_values.params_override:
        source = "--params_override"
        last = overrides.read(flag_values.params_override, source)
        overrides.check(last, defaults, source)
    params = _parse(
        train_utils.ParseConfigOptions(
            experiment=experiment,
            config_file=values,
            tpu=given("tpu"),
            tf_data_service=given("tf_data_service") or "",
            params_override=last,
        )
    )
    named = shortcut_flags.names_in([*values, last], "task", "model")
    shortcut_flags.apply(params, flag_values, spec, experiment, named)
    shortcut_flags.check(params)
    shortcut_flags.follow_records(
        params, defaults, spec, experiment, flag_values
    )
    shortcut_flags.follow_train_steps(params, defaults)
    _choose_devices(params, defaults)
    return spec, params


def resolved(params, spec) -> dict:
    """Returns a configuration as nested dicts, with the preset's sizes.

    The size of the vocabulary stays None if the records, which tell it, are not
    there.
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
    """Uses a TPU if one was named, and all GPUs unless told otherwise."""
    import tensorflow as tf

    runtime, trainer = params.runtime, params.trainer
    if runtime.tpu and runtime.distribution_strategy == "mirrored":
        runtime.distribution_strategy = "tpu"
    if runtime.distribution_strategy == "mirrored":
        number = len(tf.config.list_physical_devices("GPU"))
        if runtime.num_gpus > number:
            raise UserError(
                f"runtime.num_gpus is {runtime.num_gpus}, but TensorFlow sees "
                f"{number} GPUs here."
            )
        runtime.num_gpus = runtime.num_gpus or number
    if trainer.steps_per_loop == defaults.trainer.steps_per_loop:
        # Only TPUs gain by steps that nobody sees.
        trainer.steps_per_loop = (
            math.gcd(trainer.steps_per_loop, trainer.summary_interval)
            if runtime.distribution_strategy == "tpu"
            else 1
        )


_clock = time.monotonic
# Strategies that use one CPU if a machine has no GPU.
_LOCAL = ("mirrored", "one_device")


class _Actions:
    """What is done after training steps and after validations.

    Attributes:
        trainer: the Model Garden's trainer.
        step: the last step that was made.
    """

    def __init__(self, params, mode, model_dir, spec, show, patience):
        self.trainer, self.step, self._time = None, 0, None
        self._params, self._mode, self._model_dir = params, mode, model_dir
        self._spec, self._show, self._patience = spec, show, patience

    def after_steps(self, logs) -> None:
        """Checks and shows the loss; adds the speed to what is logged."""
        from etcmodel.training import divergence

        loss, before, now = float(logs["training_loss"]), self.step, _clock()
        self.step = int(self.trainer.global_step.numpy())
        divergence.check(self.trainer.task, loss, before + 1, self.step)
        # The first step builds the graph.
        if self._time is not None:
            number = self._params.task.train_data.global_batch_size
            number *= self.step - before
            logs["examples_per_second"] = number / (now - self._time)
        self._time = now
        if self._show is not None:
            self._show.step(self.step, loss)

    def after_validation(self, logs) -> None:
        """Saves and shows metrics; stops if they do not become better."""
        step = int(self.trainer.global_step.numpy())
        best = self._params.trainer.best_checkpoint_eval_metric
        if self._spec is not None:
            runs.save_tuned(self._spec, logs, step, self._model_dir)
        if self._show is not None:
            names = ("validation_loss", best)
            shown = [f"{x} {float(logs[x]):.4g}" for x in names if x in logs]
            self._show.validated(
                f"Validation at step {step}: {', '.join(shown)}"
            )
        self._time = _clock()
        if self._mode != "train_and_eval":
            return
        from etcmodel.training import best_checkpoint

        found = runs.save_validation(logs, step, self._model_dir)
        found = [x for x in found.values() if best in x]
        if self._patience is None or not found:
            return
        number = best_checkpoint.number_since_best(found, self._params.trainer)
        if number >= self._patience:
            raise _NoProgress


def make_runner(
    params,
    mode: str,
    model_dir: str,
    spec=None,
    show=None,
    out=None,
    patience: int | None = None,
):
    """Builds the task, the model and the Model Garden's runner.

    Args:
        params: the `ExperimentConfig`.
        mode: value of the flag `--mode`.
        model_dir: directory of the run, see `run_directory.prepare`.
        spec: the task, if thresholds that validation chooses are saved.
        show: the `TrainingProgress`, if there is one.
        out: where to write notes; by default the standard output.
        patience: validations without a better metric before training stops.

    Returns:
        Pair of the task and an `OrbitExperimentRunner`.
    """
    import tensorflow as tf
    from official.common import distribute_utils
    from official.core import task_factory
    from official.core import train_lib
    from official.core import train_utils
    from official.modeling import performance

    from etcmodel.checkpoints import files as checkpoint_files
    from etcmodel.training import best_checkpoint
    from etcmodel.training import run_directory

    actions = _Actions(params, mode, model_dir, spec, show, patience)
    runtime = params.runtime
    if runtime.mixed_precision_dtype:
        performance.set_mixed_precision_policy(runtime.mixed_precision_dtype)
        _warn_of_slow_bfloat16(runtime, out)
    try:
        kind = runtime.distribution_strategy
        if kind in _LOCAL and not tf.config.list_physical_devices("GPU"):
            # Iterators of other strategies are autotuned, although
            # `input_pipeline.read_files` disables it. Deleting one can block
            # for a minute.
            kind = "off"
        strategy = distribute_utils.get_distribution_strategy(
            distribution_strategy=kind,
            all_reduce_alg=runtime.all_reduce_alg,
            num_gpus=runtime.num_gpus,
            tpu_address=runtime.tpu,
        )
        strategy = strategy or tf.distribute.get_strategy()
        with strategy.scope():
            task = task_factory.get_task(params.task, logging_dir=model_dir)
        latest = checkpoint_files.latest_checkpoint(model_dir)
        if latest is not None and "train" in mode:
            task.first_step = actions.step = runs.step_of(latest)
        with strategy.scope():
            trainer = train_utils.create_trainer(
                params,
                task,
                train="train" in mode,
                evaluate="eval" in mode,
                checkpoint_exporter=best_checkpoint.make_exporter(
                    params, model_dir
                ),
            )
        with run_directory.restoring(latest):
            runner = train_lib.OrbitExperimentRunner(
                distribution_strategy=strategy,
                task=task,
                mode=mode,
                params=params,
                model_dir=model_dir,
                trainer=trainer,
                train_actions=[actions.after_steps],
                eval_actions=[actions.after_validation],
            )
        actions.trainer = trainer
    except ValueError as error:
        raise UserError(f"The configuration cannot be run: {error}") from error
    return task, runner


def _warn_of_slow_bfloat16(runtime, out) -> None:
    """Tells if a training step on this processor is faster in float32."""
    import tensorflow as tf

    if (
        "bfloat16" not in runtime.mixed_precision_dtype
        or runtime.tpu
        or tf.config.list_physical_devices("GPU")
    ):
        return
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            flags = re.findall(r"^flags\s*:(.*)", stream.read(), re.MULTILINE)
    except OSError:
        return
    if flags and not {"avx512_bf16", "amx_bf16"} & {*flags[0].split()}:
        print(
            "This CPU has no instructions for bfloat16: float32 is faster. "
            "Remove runtime.mixed_precision_dtype.",
            file=out or sys.stdout,
        )


class _NoProgress(Exception):
    """Validation has not become better for as long as was allowed."""


@contextlib.contextmanager
def quiet(verbose: bool):
    """Hides what the trainer prints, unless verbose; yields the real stdout."""
    out = sys.stdout
    with contextlib.redirect_stdout(out if verbose else io.StringIO()):
        yield out


def _catch_up(controller, trainer, model_dir: str) -> None:
    """Makes a resumed run validate at the steps of an undisturbed one."""
    step = int(controller.global_step.numpy())
    if step % trainer.validation_interval and step < trainer.train_steps:
        step += trainer.validation_interval - step % trainer.validation_interval
        controller.train(
            steps=min(step, trainer.train_steps),
            checkpoint_at_completion=False,
        )
    elif not lacks_validation(model_dir, step):
        return
    controller.evaluate(steps=trainer.validation_steps)


def lacks_validation(model_dir: str, step: int) -> bool:
    """Returns whether a run was interrupted before a step's validation."""
    found = runs.read_validations(model_dir) if step else None
    return step > 0 and found is not None and step not in found


def run_mode(runner, params, mode: str, show=None) -> dict[str, float]:
    """Trains and evaluates. Training that is interrupted is saved.

    The runner's own method also counts operations on a copy of the model with
    its weights as constants, which takes minutes and gigabytes for large
    models.

    Returns:
        The metrics of the last evaluation, if there was one.
    """
    from etcmodel.training import damaged_records

    trainer, controller = params.trainer, runner.controller
    logs = {}
    with (
        damaged_records.explained(runner.trainer.task),
        runner.strategy.scope(),
    ):
        try:
            if mode == "train_and_eval":
                _catch_up(controller, trainer, runner.model_dir)
                controller.train_and_evaluate(
                    train_steps=trainer.train_steps,
                    eval_steps=trainer.validation_steps,
                    eval_interval=trainer.validation_interval,
                )
            elif mode == "continuous_eval":
                controller.evaluate_continuously(
                    steps=trainer.validation_steps,
                    timeout=trainer.continuous_eval_timeout,
                    timeout_fn=lambda: (
                        runner.trainer.global_step.numpy()
                        >= trainer.train_steps
                    ),
                )
            elif "train" in mode:
                controller.train(steps=trainer.train_steps)
        except _NoProgress:
            controller.save_checkpoint()
            write = print if show is None else show.write
            write("No better validation: training stops. The best is kept.")
        except KeyboardInterrupt:
            if "train" in mode:
                controller.save_checkpoint()
                write = print if show is None else show.write
                write("Saved. The same command resumes the run.")
            raise
        if mode in ("eval", "train_and_post_eval"):
            logs = controller.evaluate(steps=trainer.validation_steps)
    return {
        name: float(value)
        for name, value in logs.items()
        if not name.startswith("best_")
    }


# Word in the name of a mode -> the data that it reads.
_DATA = {"train": "train_data", "eval": "validation_data"}


def _check_named(mode: str, is_named: Callable[[str], bool]) -> None:
    """Raises a `UserError` unless all data that a mode reads are named."""
    for word, field in _DATA.items():
        if word in mode and not is_named(field):
            raise UserError(
                f"There is no {field}. Give the --output_dir of `preprocess`: "
                f"--{field}=DIR."
            )


def check_data(params, mode: str) -> None:
    """Checks that the configuration has the paths of data that a mode reads."""
    _check_named(mode, lambda field: getattr(params.task, field).input_path)


def check_flags(flag_values: flags.FlagValues, mode: str) -> None:
    """Checks the same by the flags alone, before TensorFlow is loaded."""
    _check_named(mode, lambda field: _may_name(flag_values, field))


def _may_name(flag_values, field) -> bool:
    """Whether flags, or files that they name, can hold the path of data."""
    override = flag_values.params_override or ""
    if (
        shortcut_flags.given(flag_values, field)
        or "input_path" in override
        or os.path.exists(override)
    ):
        return True
    for path in flag_values.config_file or []:
        if files.is_remote(path):
            return True
        try:
            with open(path, "rb") as stream:
                values = metadata_files.parse_yaml(stream.read())
            if values["task"][field]["input_path"]:
                return True
        except (KeyError, TypeError):
            pass  # It does not name them.
        except (OSError, ValueError):
            return True  # The error is raised when it is read.
    return False
