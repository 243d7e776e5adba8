"""Tests of classification's preprocessor."""

import contextlib
import io
import math
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import classification
from etcmodel.errors import RecordError
from etcmodel.inspection.pictures import inspect
from etcmodel.models import EtcConfig
from etcmodel.pipeline import example_maker
from etcmodel.tasks.classify import preprocessor
from etcmodel.tasks.classify.task import TASK
from testing.tasks import encode_records
from testing.tasks import without_tracing
from testing.tasks import write_test_vocab

_TEXT = "Jan sings. He paints.\n\nIt rains."


def _read(*labels, split="train", text=_TEXT, **reading):
    """Records of a text with these labels; None for none."""
    rows = [{"text": text, "query": "Who?", "label": x} for x in labels]
    format_ = classification.make_format(**reading)
    return list(format_.read_rows(rows, split))


def _complete(records, **values):
    """The configuration, and what was printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        config = preprocessor.complete(
            TASK.make_preprocessing_config(values), records
        )
    return config, printed.getvalue()


class CompleteTest(tf.test.TestCase):
    def test_one_label(self):
        """Sorted, whatever their order; one that occurs once is told."""
        config, note = _complete(_read("b", "ü", "b", "a", "a", "b"))
        self.assertEqual(
            ("single", ("a", "b", "ü"), (2, 3, 1), "sentences"),
            (config.kind, config.labels, config.label_counts, config.units),
        )
        self.assertIn("Note: 1 of 3 labels have one record: ['ü'].", note)

    def test_labels_that_are_not_strings(self):
        for labels, values, expected in (
            ((3, 7, 3), {}, ("3", "7")),
            (("3", "7"), {}, ()),
            # As `labels` are given in Python.
            (("3", "7"), {"labels_as_json": ("3",)}, ("3",)),
            ((3, 7), {"labels_as_json": ("9",)}, ("3", "7", "9")),
        ):
            values = {"labels": ("3", "7", "9"), **values}
            config, _ = _complete(_read(*labels), **values)
            self.assertEqual(expected, config.labels_as_json)

    def test_several_labels(self):
        config, note = _complete(_read(["b", "a"], [], ["b"], ["a"]))
        self.assertEqual(
            ("multiple", ("a", "b"), (2, 2)),
            (config.kind, config.labels, config.label_counts),
        )
        self.assertEqual("", note)

    def test_numbers(self):
        config, _ = _complete(_read(1.5, 2.5, 2.5, 5.5))
        # Squares of the differences from 3: 2.25, 0.25, 0.25, 6.25.
        self.assertEqual(("number", ()), (config.kind, config.labels))
        self.assertAllClose(
            (3.0, 1.5), (config.label_mean, config.label_deviation)
        )
        self.assertEqual((), config.label_counts)

    def test_labels_that_are_given(self):
        config, _ = _complete(_read("b", "a", "b"), labels=["b", "c", "a"])
        self.assertEqual(("b", "c", "a"), config.labels)
        self.assertEqual((2, 0, 1), config.label_counts)

    def test_text_without_structure_is_in_blocks(self):
        config, _ = _complete(_read("a", "b", text="no mark"))
        self.assertEqual("blocks", config.units)


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vocab_file = write_test_vocab(
            cls.enterClassContext(tempfile.TemporaryDirectory()),
            "jan sings . he paints it rains who ?",
        )
        cls.enterClassContext(without_tracing())

    def _writer(self, **config):
        values = {"long_length": 24, "global_length": 12, **config}
        values = {"units": "sentences", "labels": ["a", "b"], **values}
        return example_maker.of_task(
            TASK, TASK.make_preprocessing_config(values), self.vocab_file
        )

    def _write(self, record, split, **config):
        """What is stored of a record, and its counts."""
        ((rows, counts),) = encode_records(
            self._writer(**config), [record], split
        )
        (row,) = rows
        return tf.train.Example.FromString(row).features.feature, counts

    @parameterized.parameters(
        ("single", "b", [1], b'"b"'),
        ("multiple", ["b", "a"], [1, 0], b'["b", "a"]'),
        ("multiple", [], [], b"[]"),
    )
    def test_labels(self, kind, label, ids, gold):
        (record,) = _read(label)
        stored, counts = self._write(record, "dev", kind=kind)
        self.assertEqual(ids, stored["label_ids"].int64_list.value)
        self.assertEqual([gold], stored["gold"].bytes_list.value)
        self.assertEqual(0, counts["labels_not_in_training_data"])
        # CLS, "who ?", and 3, 3 and 3 tokens in two paragraphs.
        self.assertEqual(
            (12, 2, 3),
            tuple(counts[x] for x in ("tokens", "paragraphs", "units")),
        )
        stored, _ = self._write(record, "predict", kind=kind)
        self.assertNoCommonElements(["label_ids", "gold"], stored)

    def test_repeated_labels_are_counted(self):
        (record,) = _read(["b", "a", "b", "b"])
        stored, counts = self._write(record, "dev", kind="multiple")
        self.assertEqual([1, 0], stored["label_ids"].int64_list.value)
        self.assertEqual(2, counts["labels_repeated"])

    def test_number(self):
        (record,) = _read(2.5)
        stored, _ = self._write(record, "dev", kind="number", labels=())
        self.assertEqual([2.5], stored["number"].float_list.value)
        self.assertEqual([b"2.5"], stored["gold"].bytes_list.value)

    def test_labels_that_training_did_not_have(self):
        """Counted in "dev", where they count as wrong; an error in "train"."""
        single, multiple = _read("c", ["c", "b", "d"])
        for record, kind, ids, number in (
            (single, "single", [], 1),
            (multiple, "multiple", [1], 2),
        ):
            stored, counts = self._write(record, "dev", kind=kind)
            self.assertEqual(ids, stored["label_ids"].int64_list.value)
            self.assertEqual(number, counts["labels_not_in_training_data"])
            with self.assertRaisesRegex(
                RecordError, r"'label': got 'c', expected one of \['a', 'b'\]"
            ):
                self._write(record, "train", kind=kind)

    def test_blocks(self):
        """Nine tokens in blocks of four; the query keeps its global token."""
        (record,) = _read("a")
        stored, counts = self._write(
            record, "train", kind="single", units="blocks", block_size=4
        )
        self.assertLen(
            stored["global_token_ids"].int64_list.value, 2 + math.ceil(9 / 4)
        )
        self.assertEqual(3, counts["blocks"])

    def test_what_inspect_shows(self):
        (record,) = _read("a")
        shown = inspect(self._writer(), record, EtcConfig.from_preset("tiny"))
        self.assertEqual(
            "[CLS]|query 0|par 0|unit 0.0|unit 0.1|par 1|unit 1.0",
            "|".join(shown.global_labels),
        )
        told = dict(shown.summary)
        self.assertEqual(("Who?", "'a'"), (told["query"], told["label"]))


if __name__ == "__main__":
    tf.test.main()
