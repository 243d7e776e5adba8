import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import span_prediction
from testing import references
from testing.layer_checks import randomize

HIDDEN, BLOCKS, LENGTH = 6, 2, 5
PADDING = 7
# Padding does not have the id 0, so zeros are ordinary tokens.
IDS = np.array([[0, 3, 7, 4, 7], [5, 0, 2, 6, 0]], np.int32)


def head_reference(head, x):
    """Computes the logits from the head's weights, in float64."""
    if head.transform is not None:
        x = x + references.feed_forward(head.transform.inner_layer, x)
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3)
        norm = head.transform.normalization_layers[0]
        x = x * np.array(norm.gamma, np.float64) + np.array(norm.beta)
    return references.dense(head.span_logits, x)


def make_head(intermediate_size=9, **kwargs):
    """Returns a built head with random weights."""
    head = span_prediction.SpanPredictionHead(intermediate_size, **kwargs)
    head.build((None, None, HIDDEN))
    randomize(head)
    return head


def make_states():
    return np.random.default_rng(1).normal(size=[BLOCKS, LENGTH, HIDDEN])


def all_spans(logits, max_length):
    """Returns all spans of a block with scores in float64, the best first."""
    logits = np.asarray(logits, np.float64)
    positions = range(len(logits))
    spans = [
        (logits[begin, 0] + logits[end, 1], begin, end)
        for begin, end in itertools.product(positions, positions)
        if begin <= end < begin + max_length
    ]
    return sorted(spans, key=lambda span: (-span[0], *span[1:]))


class SpanPredictionHeadTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(None, 9)
    def test_equals_the_reference(self, intermediate_size):
        head = make_head(intermediate_size)
        states = make_states()
        expected = head_reference(head, states)
        actual = head(tf.constant(states, tf.float32))
        self.assertAllClose(expected, actual, 1e-5, 1e-5)
        self.assertLen(head.weights, 8 if intermediate_size else 2)
        # Padding and the question are masked.
        for padding_id, prefix in (
            (PADDING, None),
            (0, None),
            (None, [1, 3]),
            (PADDING, [0, 5]),
        ):
            options, can_be = {}, np.ones([BLOCKS, LENGTH], bool)
            if padding_id is not None:
                options.update(token_ids=IDS, padding_token_id=padding_id)
                can_be &= padding_id != IDS
            if prefix is not None:
                options["ignore_prefix_length"] = tf.constant(prefix, tf.int64)
                for row, number in zip(can_be, prefix, strict=True):
                    row[:number] = False
            self.assertAllClose(
                np.where(can_be[..., None], expected, -1e6),
                head(tf.constant(states, tf.float32), **options),
                1e-5,
                1e-5,
            )

    def test_initial_weights(self):
        # By default, kernels are uniform up to the square root of 6 / (400 +
        # 2). With an `initializer_range`, they are normal, truncated at two
        # standard deviations.
        for deviation, limit in ((None, 0.1222), (0.5, 1.0)):
            head = span_prediction.SpanPredictionHead(
                None, initializer_range=deviation
            )
            head.build((None, None, 400))
            largest = np.abs(np.array(head.span_logits.kernel)).max()
            self.assertBetween(largest, 0.95 * limit, limit + 1e-6)
            self.assertAllEqual([0.0, 0.0], head.span_logits.bias)

    def test_errors(self):
        head = make_head(None)
        states = tf.ones([BLOCKS, LENGTH, HIDDEN])
        for options, message in (
            (dict(token_ids=IDS), "token_ids is given without padding_token"),
            (dict(padding_token_id=0), "padding_token_id is given without tok"),
            (
                dict(token_ids=IDS[0], padding_token_id=0),
                "'token_ids' has rank 1",
            ),
            (
                dict(ignore_prefix_length=IDS),
                "'ignore_prefix_length' has rank 2",
            ),
        ):
            with self.assertRaisesRegex(ValueError, message):
                head(states, **options)
        with self.assertRaisesRegex(ValueError, "hidden_states needs a static"):
            span_prediction.SpanPredictionHead(3).build((None, None, None))


class BestSpansTest(tf.test.TestCase, parameterized.TestCase):
    def test_worked_example(self):
        # The first block is the example of the docstring.
        logits = np.array(
            [
                [[1.0, 0.0], [0.0, 3.0], [2.5, 1.0]],
                [[5.0, 0.0], [0.0, 9.0], [4.0, 8.0]],
            ]
        )
        spans = span_prediction.best_spans(logits, max_length=2, k=2)
        self.assertAllEqual([[0, 2], [0, 2]], spans.begins)
        self.assertAllEqual([[1, 2], [1, 2]], spans.ends)
        self.assertAllClose([[4.0, 3.5], [14.0, 12.0]], spans.scores)
        self.assertEqual(
            [tf.int32, tf.int32, tf.float32], [x.dtype for x in spans]
        )

    def test_best_begin_and_best_end_can_be_an_invalid_span(self):
        logits = np.array([[[0.0, 5.0], [0.0, 4.0], [5.0, 0.0], [4.0, 0.5]]])
        spans = span_prediction.best_spans(logits, max_length=1, k=1)
        self.assertAllClose([[5.0]], spans.scores)
        self.assertAllEqual([[[0]], [[0]]], spans[:2])

    @parameterized.parameters((1, 3, 1.0), (3, 6, 1e8), (9, 30, 1.0))
    def test_equals_all_spans_compared(self, max_length, k, scale):
        """Tries several sizes, some with fewer than `k` spans."""
        rng = np.random.default_rng(max_length)

        @tf.function(input_signature=[tf.TensorSpec([None, None, 2])])
        def at_any_length(logits):
            return span_prediction.best_spans(logits, max_length, k)

        for blocks, length in ((3, 7), (1, 2)):
            # Some logits are equal. All sums are exact.
            logits = scale * rng.integers(-9, 9, size=[blocks, length, 2])
            spans = at_any_length(tf.constant(logits, tf.float32))
            for i in range(blocks):
                expected = all_spans(logits[i], max_length)[:k]
                number = len(expected)
                actual = zip(
                    spans.scores[i].numpy(),
                    spans.begins[i].numpy(),
                    spans.ends[i].numpy(),
                    strict=True,
                )
                self.assertEqual(expected, list(actual)[:number])
                self.assertAllEqual(
                    np.full(k - number, -2e6), spans.scores[i, number:]
                )
                self.assertAllInRange(spans.ends[i], 0, length - 1)
                self.assertAllInRange(
                    spans.ends[i] - spans.begins[i], 0, max_length - 1
                )

    def test_masked_tokens_come_last(self):
        logits = np.full([1, 4, 2], -1e6)
        logits[0, 2] = -30.0, -40.0
        spans = span_prediction.best_spans(logits, max_length=4, k=4)
        self.assertEqual((2, 2), (spans.begins[0, 0], spans.ends[0, 0]))
        self.assertAllClose(-70.0, spans.scores[0, 0])
        self.assertAllInRange(spans.scores[0, 1:], -2e6, -1e6)

    def test_compiled(self):
        logits = tf.random.stateless_normal([2, 6, 2], [1, 2])
        compiled = tf.function(span_prediction.best_spans, jit_compile=True)
        expected = span_prediction.best_spans(logits, 3, 4)
        for x, y in zip(expected, compiled(logits, 3, 4), strict=True):
            self.assertAllClose(x, y)

    def test_errors(self):
        logits = tf.zeros([1, 3, 2])
        for max_length, k in ((0, 1), (1, 0)):
            with self.assertRaisesRegex(ValueError, "must be at least 1"):
                span_prediction.best_spans(logits, max_length, k)
        with self.assertRaisesRegex(ValueError, "'logits' has rank 2"):
            span_prediction.best_spans(logits[0], 1, 1)


if __name__ == "__main__":
    tf.test.main()
