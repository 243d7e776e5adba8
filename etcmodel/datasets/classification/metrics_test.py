import functools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from sklearn import metrics

from etcmodel.datasets import classification

# "Café" in two Unicode normal forms.
_NFC, _NFD = "Caf\u00e9", "Cafe\u0301"


def _predictions(labels, probabilities, names):
    return {
        str(i): {"label": x, "probabilities": dict(zip(names, p, strict=True))}
        for i, (x, p) in enumerate(zip(labels, probabilities, strict=True))
    }


def _score(predictions, gold):
    """Returns all scores but those of the baseline and `score`.

    `score` must equal the main metric.
    """
    scores = classification.score(predictions, gold)
    for name in ("majority_accuracy", "labels_predicted"):
        scores.pop(name, None)
    main = ("accuracy", "micro_f1", "negative_mean_squared_error")
    if scores:
        assert scores.pop("score") == next(
            scores[x] for x in main if x in scores
        )
    return scores


class ScoreTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(2, 3)
    def test_one_label_is_scikit_learns(self, number):
        random = np.random.default_rng(3)
        names = [str(i) for i in range(number)]
        truths = random.choice(names, 40)
        probabilities = random.dirichlet([1] * number, 40)
        found = [names[i] for i in probabilities.argmax(1)]
        scores = _score(
            _predictions(found, probabilities, names),
            {str(i): str(x) for i, x in enumerate(truths)},
        )
        area = (
            metrics.roc_auc_score(truths == "1", probabilities[:, 1])
            if number == 2
            else metrics.roc_auc_score(truths, probabilities, multi_class="ovr")
        )
        expected = {
            "accuracy": metrics.accuracy_score(truths, found),
            "macro_f1": metrics.f1_score(truths, found, average="macro"),
            "micro_f1": metrics.f1_score(truths, found, average="micro"),
            "auroc": area,
        }
        self.assertAllClose(expected, scores, rtol=1e-12)

    def test_one_label_by_hand(self):
        """Label "c" is never predicted, and record "3" has no prediction."""
        names = ("a", "b")
        predictions = _predictions(
            "aab", [(0.9, 0.1), (0.8, 0.2), (0.3, 0.7)], names
        )
        gold = {"0": "a", "1": "c", "2": "b", "3": "b"}
        self.assertAllClose(
            {
                "accuracy": 2 / 4,
                # Precision and recall: a 1/2 and 1, b 1 and 1/2, c 0 and 0.
                "macro_f1": (2 / 3 + 2 / 3 + 0) / 3,
                # 2 are right, of 3 predicted and 4 gold labels.
                "micro_f1": 2 * 2 / (3 + 4),
                # The missing prediction counts as 1 for a and c, and as 0 for
                # b. a: 0.9 is above 0.8 and 0.3, but below 1. b: 0.7 is above
                # both others, 0 is not. c: 0 equals two others and is below 1.
                "auroc": (2 / 3 + 2 / 4 + 1 / 3) / 3,
            },
            _score(predictions, gold),
        )

    def test_several_labels_are_scikit_learns(self):
        random = np.random.default_rng(5)
        names = ["a", "b", "c"]
        truths = random.random((30, 3)) < 0.4
        probabilities = random.random((30, 3))
        found = probabilities > 0.5

        def as_names(rows):
            return [tuple(np.array(names)[row].tolist()) for row in rows]

        scores = _score(
            _predictions(as_names(found), probabilities, names),
            {str(i): x for i, x in enumerate(as_names(truths))},
        )
        expected = {
            "exact_match": metrics.accuracy_score(truths, found),
            "macro_f1": metrics.f1_score(truths, found, average="macro"),
            "micro_f1": metrics.f1_score(truths, found, average="micro"),
            "auroc": metrics.roc_auc_score(truths, probabilities),
        }
        self.assertAllClose(expected, scores, rtol=1e-12)

    def test_labels_are_scored_together(self):
        """scikit-learn is called once for all labels, since calls are slow."""
        names = [str(i) for i in range(9)]
        predictions = _predictions(names, np.eye(9) * 0.5, names)
        gold = {x: x for x in predictions}
        spy = functools.partial(mock.patch.object, metrics)
        with (
            spy("f1_score", wraps=metrics.f1_score) as f1,
            spy("roc_auc_score", wraps=metrics.roc_auc_score) as auroc,
        ):
            scores = _score(predictions, gold)
        self.assertEqual((1.0, 1.0), (scores["macro_f1"], scores["auroc"]))
        self.assertLessEqual(f1.call_count, 2)
        self.assertEqual(1, auroc.call_count)

    @parameterized.parameters(
        # A document without labels and without prediction is wrong.
        ({}, {"0": ()}, {"exact_match": 0, "macro_f1": 0, "micro_f1": 0}),
        (
            {"0": {"label": [], "probabilities": {}}},
            {"0": ()},
            {"exact_match": 1, "macro_f1": 0, "micro_f1": 0},
        ),
        # A single label: one of two is found, and none is wrong. 0.2 is above
        # 0.1.
        (
            _predictions([["a"], [], []], [(0.9,), (0.2,), (0.1,)], "a"),
            {"0": ("a",), "1": ("a",), "2": ()},
            {
                **{"exact_match": 2 / 3, "auroc": 1.0},
                **{"macro_f1": 2 / 3, "micro_f1": 2 / 3},
            },
        ),
        # If all documents have the same label, AUROC is undefined.
        (
            _predictions("ab", [(0.9, 0.1), (0.2, 0.8)], "ab"),
            {"0": "a", "1": "a"},
            {"accuracy": 1 / 2, "macro_f1": 1 / 3, "micro_f1": 1 / 2},
        ),
        ({}, {}, {}),
        # The missing prediction counts as 1, the gold number farthest from 5.
        # The errors are 1, 0 and 4.
        (
            {"0": {"label": 2.0}, "1": {"label": 3.0}},
            {"0": 1.0, "1": 3.0, "2": 5.0},
            {
                "mean_squared_error": (1 + 0 + 16) / 3,
                "negative_mean_squared_error": -(1 + 0 + 16) / 3,
                # The ranks are 1, 2, 3 in gold, and 2, 3, 1 in the predictions.
                "spearman": -0.5,
            },
        ),
        (
            {"0": {"label": 2.0}, "1": {"label": 2.0}},
            {"0": 1.0, "1": 3.0},
            {"mean_squared_error": 1.0, "negative_mean_squared_error": -1.0},
        ),
    )
    def test_special_cases(self, predictions, gold, expected):
        self.assertAllClose(expected, _score(predictions, gold), rtol=1e-12)

    def test_spellings_are_one_label(self):
        predictions = _predictions(
            [_NFD, "b c", _NFD],
            [(0.9, 0.1), (0.2, 0.8), (0.6, 0.4)],
            [_NFD, "b c"],
        )
        gold = {"0": _NFC, "1": "b\u00a0c", "2": "B c"}
        scores = _score(predictions, gold)
        # "B c" is not the label "b c", so its document is the only mistake.
        self.assertAllClose(2 / 3, scores["accuracy"])
        self.assertAllClose((2 / 3 + 1 + 0) / 3, scores["macro_f1"])
        # 0.9 is above 0.2 and 0.6; 0.8 above 0.1 and 0.4; all have 0 for "B c".
        self.assertAllClose((1 + 1 + 0.5) / 3, scores["auroc"])

    def test_mixed_kinds(self):
        with self.assertRaisesRegex(ValueError, "mixes kinds of labels"):
            classification.score({}, {"0": "a", "1": 0.5})

    def test_baseline_of_one_label(self):
        """Notes appear for models no better than a constant label."""
        gold = dict(zip("012345", "aaabbc", strict=True))
        for labels, accuracy, number, expected in (
            ("aaaaaa", 3 / 6, 1, "same label for all documents .*of 0.5"),
            ("cccccc", 1 / 6, 1, "same label for all documents .*of 0.1667"),
            ("aabbaa", 3 / 6, 2, "of 0.5, which is not above 0.5, the acc"),
            ("aaabaa", 4 / 6, 2, None),
        ):
            made = _predictions(labels, np.full([6, 1], 0.5), "a")
            scores = classification.score(made, gold)
            self.assertAllClose(accuracy, scores["accuracy"])
            self.assertAllClose(3 / 6, scores["majority_accuracy"])
            self.assertEqual(number, scores["labels_predicted"])
            notes = classification.notes(scores)
            self.assertLen(notes, int(expected is not None))
            if expected:
                self.assertRegex(notes[0], expected)
        scores = classification.score({}, gold)
        self.assertEqual([], classification.notes(scores))
        # All documents have the same label, or several, or numbers.
        for gold, label in (("aa", "a"), (("a", "b"), ["a"]), ((0.5, 2.5), 1)):
            gold = {
                str(i): (x,) if isinstance(label, list) else x
                for i, x in enumerate(gold)
            }
            made = dict.fromkeys(gold, {"label": label})
            scores = classification.score(made, gold)
            self.assertEqual([], classification.notes(scores))


if __name__ == "__main__":
    tf.test.main()
