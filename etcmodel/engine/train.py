"""Trains a model on TFRecords with the Model Garden's trainer."""

import contextlib
import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from etcmodel.engine import paths
from etcmodel.engine import run_options
from etcmodel.engine import runner as runner_lib
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.options import option
from etcmodel.tasks import registry
from etcmodel.training import runs


@dataclasses.dataclass(kw_only=True)
class Options(run_options.TrainerOptions):
    """Options of `train`.

    Attributes:
        mode: "train", or "train_and_eval" to also evaluate during the training;
            by default train_and_eval with `validation_data`, otherwise train.
        train_data: the training records: the `output_dir` of `preprocess`.
        validation_data: the validation records: the `output_dir` of
            `preprocess` with `split=dev`.
        epochs: passes over the records; by default the experiment's, or more
            for few records of classify, select and answer.
        batch_size: global batch size, over all replicas; by default the
            experiment's, or half of it for few records of classify, select and
            answer.
        learning_rate: peak learning rate, reached after the warm-up; by default
            the experiment's. For classify, select and answer, it follows from
            the encoder's width.
        preset: sizes of the encoder: tiny, small, base, base_shared or large
            for ETC; tiny, base, base_cls or base_sts for ReadTwice.
        init_checkpoint: initial weights: the output of `lift`, a published
            checkpoint with its etc_config.json, or the last checkpoint of
            another run. The encoder gets the sizes of the checkpoint. A run of
            the same task also initializes the head, and a run of the same
            experiment supplies the options of the model.
        optimizer: "adamw" or "lamb"; by default the experiment's.
        schedule: decay of the learning rate after the warm-up: "linear" to 0,
            "cosine" to 0, or "constant"; by default the experiment's.
        lora_rank: train with LoRA of this rank, such as 8: the encoder is
            frozen, and small updates of its attention and feed-forward weights
            are trained. They need a higher learning rate: the default of
            classify, select and answer is five times as high. By default, the
            whole encoder is trained.
        patience: number of validations without a better metric after which the
            training stops early; by default it never does.
        seed: seed of the weights, the order of records and dropout.
        small: make a trial run that takes minutes on two cores. It has the
            preset tiny (not small, which is larger), batches of 8, a learning
            rate of 0.001 and no dropout; other options override these values.
    """

    # Required here. In the base class it is optional: a run has stored it.
    experiment: str = dataclasses.field()
    mode: str | None = option(None, one_of=["train", "train_and_eval"])
    train_data: str | None = option(None, path="records")
    validation_data: str | None = option(None, path="records")
    epochs: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    optimizer: str | None = option(None, one_of=["adamw", "lamb"])
    schedule: str | None = option(None, one_of=["linear", "cosine", "constant"])
    preset: str | None = None
    init_checkpoint: str | None = option(None, path="weights")
    lora_rank: int | None = option(None, min_value=0)
    patience: int | None = None
    seed: int | None = option(None, min_value=0)
    small: bool = False


class Result(NamedTuple):
    """Result of a training.

    Attributes:
        model_dir: directory of the run.
        task: name of the task.
        steps: number of steps of the whole run.
        is_trained: False if the run was already complete.
        losses: step -> training loss, at each summary of this call.
        validations: step -> metrics by name, for all validations of the run.
    """

    model_dir: str
    task: str
    steps: int
    is_trained: bool
    losses: Mapping[int, float]
    validations: Mapping[int, Mapping[str, float]]


def train(
    options: Options,
    reporter: Reporter | None = None,
    on_validation: Callable[[int, dict[str, float]], object] | None = None,
) -> Result:
    """Trains a model; resumes the run if `model_dir` has one.

    Works with Keras 2 only. `processes.train` works with both versions.

    Args:
        options: the options.
        reporter: shows the progress.
        on_validation: called with the step and the metrics of each validation;
            training stops if it returns True.

    Raises:
        UserError: an option, records or weights do not fit.
    """
    reporter = reporter or Reporter("quiet")
    mode = _check(options)
    run_options.check_options(options, mode)
    with run_options.logging_level(options.verbose):
        spec, params = run_options.parse_params(
            options, options.experiment, reporter
        )
        run_options.check_data(params, mode)
        paths.check_params(params, "model_dir", options.model_dir, "new_run")
        watch = runner_lib.Watch(
            patience=options.patience, on_validation=on_validation
        )
        with runner_lib.same_precision():
            _set_seeds(options, params)
            is_trained = _run_in_directory(
                options, spec, params, mode, watch, reporter
            )
    validations = runs.read_validations(options.model_dir) or {}
    runner_lib.report_notes(spec, [*validations.values()], reporter)
    return Result(
        options.model_dir,
        spec.name,
        params.trainer.train_steps,
        is_trained,
        watch.losses,
        validations,
    )


def dry_run(options: Options, reporter: Reporter | None = None) -> str:
    """Trains two steps; returns text about sizes, memory and time.

    Nothing is saved.
    """
    reporter, mode = reporter or Reporter("quiet"), _check(options)
    run_options.check_options(options, mode)
    with run_options.logging_level(options.verbose):
        _, params = run_options.parse_params(
            options, options.experiment, reporter
        )
        run_options.check_data(params, mode)
        from etcmodel.engine import dry_run as dry_run_lib

        with runner_lib.same_precision():
            _set_seeds(options, params)
            return dry_run_lib.describe(params)


def resolve(
    options: Options, reporter: Reporter | None = None
) -> dict[str, Any]:
    """Returns the whole configuration as nested dicts.

    The sizes of the preset are filled in.
    """
    _check(options)
    with run_options.logging_level(options.verbose):
        spec, params = run_options.parse_params(
            options, options.experiment, reporter or Reporter("quiet")
        )
        return run_options.resolved(params, spec)


def _check(options: Options) -> str:
    """Checks the options; returns the mode: "train" or "train_and_eval"."""
    options_lib.check(options)
    paths.check(options)
    registry.task_of_experiment(options.experiment)
    mode = options.mode
    if mode is None:
        mode = "train_and_eval" if options.validation_data else "train"
    if options.patience is not None and mode != "train_and_eval":
        raise UserError(
            f"`patience={options.patience}` needs `validation_data`, and "
            "`mode=train_and_eval` if `mode` is set."
        )
    return mode


def _set_seeds(options: Options, params) -> None:
    """Seeds TensorFlow; with `seed`, also Python and NumPy."""
    import tensorflow as tf

    tf.random.set_seed(runs.choose_seed(params, options.model_dir))
    if options.seed is not None:
        tf.keras.utils.set_random_seed(options.seed)


def _run_in_directory(
    options, spec, params, mode: str, watch, reporter
) -> bool:
    """Trains, unless the run is complete; returns whether it trained."""
    from etcmodel.training import configuration
    from etcmodel.training import run_directory

    model_dir, steps = options.model_dir, params.trainer.train_steps
    metadata = configuration.find_metadata(params.task, spec)
    runs.check_same(params, metadata, spec, model_dir)
    if metadata:
        runs.check_own_vocabulary(metadata)
    with run_directory.hold(model_dir):
        run_directory.prepare(model_dir)
        # A finished run may lack its final evaluation.
        is_done = runs.is_finished(params, model_dir) and not (
            mode == "train_and_eval"
            and runner_lib.lacks_validation(model_dir, steps)
        )
        if not is_done:
            _run(options, spec, params, mode, watch, reporter)
    return not is_done


def _run(options, spec, params, mode: str, watch, reporter) -> None:
    """Trains in the run's directory."""
    model_dir, trainer = options.model_dir, params.trainer
    with runner_lib.quiet(options.verbose), contextlib.ExitStack() as stack:
        # With `verbose`, the trainer's own log shows losses and speed.
        if not options.verbose:
            watch.progress = stack.enter_context(
                reporter.training(trainer.train_steps, trainer.summary_interval)
            )
        task, runner = runner_lib.make_runner(
            params, mode, model_dir, spec, watch, reporter
        )
        runs.write_params(model_dir, params.as_dict())
        model = runner.trainer.model
        runs.save(task, model, spec, options.experiment, model_dir)
        runs.keep_tuned(spec, params.task.init_checkpoint, model_dir)
        if trained := runner_lib.describe_trained(params, model):
            reporter.note(trained)
        runner_lib.run_mode(runner, params, mode, watch)
