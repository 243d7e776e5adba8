import io
import json
import unittest

from etcmodel.datasets import hotpotqa
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.hotpotqa.records import Paragraph

_FACTS = (("Jan", 0), ("Brno", 0))


class PredictionsTest(unittest.TestCase):
    def test_writes_the_official_format(self):
        stream = io.StringIO()
        predictions = {"a": ("Moravia", _FACTS), "b": ('\u00e9 "x"', [])}
        hotpotqa.write_predictions(predictions, stream)
        self.assertEqual(
            json.loads(stream.getvalue()),
            {
                "answer": {"a": "Moravia", "b": '\u00e9 "x"'},
                "sp": {"a": [["Jan", 0], ["Brno", 0]], "b": []},
            },
        )

    def test_gold_and_score(self):
        context = (Paragraph("Jan", ("Jan is in Brno.",)),)
        for answer, facts in ((None, _FACTS), ("Moravia", None)):
            record = HotpotQARecord("a", "q", context, answer, facts)
            self.assertIsNone(hotpotqa.gold(record))
        record = HotpotQARecord("a", "q", context, "Moravia", _FACTS)
        gold = {"a": hotpotqa.gold(record)}
        scores = hotpotqa.score({"a": ("moravia", _FACTS)}, gold)
        self.assertEqual({scores[x] for x in ("em", "sp_em", "joint_em")}, {1})
        # One of two facts is predicted, without a wrong one.
        scores = hotpotqa.score({"a": ("Moravia", _FACTS[1:])}, gold)
        self.assertEqual(
            [scores[x] for x in ("em", "sp_prec", "sp_recall", "sp_em")],
            [1, 1, 0.5, 0],
        )


if __name__ == "__main__":
    unittest.main()
