"""Evaluates a trained model on TFRecords."""

import dataclasses
import json
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from etcmodel.engine import paths
from etcmodel.engine import run_options
from etcmodel.engine import runner as runner_lib
from etcmodel.engine import shortcuts
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.atomic import atomic_file
from etcmodel.pipeline.options import option
from etcmodel.training import runs


@dataclasses.dataclass(kw_only=True)
class Options(run_options.TrainerOptions, run_options.CheckpointOptions):
    """Options of `evaluate`.

    Attributes:
        validation_data: the records to evaluate on: the `output_dir` of
            `preprocess` with `split=dev`; by default those of the run.
        tune: tune thresholds on these records, and save them in the run.
        output: a JSON file to write the metrics to.
    """

    # Evaluation also works in a read-only run.
    model_dir: str = option(path="any_run")
    validation_data: str | None = option(None, path="records")
    tune: bool = False
    output: str | None = option(None, path="metrics")


class Result(NamedTuple):
    """Metrics of a checkpoint.

    Attributes:
        checkpoint: path of the checkpoint.
        metrics: name -> value; `step` is the checkpoint's training step.
    """

    checkpoint: str
    metrics: Mapping[str, float]


class Rounded(NamedTuple):
    """Metrics of a checkpoint with rounded weights.

    Attributes:
        metrics: precision of the weights -> metrics by name.
        main_metric: the metric that selects checkpoints.
        is_lower_better: whether lower values of the main metric are better.
        num_examples: number of validation examples; None if unknown, or if
            `trainer.validation_steps` limits them.
    """

    metrics: Mapping[str, Mapping[str, float]]
    main_metric: str
    is_lower_better: bool
    num_examples: int | None


def evaluate(options: Options, reporter: Reporter | None = None) -> Result:
    """Evaluates a checkpoint of a run on validation records.

    Works with Keras 2 only.

    Raises:
        UserError: an option, the run or the records cannot be used.
    """
    checkpoint, rounded = _start(options, None, reporter)
    metrics = rounded.metrics["float32"]
    if options.output:
        with atomic_file(options.output) as stream:
            json.dump(metrics, stream, indent=2, sort_keys=True)
            stream.write("\n")
    return Result(checkpoint, metrics)


def evaluate_rounded(
    options: Options,
    reporter: Reporter | None = None,
    *,
    kinds: Sequence[str],
) -> Rounded:
    """Evaluates a checkpoint as `evaluate` does, with rounded weights.

    `kinds` are precisions of the weights, such as `["float32", "int8"]`; the
    most precise comes first. See `small_weights`.
    """
    return _start(options, kinds, reporter)[1]


def _start(options, kinds, reporter) -> tuple[str, Rounded]:
    """Checks the options, and evaluates; without `kinds`, for the run's log."""
    reporter = reporter or Reporter("quiet")
    options_lib.check(options)
    paths.check(options)
    experiment, configured = run_options.use_saved_params(options, reporter)
    run_options.check_options(configured, "eval")
    runs.check_checkpoint(options.model_dir, options.checkpoint)
    with run_options.logging_level(options.verbose):
        return _evaluate(options, experiment, configured, kinds, reporter)


def _evaluate(
    options, experiment, configured, kinds, reporter
) -> tuple[str, Rounded]:
    """Evaluates with the configuration of the run.

    Returns the path of the checkpoint and the metrics.
    """
    model_dir = options.model_dir
    spec, params = run_options.parse_params(configured, experiment, reporter)
    run_options.check_data(params, "eval")
    if options.output:
        paths.check_params(params, "output", options.output, "metrics")
    from etcmodel.training import configuration
    from etcmodel.training import run_directory

    # Evaluation must work after the training records were deleted.
    params.task.train_data.input_path = ""
    metadata = configuration.find_metadata(params.task, spec)
    runs.check_records(model_dir, metadata, params.task.model)
    run_directory.prepare(model_dir)
    if options.tune:
        _check_tuned(spec, params.task, metadata)
    checkpoint = runs.find_checkpoint(model_dir, options.checkpoint)
    if not _names_precision(options.config_file or [], options.params_override):
        # Serving uses float32, so metrics are computed in float32, too.
        params.runtime.mixed_precision_dtype = None
    # An evaluation must not replace the best checkpoint of the training.
    params.trainer.best_checkpoint_export_subdir = ""
    if not options.tune:
        runs.use_tuned(spec, params.task, checkpoint, model_dir)
    tuned = spec if options.tune else None
    save_summary, kinds = kinds is None, kinds or ["float32"]
    number = _num_batches(params, metadata) * len(kinds)
    watch = runner_lib.Watch()
    with runner_lib.quiet(options.verbose), runner_lib.same_precision():
        _, runner = runner_lib.make_runner(
            *(params, "eval", model_dir, tuned),
            watch=watch,
            reporter=reporter,
            save_summary=save_summary,
        )
        with run_directory.restoring(checkpoint):
            runs.check_rank(checkpoint, params.task.lora_rank)
            runner.controller.restore_checkpoint(checkpoint)
        found, step = {}, int(runner.trainer.global_step.numpy())
        with reporter.work("Evaluating", number, "batch") as watch.progress:
            for kind in kinds:
                round_model(runner.trainer.model, kind)
                found[kind] = runner_lib.run_mode(runner, params, "eval")
                found[kind]["step"] = step
    runner_lib.report_notes(spec, [*found.values()][:1], reporter)
    trainer = params.trainer
    is_whole = trainer.validation_steps == -1
    return checkpoint, Rounded(
        found,
        trainer.best_checkpoint_eval_metric,
        trainer.best_checkpoint_metric_comp == "lower",
        metadata["num_examples"] if metadata and is_whole else None,
    )


def _num_batches(params, metadata) -> int:
    """Returns the number of validation batches; 0 if unknown."""
    if params.trainer.validation_steps != -1:
        return params.trainer.validation_steps
    if not metadata:
        return 0
    rows = metadata["num_examples"] * shortcuts.num_blocks(metadata)
    return -(-rows // params.task.validation_data.global_batch_size)


def round_model(model: Any, kind: str) -> None:
    """Rounds a model's weights in place, as `export` rounds those it loads.

    Like `export`, merges LoRA's factors before it rounds.
    """
    from etcmodel.checkpoints import lora_factors
    from etcmodel.serving import small_weights
    from etcmodel.weight_paths import get_weight_paths

    if kind != "float32":
        lora_factors.merge_in_place(get_weight_paths(model))
        small_weights.round_weights(model.variables, kind)


def _check_tuned(spec, task_params, metadata) -> None:
    """Raises a `UserError` if `tune` has nothing to tune."""
    sizes = (metadata or {}).get("preprocessing_config", {})
    if spec.tuned is None or (metadata and not spec.tuned.is_used(sizes)):
        raise UserError(
            f"`tune` has nothing to tune: the answers of this {spec.name} "
            "model do not depend on a threshold. Leave out `tune`."
        )
    name = spec.tuned.option
    value = getattr(task_params, name)
    if value is not None:
        raise UserError(
            f"`tune` has nothing to tune: task.{name} is fixed at {value}. Add "
            f"`params_override=task.{name}=null`, here and in `export`."
        )


def _names_precision(files: list[str], text: Any) -> bool:
    """Returns whether overrides set `runtime.mixed_precision_dtype`."""
    from etcmodel.engine import overrides

    given = [
        overrides.read_file(path, f"`config_file={path}`") for path in files
    ]
    if text:
        given.append(overrides.read(text, "`params_override`"))
    return "mixed_precision_dtype" in shortcuts.names_in(given, "runtime")
