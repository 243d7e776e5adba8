"""Tests losses over documents on one device, two devices and two hosts."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import span_loss
from testing.helpers import call_in_fresh_process
from testing.helpers import call_on_two_workers
from testing.helpers import run_on_replicas
from testing.helpers import two_device_strategy

LENGTH, OPTIONS = 5, 3
# Documents 4 and 9 span both halves. Document 7 has no answer.
IDS = np.array([4, 9, 0, 2, 4, 7, 9, 4], np.int32)
BLOCKS = len(IDS)
SUPPORTING = np.array([1, 1, 1, 0, 0, 1, 1, 1], np.int32)


def make_batch(scale=1.0, dtype=np.float64):
    """Returns logits and annotations of spans, logits and labels of options."""
    rng = np.random.default_rng(3)
    begins = rng.integers(0, 3, size=[BLOCKS, 3])
    labels = np.array(
        [
            [1, 1, 0],
            [0, 0, 0],
            # This block is padding.
            [1, 1, 1],
            [5, 0, 0],
            [0, 0, 0],
            [0, 0, 0],
            [0, 2, 1],
            [1, 1, 1],
        ]
    )
    # The same answer occurs twice.
    begins[7, :2] = 1
    ends = begins + rng.integers(0, 3, size=begins.shape)
    ends[7, :2] = 3
    return dict(
        logits=(scale * rng.normal(size=[BLOCKS, LENGTH, 2])).astype(dtype),
        begins=begins.astype(np.int32),
        ends=ends.astype(np.int32),
        labels=labels.astype(np.int32),
        choices=(scale * rng.normal(size=[BLOCKS, OPTIONS])).astype(dtype),
        right=rng.integers(0, OPTIONS, size=[BLOCKS]).astype(np.int32),
    )


def log_sum_exp(x):
    """Computes the log of the sum of exponentials, in float64."""
    x = np.asarray(x, np.float64)
    return x.max() + np.log(np.sum(np.exp(x - x.max())))


def softmax(x):
    """Computes a softmax over a whole array, in float64."""
    x = np.asarray(x, np.float64)
    return np.exp(x - x.max()) / np.sum(np.exp(x - x.max()))


def span_reference(batch, ids):
    """Computes losses, weights and the gradient, one document at a time."""
    losses, weights = np.zeros([2, len(ids)])
    gradient = np.zeros(batch["logits"].shape)
    for document in set(ids.tolist()) - {0}:
        rows = np.flatnonzero(ids == document)
        total = 0.0
        for column, positions in enumerate((batch["begins"], batch["ends"])):
            z = np.float64(batch["logits"][rows, :, column])
            is_right = np.zeros(z.shape, bool)
            for i, row in enumerate(rows):
                for position, label in zip(
                    positions[row], batch["labels"][row], strict=True
                ):
                    is_right[i, position] |= label > 0
            if not is_right.any():
                break
            total += log_sum_exp(z) - log_sum_exp(z[is_right])
            slope = softmax(z)
            slope[is_right] -= softmax(z[is_right])
            gradient[rows, :, column] = slope
        else:
            losses[rows] = total / len(rows)
            weights[rows] = 1 / len(rows)
    return losses, weights, gradient


def choice_reference(batch, ids):
    """Computes the reference of the options' losses, weights and gradient."""
    losses, weights = np.zeros([2, len(ids)])
    gradient = np.zeros(batch["choices"].shape)
    for question in set(ids.tolist()) - {0}:
        rows = np.flatnonzero(ids == question)
        supporting = [row for row in rows if SUPPORTING[row]]
        z = np.float64(batch["choices"][rows])
        for row in supporting:
            share = 1 / len(supporting)
            right = batch["right"][row]
            score = np.float64(batch["choices"][row, right])
            losses[row] = (log_sum_exp(z) - score) * share
            weights[row] = share
            gradient[rows] += share * softmax(z)
            gradient[row, right] -= share
    return losses, weights, gradient


def expect(batch, ids=IDS):
    """Returns the expected result of `compute`."""
    return [*span_reference(batch, ids), *choice_reference(batch, ids)]


def compute(batch, ids, supporting):
    """Returns losses, weights and gradients of both losses."""
    logits, choices = batch["logits"], batch["choices"]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([logits, choices])
        spans = span_loss.batch_span_cross_entropy_loss(
            logits, batch["begins"], batch["ends"], batch["labels"], ids
        )
        options = span_loss.choice_losses(
            choices, batch["right"], supporting, ids
        )
        sums = [tf.reduce_sum(x.losses) for x in (spans, options)]
    return [
        *spans,
        tape.gradient(sums[0], logits),
        *options,
        tape.gradient(sums[1], choices),
    ]


def run(strategy):
    """Returns losses, gradients and masks of the batch."""
    return run_on_replicas(
        strategy,
        lambda ids, supporting, **batch: [
            *compute(batch, ids, supporting),
            span_loss.get_multi_doc_mask(ids),
        ],
        make_batch() | dict(ids=IDS, supporting=SUPPORTING),
    )


def run_on_two_devices():
    return run(two_device_strategy())


def run_on_two_workers():
    return run(tf.distribute.MultiWorkerMirroredStrategy())


def batch_tensors(batch):
    """Converts the arrays of a batch to tensors."""
    return {name: tf.constant(x) for name, x in batch.items()}


class CrossBatchSoftmaxTest(tf.test.TestCase, parameterized.TestCase):
    def test_worked_example(self):
        logits = np.log([[[1.0], [2.0]], [[9.0], [9.0]], [[3.0], [4.0]]])
        mask = span_loss.get_document_mask([5, 0, 5])
        self.assertAllEqual([[1, 0, 1], [0, 0, 0], [1, 0, 1]], mask)
        self.assertAllClose(
            [[[0.1], [0.2]], [[0.0], [0.0]], [[0.3], [0.4]]],
            tf.exp(span_loss.cross_batch_log_softmax(logits, mask)),
        )
        actual = span_loss.cross_batch_log_softmax(
            tf.constant(logits, tf.bfloat16), tf.cast(mask, tf.int32)
        )
        self.assertEqual(tf.float32, actual.dtype)
        self.assertAllClose(
            np.log([[0.1], [0.2]]), actual[0], rtol=0.02, atol=0.02
        )
        self.assertAllEqual([[-1e9], [-1e9]], actual[1])

    @parameterized.parameters((3, 4, 1.0), (12, 3000, 100.0), (12, 3000, 1e8))
    def test_logits_of_any_size(self, blocks, length, scale):
        """Includes batches in which several logits are the maximum."""
        rng = np.random.default_rng(length)
        logits = rng.normal(size=[blocks, length, 2])
        logits = np.float32(scale * logits)
        logits[:2, :3] = logits.max() + scale
        ids = np.arange(blocks) % 3 + 1
        actual = np.exp(
            span_loss.cross_batch_log_softmax(
                logits, span_loss.get_document_mask(ids)
            )
        )
        for document, column in np.ndindex(3, 2):
            rows = ids == document + 1
            self.assertAllClose(
                softmax(logits[rows, :, column]), actual[rows, :, column]
            )

    def test_rank(self):
        for logits, mask, name in (
            (tf.zeros([2, 3]), tf.ones([2, 2]), "logits"),
            (tf.zeros([2, 3, 1]), tf.ones([2]), "cross_blocks_eq_mask"),
        ):
            with self.assertRaisesRegex(ValueError, f"'{name}' has rank"):
                span_loss.cross_batch_log_softmax(logits, mask)


class MultiDocMaskTest(tf.test.TestCase):
    def test_golden_values(self):
        for ids, expected in (
            ([1, 0, 1, 2], [1, 0, 1, 0]),
            ([-100, -100, -7, 0, 13, -100], [1, 1, 0, 0, 0, 1]),
            ([0, 0], [0, 0]),
        ):
            actual = span_loss.get_multi_doc_mask(ids)
            self.assertEqual(tf.float32, actual.dtype)
            self.assertAllEqual(expected, actual)
        with self.assertRaisesRegex(ValueError, "'block_ids' has rank 2"):
            span_loss.get_multi_doc_mask([[1, 2]])


class LossesTest(tf.test.TestCase, parameterized.TestCase):
    def test_worked_examples(self):
        # The answer is the second token of the second block.
        annotations = [[[0], [1]], [[0], [1]], [[0], [1]]]
        logits = np.log([[[1.0] * 2, [2.0] * 2], [[3.0] * 2, [4.0] * 2]])
        found = span_loss.batch_span_cross_entropy_loss(
            logits, *annotations, [6, 6]
        )
        self.assertAllClose(-np.log([0.4, 0.4]), found.losses)
        self.assertAllClose([0.5, 0.5], found.weights)
        for supporting, expected, weights in (
            ([1, 1], [-np.log(0.2) / 2, -np.log(0.4) / 2], [0.5, 0.5]),
            ([1, 0], [-np.log(0.2), 0.0], [1.0, 0.0]),
            ([False, False], [0.0, 0.0], [0.0, 0.0]),
        ):
            found = span_loss.choice_losses(
                logits[..., 0], [1, 1], supporting, [6, 6]
            )
            self.assertAllClose(expected, found.losses)
            self.assertAllClose(weights, found.weights)

    @parameterized.parameters(1.0, 1e3, 1e8)
    def test_equals_the_reference(self, scale):
        for dtype, tolerance in ((np.float64, 1e-9), (np.float32, 1e-4)):
            batch = make_batch(scale, dtype)
            actual = compute(
                batch_tensors(batch),
                tf.constant(IDS, tf.int64),
                tf.constant(SUPPORTING),
            )
            for x, y in zip(expect(batch), actual, strict=True):
                self.assertEqual(dtype, y.dtype)
                self.assertAllClose(x, y, tolerance, tolerance)

    def test_each_document_counts_once(self):
        losses, weights, _, choices, choice_weights, _ = compute(
            batch_tensors(make_batch()),
            IDS,
            SUPPORTING,
        )
        # Documents 2, 4 and 9 have an answer, and 4, 7 and 9 supporting blocks.
        self.assertAllClose([3.0, 3.0], [sum(weights), sum(choice_weights)])
        for x in (losses, weights, choices, choice_weights):
            self.assertAllEqual(0.0, x[2])
        self.assertAllEqual(np.isin(IDS, [2, 4, 9]), losses > 0)
        # Each block is its own document, as in the original code's tests.
        batch = make_batch()
        ids = np.arange(1, BLOCKS + 1)
        batch["labels"][:] = 1
        actual = compute(batch_tensors(batch), ids, SUPPORTING)
        self.assertAllClose(np.ones(BLOCKS), actual[1])
        self.assertAllClose(span_reference(batch, ids)[0], actual[0])

    def test_very_wrong_predictions_have_finite_losses_and_gradients(self):
        # The probability of the correct answer underflows.
        logits = np.zeros([1, 2, 2], np.float32)
        logits[0, 0] = 1e4
        found = compute(
            batch_tensors(
                dict(
                    logits=logits,
                    choices=logits[:, 0] * [[1.0, 0.0]],
                    begins=[[1]],
                    ends=[[1]],
                    labels=[[1]],
                    right=[1],
                )
            ),
            [3],
            [1],
        )
        self.assertAllClose([2e4], found[0])
        self.assertAllClose([[[1.0, 1.0], [-1.0, -1.0]]], found[2])
        self.assertAllClose([1e4], found[3])
        self.assertAllClose([[1.0, -1.0]], found[5])

    def test_compiled(self):
        batch = batch_tensors(make_batch())

        @tf.function(jit_compile=True)
        def step():
            return compute(batch, tf.constant(IDS), tf.constant(SUPPORTING))

        for x, y in zip(expect(make_batch()), step(), strict=True):
            self.assertAllClose(x, y, 1e-9, 1e-9)

    def test_errors(self):
        logits, ones = tf.zeros([2, 3, 2]), tf.ones([2, 1], tf.int32)
        good = [logits, ones, ones, ones, ones[:, 0]]
        names = ("logits", *(f"annotation_{x}" for x in ("begins", "ends")))
        for i, name in enumerate([*names, "annotation_labels", "block_ids"]):
            arguments = [*good[:i], tf.ones([4] * 4, tf.int32), *good[i + 1 :]]
            with self.assertRaisesRegex(ValueError, f"'{name}' has rank 4"):
                span_loss.batch_span_cross_entropy_loss(*arguments)
        good = [logits[0], *3 * [ones[:, 0]]]
        names = ("logits", "labels", "is_supporting", "block_ids")
        for i, name in enumerate(names):
            arguments = [*good[:i], tf.ones([4] * 4, tf.int32), *good[i + 1 :]]
            with self.assertRaisesRegex(ValueError, f"'{name}' has rank 4"):
                span_loss.choice_losses(*arguments)


class DistributionTest(tf.test.TestCase):
    def check(self, actual):
        """Compares the results of all replicas with the reference."""
        expected = [*expect(make_batch()), np.isin(IDS, [4, 9])]
        for x, y in zip(expected, actual, strict=True):
            self.assertAllClose(x, y, 1e-9, 1e-9)

    def test_one_device(self):
        self.check(run(tf.distribute.get_strategy()))

    def test_two_devices(self):
        self.check(call_in_fresh_process(run_on_two_devices))

    def test_two_processes(self):
        for found in call_on_two_workers(run_on_two_workers):
            self.check(found)


if __name__ == "__main__":
    tf.test.main()
