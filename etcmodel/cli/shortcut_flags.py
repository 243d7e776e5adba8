"""The short flags of `train`: paths, epochs, sizes, without overrides."""

import math
import os

from absl import flags

from etcmodel.datasets import files
from etcmodel.errors import UserError
from etcmodel.pipeline import metadata_files
from etcmodel.training import runs

_RATE = "trainer.optimizer_config.learning_rate.polynomial"

_BATCH_SIZES = (
    "task.train_data.global_batch_size",
    "task.validation_data.global_batch_size",
)

# Other numbers that must be at least 1.
_NUMBERS = ("trainer.train_steps", "trainer.summary_interval")

# Flag -> the parameters that it sets.
_PARAMETERS = {
    "train_data": ("task.train_data.input_path",),
    "validation_data": ("task.validation_data.input_path",),
    "batch_size": _BATCH_SIZES,
    "learning_rate": (f"{_RATE}.initial_learning_rate",),
    "preset": ("task.model.encoder.preset",),
    "init_checkpoint": ("task.init_checkpoint",),
    "seed": ("task.train_data.seed",),
}

# What `--small` stands for.
_SMALL = {
    "task.model.encoder.preset": "tiny",
    "task.model.encoder.hidden_dropout_prob": 0.0,
    "task.model.encoder.attention_probs_dropout_prob": 0.0,
    **dict.fromkeys(_BATCH_SIZES, 8),
    f"{_RATE}.initial_learning_rate": 0.001,
    "trainer.summary_interval": 10,
}


def _nested(values: dict) -> dict:
    """`{"a.b": 1, "a.c": 2}` is `{"a": {"b": 1, "c": 2}}`."""
    nested = {}
    for name, value in values.items():
        *parents, last = name.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return nested


def small_values(train_data: str | None = None) -> dict:
    """Returns the parameters that `--small` stands for.

    Args:
        train_data: the records, if they are known. Of ReadTwice's, whose
            batches count segments, a batch has at least a whole example.

    Returns:
        Nested dicts.
    """
    values = dict(_SMALL)
    blocks = _num_blocks(_metadata(train_data) if train_data else None)
    for name in _BATCH_SIZES:
        values[name] = -(-values[name] // blocks) * blocks
    return _nested(values)


def _metadata(train_data: str) -> dict | None:
    """What `preprocess` noted about records."""
    from etcmodel.pipeline import tfrecords

    return tfrecords.read_metadata(tfrecords.find_files(train_data))


def _num_blocks(metadata: dict | None) -> int:
    """How many rows of a batch an example is: segments, of ReadTwice's."""
    sizes = metadata["preprocessing_config"] if metadata else {}
    return sizes.get("num_blocks_per_example", 1)


def apply(params, flag_values: flags.FlagValues) -> None:
    """Sets the parameters that flags stand for; they come last.

    Args:
        params: the `ExperimentConfig`, which is changed.
        flag_values: the parsed flags, of any command.
    """
    given = {
        parameter: flag_values[flag].value
        for flag, parameters in _PARAMETERS.items()
        if flag in flag_values and flag_values[flag].value is not None
        for parameter in parameters
    }
    params.override(_nested(given))
    _follow_init_checkpoint(params, flag_values)
    for data in (params.task.train_data, params.task.validation_data):
        # As they are from any folder: others need `params.yaml`.
        if data.input_path and isinstance(data.input_path, str):
            data.input_path = ",".join(
                map(files.full_name, data.input_path.split(","))
            )


def _follow_init_checkpoint(params, flag_values: flags.FlagValues) -> None:
    """Takes the encoder's sizes from where the weights to begin with are.

    The values themselves, so that the run does not need that place any more.

    Raises:
        UserError: a preset was given, too, or the values do not fit together.
    """
    task = params.task
    if not task.init_checkpoint:
        return
    task.init_checkpoint = files.full_name(task.init_checkpoint)
    encoder = task.model.encoder
    values = _encoder_beside(task.init_checkpoint)
    if values is None or encoder.config_file:
        return
    if "preset" in flag_values and flag_values["preset"].value is not None:
        raise UserError(
            f"--preset={flag_values['preset'].value} was given, but the "
            f"encoder is that of --init_checkpoint={task.init_checkpoint}. "
            "Leave --preset out."
        )
    preset, before = encoder.preset, encoder.to_config().to_dict()
    for name, value in encoder.as_dict().items():
        is_given = value is not None and name not in ("preset", "config_file")
        if name in values and not is_given:
            setattr(encoder, name, values[name])
    now = encoder.to_config().to_dict()
    overruled = [
        f"{name} is {now[name]!r}, not {value!r}"
        for name, value in before.items()
        # Records tell the size of the vocabulary.
        if name != "vocab_size" and now[name] != value
    ]
    if overruled:
        print(
            f"The encoder is that of --init_checkpoint={task.init_checkpoint}, "
            f"not the experiment's {preset}: {'; '.join(overruled)}."
        )


def _encoder_beside(path: str) -> dict | None:
    """The encoder's configuration beside a checkpoint; None if there is none.

    Of an original checkpoint it is a file of its own, of a run it is in the
    run's configuration.
    """
    from etcmodel import checkpoints
    from etcmodel.models import run_files

    advice = "Copy it again from the source of the weights."
    config_file = checkpoints.config_file(path)
    # A run has such a file, too, of its encoder as its task needs it.
    run_file = checkpoints.beside(path, runs.RUN_FILE)
    if config_file and not metadata_files.exists(run_file):
        return metadata_files.read(config_file, advice=advice)
    params_file = os.path.join(run_files.directory(path), runs.PARAMS_FILE)
    if not metadata_files.exists(params_file):
        return None
    keys = {"task.model.encoder": dict}
    params = metadata_files.read(params_file, keys, advice)
    return params["task"]["model"]["encoder"]


def check(params) -> None:
    """Checks the numbers of records and steps, and the preset.

    Args:
        params: the `ExperimentConfig`.

    Raises:
        UserError: a number is less than 1, or there is no such preset.
    """
    for name in (*_BATCH_SIZES, *_NUMBERS):
        value = params
        for part in name.split("."):
            value = getattr(value, part)
        if value < 1:
            raise UserError(f"{name} is {value}, but must be at least 1.")
    encoder = params.task.model.encoder
    if not encoder.config_file:
        try:
            encoder.CONFIG.from_preset(encoder.preset)
        except ValueError as error:
            raise UserError(f"--preset={encoder.preset}: {error}") from error


def follow_records(
    params, defaults, spec, experiment: str, flag_values: flags.FlagValues
) -> None:
    """Makes the steps follow from epochs and the records at hand.

    Unless a number of steps was given, or nothing is known of the records.

    Args:
        params: the `ExperimentConfig`, which is changed.
        defaults: that of the experiment alone.
        spec: the task.
        experiment: name of the experiment.
        flag_values: the parsed flags.
    """
    if "epochs" not in flag_values or not params.task.train_data.input_path:
        return
    trainer, epochs = params.trainer, flag_values["epochs"].value
    if epochs is None:
        if trainer.train_steps != defaults.trainer.train_steps:
            return
        recipe = {**spec.recipe, **spec.experiments[experiment].options}
        epochs = recipe.get("epochs")
    elif not 0 < epochs < math.inf:
        raise UserError(
            f"--epochs={epochs:g}: expected a number above 0, such as 2 or 0.5."
        )
    metadata = _metadata(params.task.train_data.input_path)
    if epochs is None or metadata is None:
        return
    number = metadata["num_examples"]
    rows = number * _num_blocks(metadata)
    size = params.task.train_data.global_batch_size
    each = max(rows // size, 1)
    trainer.train_steps = max(round(each * epochs), 1)
    for name in ("validation_interval", "checkpoint_interval"):
        value = getattr(trainer, name)
        if value == getattr(defaults.trainer, name):
            setattr(trainer, name, min(value, each))
    segments, of_segments = "", ""
    if rows != number:
        # Of ReadTwice's records batches count segments.
        segments = " segments"
        of_segments = f" of {_num_blocks(metadata)} segments each"
    print(
        f"{number} examples{of_segments} in batches of {size}{segments}: "
        f"{_count(each, 'step')} an epoch, {_count(epochs, 'epoch')}."
    )


def _count(number: float, word: str) -> str:
    """A number and its unit: `1 epoch`, `2.5 epochs`."""
    return f"{number:g} {word}" if number == 1 else f"{number:g} {word}s"


def follow_train_steps(params, defaults) -> None:
    """Scales warm-up and decay when only the number of steps was changed.

    Args:
        params: the `ExperimentConfig`, which is changed.
        defaults: that of the experiment alone.
    """
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
        print(
            f"The learning rate follows the {steps} steps, of which "
            f"{warmup.warmup_steps} are warm-up."
        )
