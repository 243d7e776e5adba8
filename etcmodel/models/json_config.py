"""Base class of model configurations, read from dicts and JSON files."""

import copy
import dataclasses
import json
import os
from typing import ClassVar

import tensorflow as tf
from absl import logging

from etcmodel import json_objects
from etcmodel.layers.activations import get_activation
from etcmodel.models import run_files


@dataclasses.dataclass
class JsonConfig:
    """Base class of configurations: dataclasses that are read from JSON.

    A subclass has an attribute `vocab_size` without a default, and overrides
    `validate`. `_PRESETS` maps each preset's name to its differences from the
    defaults. `unknown_keys` is a sorted list of the dict's or file's keys that
    are not attributes; they are ignored.
    """

    _PRESETS = {}
    _PRESET_VOCAB_SIZE = 30522
    # Minimum of each int, 1 if not listed; None allows any int.
    _MINIMA: ClassVar[dict[str, int | None]] = {}
    # Name of the configuration's file in a run.
    RUN_FILE: ClassVar[str] = ""

    def __post_init__(self):
        self.unknown_keys = []

    @classmethod
    def from_preset(cls, name: str, **overrides):
        """Returns a named configuration; the class docstring lists the names.

        Raises:
            ValueError: the preset or an attribute does not exist.
        """
        if name not in cls._PRESETS:
            raise ValueError(
                f"The preset '{name}' does not exist. Expected one of "
                f"{', '.join(sorted(cls._PRESETS))}."
            )
        unknown = sorted(set(overrides) - set(cls.__dataclass_fields__))
        if unknown:
            raise ValueError(
                f"{cls.__name__} has no attribute {', '.join(unknown)}. "
                f"Expected some of {', '.join(cls.__dataclass_fields__)}."
            )
        defaults = {"vocab_size": cls._PRESET_VOCAB_SIZE}
        return cls(**(defaults | cls._PRESETS[name] | overrides))

    @classmethod
    def from_dict(cls, json_object: dict):
        """Reads a configuration from a dict of attributes.

        Missing attributes get their defaults; a missing `vocab_size` is None.
        Unknown keys are reported in a warning and in `unknown_keys`.
        """
        known = {}
        unknown = []
        for key, value in json_object.items():
            if key in cls.__dataclass_fields__:
                known[key] = copy.deepcopy(value)
            else:
                unknown.append(key)
        config = cls(**({"vocab_size": None} | known))
        config.unknown_keys = sorted(unknown)
        if unknown:
            logging.warning(
                "%s ignores unknown keys: %s",
                cls.__name__,
                ", ".join(config.unknown_keys),
            )
        return config

    @classmethod
    def from_json_file(cls, path: str):
        """Reads and validates a JSON file, such as one of the original code.

        Raises:
            ValueError: the file is not a JSON object, or `validate` raises.
            tf.errors.NotFoundError: the file does not exist.
        """
        with tf.io.gfile.GFile(path, "rb") as file:
            content = file.read()
        try:
            json_object = json_objects.parse_note(content)
        except ValueError as error:
            raise ValueError(
                f"{path}: {error}. Expected one JSON object with the "
                f"attributes of {cls.__name__}."
            ) from error
        config = cls.from_dict(json_object)
        try:
            config.validate()
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        return config

    @classmethod
    def from_run(cls, model_dir: str | os.PathLike):
        """Reads the encoder's configuration from a training run.

        `model_dir` is the `--model_dir` of `python -m etcmodel train`, or a
        checkpoint in it.

        Raises:
            FileNotFoundError: the directory is not a run, the run trained
                another encoder, or an older version wrote the run without this
                file.
            ValueError: see `from_json_file`.
        """
        return cls.from_json_file(run_files.find(model_dir, cls.RUN_FILE))

    def to_dict(self) -> dict:
        """Returns the attributes by name, as a copy."""
        return dataclasses.asdict(self)

    def to_json_string(self) -> str:
        """Returns the attributes as sorted JSON with a newline at the end."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def validate(self):
        """Raises a ValueError for impossible or conflicting values."""
        raise NotImplementedError

    def _check_fields(self):
        """Raises a ValueError for an invalid int, dropout or activation."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            minimum = self._MINIMA.get(field.name, 1)
            is_optional = (
                field.type == int | None and field.name != "vocab_size"
            )
            if (
                field.type not in (int, int | None)
                or minimum is None
                or (is_optional and value is None)
            ):
                continue
            if (
                not isinstance(value, int)
                or isinstance(value, bool)
                or value < minimum
            ):
                raise ValueError(
                    f"{field.name} is {value!r}. Expected an int of at least "
                    f"{minimum}."
                )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(self, name)}. Expected a dropout "
                    "probability in [0, 1)."
                )
        try:
            get_activation(self.hidden_act)
        except ValueError as error:
            raise ValueError(f"hidden_act: {error}") from error

    def _check_choice(self, name: str, choices):
        if getattr(self, name) not in choices:
            raise ValueError(
                f"{name} is {getattr(self, name)!r}. Expected one of "
                f"{', '.join(map(repr, choices))}."
            )

    def _check_heads(self, name: str, advice: str = "change one of them"):
        """Raises a ValueError unless `name` divides the hidden size."""
        if self.hidden_size % getattr(self, name):
            raise ValueError(
                f"hidden_size ({self.hidden_size}) is not a multiple of "
                f"{name} ({getattr(self, name)}); {advice}."
            )
