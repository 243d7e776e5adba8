"""Tests of the shared tools, and what the streaming attentions' tests share."""

import collections
import contextlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import attention_specs
from etcmodel.layers import streaming_local
from etcmodel.layers import streaming_tools

# Half the distance of 1 to the next number.
UNIT_ROUNDOFF = {
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}


@contextlib.contextmanager
def chunks_of(elements, min_block_len=1):
    """Makes chunks (and blocks of local attention) as small as in long texts.

    Args:
        elements: about how many scores a chunk has; 1 for the smallest chunks.
        min_block_len: queries of a block, unless the radius is larger.
    """
    with (
        mock.patch.object(streaming_tools, "CHUNK_ELEMENTS", elements),
        mock.patch.object(streaming_local, "MIN_BLOCK_LEN", min_block_len),
    ):
        yield


def make_specs(rng, batch, long_len, side_len, radius):
    """Random descriptions of the long queries' masks and labels.

    Returns:
        Arguments of local attention, and the same as int arrays by what the
        descriptions mean.
    """
    long_shape = (batch, long_len)
    segment_ids = np.sort(rng.integers(4, size=long_shape), axis=1)
    # Runs of equal labels on both sides where the radius is large.
    pattern = np.clip(np.arange(-radius, radius + 1), -2, 2) + 2
    long_ids = rng.integers(3, size=long_shape)
    global_ids = rng.integers(2, size=(batch, side_len))
    links = [
        tf.constant(rng.integers(-1, side_len + 1, size=long_shape))
        for _ in range(2)
    ]
    exempt_long = rng.random(long_shape) < 0.2
    exempt_global = rng.random((batch, side_len)) < 0.2
    specs = dict(
        att_mask=attention_specs.SegmentMask(segment_ids),
        relative_att_ids=attention_specs.DistanceLabels(pattern),
        side_att_mask=attention_specs.LongGlobalMask(
            long_ids, global_ids, links, exempt_long, exempt_global
        ),
        side_relative_att_ids=attention_specs.LongGlobalLabels(
            links, linked=4, not_linked=1
        ),
    )
    around = np.pad(segment_ids, [[0, 0], [radius, radius]], constant_values=-1)
    columns = [
        around[:, k : k + long_len] == segment_ids
        for k in range(2 * radius + 1)
    ]
    is_linked = (np.stack(links)[..., np.newaxis] == np.arange(side_len)).any(
        axis=0
    )
    is_allowed = long_ids[:, :, None] == global_ids[:, None]
    is_exempt = exempt_long[:, :, None] | exempt_global[:, None]
    arrays = dict(
        att_mask=np.stack(columns, axis=-1).astype(np.int32),
        relative_att_ids=np.tile(pattern, [batch, long_len, 1]),
        side_att_mask=(is_allowed & (is_linked | is_exempt)).astype(np.int32),
        side_relative_att_ids=np.where(is_linked, 4, 1),
    )
    return specs, arrays


def run(attend, floats, upstream):
    """The output and all gradients of an attention.

    Args:
        attend: function of the tensors in `floats` by name.
        floats: dict of float tensors or arrays.
        upstream: gradient of the output.

    Returns:
        Dict of the output, as "output", and each input's gradient.
    """
    floats = {name: tf.convert_to_tensor(x) for name, x in floats.items()}
    with tf.GradientTape() as tape:
        tape.watch(floats)
        output = attend(**floats)
    upstream = tf.cast(upstream, output.dtype)
    return {"output": output, **tape.gradient(output, floats, upstream)}


def cast(floats, dtype):
    """All arrays as tensors of a dtype."""
    return {name: tf.cast(x, dtype) for name, x in floats.items()}


def to_float64(results):
    """Tensors as float64 arrays."""
    return {name: tf.cast(x, tf.float64).numpy() for name, x in results.items()}


def assert_all_close(test, expected, actual, tolerance=1e-9, msg=""):
    """Compares two results of `run`."""
    test.assertCountEqual(expected, actual)
    for name, value in expected.items():
        test.assertAllClose(
            value,
            actual[name],
            rtol=tolerance,
            atol=tolerance,
            msg=f"{name} {msg}",
        )


def assert_at_most_twice_the_error(test, cases, dtype):
    """Checks the accuracy rule: half of the error is the plain form's own.

    Both forms get the same inputs, rounded to the dtype; what is right is the
    plain form's result for them in float64.

    Args:
        test: the test case.
        cases: triples of a function to be checked, the same by way of all
            pairs, and float64 arrays that both take by name; "upstream" among
            them is the output's gradient.
        dtype: name of a float dtype.
    """
    collected = collections.defaultdict(list)
    for attend, plain, floats in cases:
        rounded = cast(floats, dtype)
        upstream = rounded.pop("upstream")
        actual = to_float64(run(attend, rounded, upstream))
        baseline = to_float64(run(plain, rounded, upstream))
        exact = to_float64(run(plain, cast(rounded, tf.float64), upstream))
        for name, value in exact.items():
            collected[name].append(
                [value, actual[name] - value, baseline[name] - value]
            )
    # What is nearly exact by luck need not be beaten: rounding the result
    # itself makes an error of about as much.
    slack = UNIT_ROUNDOFF[dtype] / 2
    for name, arrays in collected.items():
        value, error, plain_error = (
            np.sqrt(np.mean(np.square(x)))
            for x in np.moveaxis(np.stack(arrays), 1, 0)
        )
        test.assertLessEqual(error, 2 * plain_error + slack * value, name)


def all_operations(graph):
    """The operations of a graph and of all functions that it may call."""
    operations = list(graph.get_operations())
    for name in graph._functions:
        operations += graph._get_function(name).graph.get_operations()
    return operations


def largest_size(operations, dtype):
    """Number of elements of the largest tensor of a dtype and known shape."""
    return max(
        output.shape.num_elements() or 0
        for operation in operations
        for output in operation.outputs
        if output.dtype == dtype and output.shape.rank
    )


class DropoutTest(parameterized.TestCase, tf.test.TestCase):
    def test_equal_seeds_and_indices_give_equal_factors(self):
        dropout = streaming_tools.Dropout(0.25, tf.constant([3, 5]))
        again = streaming_tools.Dropout(0.25, tf.constant([3, 5]))
        other = streaming_tools.Dropout(0.25, tf.constant([3, 6]))
        shape = [2, 3, 40]
        factors = dropout.factors(shape, tf.constant(7), tf.float32)
        self.assertAllEqual(
            factors, again.factors(shape, tf.constant(7), tf.float32)
        )
        self.assertNotAllEqual(
            factors, dropout.factors(shape, tf.constant(8), tf.float32)
        )
        self.assertNotAllEqual(
            factors, other.factors(shape, tf.constant(7), tf.float32)
        )

    @parameterized.parameters(0.1, 0.5, 0.75)
    def test_rate(self, rate):
        dropout = streaming_tools.Dropout(rate, tf.constant([0, 1]))
        factors = dropout.factors([100, 100], tf.constant(0), tf.float64)
        self.assertEqual(factors.dtype, tf.float64)
        self.assertAllClose(np.unique(factors), [0, 1 / (1 - rate)], rtol=1e-6)
        # Four deviations of the mean of 10,000 draws are at most 0.02.
        self.assertNear(np.mean(np.array(factors) == 0), rate, 0.02)

    def test_rate_as_a_tensor(self):
        seed = tf.constant([1, 2])
        for rate in (0.0, 0.3):
            self.assertAllEqual(
                streaming_tools.Dropout(tf.constant(rate), seed).factors(
                    [50], tf.constant(0), tf.float32
                ),
                streaming_tools.Dropout(rate, seed).factors(
                    [50], tf.constant(0), tf.float32
                ),
            )
        factors = streaming_tools.Dropout(tf.constant(0.0), seed).factors(
            [50], tf.constant(0), tf.float32
        )
        self.assertAllEqual(factors, np.ones(50))


class BandTest(parameterized.TestCase, tf.test.TestCase):
    def test_skew(self):
        rows = tf.constant([[[[1, 2, 3, 0, 0], [4, 5, 6, 0, 0]]]])
        self.assertAllEqual(
            streaming_tools.skew(rows, block_len=2, window=4),
            [[[[1, 2, 3, 0], [0, 4, 5, 6]]]],
        )

    def test_band_to_windows(self):
        band = tf.constant([[[1, 2, 3], [4, 5, 6], [7, 8, 9]]])
        self.assertAllEqual(
            streaming_tools.band_to_windows(band, block_len=2),
            [[[1, 2, 3, 0], [0, 4, 5, 6], [7, 8, 9, 0]]],
        )

    def test_unskew(self):
        windows = tf.constant([[[[1, 2, 3, 7], [8, 4, 5, 6]]]])
        self.assertAllEqual(
            streaming_tools.unskew(windows, block_len=2, width=3),
            [[[[1, 2, 3], [4, 5, 6]]]],
        )

    @parameterized.parameters((1, 1), (3, 2), (4, 4))
    def test_unskew_undoes_skew_in_every_block(self, block_len, radius):
        window, width = block_len + 2 * radius, 2 * radius + 1
        band = np.random.default_rng(0).random((2, 3, 3 * block_len, width))
        row = tf.pad(band, [[0, 0]] * 3 + [[0, block_len]])
        skewed = streaming_tools.skew(row, block_len, window)
        for i in range(3 * block_len):
            expected = np.zeros((2, 3, window))
            shift = i % block_len
            expected[..., shift : shift + width] = band[:, :, i]
            self.assertAllEqual(skewed[:, :, i], expected)
        self.assertAllEqual(
            streaming_tools.unskew(skewed, block_len, width), band
        )


class ChunksTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        # Units, how many a chunk may hold, length and number of chunks.
        (7, 3, 3, 3),
        (9, 4, 3, 3),
        (10, 4, 4, 3),
        # Two would be one.
        (8, 4, 8, 1),
        (5, 4, 5, 1),
        (4, 4, 4, 1),
        (1, 4, 1, 1),
        (5, 0.1, 1, 5),
    )
    def test_plan_chunks(self, num_units, most, chunk_len, num_chunks):
        with chunks_of(int(100 * most)):
            self.assertEqual(
                streaming_tools.plan_chunks(num_units, 100),
                (chunk_len, num_chunks),
            )
            planned = streaming_tools.plan_chunks(tf.constant(num_units), 100)
            self.assertAllEqual(planned, (chunk_len, num_chunks))

    @parameterized.parameters(1, 3)
    def test_loop_hands_the_state_on(self, num_chunks):
        def count(num_chunks):
            def body(index, total, array):
                total += index + 1
                return [total, array.write(index, tf.fill([2, 1], total))]

            total, array = streaming_tools.loop(
                num_chunks,
                body,
                [tf.constant(0), tf.TensorArray(tf.int32, num_chunks)],
            )
            return total, streaming_tools.concat_chunks(array)

        expected = np.cumsum(np.arange(1, num_chunks + 1))
        for given in (num_chunks, tf.constant(num_chunks)):
            for function in (count, tf.function(count)):
                total, rows = function(given)
                self.assertEqual(total, expected[-1])
                self.assertAllEqual(rows, [expected, expected])


class CutterTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        # Length, length and number of chunks.
        sizes=[(7, 4, 2), (8, 4, 2), (11, 4, 3), (3, 3, 1), (1, 4, 1)],
        margin=[0, 1, 5],
        is_known=[True, False],
    )
    def test_chunks_have_what_is_there(self, sizes, margin, is_known):
        length, chunk_len, num_chunks = sizes
        tensor = np.arange(2 * 3 * length).reshape(2, 3, length) + 1
        given = sizes if is_known else map(tf.constant, sizes)
        cutter = streaming_tools.Cutter(*given)
        prepared = cutter.prepare(tf.constant(tensor), margin, axis=2)
        for i in range(num_chunks):
            index = tf.constant(i)
            position = (
                i * chunk_len - margin + np.arange(chunk_len + 2 * margin)
            )
            exists = (position >= 0) & (position < length)
            self.assertAllEqual(cutter.positions(index, margin), position)
            self.assertAllEqual(cutter.exists(index, margin), exists)
            chunk = cutter.cut(prepared, index, margin, axis=2).numpy()
            self.assertEqual(chunk.shape, (2, 3, len(position)))
            self.assertAllEqual(
                chunk[..., exists], tensor[..., position[exists]]
            )

    def test_booleans(self):
        for length in (3, 9):
            cutter = streaming_tools.Cutter(length, 4, -(-length // 4))
            tensor = tf.fill([1, length], True)
            prepared = cutter.prepare(tensor, margin=1)
            chunk = cutter.cut(prepared, tf.constant(0), margin=1)
            self.assertEqual(tf.bool, chunk.dtype)
            self.assertAllEqual(chunk[0, 1:4], [True] * 3)


class SoftmaxTest(tf.test.TestCase):
    def test_one_softmax_over_two_pieces(self):
        rng = np.random.default_rng(0)
        raw = rng.standard_normal((2, 1, 3, 5)) * 30
        allowed = rng.random((2, 1, 3, 5)) < 0.7
        allowed[0, 0, 1] = False
        allowed[1, 0, 0] = [False, False, False, True, True]
        bias = streaming_tools.bias_of_mask(tf.constant(allowed), tf.float64)
        pieces = [
            streaming_tools.Piece(tf.constant(raw[..., part]), bias[..., part])
            for part in (slice(0, 3), slice(3, 5))
        ]
        weights, total, normalizer = streaming_tools.softmax_weights(
            pieces, tf.float64
        )
        exponentials = np.exp(raw) * allowed
        sums = exponentials.sum(-1, keepdims=True)
        is_empty = sums == 0
        sums[is_empty] = 1
        self.assertAllClose(
            tf.concat(weights, axis=-1) / total, exponentials / sums, rtol=1e-12
        )
        self.assertAllEqual(total[0, 0, 1], [1.0])
        maximum = np.max(np.where(allowed, raw, -np.inf), -1, keepdims=True)
        maximum[is_empty] = streaming_tools.LOWEST
        self.assertAllEqual(normalizer[..., :1], maximum)
        self.assertAllClose(
            np.exp(normalizer[..., 1:]), total, rtol=1e-12, atol=0
        )

    def test_linked_pairs_have_the_second_column(self):
        piece = streaming_tools.Piece(
            raw=tf.constant([[[[1.0, 2.0, 3.0]]]]),
            label=tf.constant([[[[10.0, 20.0]]]]),
            chosen=tf.constant([[[[False, True, False]]]]),
        )
        self.assertAllEqual(
            streaming_tools.scores(piece), [[[[11.0, 22.0, 13.0]]]]
        )


if __name__ == "__main__":
    tf.test.main()
