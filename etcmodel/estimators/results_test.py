import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.unit_positions import Unit
from etcmodel.estimators import results


class ResultsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("a", ["a", "3"], (), "a", ["a", "3"]),
        ("3", ["3", "a"], ["3"], 3, [3, "a"]),
        ("true", ["true", "false"], ["true", "false"], True, [True, False]),
        (["3", "a"], ["3", "a"], ["3"], [3, "a"], [3, "a"]),
        (2.5, [], ["3"], 2.5, []),
    )
    def test_classification(self, label, names, as_json, expected, labels):
        found = results.classification(
            "x",
            {"label": label, "probabilities": dict.fromkeys(names, 0.5)},
            as_json,
        )
        self.assertEqual([*results.Classification.__annotations__], [*found])
        self.assertEqual(("x", expected), (found["id"], found["label"]))
        self.assertIs(type(expected), type(found["label"]))
        self.assertEqual(
            [(x, 0.5) for x in labels], [*found["probabilities"].items()]
        )
        for x, y in zip(labels, found["probabilities"], strict=True):
            self.assertIs(type(x), type(y))

    def test_units(self):
        (found,) = results.scored_units("x", [Unit(1, 2, 0.25, False, "a")])
        expected = {
            "id": "x",
            "paragraph": 1,
            "number": 2,
            "text": "a",
            "probability": 0.25,
            "is_selected": False,
        }
        self.assertEqual(expected, found)
        self.assertEqual([*results.ScoredUnit.__annotations__], [*found])

    def test_answer(self):
        units = [Unit(0, 1, 0.75, True, "a"), Unit(1, 0, 0.25, False, "b")]
        found = results.answer(
            "x",
            {"answer": "a", "no_answer_probability": 0.5, "evidence": units},
        )
        expected = {
            "id": "x",
            "answer": "a",
            "no_answer_probability": 0.5,
            "evidence": [(0, 1)],
        }
        self.assertEqual(expected, found)
        self.assertEqual([*results.Answer.__annotations__], [*found])


if __name__ == "__main__":
    tf.test.main()
