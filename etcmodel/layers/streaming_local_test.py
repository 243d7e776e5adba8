import itertools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import attention_specs
from etcmodel import inner_jit
from etcmodel.layers import attention_core
from etcmodel.layers import attention_core_test
from etcmodel.layers import attention_reference
from etcmodel.layers import streaming_local
from etcmodel.layers import streaming_tools
from etcmodel.layers import streaming_tools_test as shared

HEADS = attention_core_test.HEADS
VALUE_SIZE = attention_core_test.VALUE_SIZE
VOCAB = attention_core_test.VOCAB
FLOATS = ("queries", "keys", "values", "side_keys", "side_values")


def make_case(rng, batch, long_len, side_len, radius, with_specs=False):
    """Random inputs.

    Returns:
        Dict of float64 arrays, dict of int32 arrays (masks and ids), and these
        as they are to be passed.
    """
    inputs = attention_core_test.make_inputs(
        rng, batch, long_len, side_len, radius
    )
    floats = {name: inputs.pop(name) for name in FLOATS}
    floats["emb_table"], floats["bias_table"] = attention_core_test.make_tables(
        rng
    )
    # Some queries have nothing to attend to.
    empty = rng.random(long_len) < 0.1
    inputs["att_mask"][:, empty] = 0
    inputs["side_att_mask"][:, empty] = 0
    given = inputs
    if with_specs:
        given, inputs = shared.make_specs(
            rng, batch, long_len, side_len, radius
        )
    return floats, inputs, given


def attend_with(function, radius, others, use_one_hot_lookup=False, **options):
    """An attention as a function of its float inputs by name."""

    def attend(emb_table=None, bias_table=None, **floats):
        labels = None
        if emb_table is not None:
            labels = attention_core.RelativeLabels(
                emb_table, bias_table, use_one_hot_lookup
            )
        return function(
            local_radius=radius, labels=labels, **floats, **others, **options
        )

    return attend


def streaming(radius, others, *args, **options):
    return attend_with(
        streaming_local.streaming_local_attention,
        radius,
        others,
        *args,
        **options,
    )


def blocked(radius, others):
    return attend_with(attention_core.banded_attention, radius, others)


def dense(arrays, keep=None):
    """The plain form: all pairs, of which most are masked.

    Args:
        arrays: masks and ids.
        keep: factors of the probabilities, `[batch, heads, long, long + side]`.
    """
    square = attention_reference.square_of_band
    mask = np.concatenate(
        [square(arrays["att_mask"]), arrays["side_att_mask"]], axis=-1
    )
    ids = np.concatenate(
        [square(arrays["relative_att_ids"]), arrays["side_relative_att_ids"]],
        axis=-1,
    )

    drop = None
    if keep is not None:

        def drop(probs):
            return probs * tf.cast(keep, probs.dtype)

    def attend(
        queries, keys, values, side_keys, side_values, emb_table, bias_table
    ):
        return attention_core.dense_attention(
            queries,
            tf.concat([keys, side_keys], axis=1),
            tf.concat([values, side_values], axis=1),
            att_mask=mask,
            relative_att_ids=ids,
            labels=attention_core.RelativeLabels(emb_table, bias_table),
            dropout_fn=drop,
        )

    return attend


def oracle(radius, floats, arrays):
    """The output that the paper's equations give."""
    return attention_core_test.reference_banded(
        {**floats, **arrays},
        radius,
        floats["emb_table"],
        floats["bias_table"],
    )


def make_upstream(rng, floats):
    batch, long_len = floats["queries"].shape[:2]
    return rng.standard_normal((batch, long_len, HEADS, VALUE_SIZE))


class StreamingLocalAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(False, True)
    def test_equals_the_reference_at_random_sizes(self, with_specs):
        rng = np.random.default_rng(int(with_specs))
        for _ in range(9):
            radius = int(rng.integers(1, 9))
            length = int(rng.integers(1, 41))
            side_len = int(rng.integers(6))
            # From one block to all of them in a chunk.
            elements = int(rng.choice([1, 500, 1500, 2**22]))
            block_len = int(rng.choice([1, 5, 64]))
            message = (
                f"radius {radius}, length {length}, side {side_len}, elements "
                f"{elements}, blocks of {block_len}"
            )
            floats, arrays, given = make_case(
                rng, 2, length, side_len, radius, with_specs
            )
            upstream = make_upstream(rng, floats)
            with shared.chunks_of(elements, block_len):
                results = shared.run(streaming(radius, given), floats, upstream)
            self.assertAllClose(
                results["output"],
                oracle(radius, floats, arrays),
                rtol=1e-9,
                atol=1e-9,
                msg=message,
            )
            shared.assert_all_close(
                self,
                shared.run(blocked(radius, arrays), floats, upstream),
                results,
                msg=message,
            )

    @parameterized.parameters(
        # Length, radius.
        (1, 1),
        (1, 5),
        (3, 5),
        (64, 64),
        (65, 3),
    )
    def test_short_and_even_lengths_in_blocks_of_the_default_size(
        self, length, radius
    ):
        rng = np.random.default_rng(length)
        floats, arrays, given = make_case(rng, 1, length, 2, radius)
        upstream = make_upstream(rng, floats)
        expected = shared.run(blocked(radius, arrays), floats, upstream)
        for use_one_hot_lookup in (False, True):
            results = shared.run(
                streaming(radius, given, use_one_hot_lookup), floats, upstream
            )
            self.assertAllClose(
                results["output"], oracle(radius, floats, arrays), 1e-9, 1e-9
            )
            shared.assert_all_close(self, expected, results)

    def test_gradients_equal_finite_differences_of_the_reference(self):
        rng = np.random.default_rng(2)
        floats, arrays, given = make_case(rng, 1, 5, 2, 1)
        arrays["att_mask"][0, 2] = 0
        arrays["side_att_mask"][0, 2] = 0
        upstream = make_upstream(rng, floats)
        with shared.chunks_of(1, 2):
            results = shared.run(streaming(1, given), floats, upstream)
        step = 1e-5
        for name, value in floats.items():
            differences = np.zeros_like(value)
            for index in np.ndindex(value.shape):
                for sign in (1, -1):
                    moved = value.copy()
                    moved[index] += sign * step
                    output = oracle(1, {**floats, name: moved}, arrays)
                    differences[index] += sign * np.sum(output * upstream)
            self.assertAllClose(
                results[name],
                differences / (2 * step),
                rtol=1e-6,
                atol=1e-8,
                msg=name,
            )

    @parameterized.parameters(
        ["att_mask"],
        ["side_att_mask"],
        ["att_mask", "side_att_mask"],
        ["labels"],
        ["side"],
        ["side", "labels"],
        ["side", "labels", "att_mask"],
    )
    def test_what_is_left_out(self, *names):
        rng = np.random.default_rng(3)
        floats, arrays, given = make_case(rng, 2, 11, 3, 2)
        upstream = make_upstream(rng, floats)
        given, floats_given = dict(given), dict(floats)
        for name in names:
            if name == "labels":
                for table in ("emb_table", "bias_table"):
                    del floats_given[table]
                    floats[table] *= 0
                for ids in ("relative_att_ids", "side_relative_att_ids"):
                    given.pop(ids, None)
            elif name == "side":
                for side in ("side_keys", "side_values"):
                    del floats_given[side]
                    floats[side] = floats[side][:, :0]
                for side in ("side_att_mask", "side_relative_att_ids"):
                    given.pop(side, None)
                    arrays[side] = arrays[side][..., :0]
            else:
                given.pop(name)
                arrays[name] = np.ones_like(arrays[name])
        expected = shared.run(blocked(2, given), floats_given, upstream)
        for elements in (1, 2**22):
            with shared.chunks_of(elements, 3):
                results = shared.run(
                    streaming(2, given), floats_given, upstream
                )
            self.assertAllClose(
                results["output"], oracle(2, floats, arrays), 1e-9, 1e-9
            )
            shared.assert_all_close(self, expected, results)

    @parameterized.parameters(
        ("float32", False),
        ("bfloat16", False),
        ("bfloat16", True),
        ("float16", True),
    )
    def test_error_is_at_most_twice_that_of_the_plain_form(
        self, dtype, with_specs
    ):
        rng = np.random.default_rng(4)
        radius = 7
        cases = []
        for _ in range(3):
            floats, arrays, given = make_case(rng, 2, 36, 6, radius, with_specs)
            floats["upstream"] = make_upstream(rng, floats)
            cases.append((streaming(radius, given), dense(arrays), floats))
        with shared.chunks_of(1, 8):
            shared.assert_at_most_twice_the_error(self, cases, dtype)

    @parameterized.parameters("float64", "float32", "bfloat16", "float16")
    def test_queries_with_nothing_to_attend_to(self, dtype):
        rng = np.random.default_rng(5)
        floats, _, given = make_case(rng, 1, 9, 2, 2)
        upstream = make_upstream(rng, floats)
        empty = [0, 3, 4]
        given["att_mask"][:, empty] = 0
        given["side_att_mask"][:, empty] = 0
        for elements in (1, 2**22):
            with shared.chunks_of(elements, 2):
                results = shared.to_float64(
                    shared.run(
                        streaming(2, given),
                        shared.cast(floats, dtype),
                        upstream,
                    )
                )
            for name in ("output", "queries"):
                self.assertAllEqual(
                    results[name][:, empty],
                    0 * upstream[:, empty, :, : results[name].shape[-1]],
                )
            for value in results.values():
                self.assertAllInRange(value, -100, 100)

    def test_nothing_to_attend_to_anywhere(self):
        rng = np.random.default_rng(6)
        floats, _, given = make_case(rng, 1, 5, 2, 2)
        given["att_mask"][:] = 0
        given["side_att_mask"][:] = 0
        results = shared.run(
            streaming(2, given), floats, make_upstream(rng, floats)
        )
        for value in results.values():
            self.assertAllEqual(value, tf.zeros_like(value))

    def test_masked_pairs_get_no_weight_however_high_their_score(self):
        # In float16 the first key's product with the query overflows.
        for dtype, size in ((tf.float32, 1e6), (tf.float16, 300.0)):
            queries = tf.constant([[[[size]], [[size]]]], dtype)
            keys = tf.constant([[[[size]], [[0.0]]]], dtype)
            values = tf.constant([[[[1.0]], [[2.0]]]], dtype)
            mask = tf.constant([[[0, 0, 1], [0, 1, 0]]])
            results = shared.run(
                streaming(1, {"att_mask": mask}),
                {"queries": queries, "keys": keys, "values": values},
                tf.ones_like(values),
            )
            self.assertAllEqual(results["output"], [[[[2.0]], [[2.0]]]])
            self.assertAllEqual(results["values"], [[[[0.0]], [[2.0]]]])
            self.assertAllEqual(results["queries"], tf.zeros_like(queries))

    def test_unknown_sizes_in_a_graph(self):
        rng = np.random.default_rng(7)
        radius = 2

        def case(*sizes):
            floats, arrays, given = make_case(rng, *sizes, radius, True)
            return floats, arrays, as_tensors(given), make_upstream(rng, floats)

        floats, _, given, upstream = case(1, 1, 1)
        signature = tf.nest.map_structure(
            lambda x: tf.TensorSpec([None, None, *x.shape[2:]], x.dtype),
            (floats, given, upstream),
        )
        for name in ("emb_table", "bias_table"):
            signature[0][name] = tf.TensorSpec(floats[name].shape, tf.float64)

        @tf.function(input_signature=signature)
        def attend(floats, given, upstream):
            return shared.run(
                streaming(radius, as_specs(given, radius)), floats, upstream
            )

        with shared.chunks_of(1, 4):
            attend.get_concrete_function()
        for sizes in ((2, 13, 3), (1, 1, 2), (1, 3, 0), (2, 0, 3), (0, 5, 2)):
            floats, arrays, given, upstream = case(*sizes)
            results = attend(floats, given, upstream)
            shared.assert_all_close(
                self,
                shared.run(blocked(radius, arrays), floats, upstream),
                results,
                msg=str(sizes),
            )

    @parameterized.parameters((1, 0, 2), (0, 5, 2), (1, 5, 0))
    def test_empty_inputs(self, *sizes):
        rng = np.random.default_rng(8)
        floats, arrays, given = make_case(rng, *sizes, radius=2)
        upstream = make_upstream(rng, floats)
        shared.assert_all_close(
            self,
            shared.run(blocked(2, arrays), floats, upstream),
            shared.run(streaming(2, given), floats, upstream),
        )

    def test_compiled_as_a_whole(self):
        rng = np.random.default_rng(9)
        floats, arrays, given = make_case(rng, 2, 13, 3, 3, with_specs=True)
        upstream = make_upstream(rng, floats)

        @tf.function(jit_compile=True)
        def attend(floats, upstream):
            return shared.run(streaming(3, given), floats, upstream)

        with shared.chunks_of(1, 4):
            results = attend(floats, upstream)
        shared.assert_all_close(
            self, shared.run(blocked(3, arrays), floats, upstream), results
        )

    @parameterized.parameters(False, True)
    def test_compiled_in_pieces(self, with_specs):
        rng = np.random.default_rng(10)
        floats, arrays, given = make_case(rng, 2, 13, 3, 3, with_specs)
        upstream = make_upstream(rng, floats)
        with (
            shared.chunks_of(1, 4),
            mock.patch.object(inner_jit, "MIN_ELEMENTS", 0),
        ):
            results = shared.run(streaming(3, given), floats, upstream)
        shared.assert_all_close(
            self, shared.run(blocked(3, arrays), floats, upstream), results
        )

    @parameterized.parameters(False, True)
    def test_scores_of_the_whole_length_never_exist(self, with_specs):
        rng = np.random.default_rng(11)
        length, side_len, radius = 96, 24, 2
        floats, _, given = make_case(
            rng, 1, length, side_len, radius, with_specs
        )
        upstream = make_upstream(rng, floats)
        dropout = streaming_tools.Dropout(0.1, tf.constant([1, 2]))

        @tf.function
        def attend(floats, upstream):
            attend = streaming(radius, given, dropout=dropout)
            return shared.run(attend, floats, upstream)

        with shared.chunks_of(1, 4):
            concrete = attend.get_concrete_function(floats, upstream)
        operations = shared.all_operations(concrete.graph)
        self.assertLess(
            shared.largest_size(operations, tf.float64),
            HEADS * length * side_len / 2,
        )
        if with_specs:
            for operation in operations:
                self.assertNotRegex(operation.type, "Gather|Scatter|Segment")


def as_tensors(specs):
    """The tensors that the descriptions hold."""
    mask = specs["side_att_mask"]
    return dict(
        segment_ids=specs["att_mask"].segment_ids,
        long_ids=mask.long_ids,
        global_ids=mask.global_ids,
        links=mask.links,
        exempt_long=mask.exempt_long,
        exempt_global=mask.exempt_global,
    )


def as_specs(tensors, radius):
    """Undoes `as_tensors`."""
    tensors = dict(tensors)
    pattern = np.clip(np.arange(-radius, radius + 1), -2, 2) + 2
    return dict(
        att_mask=attention_specs.SegmentMask(tensors.pop("segment_ids")),
        relative_att_ids=attention_specs.DistanceLabels(pattern),
        side_att_mask=attention_specs.LongGlobalMask(**tensors),
        side_relative_att_ids=attention_specs.LongGlobalLabels(
            tensors["links"], linked=4, not_linked=1
        ),
    )


class DropoutTest(parameterized.TestCase, tf.test.TestCase):
    def factors(self, floats, arrays, given, radius, dropout):
        """Dropout's factors of all pairs, read off the outputs.

        The values are unit vectors, so that each output is a query's
        probabilities; the factors of pairs without any are 0.
        """
        long_len = floats["keys"].shape[1]
        side_len = floats["side_keys"].shape[1]
        units = np.tile(
            np.eye(long_len + side_len)[None, :, None],
            [len(floats["keys"]), 1, HEADS, 1],
        )
        probing = {
            **floats,
            "values": units[:, :long_len],
            "side_values": units[:, long_len:],
        }
        probing = shared.cast(probing, tf.float64)
        probs = dense(arrays)(**probing).numpy()
        dropped = streaming(radius, given, dropout=dropout)(**probing).numpy()
        self.assertAllEqual(dropped[probs == 0], np.zeros(np.sum(probs == 0)))
        factors = dropped / np.where(probs == 0, 1, probs)
        # [batch, heads, long, long + side]
        return np.transpose(factors, [0, 2, 1, 3]), np.transpose(
            probs > 0, [0, 2, 1, 3]
        )

    @parameterized.product(elements=[1, 2**22], with_specs=[False, True])
    def test_gradients_have_the_masks_of_the_outputs(
        self, elements, with_specs
    ):
        rng = np.random.default_rng(12)
        radius = 3
        floats, arrays, given = make_case(rng, 2, 14, 3, radius, with_specs)
        upstream = make_upstream(rng, floats)
        dropout = streaming_tools.Dropout(0.4, tf.constant([5, 6]))
        with shared.chunks_of(elements, 4):
            keep, _ = self.factors(floats, arrays, given, radius, dropout)
            results = shared.run(
                streaming(radius, given, dropout=dropout), floats, upstream
            )
        shared.assert_all_close(
            self,
            shared.run(dense(arrays, keep), floats, upstream),
            results,
        )

    def test_rate_and_independence(self):
        rng = np.random.default_rng(13)
        radius, rate = 4, 0.3
        floats, arrays, given = make_case(rng, 2, 64, 8, radius)
        for mask in ("att_mask", "side_att_mask"):
            arrays[mask][:] = 1

        def factors(seed):
            dropout = streaming_tools.Dropout(rate, tf.constant(seed))
            with shared.chunks_of(1, 8):
                return self.factors(floats, arrays, given, radius, dropout)

        keep, is_pair = factors([1, 2])
        kept = keep[is_pair] != 0
        self.assertAllClose(
            keep[is_pair], np.where(kept, 1 / (1 - rate), 0), rtol=1e-6
        )
        # 4,272 pairs: four deviations are 0.028.
        self.assertGreater(kept.size, 4000)
        self.assertNear(np.mean(kept), 1 - rate, 0.028)
        self.assertAllEqual(keep, factors([1, 2])[0])

        # Two are equal with a probability of 0.58. 4,272, 512 or 160 pairs:
        # four deviations are 0.16 at most.
        is_kept = keep > 0
        side = is_kept[..., 64:]
        # The band of four queries of each block, which the ends do not cut.
        bands = [
            np.stack(
                [
                    is_kept[:, :, i, i - radius : i + radius + 1]
                    for i in range(start, start + 4)
                ]
            )
            for start in range(4, 60, 8)
        ]
        for first, second in (
            (is_kept[is_pair], factors([1, 3])[0][is_pair] > 0),
            (side[0], side[1]),
            (side[:, 0], side[:, 1]),
            *itertools.combinations(np.split(side, 8, axis=2), 2),
            *itertools.combinations(bands, 2),
        ):
            self.assertNear(np.mean(first == second), 0.58, 0.16)

    def test_error_is_at_most_twice_that_of_the_plain_form(self):
        rng = np.random.default_rng(14)
        radius = 5
        cases = []
        with shared.chunks_of(1, 8):
            for i in range(3):
                floats, arrays, given = make_case(rng, 2, 30, 6, radius)
                dropout = streaming_tools.Dropout(0.25, tf.constant([i, 8]))
                keep, _ = self.factors(floats, arrays, given, radius, dropout)
                floats["upstream"] = make_upstream(rng, floats)
                cases.append(
                    (
                        streaming(radius, given, dropout=dropout),
                        dense(arrays, keep),
                        floats,
                    )
                )
            shared.assert_at_most_twice_the_error(self, cases, "bfloat16")


if __name__ == "__main__":
    tf.test.main()
