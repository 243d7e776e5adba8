import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.classify import model as model_lib
from etcmodel.tasks.classify.task import TASK

_LOG2, _LOG3 = math.log(2), math.log(3)
_NUMBERS = {"kind": "number", "label_mean": 10.0, "label_deviation": 2.0}


def _sizes(kind, *counts):
    """Returns a task's sizes, with labels that have the given counts."""
    return {
        "kind": kind,
        "labels": ["a", "b", "ü"][: len(counts)],
        "label_counts": list(counts),
    }


def _make(sizes, **options):
    return TASK.make_model(options=TASK.options(**options), sizes=sizes)


class PoolTest(tf.test.TestCase, parameterized.TestCase):
    # The first row has two tokens and padding, the second only padding.
    _VALUES = np.array(
        [[[1, -4], [3, -2], [9, 9]], [[5, 6], [7, 8], [9, 9]]], np.float32
    )
    _IS_TEXT = ((True, True, False), (False, False, False))

    @parameterized.parameters(("mean", [2, -3]), ("max", [3, -2]))
    def test_by_hand(self, kind, expected):
        pooled = model_lib.pool(
            tf.constant(self._VALUES), tf.constant(self._IS_TEXT), kind
        )
        self.assertAllClose([expected, [0, 0]], pooled)

    @parameterized.parameters(
        # "cls" is the first global token; "mean" and "max" ignore the query.
        ("cls", [7, 5], False),
        ("mean", [2, -3], False),
        ("max", [3, -2], False),
        # (2 - 1) / 2 and -3 / 5, both 20 times.
        ("mean", [10, -12], True),
    )
    def test_head(self, pooling, pooled, standardize):
        head = model_lib.DocumentHead(
            2, pooling, hidden_dropout_prob=0.0, standardize=standardize
        )
        inputs = (
            self._VALUES[:1],
            np.array([[[7, 5], [8, 8]]], np.float32),
            np.array([[1, 1, 3]]),
        )
        head(*inputs)
        kernel = np.array([[1.0, 10.0], [2.0, 20.0]], np.float32)
        head.logits.set_weights([kernel, np.array([0.5, 0.0], np.float32)])
        if standardize:
            head.standardization.mean.assign([1.0, 0.0])
            head.standardization.variance.assign([4.0, 25.0])
        total = pooled[0] + 2 * pooled[1]
        self.assertAllClose([[total + 0.5, 10 * total]], head(*inputs))

    def test_logits_of_word_counts(self):
        # The first row is a text with the token ids 1, 2, 1, 1, a query with
        # the id 3, and padding. The second row is padding.
        inputs = {
            "long_output": np.ones([2, 6, 2], np.float32),
            "global_output": np.ones([2, 1, 2], np.float32),
            "long_token_type_ids": np.array([[1] * 4 + [2, 0], [0] * 6]),
            "long_token_ids": np.array([[1, 2, 1, 1, 3, 0], [0] * 6]),
        }
        head = model_lib.DocumentHead(2, hidden_dropout_prob=0.0, vocab_size=4)
        before = head(**inputs)
        kernel = np.arange(8, dtype=np.float32).reshape([4, 2])
        head.word_logits.set_weights([kernel])
        # The counts 3 and 1 give the logarithms 2 and 1 in base 2, whose mean
        # square is 5/4.
        counts = np.array([[0, 2, 1, 0], [0] * 4]) / math.sqrt(5 / 4)
        self.assertAllClose(before + counts @ kernel, head(**inputs))

    @parameterized.parameters(
        ([1, 2, 1, 1, 3], [0, 2, 1, 0]),
        # In a longer text, the tokens 1 and 2 have the counts 4 and 2.
        ([1, 2, 1] * 2, [0, math.log2(5), math.log2(3), 0]),
        ([], [0, 0, 0, 0]),
    )
    def test_word_counts(self, ids, logarithms):
        mean = np.mean(np.square(logarithms))
        counted = model_lib.word_counts(
            tf.constant([ids], tf.int32),
            tf.constant([[x != 3 for x in ids]], tf.bool),
            4,
        )
        expected = np.array([logarithms]) / math.sqrt(mean or 1)
        self.assertAllClose(expected, counted)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "'sum', .*'cls', 'mean', 'max"):
            model_lib.DocumentHead(2, "sum")
        with self.assertRaisesRegex(ValueError, "no labels. Train on records"):
            model_lib.DocumentHead(0)


class LossTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ([3, 1, 0], [2 / 3, 2, 1]),
        ([5, 5], [1, 1]),
        # Each of three labels should have a total weight of four.
        ([6, 3, 3], [2 / 3, 4 / 3, 4 / 3]),
    )
    def test_balanced_weights(self, counts, expected):
        self.assertAllClose(expected, model_lib.label_weights(counts, True))
        self.assertAllEqual(
            tf.ones(len(counts)), model_lib.label_weights(counts, False)
        )

    def _losses(self, task_model, logits, labels):
        """Returns the losses of records, given the indices of their labels."""
        labels = task_model.labels(
            {},
            {
                "label_ids": tf.ragged.constant(labels, tf.int32, 1),
                "number": tf.zeros([len(labels)]),
            },
        )
        outputs = {"logits": tf.constant(logits)}
        return task_model.losses(outputs, labels)["label"]

    @parameterized.parameters(
        ({}, [_LOG2, 2 * _LOG2]),
        # The target is 0.8 for the right label, and 0.1 for each of the two
        # others.
        ({"label_smoothing": 0.3}, [1.2 * _LOG2, 1.9 * _LOG2]),
        ({"balanced": True}, [2 * _LOG2, 4 / 3 * _LOG2]),
        (
            {"balanced": True, "label_smoothing": 0.3},
            [2.4 * _LOG2, 3.8 / 3 * _LOG2],
        ),
    )
    def test_one_label(self, options, expected):
        """Probabilities are 1/4, 1/2, 1/4; the last record has no label."""
        task_model = _make(_sizes("single", 3, 1, 0), **options)
        logits = [[0.0, _LOG2, 0.0]] * 3
        self.assertAllClose(
            [*expected, 0.0], self._losses(task_model, logits, [[1], [0], []])
        )

    @parameterized.parameters(
        # The loss of a record is the sum of -log p over both labels. The
        # probabilities p are 1/2 and 3/4, 1/2 and 1/4, and 1/2 and 3/4.
        ({}, [math.log(8 / 3), math.log(8), math.log(8 / 3)]),
        (
            {"label_smoothing": 0.2},
            [
                _LOG2 + 0.9 * math.log(4 / 3) + 0.1 * math.log(4),
                _LOG2 + 0.1 * math.log(4 / 3) + 0.9 * math.log(4),
                _LOG2 + 0.9 * math.log(4 / 3) + 0.1 * math.log(4),
            ],
        ),
        # The weights of gold labels are 2/3 and 2.
        (
            {"balanced": True},
            [
                _LOG2 + 2 * math.log(4 / 3),
                _LOG2 + math.log(4),
                2 / 3 * _LOG2 + 2 * math.log(4 / 3),
            ],
        ),
    )
    def test_several_labels(self, options, expected):
        task_model = _make(_sizes("multiple", 3, 1), **options)
        logits = [[0.0, _LOG3]] * 3
        self.assertAllClose(
            expected, self._losses(task_model, logits, [[1], [], [1, 0]])
        )

    def test_batch_without_labels(self):
        task_model = _make(_sizes("single", 1, 1))
        losses = self._losses(task_model, [[1.0, 2.0]] * 2, [[], []])
        self.assertAllEqual([0.0, 0.0], losses)

    def test_number(self):
        """The number 14 is two standard deviations above the mean of 10."""
        task_model = _make(_NUMBERS)
        no_ids = tf.ragged.constant([[], []], tf.int32, 1)
        labels = task_model.labels(
            {}, {"number": tf.constant([14.0, 10.0]), "label_ids": no_ids}
        )
        # The stored fields are removed.
        self.assertEqual(["targets"], [*labels])
        self.assertAllEqual([[2.0], [0.0]], labels["targets"])
        outputs = {"logits": tf.constant([[1.0], [-3.0]])}
        losses = task_model.losses(outputs, labels)["label"]
        self.assertAllClose([1.0, 9.0], losses)


class DecodingTest(tf.test.TestCase):
    def _predict(self, task_model, logits):
        """Returns a batch's answers, and the last record's prediction."""
        answers = task_model.decode({"logits": tf.constant(logits)}, None, {})
        arrays = {x: y.numpy() for x, y in answers.items()}
        self.assertEqual({len(logits)}, {len(x) for x in arrays.values()})
        last = {x: y[-1] for x, y in arrays.items()}
        return arrays, task_model.to_prediction(last, {})

    def test_one_label(self):
        answers, prediction = self._predict(
            _make(_sizes("single", 1, 1, 1)),
            [[_LOG2, 0.0, 0.0], [0.0, 0.0, _LOG2]],
        )
        self.assertAllEqual([b"a", "ü".encode()], answers["label"])
        self.assertAllEqual([[b"a", b"b", "ü".encode()]] * 2, answers["labels"])
        self.assertAllClose(
            [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]], answers["probabilities"]
        )
        self.assertEqual("ü", prediction["label"])
        self.assertAllClose(
            {"a": 0.25, "b": 0.25, "ü": 0.5}, prediction["probabilities"]
        )

    def test_several_labels_by_threshold(self):
        """Probabilities are 1/2, 3/4 and 1/4; the default is 0.5."""
        sizes = _sizes("multiple", 1, 1, 1)
        for threshold, expected in (
            (None, ["a", "b"]),
            (0.6, ["b"]),
            (0.8, []),
            (0.2, ["a", "b", "ü"]),
        ):
            answers, prediction = self._predict(
                _make(sizes, threshold=threshold), [[0.0, _LOG3, -_LOG3]]
            )
            self.assertAllClose([[0.5, 0.75, 0.25]], answers["probabilities"])
            self.assertEqual(expected, prediction["label"])
            self.assertEqual(len(expected), answers["is_chosen"].sum())

    def test_number(self):
        answers, prediction = self._predict(_make(_NUMBERS), [[0.0], [1.5]])
        self.assertAllClose([10.0, 13.0], answers["number"])
        self.assertEqual({"label": 13.0, "probabilities": {}}, prediction)


if __name__ == "__main__":
    tf.test.main()
