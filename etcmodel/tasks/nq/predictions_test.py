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


class PredictionsToJsonTest(unittest.TestCase):
    def test_round_trip(self):
        for given in (PREDICTIONS, {}):
            value = predictions.predictions_to_json(given)
            self.assertEqual(["predictions"], list(value))
            parsed = predictions.parse_predictions(
                json.loads(json.dumps(value))
            )
            self.assertEqual(given, parsed)
            self.assertEqual(value, predictions.predictions_to_json(parsed))

    def test_numpy_values(self):
        prediction = NQPrediction(
            (np.int64(1), np.int64(2)),
            np.float32(0.5),
            ((np.int32(1), np.int32(2)), NULL_SPAN),
            np.float64(2.0),
        )
        value = predictions.predictions_to_json({"1": prediction})
        self.assertEqual(
            {"1": NQPrediction((1, 2), 0.5, ((1, 2),), 2.0)},
            predictions.parse_predictions(json.loads(json.dumps(value))),
        )


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
        # And so may the bytes, which are ignored.
        span = {"start_token": 1, "end_token": 2}
        self.assertEqual((1, 2), self._parse(long_answer=span).long_answer)
        span |= {"start_byte": 100, "end_byte": 110}
        self.assertEqual((1, 2), self._parse(long_answer=span).long_answer)

    def test_yes_no_in_any_case(self):
        for text in ("YES", "yes", "Yes"):
            value = self._parse(yes_no_answer=text, short_answers=[])
            self.assertEqual("yes", value.yes_no)

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
            (
                {
                    "short_answers": [
                        _span(1, 2),
                        _span(-1, -1) | {"start_byte": 100, "end_byte": 110},
                    ]
                },
                "field 'short_answers', element 1: there are byte offsets, but "
                "no token offsets",
            ),
            ({"long_answer_score": None}, "there is no field 'long_answer_sc"),
            ({"short_answers_score": None}, "there is no field 'short_answers"),
            (
                {"yes_no_answer": "YES"},
                "The answer is both 'yes' and the spans ((4, 5), (6, 7))",
            ),
        ]:
            with self.subTest(str(changes)[:60]):
                message = self._message(**changes)
                self.assertTrue(message.startswith(where), msg=message)
                self.assertIn(expected, message)

    def test_ids(self):
        for value, expected in (
            (1.5, "'example_id': got 1.5"),
            (True, "'example_id': got True"),
            ("", "'example_id': got ''"),
            (None, "prediction 1: there is no field 'example_id'"),
            (11, "occurs twice"),
            ("11", "occurs twice"),
        ):
            self.assertIn(expected, self._message(example_id=value))

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
