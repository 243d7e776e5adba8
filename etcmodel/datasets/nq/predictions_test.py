import io
import json
import math
import unittest

import msgspec
import numpy as np

from etcmodel.datasets import nq
from etcmodel.datasets.nq.metrics import NULL_SPAN
from etcmodel.datasets.nq.metrics import NQGold
from etcmodel.datasets.nq.metrics import NQPrediction
from etcmodel.datasets.nq.records import Annotation
from etcmodel.datasets.nq.records import NQRecord

_NONE = Annotation(-1, -1, (), "none")
_SHORT = Annotation(6, 11, ((8, 9), (9, 10)), "none")
_YES = Annotation(0, 5, (), "yes")


def _span(start: int, end: int) -> dict[str, int]:
    tokens = {"start_token": start, "end_token": end}
    return {**tokens, "start_byte": -1, "end_byte": -1}


class PredictionsTest(unittest.TestCase):
    def written(self, **predictions):
        stream = io.StringIO()
        nq.write_predictions(predictions, stream)
        written = json.loads(stream.getvalue())
        self.assertEqual(["predictions"], list(written))
        return written["predictions"]

    def test_the_official_format(self):
        key = "-2226525965842375672"
        spans = NQPrediction((391, 604), 13.5, ((555, 560), (570, 571)), 26.4)
        (prediction,) = self.written(**{key: spans})
        self.assertEqual(
            {
                "example_id": -2226525965842375672,
                "long_answer": _span(391, 604),
                "long_answer_score": 13.5,
                "short_answers": [_span(555, 560), _span(570, 571)],
                "short_answers_score": 26.4,
                "yes_no_answer": "NONE",
            },
            prediction,
        )
        (prediction,) = self.written(
            a=NQPrediction(NULL_SPAN, -math.inf, (), -2.5, "yes")
        )
        self.assertEqual(_span(-1, -1), prediction["long_answer"])
        self.assertEqual(-math.inf, prediction["long_answer_score"])
        self.assertEqual([], prediction["short_answers"])
        self.assertEqual("YES", prediction["yes_no_answer"])

    def test_ids(self):
        """Only ids that are integers in canonical form become numbers."""
        prediction = NQPrediction(NULL_SPAN, 0.0, (), 0.0)
        ids = ["7", "-3", "007", "my own", "1.0"]
        written = self.written(**dict.fromkeys(ids, prediction))
        self.assertEqual(
            [7, -3, "007", "my own", "1.0"], [x["example_id"] for x in written]
        )
        self.assertEqual([], self.written())

    def test_numbers_of_numpy(self):
        prediction = NQPrediction(
            (np.int64(1), np.int64(2)),
            np.float32(0.5),
            ((np.int32(1), np.int32(2)), NULL_SPAN),
            np.float64(2.0),
        )
        (written,) = self.written(a=prediction)
        self.assertEqual(_span(1, 2), written["long_answer"])
        self.assertEqual([_span(1, 2)], written["short_answers"])
        self.assertEqual(0.5, written["long_answer_score"])

    def _gold(self, *annotations):
        record = NQRecord("7", "q", ("a",) * 12, (False,) * 12, ())
        return nq.gold(msgspec.structs.replace(record, annotations=annotations))

    def test_gold(self):
        self.assertIsNone(self._gold())
        self.assertIsNone(nq.gold(NQRecord("7", "q", ("a",), (False,), ())))
        self.assertEqual(
            NQGold(
                long_answers=((6, 11), (-1, -1), (0, 5)),
                short_answers=(((8, 9), (9, 10)), (), ()),
                yes_no=("none", "none", "yes"),
            ),
            self._gold(_SHORT, _NONE, _YES),
        )

    def test_score(self):
        # Two of three annotators have answers; matching one of them is enough.
        scores = nq.score(
            {"7": NQPrediction((0, 5), 1.0, (), 1.0, "yes")},
            {"7": self._gold(_SHORT, _NONE, _YES)},
        )
        self.assertEqual(1.0, scores["long_best_threshold_f1"])
        self.assertEqual(1.0, scores["short_best_threshold_f1"])
        # Training data have one annotator, so one answer is enough. The
        # predicted short answer is only half of the right one.
        scores = nq.score(
            {"7": NQPrediction((6, 11), 0.5, ((8, 9),), 0.5)},
            {"7": self._gold(_SHORT)},
        )
        self.assertEqual(1.0, scores["long_best_threshold_f1"])
        self.assertEqual(0.0, scores["short_best_threshold_f1"])
        self.assertEqual(0.5, scores["average_best_threshold_f1"])
        # The official names, without "-" and ">=".
        self.assertIn("short_recall_at_precision_0.9", scores)
        self.assertEqual(21, len(scores))
        for name in scores:
            self.assertNotRegex(name, "[->=]")


if __name__ == "__main__":
    unittest.main()
