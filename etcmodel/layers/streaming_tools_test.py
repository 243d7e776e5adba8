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


def make_specs(rng, batch, long_len, side_len, radius, linked=(4, 4)):
    """Random descriptions of the long queries' masks and labels.

    Args:
        rng: makes random numbers.
        batch: size of the batch.
        long_len: number of long tokens.
        side_len: number of global tokens.
        radius: of the local attention.
        linked: the labels of both links.

    Returns:
        Arguments of local attention, and the same as int arrays by what the
        descriptions mean.
    """
    long_shape = (batch, long_len)
    segment_ids = np.sort(rng.integers(4, size=long_shape), axis=1)
    # Runs of one label, at both ends, where the radius is large.
    pattern = (np.clip(np.arange(-radius, radius + 1), -2, 2) + 2) % 4
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
            links, linked=linked, not_linked=1
        ),
    )
    around = np.pad(segment_ids, [[0, 0], [radius, radius]], constant_values=-1)
    columns = [
        around[:, k : k + long_len] == segment_ids
        for k in range(2 * radius + 1)
    ]
    # [links, batch, long, side]
    named = np.stack(links)[..., np.newaxis] == np.arange(side_len)
    is_linked = named.any(axis=0)
    is_allowed = long_ids[:, :, None] == global_ids[:, None]
    is_exempt = exempt_long[:, :, None] | exempt_global[:, None]
    arrays = dict(
        att_mask=np.stack(columns, axis=-1).astype(np.int32),
        relative_att_ids=np.tile(pattern, [batch, long_len, 1]),
        side_att_mask=(is_allowed & (is_linked | is_exempt)).astype(np.int32),
        side_relative_att_ids=np.where(
            named[1], linked[1], np.where(named[0], linked[0], 1)
        ),
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


if __name__ == "__main__":
    tf.test.main()
