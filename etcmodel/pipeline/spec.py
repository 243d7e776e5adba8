"""A task as data, without TensorFlow: so that commands can check first.

A task is a folder of `etcmodel/tasks` with three modules:

*   `task.py` has its `TASK`, a `TaskSpec`: what it is called, its dataset, the
    sizes and options a user can choose, and its experiments. Or several of the
    same kind, its `TASKS`.
*   `preprocessor.py` has its `Preprocessor`: raw text to the model's inputs,
    and the labels of a record.
*   `model.py` has its `TaskModel`: the head, the losses, and how logits become
    answers.

Nothing else has to be touched to add one.
"""

import dataclasses
import importlib
import types
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from etcmodel.errors import UserError


class Experiment(NamedTuple):
    """A model and how it is trained.

    Attributes:
        summary: what it is, in a line.
        options: what differs from the task's recipe.
    """

    summary: str
    options: Mapping[str, Any] = types.MappingProxyType({})


class Tuned(NamedTuple):
    """An option that is chosen with validation data.

    Attributes:
        option: its name in the task's options, where None stands for the
            chosen value.
        values: those to choose from, ascending.
        default: the value where nothing was chosen yet.
        metric: the higher the better; of equals the value nearest to the
            default wins.
    """

    option: str
    values: tuple[float, ...]
    default: float
    metric: str

    def choose(self, scores: Mapping[float, Mapping[str, float]]) -> float:
        """The best value.

        Example: of `{0.4: {"f1": 0.7}, 0.9: {"f1": 0.7}}` it is 0.4 if the
        default is 0.5.

        Args:
            scores: value -> metrics.

        Returns:
            The value.
        """
        return max(
            scores,
            key=lambda x: (scores[x][self.metric], -abs(x - self.default)),
        )


@dataclasses.dataclass
class NoOptions:
    """A task without options of its own."""


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """A task as the commands see it.

    A place is `"module:name"`, and is imported when it is used.

    Attributes:
        name: as in `--task`.
        summary: one line about it.
        dataset: module of its dataset; see `etcmodel.datasets`.
        preprocessing_config: dataclass, or place of one, whose fields are flags
            of `preprocess`; the defaults are the paper's.
        preprocessor: place of its `Preprocessor`.
        model: place of its `TaskModel`.
        model_options: dataclass of the options of its model, to be overridden
            as `task.model.NAME`.
        options: dataclass of its other options, `task.NAME`.
        recipe: arguments of `training.trainer.configure` that all experiments
            share.
        experiments: name -> experiment.
        tuned: the option that validation data choose, if there is one.
        has_answers: False for pre-training, which cannot be exported.
        reads_segments: whether the encoder is ReadTwice's, whose batches count
            segments.
        format_size: name of the size that says in which of the dataset's
            `FORMATS` files are; empty if there is but its `FORMAT`.
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
    format_size: str = ""

    @property
    def preprocessing_config_class(self) -> type:
        """The dataclass of the preprocessing configuration."""
        place = self.preprocessing_config
        return load(place) if isinstance(place, str) else place

    def make_preprocessing_config(self, values: Mapping[str, Any]) -> Any:
        """Makes a preprocessing configuration.

        Args:
            values: name -> value; None stands for the default.

        Returns:
            A `preprocessing_config_class`.

        Raises:
            UserError: the task has no such size, or sizes do not fit.
        """
        config_class = self.preprocessing_config_class
        given = {key: x for key, x in values.items() if x is not None}
        names = [field.name for field in dataclasses.fields(config_class)]
        for name in sorted(set(given) - set(names)):
            raise UserError(
                f"--{name}={given[name]}: {self.name} has no such size. It "
                f"has: {', '.join(names)}."
            )
        try:
            return config_class(**given)
        except ValueError as error:
            raise UserError(f"The sizes do not fit: {error}") from error

    def format(self, config: Any):
        """Returns how data files are read; see `datasets.records.Format`.

        Args:
            config: the preprocessing configuration.
        """
        if not self.format_size:
            return self.dataset.FORMAT
        return self.dataset.FORMATS[getattr(config, self.format_size)]

    def make_preprocessor(
        self, config: Any, vocab_file: str, settings: Any = None
    ):
        """Makes what turns raw records into the model's inputs.

        Args:
            config: the preprocessing configuration.
            vocab_file: a WordPiece vocabulary or a SentencePiece model.
            settings: counts more than what the files beside the vocabulary
                say; see `tokenizers.make_tokenizer`.

        Returns:
            A `Preprocessor`.

        Raises:
            UserError: the vocabulary or a size cannot be used.
        """
        from etcmodel.pipeline import preprocessor

        return preprocessor.make_preprocessor(
            load(self.preprocessor), config, vocab_file, settings
        )

    def make_example_writer(
        self, config: Any, vocab_file: str, settings: Any = None
    ):
        """Makes what turns records into stored examples.

        Takes the arguments of `make_preprocessor`, and raises its errors.

        Returns:
            An `ExampleWriter`.
        """
        from etcmodel.pipeline import example_writer

        return example_writer.ExampleWriter(
            self, self.make_preprocessor(config, vocab_file, settings)
        )

    def make_model(self, model_options: Any = None, options: Any = None):
        """Makes the model with its options.

        Args:
            model_options: whatever has the fields of `model_options`.
            options: whatever has the fields of `options`.

        Returns:
            A `TaskModel`.
        """
        return load(self.model)(
            model_options or self.model_options(), options or self.options()
        )


def load(place: str) -> Any:
    """What a place names.

    Args:
        place: `"module:name"`.

    Returns:
        The module's attribute.
    """
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
