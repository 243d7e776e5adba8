"""Records of a dataset to what is stored of them."""

import abc
import json
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import msgspec
import tensorflow as tf

from etcmodel.errors import without_stack
from etcmodel.feature_utils.etc_features import FEATURES
from etcmodel.feature_utils.text.tokenizer_settings import TokenizerSettings
from etcmodel.pipeline import example_schema
from etcmodel.pipeline import preprocessor
from etcmodel.pipeline.spec import TaskSpec


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
        spec: the task.
        builder: what makes the features; it has the `tokenizer`.
        config: sizes of the features.
    """

    def __init__(self, spec: TaskSpec, builder: tf.Module):
        """Takes a task and its builder.

        Args:
            spec: the task.
            builder: has a `config` and a `tokenizer`.
        """
        self.spec = spec
        self.builder = builder
        self.config = builder.config

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

    def summarize(
        self, counts: Mapping[str, int], number: int
    ) -> Mapping[str, float]:
        """What the statistics say beside the counts; by default nothing.

        Args:
            counts: of all records.
            number: how many examples were written.

        Returns:
            Name -> value.
        """
        return {}


class FeatureEncoder(RecordEncoder):
    """The encoder of all tasks with a `FeatureBuilder`."""

    def __init__(
        self,
        spec: TaskSpec,
        config: Any,
        vocab_file: str,
        settings: TokenizerSettings | None = None,
    ):
        """Creates the encoder.

        Args:
            spec: the task.
            config: sizes of the features.
            vocab_file: a WordPiece vocabulary or a SentencePiece model.
            settings: counts more than what the files beside the vocabulary
                say; see `tokenizers.make_tokenizer`.

        Raises:
            UserError: the vocabulary or a size cannot be used.
        """
        super().__init__(spec, spec.make_builder(config, vocab_file, settings))
        self._model = spec.make_model()
        names = list(self.builder.INPUTS)
        self._build = tf.function(
            lambda *inputs: self.builder.build(
                **dict(zip(names, inputs, strict=True))
            ),
            input_signature=[x.spec for x in self.builder.INPUTS.values()],
            autograph=False,
        )

    def build(self, records: Sequence[Any]) -> preprocessor.Encoded:
        """Builds the features of a batch of records.

        Args:
            records: the records.

        Returns:
            What the builder makes of them.

        Raises:
            RecordError: the first record, or one of the others, cannot be
                encoded.
        """
        inputs = preprocessor.raw_inputs(type(self.builder), records)
        try:
            return self._build(
                *(
                    tf.constant(inputs[name], spec.dtype)
                    for name, spec in self.builder.INPUTS.items()
                )
            )
        except tf.errors.OpError as error:
            raise records[0].error(
                "cannot be encoded",
                problem=" ".join(without_stack(error.message)),
            ) from error

    def encode(self, records, split):
        """See `RecordEncoder`."""
        batch = preprocessor.on_host(self.build(records))
        return [
            self._encode(record, preprocessor.RecordView(batch, i), split)
            for i, record in enumerate(records)
        ]

    def _encode(self, record, view, split) -> EncodedRecord:
        """What is stored of one record."""
        fields = self.builder.SCHEMA
        labelled = self.builder.label(record, view, split)
        values = {
            "example_id": preprocessor.to_bytes(record.id),
            **{
                name: view.text[name]
                for name in fields.names(example_schema.TEXT)
            },
            **labelled.values,
        }
        gold = self.spec.dataset.gold(record)
        if split != "predict" and gold is not None:
            known = self._model.reference(record)
            values[example_schema.REFERENCE] = to_json((gold, known))
        context = [
            x
            for x in fields.names(example_schema.INPUT, example_schema.CONTEXT)
            if x in view.features
        ]
        examples = [
            fields.serialize(
                {name: view.features[name][row] for name in FEATURES},
                {
                    **values,
                    **{name: view.features[name][row] for name in context},
                    **({"window": row} if view.number > 1 else {}),
                    **labels,
                },
            )
            for row, labels in enumerate(labelled.rows)
            if labels is not None
        ]
        return EncodedRecord(examples, labelled.counts)


def to_json(value: Any) -> bytes:
    """A value of the dataset as JSON.

    Args:
        value: of anything that msgspec knows.

    Returns:
        UTF-8, with "?" for what has none, such as lone surrogates.
    """
    return preprocessor.to_bytes(
        json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
    )


def serialize(values: Mapping[str, Sequence]) -> bytes:
    """Integers and strings as a serialized `tf.train.Example`.

    Args:
        values: name -> `<int>[n]`, or n `bytes`.

    Returns:
        The same bytes for the same values.
    """
    example = tf.train.Example()
    for name, x in values.items():
        feature = example.features.feature[name]
        if len(x) and isinstance(x[0], bytes):
            feature.bytes_list.value.extend(x)
        else:
            feature.int64_list.value.extend(x)
    return example.SerializeToString(deterministic=True)
