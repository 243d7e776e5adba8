"""Tests of WikiHop; `readers/records_test.py` tests errors in records."""

import json

import tensorflow as tf

from etcmodel.datasets import wikihop
from testing import samples
from testing.helpers import real_data_path
from testing.helpers import write_file


class RecordsTest(tf.test.TestCase):
    def _read(self, content, *args):
        return [*wikihop.FORMAT.read(write_file(self, content), *args)]

    def test_reads_a_record(self):
        (record,) = self._read([samples.wikihop()])
        self.assertEqual("WH_1", record.id)
        self.assertEqual("country_of_citizenship jan novak", record.query)
        self.assertLen(record.supports, 2)
        # Candidates are kept as written in the file.
        self.assertEqual(
            ("austria", "Czech Republic ", "poland"), record.candidates
        )
        # The answer is compared without letter case and surrounding spaces.
        self.assertEqual(1, record.answer_index)

    def test_answer_in_other_characters(self):
        """The answer may differ from its candidate in Unicode normal form."""
        candidates = ["Oslo", "Mu\u0308nchen\u00a0Ost", "Ulm"]
        (record,) = self._read(
            [samples.wikihop(candidates=candidates, answer="M\u00fcnchen Ost")]
        )
        self.assertEqual(1, record.answer_index)
        # The official metric does not normalize Unicode.
        (prediction,) = record.candidates[1:2]
        self.assertEqual(
            {"accuracy": 1.0},
            wikihop.score({"a": prediction}, {"a": wikihop.gold(record)}),
        )
        # A candidate that is equal by the metric takes precedence.
        same = samples.wikihop(
            candidates=["e\u0301", "\u00e9"], answer="\u00c9"
        )
        (record,) = self._read([same], "train")
        self.assertEqual(1, record.answer_index)

    def test_real_records(self):
        path = real_data_path("wikihop/train_22.json")
        read = list(wikihop.FORMAT.read(path))
        self.assertLen(read, 22)
        with open(path, encoding="utf-8") as stream:
            expected = json.load(stream)
        for record, value in zip(read, expected, strict=True):
            self.assertEqual(value["id"], record.id)
            self.assertEqual(value["query"], record.query)
            self.assertEqual(tuple(value["supports"]), record.supports)
            self.assertEqual(
                value["candidates"].index(value["answer"]), record.answer_index
            )

    def test_predict_needs_no_answer(self):
        records = [samples.wikihop(id="a", answer="france"), samples.wikihop()]
        del records[1]["answer"]
        read = self._read(records, "predict")
        self.assertEqual([None, None], [r.answer_index for r in read])


class MetricsTest(tf.test.TestCase):
    def test_counts_right_answers(self):
        score = wikihop.score(
            {"a": "Oslo ", "b": "Rome", "x": "not asked"},
            {"a": "oslo", "b": "paris", "c": "bonn", "d": "kyiv"},
        )
        self.assertEqual({"accuracy": 0.25}, score)
        self.assertEqual({"accuracy": 0.0}, wikihop.score({}, {}))


if __name__ == "__main__":
    tf.test.main()
