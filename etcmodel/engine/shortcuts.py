"""Converts options of `train`, such as `epochs`, to the trainer's parameters.

A shortcut is an option that sets one or more of these parameters.
"""

import dataclasses
import math
import operator
import os
from collections.abc import Collection
from collections.abc import Sequence
from typing import Any

from etcmodel import run_paths
from etcmodel.engine import fine_tuning
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.pipeline import metadata_files
from etcmodel.readers import files
from etcmodel.training import runs

_RATE = "trainer.optimizer_config.learning_rate.polynomial"

_BATCH_SIZES = (
    "task.train_data.global_batch_size",
    "task.validation_data.global_batch_size",
)

_ADVICE = "Copy it again from the source of the weights."

_PRECISIONS = ("float32", "float16", "bfloat16")

# Other parameters that must be at least 1.
_NUMBERS = ("trainer.train_steps", "trainer.summary_interval")

# Option -> parameters that it sets.
_PARAMETERS = {
    "train_data": ("task.train_data.input_path",),
    "validation_data": ("task.validation_data.input_path",),
    "batch_size": _BATCH_SIZES,
    "learning_rate": (f"{_RATE}.initial_learning_rate",),
    "preset": ("task.model.encoder.preset",),
    "init_checkpoint": ("task.init_checkpoint",),
    "lora_rank": ("task.lora_rank",),
    "seed": ("task.train_data.seed",),
}

# Parameters that `small` sets.
_SMALL = {
    "task.model.encoder.preset": "tiny",
    "task.model.encoder.hidden_dropout_prob": 0.0,
    "task.model.encoder.attention_probs_dropout_prob": 0.0,
    **dict.fromkeys(_BATCH_SIZES, 8),
    f"{_RATE}.initial_learning_rate": 0.001,
    "trainer.summary_interval": 10,
}


def nested(values: dict) -> dict:
    """Converts names with dots to nested dicts.

    Example: `{"a.b": 1, "a": {"c": 2}}` -> `{"a": {"b": 1, "c": 2}}`.
    """
    made = {}

    def put(place, values):
        for name, value in values.items():
            *parents, last = name.split(".")
            inner = place
            for parent in parents:
                inner = inner.setdefault(parent, {})
            if isinstance(value, dict):
                put(inner.setdefault(last, {}), value)
            else:
                inner[last] = value

    put(made, values)
    return made


def small_values(train_data: str | None = None) -> dict:
    """Returns the parameters that `small` sets, as nested dicts.

    Batch sizes of ReadTwice count segments, so they are rounded up to whole
    examples of the records `train_data`.
    """
    values = dict(_SMALL)
    blocks = num_blocks(_metadata(train_data) if train_data else None)
    for name in _BATCH_SIZES:
        values[name] = -(-values[name] // blocks) * blocks
    return nested(values)


def _metadata(train_data: str) -> dict | None:
    """Reads the metadata of TFRecords; returns None without metadata."""
    from etcmodel.pipeline import tfrecords

    return tfrecords.read_metadata(tfrecords.find_files(train_data))


def num_blocks(metadata: dict | None) -> int:
    """Returns the number of rows of a batch that an example takes.

    Rows are segments in ReadTwice. In ETC, an example is one row.
    """
    features = metadata["preprocessing_config"] if metadata else {}
    return features.get("num_blocks_per_example", 1)


def names_in(values: Sequence[dict], *place: str) -> set[str]:
    """Returns the names of all parameters below a path, in any of the dicts.

    Example: `names_in([{"a": {"c": 1, "d": {"e": 2}}}], "a")` returns `c`, `d`
    and `d.e`.
    """
    found = set()

    def add(value, prefix=""):
        for name, inner in value.items():
            found.add(prefix + name)
            if isinstance(inner, dict):
                add(inner, f"{prefix}{name}.")

    for value in values:
        for name in place:
            value = value.get(name)
            value = value if isinstance(value, dict) else {}
        add(value)
    return found


def apply(
    params,
    options: Any,
    spec,
    experiment: str,
    named: Collection[str],
    reporter: Reporter,
) -> None:
    """Sets the parameters of the shortcuts, which override everything else.

    `named` has the parameters that other overrides set; see `names_in`.
    """
    values = {
        parameter: getattr(options, name, None)
        for name, parameters in _PARAMETERS.items()
        if getattr(options, name, None) is not None
        for parameter in parameters
    }
    params.override(nested(values))
    _follow_init_checkpoint(params, options, spec, experiment, named, reporter)
    for data in (params.task.train_data, params.task.validation_data):
        # Absolute paths make `params.yaml` usable from any directory.
        if data.input_path and isinstance(data.input_path, str):
            paths = files.split_paths(data.input_path)
            data.input_path = ",".join(map(files.full_name, paths))


def _follow_init_checkpoint(
    params, options, spec, experiment: str, named, reporter: Reporter
) -> None:
    """Copies the encoder's configuration from the initial checkpoint.

    If the checkpoint is in a run of the same experiment, its values replace
    those that the experiment sets, and the model's options are copied, too.
    Otherwise, the experiment's values are kept. Explicit overrides always win.
    After the copy, the new run does not need the checkpoint's directory.
    """
    task = params.task
    if not task.init_checkpoint:
        return
    task.init_checkpoint = files.full_name(task.init_checkpoint)
    encoder = task.model.encoder
    values = _encoder_beside(task.init_checkpoint)
    if values is None or encoder.config_file:
        return
    if getattr(options, "preset", None) is not None:
        raise UserError(
            f"`preset={options.preset}` was given, but the encoder's sizes "
            f"come from `init_checkpoint={task.init_checkpoint}`. Leave out "
            "`preset`."
        )
    model = _model_of_same(task.init_checkpoint, experiment)
    preset, before = encoder.preset, encoder.to_config().to_dict()
    for name, value in encoder.as_dict().items():
        is_given = value is not None and (
            not model or f"task.model.encoder.{name}" in named
        )
        if name in values and (
            not is_given or name in ("preset", "config_file")
        ):
            setattr(encoder, name, values[name])
    for field in dataclasses.fields(spec.model_options):
        if field.name in model and f"task.model.{field.name}" not in named:
            setattr(task.model, field.name, model[field.name])
    now = encoder.to_config().to_dict()
    overruled = [
        f"{name} is {now[name]!r}, not {value!r}"
        for name, value in before.items()
        # The records determine the size of the vocabulary.
        if name != "vocab_size" and now[name] != value
    ]
    if overruled:
        reporter.note(
            "The encoder's configuration comes from "
            f"`init_checkpoint={task.init_checkpoint}`, not from the "
            f"experiment's preset {preset}: {'; '.join(overruled)}."
        )


def _encoder_beside(path: str) -> dict | None:
    """Returns the encoder's configuration beside a checkpoint, or None.

    A run has it in `params.yaml`, a published checkpoint in a file such as
    `etc_config.json`.
    """
    from etcmodel import checkpoints

    config_file = checkpoints.config_file(path)
    # A run also has an encoder's config file, with changes by its task, so its
    # `params.yaml` is read instead.
    run_file = checkpoints.beside(path, run_paths.RUN_FILE)
    if config_file and not metadata_files.exists(run_file):
        return metadata_files.read(config_file, advice=_ADVICE)
    model = _model_of_run(path)
    return model and model["encoder"]


def _model_of_same(path: str, experiment: str) -> dict:
    """Returns the model's parameters from a checkpoint's run.

    Returns {} if the checkpoint is not in a run of `experiment`.
    """
    if runs.find_of(path).get("experiment") != experiment:
        return {}
    return _model_of_run(path) or {}


def _model_of_run(path: str) -> dict | None:
    """Returns the model's parameters from a checkpoint's run, or None."""
    params_file = os.path.join(run_paths.directory(path), run_paths.PARAMS_FILE)
    if not metadata_files.exists(params_file):
        return None
    keys = {"task.model.encoder": dict}
    return metadata_files.read(params_file, keys, _ADVICE)["task"]["model"]


def check(params) -> None:
    """Checks batch sizes, numbers of steps, precision and the preset."""
    for name in (*_BATCH_SIZES, *_NUMBERS):
        value = operator.attrgetter(name)(params)
        if value < 1:
            raise UserError(f"{name} is {value}, but must be at least 1.")
    precision = params.runtime.mixed_precision_dtype
    if precision not in (None, "", *_PRECISIONS):
        raise UserError(
            f"runtime.mixed_precision_dtype is {show(precision)}, but must be "
            f"one of {', '.join(_PRECISIONS)}."
        )
    best = params.trainer.best_checkpoint_export_subdir
    if best and not files.is_below(best):
        raise UserError(
            f"trainer.best_checkpoint_export_subdir is {show(best)}, but must "
            "be a relative path inside the run's directory."
        )
    encoder = params.task.model.encoder
    if not encoder.config_file:
        try:
            encoder.CONFIG.from_preset(encoder.preset)
        except ValueError as error:
            raise UserError(f"`preset={encoder.preset}`: {error}") from error


def follow_records(
    params,
    spec,
    experiment: str,
    options,
    named: Collection[str],
    reporter: Reporter,
) -> None:
    """Computes the number of steps from the epochs and the number of records.

    Keeps a number of steps that was set without `epochs`. If the task has
    `follows_size`, also chooses the batch size, the learning rate and the
    epochs, unless they are set; see `fine_tuning`. A run that exists keeps its
    own. `named` has the parameters that other overrides set.
    """
    if not hasattr(options, "epochs") or not params.task.train_data.input_path:
        return
    trainer, epochs = params.trainer, options.epochs
    if epochs is not None and not 0 < epochs < math.inf:
        raise UserError(
            f"`epochs={epochs:g}`: expected a number above 0, such as 2 or 0.5."
        )
    keeps_steps = epochs is None and "trainer.train_steps" in named
    metadata = _metadata(params.task.train_data.input_path)
    if metadata is None:
        return
    recipe = {**spec.recipe, **spec.experiments[experiment].options}
    number, blocks = metadata["num_examples"], num_blocks(metadata)
    usual = recipe.get("epochs")
    if spec.follows_size:
        usual = _follow_size(params, metadata, usual, options, named, reporter)
    epochs = usual if epochs is None else epochs
    if keeps_steps or epochs is None:
        return
    size = params.task.train_data.global_batch_size
    each = max(number * blocks // size, 1)
    trainer.train_steps = max(round(each * epochs), 1)
    intervals = {
        name: min(getattr(trainer, name), each)
        for name in ("validation_interval", "checkpoint_interval")
    }
    if spec.follows_size:
        most = fine_tuning.MAX_VALIDATIONS
        interval = max(each, math.ceil(trainer.train_steps / most))
        intervals["validation_interval"] = interval
    for name, interval in intervals.items():
        if f"trainer.{name}" not in named:
            setattr(trainer, name, interval)
    segments, of_segments = "", ""
    if blocks > 1:
        segments, of_segments = " segments", f" of {blocks} segments each"
    reporter.note(
        f"{number} examples{of_segments} in batches of {size}{segments}: "
        f"{_count(each, 'step')} an epoch, {_count(epochs, 'epoch')}."
    )


def _follow_size(
    params, metadata, epochs: float, options, named, reporter: Reporter
) -> float:
    """Sets batch size and learning rate, unless set; returns the epochs."""
    data, number = params.task.train_data, metadata["num_examples"]
    schedule = params.trainer.optimizer_config.learning_rate
    width = params.task.model.encoder.to_config(
        metadata["vocab_size"]
    ).hidden_size
    size, rate = data.global_batch_size, None
    is_free = options.batch_size is None and _BATCH_SIZES[0] not in named
    # The cores of a TPU share the experiment's batch.
    if is_free and not params.runtime.tpu:
        replicas = max(params.runtime.num_gpus, 1)
        size = -(-fine_tuning.choose_batch_size(number) // replicas) * replicas
    if (
        options.learning_rate is None
        and schedule.type == "polynomial"
        and f"{_RATE}.initial_learning_rate" not in named
    ):
        rate = fine_tuning.choose_rate(width, params.task.lora_rank)
    before = _params_to_resume(options.model_dir)
    if is_free:
        size = _at(before, _BATCH_SIZES[0]) or size
    if rate is not None:
        rate = _at(before, f"{_RATE}.initial_learning_rate") or rate
    values = {}
    if size != data.global_batch_size:
        values["batch_size"] = data.global_batch_size = size
    if rate is not None:
        schedule.polynomial.initial_learning_rate = rate
        values["learning_rate"] = rate
    if values:
        shown = " and ".join(f"`{x}={y:g}`" for x, y in values.items())
        reporter.note(
            f"{shown} for {number} examples and an encoder of width {width}."
        )
    return fine_tuning.choose_epochs(number, size, epochs)


def _params_to_resume(model_dir: str) -> dict:
    """Returns the configuration of the run to resume; {} for a new run."""
    from etcmodel.checkpoints import files as checkpoint_files

    if checkpoint_files.latest_checkpoint(model_dir) is None:
        return {}
    return runs.read_params(model_dir)


def _at(values: dict, name: str) -> Any:
    """Returns the value at a name with dots; None if there is none."""
    for part in name.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _count(number: float, word: str) -> str:
    """Formats a number and its unit: `1 epoch`, `2.5 epochs`."""
    return f"{number:g} {word}" if number == 1 else f"{number:g} {word}s"


def follow_train_steps(params, defaults, reporter: Reporter) -> None:
    """Scales warm-up and decay, unless set, to a new number of steps."""
    steps = params.trainer.train_steps
    default_steps = defaults.trainer.train_steps
    if steps == default_steps:
        return
    schedule = params.trainer.optimizer_config
    default = defaults.trainer.optimizer_config
    decay, warmup = schedule.learning_rate.polynomial, schedule.warmup.linear
    default_decay = default.learning_rate.polynomial
    default_warmup = default.warmup.linear
    if decay.decay_steps == default_decay.decay_steps == default_steps:
        decay.decay_steps = steps
        if warmup.warmup_steps == default_warmup.warmup_steps:
            warmup.warmup_steps = (
                steps * default_warmup.warmup_steps // default_steps
            )
        reporter.note(
            f"The learning-rate schedule is scaled to {steps} steps, of which "
            f"{warmup.warmup_steps} are warm-up."
        )


def choose_optimizer(params, options) -> None:
    """Sets the optimizer and the decay of the learning rate, if given."""
    chosen = params.trainer.optimizer_config
    name = getattr(options, "optimizer", None)
    if name and name != chosen.optimizer.type:
        before = getattr(chosen.optimizer, chosen.optimizer.type).as_dict()
        made = getattr(chosen.optimizer, name)
        known = made.as_dict().keys()
        made.override({x: y for x, y in before.items() if x in known})
        # AdamW would clip the gradients per replica, before they are summed.
        if name == "adamw":
            made.gradient_clip_norm = 0.0
        chosen.optimizer.type = name
    name = getattr(options, "schedule", None)
    linear = chosen.learning_rate.polynomial
    if name == "cosine":
        chosen.learning_rate.cosine.initial_learning_rate = (
            linear.initial_learning_rate
        )
        chosen.learning_rate.cosine.decay_steps = linear.decay_steps
    elif name == "constant":
        chosen.learning_rate.constant.learning_rate = (
            linear.initial_learning_rate
        )
    if name:
        chosen.learning_rate.type = {"linear": "polynomial"}.get(name, name)
