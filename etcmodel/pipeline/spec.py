"""Describes a task as data, without TensorFlow, so that commands check first.

A task is a folder of `etcmodel/tasks` with three modules and a file. Nothing
else changes when one is added.

*   `task.py` has its `TaskSpec`, `TASK`, or several of a kind, `TASKS`.
*   `experiments.yaml` has its experiments.
*   `preprocessor.py` has its `Preprocessor`: raw text to the model's inputs,
    and the labels of a record.
*   `model.py` has its `TaskModel`: the head, the losses, and how logits become
    answers.
"""

import dataclasses
import importlib
import pathlib
import types
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from etcmodel.errors import UserError
from etcmodel.pipeline import metadata_files


class Experiment(NamedTuple):
    """A model and its training: options that override the recipe."""

    summary: str
    options: Mapping[str, Any] = types.MappingProxyType({})


def read_experiments(module: str, name: str = "") -> dict[str, Experiment]:
    """Reads the `experiments.yaml` beside a task's module.

    It has a mapping for each experiment: its `summary`, and options. `name`
    takes the place of `{name}`.
    """
    path = pathlib.Path(module).with_name("experiments.yaml")
    text = path.read_text("utf-8").replace("{name}", name)
    experiments = metadata_files.parse_yaml(text)
    return {
        key: Experiment(values.pop("summary"), types.MappingProxyType(values))
        for key, values in experiments.items()
    }


class Tuned(NamedTuple):
    """An option that validation data choose, by the highest `metric`.

    `option` is one of the task's options, where None means the chosen value.
    `default` applies before any of the ascending `values` was chosen. `is_used`
    takes the preprocessing configuration and tells whether answers depend on
    the option.
    """

    option: str
    values: tuple[float, ...]
    default: float
    metric: str
    is_used: Callable[[Mapping[str, Any]], bool] = lambda sizes: True

    def of(self, options: Any) -> float:
        """Returns the option's value, or its default if it is None."""
        value = getattr(options, self.option)
        return self.default if value is None else value

    def to_try(
        self, given: float | None, sizes: Mapping[str, Any]
    ) -> tuple[float, ...]:
        """Returns the values to compare: one if it is given or not used."""
        if given is not None:
            return (given,)
        return self.values if self.is_used(sizes) else (self.default,)

    def choose(self, scores: Mapping[float, Mapping[str, float]]) -> float:
        """Returns the best value; of equals, the nearest to the default.

        `{0.4: {"f1": 0.7}, 0.9: {"f1": 0.7}}` gives 0.4 if the default is 0.5.
        """
        return max(
            scores,
            key=lambda x: (scores[x][self.metric], -abs(x - self.default)),
        )


@dataclasses.dataclass
class NoOptions:
    """A task without options of its own."""


@dataclasses.dataclass
class ReadTwiceModelOptions:
    """Options of ReadTwice's models about what a segment sees.

    Attributes:
        cross_block_attention_mode: memories that a segment sees: "doc" for
            those of its document, "block" for only its own.
    """

    cross_block_attention_mode: str = "doc"


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """A task as the commands see it.

    A place is `"module:name"`, and is imported when it is used.

    Attributes:
        dataset: module of its dataset; see `etcmodel.datasets`.
        preprocessing_config: dataclass, or place of one, whose fields are flags
            of `preprocess`; the defaults are the paper's.
        preprocessor: place of its `Preprocessor`.
        model: place of its `TaskModel`.
        model_options: dataclass of the model's options, `task.model.NAME`.
        options: dataclass of its other options, `task.NAME`.
        recipe: arguments of `training.trainer.configure` for all experiments.
        experiments: by name; see `read_experiments`.
        has_answers: False for pre-training, which cannot be exported.
        reads_segments: whether the encoder is ReadTwice's, whose batches count
            segments.
        reading: names of the sizes that only affect how files are read, for the
            dataset's `make_format`; none if it only has a `FORMAT`. They are
            noted for other files, unless the field has `is_noted=False`.
        noted_reading: names of further sizes for `make_format` that also change
            what is stored.
        plots: place of a function that draws predictions and right answers;
            takes the start of a path, too, and returns the files.
        complete: place of a function that completes the preprocessing
            configuration from the training records, such as with their labels.
    """

    name: str
    summary: str
    dataset: types.ModuleType
    preprocessing_config: type | str
    preprocessor: str
    model: str
    model_options: type = NoOptions
    options: type = NoOptions
    recipe: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    experiments: Mapping[str, Experiment] = dataclasses.field(
        default_factory=dict
    )
    tuned: Tuned | None = None
    has_answers: bool = True
    reads_segments: bool = False
    reading: tuple[str, ...] = ()
    noted_reading: tuple[str, ...] = ()
    plots: str = ""
    complete: str = ""

    @property
    def preprocessing_config_class(self) -> type:
        """The dataclass of the preprocessing configuration."""
        place = self.preprocessing_config
        return load(place) if isinstance(place, str) else place

    def make_preprocessing_config(self, values: Mapping[str, Any]) -> Any:
        """Makes a configuration from name -> value; None means the default.

        Raises a `UserError` if a name is unknown or sizes conflict.
        """
        config_class = self.preprocessing_config_class
        given = {
            # JSON and flags use lists for tuples.
            key: tuple(x) if isinstance(x, list) else x
            for key, x in values.items()
            if x is not None
        }
        names = self.size_names()
        for name in sorted(set(given) - set(names)):
            raise UserError(
                f"`{name}={given[name]}`: {self.name} has no such size. It "
                f"has: {', '.join(names)}."
            )
        try:
            return config_class(**given)
        except ValueError as error:
            raise UserError(f"The sizes do not fit: {error}") from error

    def format(self, config: Any):
        """Returns how data files are read; see `readers.records.Format`."""
        if not self.reading:
            return self.dataset.FORMAT
        names = (*self.reading, *self.noted_reading)
        return self.dataset.make_format(
            **{name: getattr(config, name) for name in names}
        )

    def noted_fields(self, config: Any) -> dict[str, str]:
        """Returns how other files are to be read: name -> value."""
        return {
            field.name: getattr(config, field.name)
            for field in dataclasses.fields(config)
            if field.name in self.reading
            and field.metadata.get("is_noted", True)
            and getattr(config, field.name) is not None
        }

    def make_preprocessor(
        self, config: Any, vocab_file: str, settings: Any = None
    ):
        """Makes the task's `Preprocessor`.

        Tokenizer `settings` override the files beside the vocabulary (see
        `tokenizers.make_tokenizer`). Raises a `UserError` if the vocabulary or
        a size cannot be used.
        """
        from etcmodel.pipeline import preprocessor

        return preprocessor.make_preprocessor(
            load(self.preprocessor), config, vocab_file, settings
        )

    def make_model(
        self,
        model_options: Any = None,
        options: Any = None,
        sizes: Mapping[str, Any] | None = None,
    ):
        """Makes the `TaskModel`; options are any objects with the fields.

        `sizes` is the preprocessing configuration of the records, as a dict.
        """
        return load(self.model)(
            _taken(self.model_options, model_options),
            _taken(self.options, options),
            sizes or {},
        )

    def size_names(self) -> list[str]:
        """Returns the names of the preprocessing configuration."""
        config_class = self.preprocessing_config_class
        return [field.name for field in dataclasses.fields(config_class)]

    def optional_sizes(self) -> set[str]:
        """Returns the names of sizes that are not stored if they are empty."""
        config_class = self.preprocessing_config_class
        return {
            field.name
            for field in dataclasses.fields(config_class)
            if field.metadata.get("is_optional")
        }

    def stored_sizes(self, config: Any) -> dict[str, Any]:
        """Returns the sizes that are stored, without how files are read."""
        optional = self.optional_sizes()
        return {
            name: value
            for name, value in dataclasses.asdict(config).items()
            if name not in self.reading and (value or name not in optional)
        }


def _taken(options_class: type, source: Any) -> Any:
    """Makes options of the attributes of an object; others are defaults."""
    names = [field.name for field in dataclasses.fields(options_class)]
    return options_class(
        **{
            name: getattr(source, name)
            for name in names
            if hasattr(source, name)
        }
    )


def load(place: str) -> Any:
    """Imports the attribute at a place, `"module:name"`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
