"""Converts the records of a dataset to stored examples."""

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.errors import without_stack
from etcmodel.pipeline.example_schema import EXAMPLE_ID
from etcmodel.pipeline.example_schema import GOLD
from etcmodel.pipeline.packing import ExamplePacker
from etcmodel.pipeline.preprocessor import Examples
from etcmodel.pipeline.preprocessor import Preprocessor
from etcmodel.pipeline.preprocessor import on_host
from etcmodel.pipeline.raw_inputs import to_bytes
from etcmodel.pipeline.spec import TaskSpec

# Features with token ids: ETC's, and the one that ReadTwice and the texts for
# pre-training have.
_TOKEN_IDS = ("long_token_ids", "token_ids")


class ExampleMaker:
    """Preprocesses records and makes the examples to store."""

    def __init__(self, spec: TaskSpec, preprocessor: Preprocessor):
        self.spec = spec
        self.preprocessor = preprocessor
        self.schema = preprocessor.SCHEMA
        self._sizes = dataclasses.asdict(preprocessor.config)
        names = list(preprocessor.INPUTS)
        self._preprocess = tf.function(
            lambda *inputs: preprocessor(
                **dict(zip(names, inputs, strict=True))
            ),
            input_signature=[x.spec for x in preprocessor.INPUTS.values()],
            autograph=False,
        )

    def preprocess(self, records: Sequence[Any]) -> Any:
        """Preprocesses a batch of records.

        If preprocessing fails, the `RecordError` names the batch's first
        record.
        """
        inputs = self.preprocessor.raw_batch(records)
        try:
            return self._preprocess(
                *(
                    tf.constant(inputs[name], spec.dtype)
                    for name, spec in self.preprocessor.INPUTS.items()
                )
            )
        except tf.errors.OpError as error:
            raise records[0].error(
                "cannot be encoded",
                problem=" ".join(without_stack(error.message)),
            ) from error

    def make_examples(
        self, records: Sequence[Any], split: str
    ) -> list[Examples | RecordError]:
        """Makes each record's examples, or the error if the record fails.

        This method is thread-safe.
        """
        with contextlib.suppress(UserError):
            return self._make_batch(records, split)
            # If the batch fails, each record is tried separately.
        made = []
        for record in records:
            try:
                made += self._make_batch([record], split)
            except RecordError as error:
                made.append(error.without_traceback())
        return made

    def _make_batch(self, records, split) -> list[Examples]:
        """Makes the examples of a batch; raises a `UserError` if one fails."""
        batch = on_host(self.preprocess(records))
        return [
            self._make(record, self.preprocessor.view(batch, i), split)
            for i, record in enumerate(records)
        ]

    def _make(self, record, view, split) -> Examples:
        """Makes the examples of a record, with its id and gold answer."""
        made = self.preprocessor.examples(record, view, split)
        values = {}
        if EXAMPLE_ID in self.schema.fields:
            values[EXAMPLE_ID] = to_bytes(record.id)
        if self.spec.has_answers and split == "dev":
            gold = self.spec.dataset.gold(record)
            if gold is not None:
                values[GOLD] = to_json(gold)
        return made._replace(
            counts={**made.counts, **self._count_tokens(made.rows)},
            source=record.source,
            rows=[
                self.schema.select({**row, **values}, split)
                for row in made.rows
            ],
        )

    def _count_tokens(self, rows) -> dict[str, int]:
        """Counts all stored tokens, and the unknown ones ([UNK]) among them."""
        unknown = self.preprocessor.tokenizer.unknown_id
        ids = [
            np.asarray(row[name])
            for row in rows
            for name in _TOKEN_IDS
            if name in row
        ]
        return {
            # Id 0 is padding.
            "tokens_stored": sum(int(np.count_nonzero(x)) for x in ids),
            "tokens_unknown": sum(
                int(np.count_nonzero(x == unknown)) for x in ids
            ),
        }

    def make_packer(self) -> ExamplePacker:
        """Returns a packer that joins examples before they are serialized."""
        return ExamplePacker(self.schema, self._sizes)


def of_task(
    task: TaskSpec, config: Any, vocab_file: str, settings: Any = None
) -> ExampleMaker:
    """Returns the `ExampleMaker` of a task.

    Arguments are as in `TaskSpec.make_preprocessor`.
    """
    return ExampleMaker(
        task, task.make_preprocessor(config, vocab_file, settings)
    )


def to_json(value: Any) -> bytes:
    """Encodes a value as JSON in UTF-8 (see `to_bytes`)."""
    return to_bytes(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))
