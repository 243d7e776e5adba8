"""The tasks by name, and what the commands need of each of them.

A task is named by strings here and imported when it is used, so that the
command line can tell about all tasks without loading TensorFlow.
"""

import abc
import dataclasses
import difflib
import importlib
import types
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from etcmodel.errors import UserError


class Experiment(NamedTuple):
    """A model and how it is trained.

    Attributes:
        summary: what it is, in a line.
        options: arguments of the function of the task that configures it.
    """

    summary: str
    options: Mapping[str, Any] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class TaskEntry:
    """Where the parts of a task are.

    Attributes:
        name: as in `--task`.
        summary: one line about it.
        pipeline: `"module:class"` of its `TaskPipeline`.
        experiment: module that registers its Model Garden experiments.
        experiments: `"module:table"` of those, name -> `Experiment`.
    """

    name: str
    summary: str
    pipeline: str
    experiment: str
    experiments: str


TASKS = {
    entry.name: entry
    for entry in [
        TaskEntry(
            name="hotpotqa",
            summary="HotpotQA: answer from paragraphs, with supporting facts",
            pipeline="etcmodel.tasks.hotpotqa.pipeline:HotpotQAPipeline",
            experiment="etcmodel.tasks.hotpotqa.experiment",
            experiments="etcmodel.tasks.hotpotqa.experiments:EXPERIMENTS",
        ),
        TaskEntry(
            name="nq",
            summary="Natural Questions: long and short answers of a page",
            pipeline="etcmodel.tasks.nq.pipeline:NQPipeline",
            experiment="etcmodel.tasks.nq.experiment",
            experiments="etcmodel.tasks.nq.experiments:EXPERIMENTS",
        ),
        TaskEntry(
            name="read_twice_pretrain",
            summary="pre-training of ReadTwice on documents with mentions",
            pipeline=(
                "etcmodel.tasks.read_twice_pretrain.pipeline:PretrainPipeline"
            ),
            experiment="etcmodel.tasks.read_twice_pretrain.experiment",
            experiments="etcmodel.tasks.read_twice_pretrain.experiments:EXPERIMENTS",
        ),
        TaskEntry(
            name="wikihop",
            summary="WikiHop (QAngaroo): choose among candidate answers",
            pipeline="etcmodel.tasks.wikihop.pipeline:WikiHopPipeline",
            experiment="etcmodel.tasks.wikihop.experiment",
            experiments="etcmodel.tasks.wikihop.experiments:EXPERIMENTS",
        ),
    ]
}


class EncodedRecord(NamedTuple):
    """What is stored of one record.

    Attributes:
        examples: serialized `tf.train.Example`s: one, or as many as the record
            has windows, or none if there is nothing to learn from it.
        counts: of what was cut, found and left out.
    """

    examples: Sequence[bytes]
    counts: Mapping[str, int]


class NoPacking:
    """Stores every example as it is."""

    def add(self, serialized: bytes) -> list[bytes]:
        """Takes an example.

        Args:
            serialized: a serialized `tf.train.Example`.

        Returns:
            What can be written now.
        """
        return [serialized]

    def flush(self) -> list[bytes]:
        """What is left at the end."""
        return []


class RecordEncoder(abc.ABC):
    """Turns the records of a task into serialized features.

    Attributes:
        vocab_size: number of token ids.
        tokenizer_kind: `"wordpiece"` or `"sentencepiece"`.
        special_ids: ids of the tokens with a meaning, by their names (see
            `tokenizers`).
    """

    vocab_size: int
    tokenizer_kind: str
    special_ids: Mapping[str, int]

    @abc.abstractmethod
    def encode(self, records: Sequence[Any], split: str) -> list[EncodedRecord]:
        """Encodes a batch of records; several threads may do so at once.

        Args:
            records: the records.
            split: what they are for; one of the dataset's splits.

        Returns:
            What is stored of every record.

        Raises:
            UserError: a record does not fit. Of a batch of one, it is a
                `RecordError`.
        """

    def make_packer(self):
        """What puts several examples into one; by default nothing does.

        Returns:
            An object with the methods of `NoPacking`.
        """
        return NoPacking()


class RecordPipeline(abc.ABC):
    """What `preprocess` needs of a task."""

    # Name of the task.
    name: str
    # Module of its dataset; see `etcmodel.datasets`.
    dataset: types.ModuleType

    # Dataclass of the sizes of its features; the defaults are the paper's.
    config_class: type

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

    @abc.abstractmethod
    def record_encoder(self, config: Any, vocab_file: str) -> RecordEncoder:
        """An encoder for records."""


class TaskPipeline(RecordPipeline):
    """What `export`, `predict` and `inspect` need, too, of a task."""

    @abc.abstractmethod
    def build_serving_module(
        self,
        model: Any,
        config: Any,
        vocab_file: str,
        decoding: Mapping[str, Any],
    ) -> tuple[Any, dict[str, dict[str, Any]]]:
        """The module to export, and a request for each of its signatures.

        `decoding` is what the experiment says of how answers are chosen; see
        `EtcTask.decoding_options`.
        """

    @abc.abstractmethod
    def serving_inputs(self, records: Sequence[Any]) -> dict[str, Any]:
        """A batch of records as inputs of `serving_default`."""

    @abc.abstractmethod
    def collect(
        self,
        records: Sequence[Any],
        outputs: Mapping[str, Any],
        predictions: dict[str, Any],
        decoding: Mapping[str, Any],
    ) -> None:
        """Adds what `serving_default` answered to the predictions."""

    @abc.abstractmethod
    def inspect(
        self,
        record: Any,
        config: Any,
        model_config: Any,
        vocab_file: str,
    ) -> Any:
        """A record as the model sees it: an `Inspection`."""


def task_entry(name: str) -> TaskEntry:
    """Looks a task up.

    Args:
        name: as in `--task`.

    Returns:
        Its entry.

    Raises:
        UserError: there is no such task.
    """
    if name not in TASKS:
        raise UserError(
            f"--task={name}: there is no such task. Choose one of: "
            f"{', '.join(sorted(TASKS))}."
        )
    return TASKS[name]


def _load(place: str) -> Any:
    """What `"module:name"` names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def experiments(task: str) -> Mapping[str, Experiment]:
    """The experiments of a task.

    Args:
        task: as in `--task`.

    Returns:
        Name -> experiment.

    Raises:
        UserError: there is no such task.
    """
    return _load(task_entry(task).experiments)


def get_pipeline(name: str) -> RecordPipeline:
    """Imports and makes the pipeline of a task.

    Args:
        name: as in `--task`.

    Returns:
        The pipeline.

    Raises:
        UserError: there is no such task.
    """
    return _load(task_entry(name).pipeline)()


def get_task_pipeline(name: str) -> TaskPipeline:
    """Imports and makes the pipeline of a task that has answers.

    Args:
        name: as in `--task`.

    Returns:
        The pipeline.

    Raises:
        UserError: there is no such task, or it is pre-training.
    """
    pipeline = get_pipeline(name)
    if not isinstance(pipeline, TaskPipeline):
        raise UserError(
            f"{name} is pre-training: it has no answers to export, predict or "
            "show. Train a task that begins with its checkpoint, with "
            "--params_override=task.init_checkpoint=DIR."
        )
    return pipeline


def task_of_experiment(experiment: str) -> TaskEntry:
    """Finds the task that an experiment belongs to, and registers it.

    Args:
        experiment: as in `--experiment`, such as `"etc/wikihop"`.

    Returns:
        The task's entry; its experiments are registered.

    Raises:
        UserError: no task has such experiments, or Keras 2 is not in use.
    """
    for entry in TASKS.values():
        if experiment in experiments(entry.name):
            try:
                importlib.import_module(entry.experiment)
            except ImportError as error:
                raise UserError(str(error)) from error
            return entry
    names = [name for task in TASKS for name in experiments(task)]
    close = difflib.get_close_matches(experiment, names)
    raise UserError(
        f"--experiment={experiment}: there is no such experiment. "
        + (f"Did you mean {' or '.join(close)}? " if close else "")
        + "`python -m etcmodel experiments` lists them."
    )
