"""References, cases and comparisons for tests of attention.

The references implement section 3.2 of the ETC paper in float64 NumPy, one
query at a time, for clarity rather than speed.
"""

import collections
import contextlib
import dataclasses
from unittest import mock

import numpy as np
import tensorflow as tf

from etcmodel.ops import attention
from etcmodel.ops.attention import blocks
from etcmodel.ops.attention import full
from etcmodel.ops.attention import streaming

HEADS = 2
SIZE = 3
VALUE_SIZE = 4
VOCAB = 5

# Dtype -> half the distance between 1 and the next larger number.
UNIT_ROUNDOFF = {
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}


def reference_attention(
    queries,
    keys,
    values,
    att_mask=None,
    relative_att_ids=None,
    emb_table=None,
    bias_table=None,
):
    """Computes attention with one softmax over all keys of a query and head.

    Queries are `<float>[batch, from, heads, size]`, masks and ids are
    `<int>[batch, from, to]`, and the tables are those of a `LabelTable`.

    Returns:
        `<float64>[batch, from, heads, value_size]`; zeros for a query that may
        attend to nothing.
    """
    queries, keys, values = (
        np.asarray(x, np.float64) for x in (queries, keys, values)
    )
    batch_size, from_len, num_heads, size = queries.shape
    output = np.zeros((batch_size, from_len, num_heads, values.shape[-1]))
    for b, i, h in np.ndindex(batch_size, from_len, num_heads):
        allowed = np.arange(keys.shape[1])
        if att_mask is not None:
            allowed = np.flatnonzero(np.asarray(att_mask)[b, i])
        if not len(allowed):
            continue
        # Each key plus the vector of its label, the paper's a_ij.
        labelled_keys = keys[b, allowed, h]
        bias = 0.0
        if relative_att_ids is not None:
            ids = np.asarray(relative_att_ids)[b, i, allowed]
            labelled_keys = labelled_keys + np.asarray(emb_table)[ids, h]
            bias = np.asarray(bias_table)[ids, h]
        scores = (labelled_keys @ queries[b, i, h] + bias) / np.sqrt(size)
        weights = np.exp(scores - scores.max())
        output[b, i, h] = weights @ values[b, allowed, h] / weights.sum()
    return output


def square_of_band(band, fill=0):
    """Spreads `<any>[batch, length, 2r + 1]` to `[batch, length, length]`.

    Column `k` of row `i` belongs to position `i + k - r`: with `r = 1`,
    `[[a, b, c], [d, e, f]]` gives `[[b, c], [d, e]]`.
    """
    band = np.asarray(band)
    batch_size, length, width = band.shape
    radius = width // 2
    square = np.full((batch_size, length, length), fill, band.dtype)
    for i in range(length):
        for k in range(width):
            j = i + k - radius
            if 0 <= j < length:
                square[:, i, j] = band[:, i, k]
    return square


def make_inputs(rng, batch, long_len, side_len, radius, mask_rate=0.7):
    """Returns random float64 inputs of `long_attention` as a dict of arrays."""
    width = 2 * radius + 1
    normal = rng.standard_normal
    return dict(
        queries=normal((batch, long_len, HEADS, SIZE)),
        keys=normal((batch, long_len, HEADS, SIZE)),
        values=normal((batch, long_len, HEADS, VALUE_SIZE)),
        att_mask=(rng.random((batch, long_len, width)) < mask_rate).astype(
            np.int32
        ),
        relative_att_ids=rng.integers(
            VOCAB, size=(batch, long_len, width), dtype=np.int32
        ),
        side_keys=normal((batch, side_len, HEADS, SIZE)),
        side_values=normal((batch, side_len, HEADS, VALUE_SIZE)),
        side_att_mask=(
            rng.random((batch, long_len, side_len)) < mask_rate
        ).astype(np.int32),
        side_relative_att_ids=rng.integers(
            VOCAB, size=(batch, long_len, side_len), dtype=np.int32
        ),
    )


def make_tables(rng):
    return (
        rng.standard_normal((VOCAB, HEADS, SIZE)),
        rng.standard_normal((VOCAB, HEADS)),
    )


@contextlib.contextmanager
def chunks_of(elements, min_block_len=1):
    """Splits attention on short texts into chunks and blocks, as on long texts.

    Chunks have about `elements` scores; 1 gives the smallest chunks.
    """
    with (
        mock.patch.object(streaming, "CHUNK_ELEMENTS", elements),
        mock.patch.object(blocks, "MIN_BLOCK_LEN", min_block_len),
    ):
        yield


def make_specs(rng, batch, long_len, side_len, radius, linked=(4, 4)):
    """Makes random descriptions of the long queries' masks and labels.

    `linked` has the labels of the two links.

    Returns:
        Two dicts of arguments of local attention: one with descriptions, and
        one with equivalent int arrays.
    """
    long_shape = (batch, long_len)
    segment_ids = np.sort(rng.integers(4, size=long_shape), axis=1)
    # With a large radius, several distances at both ends share a label.
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
        att_mask=attention.SegmentMask(segment_ids),
        relative_att_ids=attention.DistanceLabels(pattern),
        side_att_mask=attention.LongGlobalMask(
            long_ids, global_ids, links, exempt_long, exempt_global
        ),
        side_relative_att_ids=attention.LongGlobalLabels(
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
    """Returns the "output" of `attend(**floats)`, and gradients by name."""
    floats = {name: tf.convert_to_tensor(x) for name, x in floats.items()}
    with tf.GradientTape() as tape:
        tape.watch(floats)
        output = attend(**floats)
    upstream = tf.cast(upstream, output.dtype)
    return {"output": output, **tape.gradient(output, floats, upstream)}


def cast(floats, dtype):
    return {name: tf.cast(x, dtype) for name, x in floats.items()}


def to_float64(results):
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
    """Checks that a function's error is at most twice a plain function's.

    Both functions get the same inputs, rounded to the dtype. The errors are
    differences from the plain function's result in float64. `cases` are
    triples: the function to check; the plain function, which computes all
    pairs; and a dict of float64 arguments for both. The dict's entry "upstream"
    is the output's gradient.
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
    # The plain function's result may be nearly exact by luck, so an error as
    # large as that of rounding a result is always allowed.
    slack = UNIT_ROUNDOFF[dtype] / 2
    for name, arrays in collected.items():
        value, error, plain_error = (
            np.sqrt(np.mean(np.square(x)))
            for x in np.moveaxis(np.stack(arrays), 1, 0)
        )
        test.assertLessEqual(error, 2 * plain_error + slack * value, name)


def all_operations(graph):
    """Returns the operations of a graph and of its functions."""
    operations = list(graph.get_operations())
    for name in graph._functions:
        operations += graph._get_function(name).graph.get_operations()
    return operations


def largest_size(operations, dtype):
    """Returns the size of a dtype's largest tensor that has a known shape."""
    return max(
        output.shape.num_elements() or 0
        for operation in operations
        for output in operation.outputs
        if output.dtype == dtype and output.shape.rank
    )


@dataclasses.dataclass
class Case:
    """Inputs of a call of attention.

    Attributes:
        floats: name -> float64 array, including the tables.
        arrays: name -> mask or ids as int array.
        given: name -> mask or ids in the form that is passed to attention, an
            array or a description.
        upstream: gradient of the output.
    """

    floats: dict
    arrays: dict
    given: dict
    upstream: np.ndarray


class Cases:
    """Base class of test cases: a form of attention, and its random inputs.

    Attributes:
        PIECES: prefixes of the names of the two pieces of keys and values.
        BANDS: names of the masks and ids that are passed as bands.
    """

    def joined(self, floats, kind, concat):
        """Concatenates the keys or values of both pieces."""
        return concat([floats[f"{piece}{kind}"] for piece in self.PIECES], 1)

    def attention(self, given, implementation, use_one_hot=False, dropout=None):
        """Returns a function that maps named float inputs to the output."""

        def attend(emb_table=None, bias_table=None, **floats):
            table = None
            if emb_table is not None:
                table = attention.LabelTable(emb_table, bias_table, use_one_hot)
            pieces = [
                attention.Keys(
                    floats[f"{piece}keys"],
                    floats[f"{piece}values"],
                    given.get(f"{piece}att_mask"),
                    given.get(f"{piece}relative_att_ids"),
                    piece,
                )
                if f"{piece}keys" in floats
                else None
                for piece in self.PIECES
            ]
            return self.attend(
                floats["queries"],
                *pieces,
                table=table,
                dropout=dropout,
                implementation=implementation,
            )

        return attend

    def dense(self, arrays, keep=None):
        """Returns a function that computes attention for all pairs.

        `keep` holds factors of the probabilities, to simulate dropout.
        """

        def attend(emb_table, bias_table, **floats):
            dropout = None
            if keep is not None:
                dropout = mock.Mock()
                dropout.factors = lambda shape, index, dtype: tf.cast(
                    keep, dtype
                )
            return full.dense_attention(
                floats["queries"],
                [
                    attention.Keys(
                        self.joined(floats, "keys", tf.concat),
                        self.joined(floats, "values", tf.concat),
                        self.square(arrays, "att_mask"),
                        self.square(arrays, "relative_att_ids"),
                    )
                ],
                attention.LabelTable(emb_table, bias_table),
                dropout,
            )

        return attend

    def oracle(self, case, **changed):
        """Computes the output with the paper's equations."""
        floats = case.floats | changed
        return reference_attention(
            floats["queries"],
            self.joined(floats, "keys", np.concatenate),
            self.joined(floats, "values", np.concatenate),
            self.square(case.arrays, "att_mask"),
            self.square(case.arrays, "relative_att_ids"),
            floats["emb_table"],
            floats["bias_table"],
        )

    def leave_out(self, case, name):
        """Removes a mask or the labels from a case.

        Returns the names of float inputs that must then be left out, too.
        """
        if name == "labels":
            case.floats["emb_table"] *= 0
            case.floats["bias_table"] *= 0
            for ids in [x for x in case.given if x.endswith("ids")]:
                del case.given[ids]
            return ["emb_table", "bias_table"]
        del case.given[name]
        case.arrays[name] = np.ones_like(case.arrays[name])
        return []


class LongCases(Cases):
    """Attention from long queries to nearby long keys and to global keys.

    Sizes are: batch, long length, global length, radius.
    """

    PIECES = ("", "side_")
    BANDS = ("att_mask", "relative_att_ids")
    SMALL = (2, 13, 3, 3)
    EMPTY = ((1, 1, 2, 3), (1, 3, 0, 3), (2, 0, 3, 3), (0, 5, 2, 3))
    LARGE = (2, 36, 6, 7)
    LONG = (1, 96, 24, 2)
    DROPPED = (2, 64, 8, 4)
    LEFT_OUT = (
        ["att_mask"],
        ["side_att_mask"],
        ["att_mask", "side_att_mask", "labels"],
        ["labels"],
        ["side"],
        ["side", "labels", "att_mask"],
    )

    def random_sizes(self, rng):
        length, side_len = int(rng.integers(1, 41)), int(rng.integers(6))
        return 2, length, side_len, int(rng.integers(1, 9))

    def make_case(
        self, rng, batch, long_len, side_len, radius, with_specs=False
    ):
        """Returns random inputs. Some queries have nothing to attend to.

        If `with_specs` is true or a pair of labels for the two links, masks and
        labels are given as descriptions. Sets the radius that `attention` uses.
        """
        self.radius = radius
        floats = make_inputs(rng, batch, long_len, side_len, radius)
        arrays = {
            name: floats.pop(name)
            for name in list(floats)
            if name.endswith(("mask", "ids"))
        }
        tables = make_tables(rng)
        floats |= dict(zip(("emb_table", "bias_table"), tables, strict=True))
        given = dict(arrays)
        if with_specs:
            labels = [] if with_specs is True else [with_specs]
            given, arrays = make_specs(
                rng, batch, long_len, side_len, radius, *labels
            )
        else:
            arrays["att_mask"][:, 1::4] = 0
            arrays["side_att_mask"][:, 1::4] = 0
        upstream = rng.standard_normal((batch, long_len, HEADS, VALUE_SIZE))
        return Case(floats, arrays, given, upstream)

    def attend(self, queries, local, others, **options):
        return attention.long_attention(
            queries, local, others, self.radius, **options
        )

    def square(self, arrays, name):
        """Returns masks or ids of all pairs, `[batch, from, to]`."""
        square = square_of_band(arrays[name])
        return np.concatenate([square, arrays[f"side_{name}"]], axis=-1)

    def leave_out(self, case, name):
        """Removes a mask, the labels or, for "side", the global keys."""
        if name != "side":
            return super().leave_out(case, name)
        for name in ("side_att_mask", "side_relative_att_ids"):
            del case.given[name]
            case.arrays[name] = case.arrays[name][..., :0]
        for name in ("side_keys", "side_values"):
            case.floats[name] = case.floats[name][:, :0]
        return ["side_keys", "side_values"]


class GlobalCases(Cases):
    """Attention from global queries to all keys.

    Sizes are: batch, global length, long length.
    """

    PIECES = ("g2g_", "g2l_")
    BANDS = ()
    SMALL = (2, 3, 13)
    EMPTY = ((1, 1, 1), (1, 3, 0), (1, 0, 5), (0, 3, 5))
    LARGE = (2, 7, 36)
    LONG = (1, 24, 192)
    DROPPED = (2, 10, 90)
    LEFT_OUT = (
        ["g2g_att_mask"],
        ["g2l_att_mask"],
        ["labels"],
        ["labels", "g2g_att_mask", "g2l_att_mask"],
    )

    def random_sizes(self, rng):
        return 2, int(rng.integers(1, 7)), int(rng.integers(1, 30))

    def make_case(self, rng, batch, global_len, long_len, with_specs=False):
        """Returns random inputs, as in `LongCases.make_case`."""
        normal = rng.standard_normal
        floats = {"queries": normal((batch, global_len, HEADS, SIZE))}
        arrays = {}
        for piece, to_len in (("g2g_", global_len), ("g2l_", long_len)):
            for name, size in (("keys", SIZE), ("values", VALUE_SIZE)):
                floats[f"{piece}{name}"] = normal((batch, to_len, HEADS, size))
            shape = (batch, global_len, to_len)
            mask = (rng.random(shape) < 0.7).astype(np.int32)
            mask[:, 2::3] = 0
            arrays[f"{piece}att_mask"] = mask
            arrays[f"{piece}relative_att_ids"] = rng.integers(
                VOCAB, size=shape, dtype=np.int32
            )
        tables = make_tables(rng)
        floats |= dict(zip(("emb_table", "bias_table"), tables, strict=True))
        given = dict(arrays)
        if with_specs:
            labels = [] if with_specs is True else [with_specs]
            # `make_specs` describes masks and labels of long queries.
            specs, spelled_out = make_specs(
                rng, batch, long_len, global_len, 1, *labels
            )
            for name in ("att_mask", "relative_att_ids"):
                given[f"g2l_{name}"] = specs[f"side_{name}"]
                arrays[f"g2l_{name}"] = np.swapaxes(
                    spelled_out[f"side_{name}"], 1, 2
                )
        upstream = normal((batch, global_len, HEADS, VALUE_SIZE))
        return Case(floats, arrays, given, upstream)

    def attend(self, queries, own, long, **options):
        return attention.global_attention(queries, own, long, **options)

    def square(self, arrays, name):
        """Returns masks or ids of all pairs, `[batch, from, to]`."""
        return np.concatenate(
            [arrays[f"g2g_{name}"], arrays[f"g2l_{name}"]], axis=-1
        )
