import copy
import json
import math
import unittest

import numpy as np

from etcmodel.tasks.errors import UserError
from etcmodel.tasks.nq import predictions
from etcmodel.tasks.nq.metrics import NULL_SPAN
from etcmodel.tasks.nq.metrics import NQPrediction

PREDICTIONS = {
    "-2226525965842375672": NQPrediction(
        (391, 604), 13.5, ((555, 560), (570, 571)), 26.4
    ),
    "7": NQPrediction((3, 9), 1.0, (), -2.5, "yes"),
    "0": NQPrediction(NULL_SPAN, -math.inf, (), 0.0),
    "my own": NQPrediction(NULL_SPAN, 0.0, ((0, 1),), 0.0, "none"),
    "007": NQPrediction(NULL_SPAN, 0.0, (), 0.0, "no"),
}


def _span(start: int, end: int) -> dict[str, int]:
    return {
        "start_token": start,
        "end_token": end,
        "start_byte": -1,
        "end_byte": -1,
    }


ENTRY = {
    "example_id": 12,
    "long_answer": _span(3, 9),
    "long_answer_score": 1,
    "short_answers": [_span(4, 5), _span(-1, -1), _span(6, 7)],
    "short_answers_score": 0.5,
    "yes_no_answer": "NONE",
}


class MakePredictionTest(unittest.TestCase):
    def _make(self, **changes):
        outputs = {
            "best_long_answer_start": 3,
            "best_long_answer_end": 9,
            "long_answer_score": -2.5,
            "best_short_answer_start": 4,
            "best_short_answer_end": 6,
            "short_answer_score": 1.5,
            "best_yes_no": 0,
        } | changes
        return predictions.make_prediction(
            *(outputs[name] for name in predictions.DECODED)
        )

    def test_spans(self):
        """However low the scores are."""
        self.assertEqual(
            NQPrediction((3, 9), -2.5, ((4, 6),), 1.5, "none"), self._make()
        )

    def test_yes_and_no(self):
        nothing = {"best_short_answer_start": -1, "best_short_answer_end": -1}
        for number, text in ((1, "yes"), (2, "no")):
            self.assertEqual(
                NQPrediction((3, 9), -2.5, (), 1.5, text),
                self._make(best_yes_no=number, **nothing),
            )

    def test_no_answers(self):
        value = self._make(
            best_long_answer_start=-1,
            best_long_answer_end=-1,
            best_short_answer_start=-1,
            best_short_answer_end=-1,
        )
        self.assertEqual(NQPrediction(NULL_SPAN, -2.5, (), 1.5), value)
        (entry,) = predictions.predictions_to_json({"1": value})["predictions"]
        self.assertEqual(_span(-1, -1), entry["long_answer"])
        self.assertEqual([], entry["short_answers"])

    def test_outputs_of_decoding(self):
        """By name: those that do not depend on a threshold."""
        self.assertEqual(
            [
                f"best_{kind}_answer_{end}"
                for kind in ("long", "short")
                for end in ("start", "end")
            ],
            [x for x in predictions.DECODED if "best" in x and "_no" not in x],
        )
        self.assertIn("best_yes_no", predictions.DECODED)


class PredictionsToJsonTest(unittest.TestCase):
    def test_official_format(self):
        first, second, *_ = predictions.predictions_to_json(PREDICTIONS)[
            "predictions"
        ]
        self.assertEqual(
            {
                "example_id": -2226525965842375672,
                "long_answer": _span(391, 604),
                "long_answer_score": 13.5,
                "short_answers": [_span(555, 560), _span(570, 571)],
                "short_answers_score": 26.4,
                "yes_no_answer": "NONE",
            },
            first,
        )
        self.assertEqual(7, second["example_id"])
        self.assertEqual([], second["short_answers"])
        self.assertEqual("YES", second["yes_no_answer"])

    def test_numpy_values(self):
        value = predictions.predictions_to_json(
            {
                "1": NQPrediction(
                    (np.int64(1), np.int64(2)),
                    np.float32(0.5),
                    ((np.int32(1), np.int32(2)), NULL_SPAN),
                    np.float64(2.0),
                )
            }
        )
        self.assertEqual(
            {"1": NQPrediction((1, 2), 0.5, ((1, 2),), 2.0)},
            predictions.parse_predictions(json.loads(json.dumps(value))),
        )

    def test_round_trip(self):
        value = predictions.predictions_to_json(PREDICTIONS)
        self.assertEqual(
            PREDICTIONS,
            predictions.parse_predictions(json.loads(json.dumps(value))),
        )
        self.assertEqual(
            value,
            predictions.predictions_to_json(
                predictions.parse_predictions(value)
            ),
        )

    def test_no_predictions(self):
        self.assertEqual(
            {"predictions": []}, predictions.predictions_to_json({})
        )
        self.assertEqual({}, predictions.parse_predictions({"predictions": []}))


class ParsePredictionsTest(unittest.TestCase):
    def _parse(self, **changes):
        """Parses one entry; a change to None leaves the field out."""
        entry = copy.deepcopy(ENTRY) | changes
        entry = {key: x for key, x in entry.items() if x is not None}
        return predictions.parse_predictions(
            {"predictions": [ENTRY | {"example_id": 11}, entry]}, "p.json"
        )["12"]

    def _message(self, **changes):
        with self.assertRaises(UserError) as context:
            self._parse(**changes)
        return str(context.exception)

    def test_null_spans_are_left_out(self):
        self.assertEqual(
            NQPrediction((3, 9), 1.0, ((4, 5), (6, 7)), 0.5), self._parse()
        )

    def test_answers_may_be_left_out(self):
        self.assertEqual(
            NQPrediction(NULL_SPAN, 1.0, (), 0.5, "none"),
            self._parse(
                long_answer=None, short_answers=None, yes_no_answer=None
            ),
        )
        # And so may the bytes.
        span = {"start_token": 1, "end_token": 2}
        self.assertEqual((1, 2), self._parse(long_answer=span).long_answer)

    def test_yes_no_in_any_case(self):
        for text in ("YES", "yes", "Yes"):
            value = self._parse(yes_no_answer=text, short_answers=[])
            self.assertEqual("yes", value.yes_no)

    def test_bytes_beside_tokens_are_ignored(self):
        span = _span(1, 2) | {"start_byte": 100, "end_byte": 110}
        self.assertEqual((1, 2), self._parse(long_answer=span).long_answer)

    def test_bytes_without_tokens(self):
        span = _span(-1, -1) | {"start_byte": 100, "end_byte": 110}
        message = self._message(short_answers=[_span(1, 2), span])
        self.assertIn(
            "p.json, prediction 1 (example_id 12), field 'short_answers', "
            "element 1: there are byte offsets, but no token offsets",
            message,
        )

    def test_messages_name_the_place(self):
        where = "p.json, prediction 1 (example_id 12)"
        for changes, expected in [
            ({"long_answer": [3, 9]}, "field 'long_answer': got [3, 9], exp"),
            (
                {"long_answer": {"start_token": 3}},
                "field 'long_answer': there is no field 'end_token' (there "
                "are: start_token)",
            ),
            (
                {"long_answer": _span("3", 9)},
                "field 'long_answer', field 'start_token': got '3', expected "
                "an integer",
            ),
            (
                {"long_answer": _span(9, 3)},
                "field 'long_answer': No span of tokens: (9, 3)",
            ),
            (
                {"long_answer": _span(-1, -1) | {"start_byte": 1.5}},
                "field 'long_answer', field 'start_byte': got 1.5",
            ),
            ({"short_answers": {}}, "field 'short_answers': got {}, expected"),
            (
                {"short_answers": [_span(1, 2), 5]},
                "field 'short_answers', element 1: got 5",
            ),
            (
                {"long_answer_score": "1"},
                "field 'long_answer_score': got '1', expected a number",
            ),
            ({"long_answer_score": True}, "field 'long_answer_score': got T"),
            ({"long_answer_score": math.nan}, "'long_answer_score': got nan"),
            ({"short_answers_score": 10**400}, "'short_answers_score': got 1"),
            ({"yes_no_answer": "maybe"}, "field 'yes_no_answer': got 'maybe'"),
            ({"yes_no_answer": True}, "field 'yes_no_answer': got True"),
        ]:
            with self.subTest(str(changes)[:60]):
                message = self._message(**changes)
                self.assertTrue(message.startswith(where), msg=message)
                self.assertIn(expected, message)

    def test_scores_are_required(self):
        for field in ("long_answer_score", "short_answers_score"):
            self.assertIn(
                f"(example_id 12): there is no field {field!r}",
                self._message(**{field: None}),
            )

    def test_yes_with_spans(self):
        self.assertIn(
            "(example_id 12): The answer is both 'yes' and the spans "
            "((4, 5), (6, 7))",
            self._message(yes_no_answer="YES"),
        )

    def test_ids(self):
        self.assertIn("'example_id': got 1.5", self._message(example_id=1.5))
        self.assertIn("'example_id': got True", self._message(example_id=True))
        self.assertIn("'example_id': got ''", self._message(example_id=""))
        self.assertIn(
            "prediction 1: there is no field 'example_id'",
            self._message(example_id=None),
        )
        for same in (11, "11"):
            self.assertIn("occurs twice", self._message(example_id=same))

    def test_whole_file(self):
        for value, expected in [
            ([], "x.json: got [], expected an object"),
            ({}, "x.json: there is no field 'predictions' (there are: none)"),
            ({"predictions": {}}, "x.json, field 'predictions': got {}"),
            ({"predictions": [3]}, "x.json, prediction 0: got 3"),
        ]:
            with self.assertRaises(UserError) as context:
                predictions.parse_predictions(value, "x.json")
            self.assertIn(expected, str(context.exception))


if __name__ == "__main__":
    unittest.main()
