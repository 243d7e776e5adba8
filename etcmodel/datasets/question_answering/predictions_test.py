import io
import json

from absl.testing import absltest
from absl.testing import parameterized

from etcmodel.datasets import question_answering
from etcmodel.datasets.question_answering.predictions import Gold
from etcmodel.datasets.unit_positions import Selected


class GoldTest(absltest.TestCase):
    def test_gold(self):
        rows = [
            {"answers": ["Jan", "Jan N."], "evidence": [[0, 1]]},
            {"answers": []},
            {"answers": "YES"},
            {},
        ]
        base = {"question": "Who?", "paragraphs": [["Hi.", "Jan N. sings."]]}
        records = question_answering.FORMAT.read_rows(
            [{**base, **x} for x in rows], "predict"
        )
        self.assertEqual(
            [
                Gold(("Jan", "Jan N."), Selected(((0, 1),))),
                Gold(()),
                Gold(("YES",)),
                None,
            ],
            list(map(question_answering.gold, records)),
        )

    def test_strata(self):
        """A record's stratum is the type of its answer."""
        base = {"question": "Who?", "text": "Jan sings."}
        records = question_answering.FORMAT.read_rows(
            [{**base, "answers": x} for x in (["Jan"], [], "yes", "NO")]
        )
        self.assertEqual(
            ["span", "none", "yes", "no"],
            list(map(question_answering.stratum, records)),
        )


class ScoreTest(parameterized.TestCase):
    def _check(self, expected, predictions, gold):
        actual = question_answering.score(predictions, gold)
        self.assertEqual(list(expected), list(actual))
        for name, value in expected.items():
            self.assertAlmostEqual(value, actual[name], places=12, msg=name)

    def test_answers(self):
        gold = {
            "a": Gold(("York",)),
            "b": Gold(("Jan", "Eve")),
            "c": Gold(("yes",)),
        }
        predictions = {
            "a": {"answer": "York Minster"},
            "b": {"answer": "eve"},
            "other": {"answer": "yes"},
        }
        expected = {"exact_match": 1 / 3, "f1": (2 / 3 + 1) / 3}
        self._check(expected, predictions, gold)
        gold |= {"d": Gold(()), "e": Gold(())}
        predictions |= {"d": {"answer": ""}, "e": {"answer": "Jan"}}
        self._check(
            {
                "exact_match": 2 / 5,
                "f1": (2 / 3 + 1 + 1) / 5,
                "has_ans_exact_match": 1 / 3,
                "has_ans_f1": (2 / 3 + 1) / 3,
                "no_ans_exact_match": 1 / 2,
                "no_ans_f1": 1 / 2,
            },
            predictions,
            gold,
        )
        self._check(
            dict.fromkeys(
                ("exact_match", "f1", "no_ans_exact_match", "no_ans_f1"), 0.0
            ),
            {},
            {"d": Gold(())},
        )
        self._check({"exact_match": 0.0, "f1": 0.0}, {}, {})

    def test_evidence(self):
        gold = {
            # One of the two selected units is right; no right unit is missed.
            "a": Gold(("x",), Selected(((0, 1),))),
            # No unit is right.
            "b": Gold(("x",), Selected()),
            # The evidence is given as text, which matches two units. Only one
            # of them is selected.
            "c": Gold(("x",), Selected((), ("He sings. He paints.",))),
            "missing": Gold(("x",), Selected()),
            "not asked": Gold(("x",)),
        }
        predictions = {
            "a": {"answer": "x", "evidence": [[0, 1], [0, 0]]},
            "b": {"answer": "x", "evidence": []},
            "c": {
                "answer": "x",
                "evidence": [
                    (0, 0, 0.9, True, "He sings."),
                    (0, 1, 0.1, False, "He paints."),
                    (1, 0, 0.2, False, "He sings."),
                ],
            },
            "not asked": {"answer": "x"},
        }
        self._check(
            {
                "exact_match": 4 / 5,
                "f1": 4 / 5,
                "evidence_precision": (1 / 2 + 1 + 1 + 0) / 4,
                "evidence_recall": (1 + 1 + 1 / 2 + 0) / 4,
                "evidence_f1": (2 / 3 + 1 + 2 / 3 + 0) / 4,
            },
            predictions,
            gold,
        )

    def test_write_predictions(self):
        stream = io.StringIO()
        question_answering.write_predictions(
            {
                "1": {"answer": "Zlín", "evidence": [[0, 1]]},
                "2": {"answer": ""},
            },
            stream,
        )
        self.assertEqual({"1": "Zlín", "2": ""}, json.loads(stream.getvalue()))


if __name__ == "__main__":
    absltest.main()
