"""A task as data, without TensorFlow: so that commands can check first.

A task is a folder of `etcmodel/tasks`:

*   `task.py` has its `TASK`, a `TaskSpec`: what it is called, its dataset, the
    sizes and options a user can choose, and its experiments. Or several of the
    same kind, its `TASKS`.
*   `features.py` has its `preprocessor.FeatureBuilder`: raw text to features,
    and what is to be learned of a record.
*   `model.py` has its `task_model.AnswerModel`: the head, the losses, and how
    an answer follows from logits.

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
    """What the commands have to know of a task.

    Attributes:
        name: as in `--task`.
        summary: one line about it.
        dataset: module of its dataset; see `etcmodel.datasets`.
        sizes: dataclass of the sizes of its features, whose fields are flags
            of `preprocess`; the defaults are the paper's. Or the place of it.
        features: place of its `FeatureBuilder`.
        model: place of its `AnswerModel`; empty if there is nothing to answer.
        model_options: dataclass of the options of its model, to be overridden
            as `task.model.NAME`.
        options: dataclass of its other options, `task.NAME`.
        recipe: what all experiments have in common: arguments of
            `training.trainer.configure`.
        experiments: name -> experiment.
        tuned: the option that validation data choose, if there is one.
        encoder: place of its `RecordEncoder`.
        trainer: place of what registers its experiments.
        serving: place of what makes the module that is exported, of the model,
            of its features' builder and of its `AnswerModel`.
        format_size: name of the size that says in which of the dataset's
            `FORMATS` files are; empty if there is but its `FORMAT`.

    A place is `"module:name"`, and is imported when it is used.
    """

    name: str
    summary: str
    dataset: types.ModuleType
    sizes: type | str
    features: str = ""
    model: str = ""
    model_options: type = NoOptions
    options: type = NoOptions
    recipe: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    experiments: Mapping[str, Experiment] = dataclasses.field(
        default_factory=dict
    )
    tuned: Tuned | None = None
    encoder: str = "etcmodel.pipeline.example_writer:FeatureEncoder"
    trainer: str = "etcmodel.training.trainer:register"
    serving: str = "etcmodel.serving.signatures:make_serving_module"
    format_size: str = ""

    @property
    def config_class(self) -> type:
        """The dataclass of the sizes."""
        return load(self.sizes) if isinstance(self.sizes, str) else self.sizes

    def feature_config(self, values: Mapping[str, Any]) -> Any:
        """The sizes of the features: the task's own, but for those given.

        Args:
            values: name -> value; None stands for the task's own.

        Returns:
            A `config_class`.

        Raises:
            UserError: the task has no such size, or sizes do not fit.
        """
        given = {key: x for key, x in values.items() if x is not None}
        names = [field.name for field in dataclasses.fields(self.config_class)]
        for name in sorted(set(given) - set(names)):
            raise UserError(
                f"--{name}={given[name]}: {self.name} has no such size. It "
                f"has: {', '.join(names)}."
            )
        try:
            return self.config_class(**given)
        except ValueError as error:
            raise UserError(f"The sizes do not fit: {error}") from error

    def format(self, config: Any):
        """How data files are read; see `datasets.records.Format`.

        Args:
            config: sizes of the features.

        Returns:
            The `Format`.
        """
        if not self.format_size:
            return self.dataset.FORMAT
        return self.dataset.FORMATS[getattr(config, self.format_size)]

    def record_encoder(
        self, config: Any, vocab_file: str, settings: Any = None
    ):
        """What turns records into what is stored; see `example_writer`.

        Args:
            config: sizes of the features.
            vocab_file: a WordPiece vocabulary or a SentencePiece model.
            settings: counts more than what the files beside the vocabulary
                say; see `tokenizers.make_tokenizer`.

        Returns:
            A `RecordEncoder`.

        Raises:
            UserError: the vocabulary or a size cannot be used.
        """
        return load(self.encoder)(self, config, vocab_file, settings)

    def make_builder(self, config: Any, vocab_file: str, settings: Any = None):
        """What turns raw text into features; see `preprocessor`.

        Args:
            config: sizes of the features.
            vocab_file: a WordPiece vocabulary or a SentencePiece model.
            settings: counts more than what the files beside the vocabulary
                say; see `tokenizers.make_tokenizer`.

        Returns:
            A `FeatureBuilder`.

        Raises:
            UserError: the vocabulary or a size cannot be used.
        """
        from etcmodel.pipeline import preprocessor

        return preprocessor.make_builder(
            load(self.features), config, vocab_file, settings
        )

    def make_model(self, model_options: Any = None, options: Any = None):
        """The model with its options; see `task_model`.

        Args:
            model_options: whatever has the fields of `model_options`.
            options: whatever has the fields of `options`.

        Returns:
            An `AnswerModel`.
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
