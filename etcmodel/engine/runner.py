"""Builds and runs the Model Garden's trainer for a run."""

import contextlib
import dataclasses
import math
import re
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from absl import logging

from etcmodel.engine.progress import NoProgress
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.training import runs

_clock = time.monotonic
# Distribution strategies that run on one CPU if there is no GPU.
_LOCAL = ("mirrored", "one_device")


class StopTraining(Exception):
    """Ends the training after a validation; the message says why."""


@dataclasses.dataclass
class Watch:
    """Observes a training: shows progress, and records losses and metrics.

    Attributes:
        progress: shows steps and validations.
        patience: number of validations without a better metric after which the
            training stops.
        on_validation: called with the step and the metrics of a validation;
            training stops if it returns True.
        losses: step -> training loss, at each summary.
        validations: step -> metrics by name.
    """

    progress: Any = dataclasses.field(default_factory=NoProgress)
    patience: int | None = None
    on_validation: Callable[[int, dict[str, float]], object] | None = None
    losses: dict[int, float] = dataclasses.field(default_factory=dict)
    validations: dict[int, dict[str, float]] = dataclasses.field(
        default_factory=dict
    )


class _Actions:
    """Orbit's actions: callbacks after training steps and validations.

    Attributes:
        trainer: the Model Garden's trainer.
        step: number of the last finished step.
    """

    def __init__(self, params, mode, model_dir, spec, watch):
        self.trainer, self.step, self._time = None, 0, None
        self._params, self._mode, self._model_dir = params, mode, model_dir
        self._spec, self._watch = spec, watch

    def after_steps(self, logs) -> None:
        """Checks and shows the loss; adds `examples_per_second` to `logs`."""
        from etcmodel.training import divergence

        loss, before, now = float(logs["training_loss"]), self.step, _clock()
        self.step = int(self.trainer.global_step.numpy())
        divergence.check(self.trainer.task, loss, before + 1, self.step)
        # The first step builds the graph, so its time is not measured.
        if self._time is not None:
            number = self._params.task.train_data.global_batch_size
            number *= self.step - before
            logs["examples_per_second"] = number / (now - self._time)
        self._time = now
        interval = self._params.trainer.summary_interval
        if self.step // interval > before // interval:
            self._watch.losses[self.step] = loss
        self._watch.progress.step(self.step, loss)

    def before_validation(self) -> None:
        """Shows that a validation starts."""
        self._watch.progress.validation_starts()

    def after_batch(self) -> None:
        """Shows that a batch was validated."""
        self._watch.progress.validating()

    def after_validation(self, logs) -> None:
        """Saves and shows the metrics of a validation.

        Raises:
            StopTraining: the metric has not improved for `patience`
                validations, or the callback returned True.
        """
        step = int(self.trainer.global_step.numpy())
        best = self._params.trainer.best_checkpoint_eval_metric
        if self._spec is not None:
            runs.save_tuned(self._spec, logs, step, self._model_dir)
        names = ("validation_loss", best)
        shown = [f"{x} {float(logs[x]):.4g}" for x in names if x in logs]
        self._watch.progress.validated(
            f"Validation at step {step}: {', '.join(shown)}"
        )
        self._time = _clock()
        if self._mode != "train_and_eval":
            return
        from etcmodel.training import best_checkpoint

        found = runs.save_validation(logs, step, self._model_dir)
        metrics = self._watch.validations[step] = found[step]
        function, patience = self._watch.on_validation, self._watch.patience
        if function is not None and function(step, dict(metrics)) is True:
            raise StopTraining("A callback stopped the training.")
        found = [x for x in found.values() if best in x]
        if patience is None or not found:
            return
        number = best_checkpoint.number_since_best(found, self._params.trainer)
        if number >= patience:
            raise StopTraining(
                f"No better metric in {number} validations: training stops. "
                "The best checkpoint is kept."
            )


def make_runner(
    params,
    mode: str,
    model_dir: str,
    spec=None,
    watch: Watch | None = None,
    reporter: Reporter | None = None,
    save_summary: bool = True,
):
    """Builds the task, the model and the Model Garden's runner.

    Args:
        params: the `ExperimentConfig`.
        mode: "train", "eval" or "train_and_eval".
        model_dir: directory of the run; see `run_directory.prepare`.
        spec: the task; if given, the thresholds that a validation tunes are
            saved in the run.
        watch: observes the training.
        reporter: shows notes; by default they are not shown.
        save_summary: whether to write summaries for TensorBoard.

    Returns:
        Pair of the task and an `OrbitExperimentRunner`.
    """
    import orbit
    import tensorflow as tf
    from official.common import distribute_utils
    from official.core import task_factory
    from official.core import train_lib
    from official.core import train_utils
    from official.modeling import performance

    from etcmodel.checkpoints import files as checkpoint_files
    from etcmodel.training import best_checkpoint
    from etcmodel.training import run_directory

    actions = _Actions(params, mode, model_dir, spec, watch or Watch())
    runtime = params.runtime
    if runtime.mixed_precision_dtype:
        performance.set_mixed_precision_policy(runtime.mixed_precision_dtype)
        if reporter is not None:
            _warn_of_slow_bfloat16(runtime, reporter)
    try:
        kind = runtime.distribution_strategy
        if kind in _LOCAL and not tf.config.list_physical_devices("GPU"):
            # With a strategy, tf.data autotunes iterators although
            # `input_pipeline.read_files` disables it, and deleting an autotuned
            # iterator can block for a minute.
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
        task.on_validated_batch = actions.after_batch
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
        controller = orbit.Controller
        if mode == "eval":
            controller = run_directory.EvaluationController
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
                save_summary=save_summary,
                controller_cls=_with_start(controller, actions),
            )
        actions.trainer = trainer
    except ValueError as error:
        raise UserError(
            f"The trainer rejects the configuration: {error}"
        ) from error
    return task, runner


def _with_start(controller, actions: _Actions):
    """Returns a class of controllers that tell when a validation starts."""

    class Controller(controller):
        def evaluate(self, *args, **kwargs):
            actions.before_validation()
            return super().evaluate(*args, **kwargs)

    return Controller


def report_notes(
    spec, validations: Sequence[Mapping[str, float]], reporter: Reporter
) -> None:
    """Shows the notes on the last validation if all validations have notes."""
    found = [spec.notes(x) for x in validations]
    if found and all(found):
        for text in found[-1]:
            reporter.note(text)


def describe_trained(params, model) -> str:
    """Describes which weights are trained; returns "" if all are."""
    task = params.task
    if not (task.lora_rank or task.freeze_encoder):
        return ""
    trained, total = (
        sum(math.prod(x.shape) for x in weights) / 1e6
        for weights in (model.trainable_variables, model.variables)
    )
    how = f"LoRA of rank {task.lora_rank}" if task.lora_rank else "the head"
    text = f"Training {trained:.3g} of {total:.4g} million weights ({how})."
    if not task.init_checkpoint:
        text += (
            " The other weights are random and stay so. Give pre-trained "
            "weights as `init_checkpoint`."
        )
    return text


def _warn_of_slow_bfloat16(runtime, reporter: Reporter) -> None:
    """Reports a note if bfloat16 is slower than float32 on this CPU."""
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
        reporter.note(
            "This CPU has no instructions for bfloat16: float32 is faster. "
            "Remove runtime.mixed_precision_dtype."
        )


@contextlib.contextmanager
def quiet(verbose: bool) -> Iterator[None]:
    """Makes Orbit log its messages instead of printing, unless `verbose`."""
    from orbit import controller

    before = getattr(controller, "_log", None)
    if verbose or before is None:
        yield
        return
    controller._log = logging.info
    try:
        yield
    finally:
        controller._log = before


@contextlib.contextmanager
def same_precision() -> Iterator[None]:
    """Restores Keras's global dtype policy after a with block."""
    import tensorflow as tf

    policies = tf.keras.mixed_precision
    before = policies.global_policy()
    try:
        yield
    finally:
        policies.set_global_policy(before)


def _catch_up(controller, trainer, model_dir: str) -> None:
    """Trains and validates up to the step where the next validation is due.

    A resumed run then validates at the same steps as an uninterrupted one.
    """
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
    """Returns whether a step's validation is missing because of an interrupt.

    False for a run that was never validated.
    """
    found = runs.read_validations(model_dir) if step else None
    return step > 0 and found is not None and step not in found


def run_mode(
    runner, params, mode: str, watch: Watch | None = None
) -> dict[str, float]:
    """Trains, evaluates, or both; saves a checkpoint when interrupted.

    Replaces the runner's `run`, which also counts FLOPs on a copy of the model
    with frozen weights. For large models, counting takes minutes and gigabytes.

    Returns:
        The metrics of mode "eval"; empty in other modes.
    """
    from etcmodel.training import damaged_records

    trainer, controller = params.trainer, runner.controller
    watch, logs = watch or Watch(), {}
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
            elif "train" in mode:
                controller.train(steps=trainer.train_steps)
        except StopTraining as stop:
            controller.save_checkpoint()
            watch.progress.write(str(stop))
        except KeyboardInterrupt:
            if "train" in mode:
                controller.save_checkpoint()
                watch.progress.write(
                    "Saved a checkpoint. The same command resumes the run."
                )
            raise
        if mode == "eval":
            logs = controller.evaluate(steps=trainer.validation_steps)
    return {
        name: float(value)
        for name, value in logs.items()
        if not name.startswith("best_")
    }
