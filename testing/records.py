"""Preprocesses records of a task with a small vocabulary."""

import tempfile
from collections.abc import Mapping
from typing import Any
from typing import ClassVar

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.pipeline import example_maker
from etcmodel.pipeline.spec import TaskSpec
from testing import tasks


def stored_values(serialized: bytes) -> dict[str, list]:
    """Returns the values of a stored example as lists."""
    features = tf.train.Example.FromString(serialized).features.feature
    return {
        name: [*getattr(x, x.WhichOneof("kind")).value]
        if x.WhichOneof("kind")
        else []
        for name, x in features.items()
    }


class RecordsTestCase(tf.test.TestCase, parameterized.TestCase):
    """Base class of tests for the values that a task stores for records.

    Attributes:
        TASK: the task.
        WORDS: words of the vocabulary.
        SIZES: the preprocessing configuration, unless a test overrides it.
    """

    TASK: ClassVar[TaskSpec]
    WORDS: ClassVar[str]
    SIZES: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def setUpClass(cls):
        """Writes the vocabulary."""
        super().setUpClass()
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.vocab_file = tasks.write_test_vocab(folder, cls.WORDS)
        cls.writers = {}
        # For a few records, tracing takes longer than eager execution.
        cls.enterClassContext(tasks.without_tracing())

    def writer(self, **sizes) -> example_maker.ExampleMaker:
        """Returns the `ExampleMaker` of a configuration, cached."""
        config = self.TASK.make_preprocessing_config({**self.SIZES, **sizes})
        if config not in self.writers:
            self.writers[config] = example_maker.of_task(
                self.TASK, config, self.vocab_file
            )
        return self.writers[config]

    def read(self, row: Mapping[str, Any], **sizes):
        """Converts a row of a user's data file to its record."""
        config = self.writer(**sizes).preprocessor.config
        (record,) = self.TASK.format(config).read_rows([row], "predict")
        return record

    def store_all(self, record, split="dev", **sizes):
        """Returns the stored values of a record's examples, and the counts."""
        ((rows, counts),) = tasks.encode_records(
            self.writer(**sizes), [record], split
        )
        return [stored_values(x) for x in rows], counts

    def store(self, record, split="dev", **sizes):
        """Returns the values of a record's only example, and the counts.

        The values are None if the record has no example.
        """
        rows, counts = self.store_all(record, split, **sizes)
        self.assertLessEqual(len(rows), 1)
        return (rows[0] if rows else None), counts
