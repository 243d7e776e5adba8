"""Describes a task: its modules, options and experiments.

This module does not import TensorFlow, so that commands can check their options
quickly.

A task is a folder of `etcmodel/tasks` with three modules and a YAML file. No
other code changes when a task is added.

*   `task.py` has the `TaskSpec`, called `TASK`, or several of them in `TASKS`.
*   `experiments.yaml` has the experiments.
*   `preprocessor.py` has the `Preprocessor`, which converts raw text to the
    model's inputs and makes labels.
*   `model.py` has the `TaskModel`: the head, the losses, and the decoding of
    logits to answers.
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
    """A named model and training configuration.

    Attributes:
        summary: a description for users.
        options: options that override the task's `recipe`.
    """

    summary: str
    options: Mapping[str, Any] = types.MappingProxyType({})


def read_experiments(module: str, name: str = "") -> dict[str, Experiment]:
    """Reads the `experiments.yaml` beside a task's module.

    Args:
        module: path of the task's module.
        name: text that replaces `{name}` in the file.

    Returns:
        Name -> experiment. In the file, each experiment is a mapping with a
        `summary` and options.
    """
    path = pathlib.Path(module).with_name("experiments.yaml")
    text = path.read_text("utf-8").replace("{name}", name)
    experiments = metadata_files.parse_yaml(text)
    return {
        key: Experiment(values.pop("summary"), types.MappingProxyType(values))
        for key, values in experiments.items()
    }


class Tuned(NamedTuple):
    """An option that validation tunes for the highest `metric`.

    Attributes:
        option: name of one of the task's options. If its value is None, the
            tuned value is used.
        values: the values to try, ascending.
        default: the value before the first validation.
        metric: the metric to maximize.
        is_used: called with the preprocessing configuration; returns whether
            answers depend on the option.
    """

    option: str
    values: tuple[float, ...]
    default: float
    metric: str
    is_used: Callable[[Mapping[str, Any]], bool] = lambda sizes: True

    def of(self, options: Any) -> float:
        """Returns the option's value; the default if it is None."""
        value = getattr(options, self.option)
        return self.default if value is None else value

    def choose(self, scores: Mapping[float, Mapping[str, float]]) -> float:
        """Returns the value with the best score.

        Ties go to the value nearest to the default: if that is 0.5,
        `{0.4: {"f1": 0.7}, 0.9: {"f1": 0.7}}` gives 0.4.
        """
        return max(
            scores,
            key=lambda x: (scores[x][self.metric], -abs(x - self.default)),
        )


@dataclasses.dataclass
class NoOptions:
    """Empty options, for a task without options of its own."""


@dataclasses.dataclass
class ReadTwiceModelOptions:
    """Options of ReadTwice's models.

    Attributes:
        cross_block_attention_mode: the memories that a segment attends to:
            "doc" for all of its document, "block" for only its own.
    """

    cross_block_attention_mode: str = "doc"


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """Describes a task to the commands.

    A "place" is a string `"module:name"`; the object is imported only when it
    is needed.

    Attributes:
        name: name of the task, for `task=NAME`.
        summary: a description for users.
        dataset: module of the task's dataset; see `etcmodel.datasets`.
        preprocessing_config: dataclass, or its place, whose fields are flags of
            `preprocess`; the defaults are the paper's.
        preprocessor: place of the `Preprocessor`.
        model: place of the `TaskModel`.
        model_options: dataclass of the model's options, `task.model.NAME`.
        options: dataclass of the task's other options, `task.NAME`.
        recipe: arguments of `training.trainer.configure` for all experiments.
        experiments: name -> experiment; see `read_experiments`.
        tuned: the option that validation tunes; None if there is none.
        has_answers: False for pre-training, which cannot be exported.
        reads_segments: whether the encoder is ReadTwice's; batch sizes then
            count segments.
        reading: names of the sizes that affect only how files are read:
            arguments of the dataset's `make_format`. Empty if the dataset has
            only a `FORMAT`. Their values are stored, so that other files are
            read the same way later, unless the field has `is_noted=False`.
        noted_reading: names of further arguments of `make_format`, which also
            change the stored examples.
        plots: place of a function that draws predictions and gold answers. It
            also takes a path prefix, and returns the files.
        complete: place of a function that completes the preprocessing
            configuration from the training records, such as with their labels.
        pipeline_tag: the Hugging Face hub's name of the task, for model cards;
            "" if it has none.
        max_metric: the highest value of the metrics: 1, or 100 for percents.
        follows_size: whether the batch size, the learning rate and the number
            of epochs follow from the records and the encoder, not from the
            recipe; see `engine.fine_tuning`.
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
    pipeline_tag: str = ""
    max_metric: float = 1.0
    follows_size: bool = False

    @property
    def preprocessing_config_class(self) -> type:
        """The dataclass of the preprocessing configuration."""
        place = self.preprocessing_config
        return load(place) if isinstance(place, str) else place

    def notes(self, metrics: Mapping[str, float]) -> list[str]:
        """Returns the dataset's notes on metrics; none if it has no `notes`."""
        notes = getattr(self.dataset, "notes", None)
        return notes(metrics) if notes else []

    def make_preprocessing_config(self, values: Mapping[str, Any]) -> Any:
        """Makes a configuration from name -> value; None means the default.

        Raises a `UserError` if a name is unknown or sizes are inconsistent.
        """
        config_class = self.preprocessing_config_class
        given = {
            # JSON and flags have lists in place of tuples.
            key: tuple(x) if isinstance(x, list) else x
            for key, x in values.items()
            if x is not None
        }
        names = self.size_names()
        for name in sorted(set(given) - set(names)):
            raise UserError(
                f"`{name}={given[name]}`: {self.name} has no such size. Use "
                f"one of: {', '.join(names)}."
            )
        try:
            return config_class(**given)
        except ValueError as error:
            raise UserError(f"The sizes are inconsistent: {error}") from error

    def format(self, config: Any):
        """Returns the `readers.records.Format` of the task's data files."""
        if not self.reading:
            return self.dataset.FORMAT
        names = (*self.reading, *self.noted_reading)
        return self.dataset.make_format(
            **{name: getattr(config, name) for name in names}
        )

    def noted_fields(self, config: Any) -> dict[str, str]:
        """Returns the reading options to store: name -> value."""
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

        Args:
            config: the preprocessing configuration.
            vocab_file: path of the vocabulary.
            settings: `TokenizerSettings`, which override the files beside the
                vocabulary; see `tokenizers.make_tokenizer`.

        Raises:
            UserError: the vocabulary or a size cannot be used.
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
        """Makes the `TaskModel`.

        Args:
            model_options: any object with attributes of the task's
                `model_options`; missing attributes get their defaults.
            options: any object with attributes of the task's `options`; missing
                attributes get their defaults.
            sizes: the records' preprocessing configuration, as a dict.
        """
        return load(self.model)(
            _taken(self.model_options, model_options),
            _taken(self.options, options),
            sizes or {},
        )

    def size_names(self) -> list[str]:
        """Returns the field names of the preprocessing configuration."""
        config_class = self.preprocessing_config_class
        return [field.name for field in dataclasses.fields(config_class)]

    def optional_sizes(self) -> set[str]:
        """Returns the names of sizes that are not stored if empty."""
        config_class = self.preprocessing_config_class
        return {
            field.name
            for field in dataclasses.fields(config_class)
            if field.metadata.get("is_optional")
        }

    def stored_sizes(self, config: Any) -> dict[str, Any]:
        """Returns the sizes to store.

        Leaves out the reading options, and optional sizes that are empty.
        """
        optional = self.optional_sizes()
        return {
            name: value
            for name, value in dataclasses.asdict(config).items()
            if name not in self.reading and (value or name not in optional)
        }


def _taken(options_class: type, source: Any) -> Any:
    """Copies an object's attributes to options; other options keep defaults."""
    names = [field.name for field in dataclasses.fields(options_class)]
    return options_class(
        **{
            name: getattr(source, name)
            for name in names
            if hasattr(source, name)
        }
    )


def load(place: str) -> Any:
    """Imports and returns the object at a place, `"module:name"`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
