import io
import json

import tensorflow as tf

from etcmodel.datasets.hotpotqa import answer_only
from etcmodel.errors import RecordError
from testing import samples
from testing.helpers import write_file


class ReadingTest(tf.test.TestCase):
    def _read(self, split="predict", **changes):
        path = write_file(self, [samples.hotpotqa(**changes)])
        (record,) = answer_only.FORMAT.read(path, split)
        return record

    def test_paragraphs_without_titles(self):
        record = self._read(
            context=[
                ["Jan", ["Jan was  born\n\nhere.", " He paints."]],
                ["Empty", []],
                ["Brno", ["Brno is a city."]],
            ],
            supporting_facts=[["Brno", 0], ["Jan", 1], ["Jan", 0]],
        )
        self.assertEqual(
            "Jan was born here. He paints.\n\n\n\nBrno is a city.", record.text
        )
        self.assertEqual((0, 2), record.supporting_parts)
        self.assertEqual(("Czech Republic",), record.answers)
        self.assertEqual("Czech Republic", answer_only.gold(record))

    def test_paragraphs_are_known_by_their_titles(self):
        """Titles identify paragraphs even if a sentence is out of range."""
        record = self._read(
            context=[["Jan", ["Jan."]], ["Ida", ["x"]], ["Brno", ["A city."]]],
            supporting_facts=[["Jan", 0], ["Brno", 7], ["Prague", 0]],
        )
        self.assertEqual((0, 2), record.supporting_parts)

    def test_no_supporting_facts(self):
        """A record may lack supporting facts."""
        record = self._read(answer=None, supporting_facts=None)
        self.assertIsNone(record.answers)
        self.assertIsNone(answer_only.gold(record))
        for split in ("train", "dev"):
            for facts in (None, []):
                record = self._read(split, supporting_facts=facts)
                self.assertIsNone(record.supporting_parts)
        # The context lacks the only fact.
        record = self._read("train", supporting_facts=[["x", 0]])
        self.assertEqual((), record.supporting_parts)
        with self.assertRaisesRegex(RecordError, "answer.*is empty"):
            self._read("train", answer=" ", supporting_facts=None)

    def test_score_and_predictions(self):
        scores = answer_only.score(
            {"a": "the Brno", "b": "x"}, {"a": "brno", "b": "y", "c": "z"}
        )
        self.assertEqual({"em", "f1", "prec", "recall"}, {*scores})
        self.assertAllClose([1 / 3] * 4, list(scores.values()))
        stream = io.StringIO()
        answer_only.write_predictions({"a": "Brno"}, stream)
        self.assertEqual(
            {"answer": {"a": "Brno"}, "sp": {"a": []}},
            json.loads(stream.getvalue()),
        )


if __name__ == "__main__":
    tf.test.main()
