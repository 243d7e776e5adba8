"""Tests of classification's preprocessor."""

import contextlib
import io

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import classification
from etcmodel.errors import RecordError
from etcmodel.tasks.classify import preprocessor
from etcmodel.tasks.classify.task import TASK
from testing.records import RecordsTestCase

_TEXT = "Jan sings. He paints.\n\nIt rains."


def _read(*labels, split="train", text=_TEXT, **reading):
    """Returns records with one text, one for each label; None is no label."""
    rows = [{"text": text, "query": "Who?", "label": x} for x in labels]
    format_ = classification.make_format(**reading)
    return list(format_.read_rows(rows, split))


def _complete(records, **values):
    """Returns the completed configuration, and the printed text."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        config = preprocessor.complete(
            TASK.make_preprocessing_config(values), records
        )
    return config, printed.getvalue()


class CompleteTest(tf.test.TestCase):
    def test_one_label(self):
        """Labels are sorted; a note lists labels that have only one record."""
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
            # In Python, `labels_as_json` is given with the labels.
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
        # The squared differences from the mean 3 are 2.25, 0.25, 0.25 and 6.25.
        self.assertEqual(("number", ()), (config.kind, config.labels))
        self.assertAllClose(
            (3.0, 1.5), (config.label_mean, config.label_deviation)
        )
        self.assertEqual((), config.label_counts)

    def test_given_labels(self):
        config, _ = _complete(_read("b", "a", "b"), labels=["b", "c", "a"])
        self.assertEqual(("b", "c", "a"), config.labels)
        self.assertEqual((2, 0, 1), config.label_counts)

    def test_text_without_structure_has_blocks(self):
        config, _ = _complete(_read("a", "b", text="no mark"))
        self.assertEqual("blocks", config.units)


class RecordsTest(RecordsTestCase):
    TASK = TASK
    WORDS = "jan sings . he paints it rains who ?"
    SIZES = {
        "long_length": 24,
        "global_length": 12,
        "units": "sentences",
        "labels": ["a", "b"],
    }

    @parameterized.parameters(
        ("single", "b", [1], b'"b"'),
        ("multiple", ["b", "a"], [1, 0], b'["b", "a"]'),
        ("multiple", [], [], b"[]"),
    )
    def test_labels(self, kind, label, ids, gold):
        (record,) = _read(label)
        stored, counts = self.store(record, kind=kind)
        self.assertEqual((ids, [gold]), (stored["label_ids"], stored["gold"]))
        self.assertEqual(0, counts["labels_not_in_training_data"])
        # The CLS, "who ?", and units of 3 tokens each in two paragraphs.
        self.assertEqual(
            (12, 2, 3),
            tuple(counts[x] for x in ("tokens", "paragraphs", "units")),
        )

    def test_repeated_labels_are_counted(self):
        (record,) = _read(["b", "a", "b", "b"])
        stored, counts = self.store(record, kind="multiple")
        self.assertEqual([1, 0], stored["label_ids"])
        self.assertEqual(2, counts["labels_repeated"])

    def test_number(self):
        (record,) = _read(2.5)
        stored, _ = self.store(record, kind="number", labels=())
        self.assertEqual([2.5], stored["number"])
        self.assertEqual([b"2.5"], stored["gold"])

    def test_unknown_labels_are_counted_or_raise_in_training(self):
        single, multiple = _read("c", ["c", "b", "d"])
        for record, kind, ids, number in (
            (single, "single", [], 1),
            (multiple, "multiple", [1], 2),
        ):
            stored, counts = self.store(record, kind=kind)
            self.assertEqual(ids, stored["label_ids"])
            self.assertEqual(number, counts["labels_not_in_training_data"])
            with self.assertRaisesRegex(
                RecordError, r"'label': got 'c', expected one of \['a', 'b'\]"
            ):
                self.store(record, "train", kind=kind)

    def test_blocks(self):
        """Nine tokens fill three blocks; the query has its own token."""
        (record,) = _read("a")
        stored, counts = self.store(
            record, "train", kind="single", units="blocks", block_size=4
        )
        self.assertLen(stored["global_token_ids"], 2 + 3)
        self.assertEqual(3, counts["blocks"])


if __name__ == "__main__":
    tf.test.main()
