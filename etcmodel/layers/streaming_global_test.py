import itertools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import inner_jit
from etcmodel.layers import attention_core
from etcmodel.layers import attention_core_test
from etcmodel.layers import attention_reference
from etcmodel.layers import streaming_global
from etcmodel.layers import streaming_tools
from etcmodel.layers import streaming_tools_test as shared

HEADS = attention_core_test.HEADS
SIZE = attention_core_test.SIZE
VALUE_SIZE = attention_core_test.VALUE_SIZE
VOCAB = attention_core_test.VOCAB


def make_case(rng, batch, global_len, long_len, with_specs=False):
    """Random inputs.

    Returns:
        Dict of float64 arrays, dict of int32 arrays (masks and ids), and these
        as they are to be passed.
    """
    floats = {"queries": rng.standard_normal((batch, global_len, HEADS, SIZE))}
    arrays = {}
    for piece, kind, to_len in (
        ("g2g", "global", global_len),
        ("g2l", "long", long_len),
    ):
        for name, size in (("keys", SIZE), ("values", VALUE_SIZE)):
            floats[f"{kind}_{name}"] = rng.standard_normal(
                (batch, to_len, HEADS, size)
            )
        shape = (batch, global_len, to_len)
        mask = (rng.random(shape) < 0.7).astype(np.int32)
        # Some queries have nothing to attend to.
        mask[:, 2::3] = 0
        arrays[f"{piece}_att_mask"] = mask
        arrays[f"{piece}_relative_att_ids"] = rng.integers(
            VOCAB, size=shape, dtype=np.int32
        )
    floats["emb_table"], floats["bias_table"] = attention_core_test.make_tables(
        rng
    )
    given = dict(arrays)
    if with_specs:
        # The descriptions are those of the long queries.
        specs, spelled_out = shared.make_specs(
            rng, batch, long_len, global_len, 1
        )
        for name in ("att_mask", "relative_att_ids"):
            given[f"g2l_{name}"] = specs[f"side_{name}"]
            arrays[f"g2l_{name}"] = np.swapaxes(
                spelled_out[f"side_{name}"], 1, 2
            )
    return floats, arrays, given


def streaming(given, use_one_hot_lookup=False, **options):
    def attend(emb_table=None, bias_table=None, **floats):
        labels = None
        if emb_table is not None:
            labels = attention_core.RelativeLabels(
                emb_table, bias_table, use_one_hot_lookup
            )
        return streaming_global.streaming_global_attention(
            labels=labels, **floats, **given, **options
        )

    return attend


def dense(arrays, keep=None):
    """The plain form, one softmax over all pairs.

    Args:
        arrays: masks and ids; both ids may be left out.
        keep: factors of the probabilities, `[batch, heads, global, global +
            long]`.
    """
    drop = None
    if keep is not None:

        def drop(probs):
            return probs * tf.cast(keep, probs.dtype)

    def attend(
        queries,
        global_keys,
        global_values,
        long_keys,
        long_values,
        emb_table=None,
        bias_table=None,
    ):
        labels = {}
        if emb_table is not None:
            labels = dict(
                relative_att_ids=joined(arrays, "relative_att_ids"),
                labels=attention_core.RelativeLabels(emb_table, bias_table),
            )
        return attention_core.dense_attention(
            queries,
            tf.concat([global_keys, long_keys], axis=1),
            tf.concat([global_values, long_values], axis=1),
            att_mask=joined(arrays, "att_mask"),
            dropout_fn=drop,
            **labels,
        )

    return attend


def joined(arrays, name):
    return np.concatenate(
        [arrays[f"g2g_{name}"], arrays[f"g2l_{name}"]], axis=-1
    )


def oracle(floats, arrays):
    """The output that the paper's equations give."""
    return attention_reference.reference_attention(
        floats["queries"],
        np.concatenate([floats["global_keys"], floats["long_keys"]], axis=1),
        np.concatenate(
            [floats["global_values"], floats["long_values"]], axis=1
        ),
        joined(arrays, "att_mask"),
        joined(arrays, "relative_att_ids"),
        floats["emb_table"],
        floats["bias_table"],
    )


def make_upstream(rng, floats):
    return rng.standard_normal((*floats["queries"].shape[:3], VALUE_SIZE))


class StreamingGlobalAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(False, True)
    def test_equals_the_reference_at_random_sizes(self, with_specs):
        rng = np.random.default_rng(int(with_specs))
        for _ in range(9):
            sizes = int(rng.integers(1, 7)), int(rng.integers(1, 30))
            # From one long key to all of them in a chunk.
            elements = int(rng.choice([1, 100, 300, 2**22]))
            message = f"sizes {sizes}, elements {elements}"
            floats, arrays, given = make_case(rng, 2, *sizes, with_specs)
            upstream = make_upstream(rng, floats)
            with shared.chunks_of(elements):
                results = shared.run(streaming(given), floats, upstream)
            self.assertAllClose(
                results["output"],
                oracle(floats, arrays),
                rtol=1e-9,
                atol=1e-9,
                msg=message,
            )
            shared.assert_all_close(
                self,
                shared.run(dense(arrays), floats, upstream),
                results,
                msg=message,
            )

    def test_gradients_equal_finite_differences_of_the_reference(self):
        rng = np.random.default_rng(2)
        floats, arrays, given = make_case(rng, 1, 3, 4)
        upstream = make_upstream(rng, floats)
        # Chunks of two long keys.
        with shared.chunks_of(2 * 3 * HEADS):
            results = shared.run(streaming(given), floats, upstream)
        step = 1e-5
        for name, value in floats.items():
            differences = np.zeros_like(value)
            for index in np.ndindex(value.shape):
                for sign in (1, -1):
                    moved = value.copy()
                    moved[index] += sign * step
                    output = oracle({**floats, name: moved}, arrays)
                    differences[index] += sign * np.sum(output * upstream)
            self.assertAllClose(
                results[name],
                differences / (2 * step),
                rtol=1e-6,
                atol=1e-8,
                msg=name,
            )

    @parameterized.parameters(
        ["g2g_att_mask"],
        ["g2l_att_mask"],
        ["g2g_att_mask", "g2l_att_mask"],
        ["labels"],
        ["labels", "g2g_att_mask", "g2l_att_mask"],
    )
    def test_what_is_left_out(self, *names):
        rng = np.random.default_rng(3)
        floats, arrays, given = make_case(rng, 2, 3, 11)
        upstream = make_upstream(rng, floats)
        floats_given = dict(floats)
        for name in names:
            if name == "labels":
                for table in ("emb_table", "bias_table"):
                    del floats_given[table]
                    floats[table] *= 0
                for ids in ("g2g_relative_att_ids", "g2l_relative_att_ids"):
                    del given[ids]
            else:
                del given[name]
                arrays[name] = np.ones_like(arrays[name])
        expected = shared.run(dense(arrays), floats_given, upstream)
        # 11 keys make chunks of 1, of 4 (the last one shorter), of all.
        for elements in (1, 4 * 2 * 3 * HEADS, 2**22):
            with shared.chunks_of(elements):
                results = shared.run(streaming(given), floats_given, upstream)
            self.assertAllClose(
                results["output"], oracle(floats, arrays), 1e-9, 1e-9
            )
            shared.assert_all_close(self, expected, results)

    def test_maxima_may_come_in_any_order(self):
        # Scores that differ by far more than an exponential in float32 can.
        keys = [-3e3, 1e3, 0.0, 2e3, 2e3, -1e3]
        for order in (keys, keys[::-1], sorted(keys)):
            column = tf.reshape(tf.constant(order), [1, 6, 1, 1])
            ones = tf.ones([1, 1, 1, 1])
            with shared.chunks_of(1):
                results = shared.run(
                    streaming({}),
                    dict(
                        queries=ones,
                        global_keys=1500 * ones,
                        global_values=7 * ones,
                        long_keys=column,
                        long_values=column,
                    ),
                    ones,
                )
            self.assertAllClose(results["output"], 2e3 * ones)
            self.assertAllClose(
                results["long_values"],
                tf.cast(column == 2e3, tf.float32) / 2,
                # Of a number as large as 2,000 float32 keeps few decimals.
                rtol=1e-4,
            )
            for value in results.values():
                self.assertAllInRange(value, -1e4, 1e4)

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
        cases = []
        for _ in range(4):
            floats, arrays, given = make_case(rng, 2, 7, 36, with_specs)
            floats["upstream"] = make_upstream(rng, floats)
            cases.append((streaming(given), dense(arrays), floats))
        # Chunks of 13 long keys.
        with shared.chunks_of(13 * 2 * 7 * HEADS):
            shared.assert_at_most_twice_the_error(self, cases, dtype)

    @parameterized.parameters("float64", "float32", "bfloat16", "float16")
    def test_queries_with_nothing_to_attend_to(self, dtype):
        rng = np.random.default_rng(5)
        floats, _, given = make_case(rng, 1, 6, 9)
        upstream = make_upstream(rng, floats)
        for elements in (1, 2**22):
            with shared.chunks_of(elements):
                results = shared.to_float64(
                    shared.run(
                        streaming(given), shared.cast(floats, dtype), upstream
                    )
                )
            for name in ("output", "queries"):
                empty = results[name][:, 2::3]
                self.assertAllEqual(empty, np.zeros_like(empty))
            for value in results.values():
                self.assertAllInRange(value, -100, 100)

    def test_masked_pairs_get_no_weight_however_high_their_score(self):
        # In float16 the long key's product with the query overflows.
        for dtype, size in ((tf.float32, 1e6), (tf.float16, 300.0)):
            one = tf.ones([1, 1, 1, 1], dtype)
            results = shared.run(
                streaming({"g2l_att_mask": tf.constant([[[0, 1]]])}),
                dict(
                    queries=one * size,
                    global_keys=0 * one,
                    global_values=2 * one,
                    long_keys=tf.concat([one * size, 0 * one], axis=1),
                    long_values=tf.concat([one, 4 * one], axis=1),
                ),
                one,
            )
            self.assertAllEqual(results["output"], 3 * one)
            self.assertAllEqual(results["long_values"], [[[[0.0]], [[0.5]]]])
            self.assertAllEqual(results["queries"], 0 * one)

    def test_unknown_sizes_in_a_graph(self):
        rng = np.random.default_rng(6)

        def case(*sizes):
            floats, arrays, _ = make_case(rng, *sizes)
            arrays = {name: tf.constant(x) for name, x in arrays.items()}
            return floats, arrays, make_upstream(rng, floats)

        signature = tf.nest.map_structure(
            lambda x: tf.TensorSpec(
                [None, None, *x.shape[2:]] if x.ndim == 4 else [None] * 3,
                x.dtype,
            ),
            case(1, 1, 1),
        )
        for name, shape in (
            ("emb_table", [VOCAB, HEADS, SIZE]),
            ("bias_table", [VOCAB, HEADS]),
        ):
            signature[0][name] = tf.TensorSpec(shape, tf.float64)

        @tf.function(input_signature=signature)
        def attend(floats, given, upstream):
            return shared.run(streaming(given), floats, upstream)

        # Chunks of four long keys of six global queries.
        with shared.chunks_of(24 * HEADS):
            attend.get_concrete_function()
        for sizes in ((2, 3, 13), (1, 1, 1), (1, 3, 0), (1, 0, 5), (0, 3, 5)):
            floats, given, upstream = case(*sizes)
            shared.assert_all_close(
                self,
                shared.run(dense(given), floats, upstream),
                attend(floats, given, upstream),
                msg=str(sizes),
            )

    @parameterized.parameters((1, 3, 0), (1, 0, 5), (0, 3, 5))
    def test_empty_inputs(self, *sizes):
        rng = np.random.default_rng(7)
        floats, arrays, given = make_case(rng, *sizes)
        upstream = make_upstream(rng, floats)
        shared.assert_all_close(
            self,
            shared.run(dense(arrays), floats, upstream),
            shared.run(streaming(given), floats, upstream),
        )

    def test_compiled_as_a_whole(self):
        rng = np.random.default_rng(8)
        floats, arrays, given = make_case(rng, 2, 3, 13)
        upstream = make_upstream(rng, floats)

        @tf.function(jit_compile=True)
        def attend(floats, upstream):
            return shared.run(streaming(given), floats, upstream)

        with shared.chunks_of(1):
            results = attend(floats, upstream)
        shared.assert_all_close(
            self, shared.run(dense(arrays), floats, upstream), results
        )

    def test_compiled_in_pieces(self):
        rng = np.random.default_rng(9)
        floats, arrays, given = make_case(rng, 2, 3, 13, with_specs=True)
        upstream = make_upstream(rng, floats)
        with (
            shared.chunks_of(1),
            mock.patch.object(inner_jit, "MIN_ELEMENTS", 0),
        ):
            results = shared.run(streaming(given), floats, upstream)
        shared.assert_all_close(
            self, shared.run(dense(arrays), floats, upstream), results
        )

    @parameterized.parameters(False, True)
    def test_scores_of_the_whole_length_never_exist(self, with_specs):
        rng = np.random.default_rng(10)
        global_len, length = 24, 192
        floats, _, given = make_case(rng, 1, global_len, length, with_specs)
        upstream = make_upstream(rng, floats)
        dropout = streaming_tools.Dropout(0.1, tf.constant([1, 2]))

        @tf.function
        def attend(floats, upstream):
            attend = streaming(given, use_one_hot_lookup=True, dropout=dropout)
            return shared.run(attend, floats, upstream)

        with shared.chunks_of(1):
            concrete = attend.get_concrete_function(floats, upstream)
        operations = shared.all_operations(concrete.graph)
        self.assertLess(
            shared.largest_size(operations, tf.float64),
            HEADS * global_len * length / 2,
        )
        # The gradient of a gather would be a scatter.
        for operation in operations:
            self.assertNotRegex(operation.type, "Gather|Scatter|Segment")


class DropoutTest(parameterized.TestCase, tf.test.TestCase):
    def factors(self, floats, arrays, given, dropout):
        """Dropout's factors of all pairs, read off the outputs.

        The values are unit vectors, so that each output is a query's
        probabilities; the factors of pairs without any are 0.
        """
        global_len = floats["global_keys"].shape[1]
        long_len = floats["long_keys"].shape[1]
        units = np.tile(
            np.eye(global_len + long_len)[None, :, None],
            [len(floats["queries"]), 1, HEADS, 1],
        )
        probing = shared.cast(
            {
                **floats,
                "global_values": units[:, :global_len],
                "long_values": units[:, global_len:],
            },
            tf.float64,
        )
        probs = dense(arrays)(**probing).numpy()
        dropped = streaming(given, dropout=dropout)(**probing).numpy()
        self.assertAllEqual(dropped[probs == 0], np.zeros(np.sum(probs == 0)))
        factors = dropped / np.where(probs == 0, 1, probs)
        # [batch, heads, global, global + long]
        return np.transpose(factors, [0, 2, 1, 3]), np.transpose(
            probs > 0, [0, 2, 1, 3]
        )

    @parameterized.product(elements=[1, 2**22], with_specs=[False, True])
    def test_gradients_have_the_masks_of_the_outputs(
        self, elements, with_specs
    ):
        rng = np.random.default_rng(11)
        floats, arrays, given = make_case(rng, 2, 3, 14, with_specs)
        upstream = make_upstream(rng, floats)
        dropout = streaming_tools.Dropout(0.4, tf.constant([5, 6]))
        with shared.chunks_of(elements):
            keep, _ = self.factors(floats, arrays, given, dropout)
            results = shared.run(
                streaming(given, dropout=dropout), floats, upstream
            )
        shared.assert_all_close(
            self, shared.run(dense(arrays, keep), floats, upstream), results
        )

    def test_rate_and_independence(self):
        rng = np.random.default_rng(12)
        rate = 0.3
        floats, arrays, given = make_case(rng, 2, 10, 90)
        for piece in ("g2g", "g2l"):
            arrays[f"{piece}_att_mask"][:] = 1

        def factors(seed):
            dropout = streaming_tools.Dropout(rate, tf.constant(seed))
            # Chunks of ten long keys.
            with shared.chunks_of(10 * 2 * 10 * HEADS):
                return self.factors(floats, arrays, given, dropout)

        keep, is_pair = factors([1, 2])
        self.assertAllEqual(is_pair, np.ones_like(is_pair))
        self.assertAllClose(keep, np.where(keep, 1 / (1 - rate), 0), rtol=1e-6)
        # 4,000 pairs: four deviations are 0.029.
        self.assertNear(np.mean(keep != 0), 1 - rate, 0.029)
        self.assertAllEqual(keep, factors([1, 2])[0])
        other, _ = factors([1, 3])
        # Two are equal with a probability of 0.58. 4,000, 2,000 or 400 pairs:
        # four deviations are 0.1 at most.
        is_kept = keep > 0
        tens = np.split(is_kept, 10, axis=-1)
        for first, second in (
            (is_kept, other > 0),
            (is_kept[0], is_kept[1]),
            (is_kept[:, 0], is_kept[:, 1]),
            *itertools.combinations(tens, 2),
        ):
            self.assertNear(np.mean(first == second), 0.58, 0.1)

    def test_error_is_at_most_twice_that_of_the_plain_form(self):
        rng = np.random.default_rng(13)
        cases = []
        with shared.chunks_of(13 * 2 * 7 * HEADS):
            for i in range(4):
                floats, arrays, given = make_case(rng, 2, 7, 50)
                dropout = streaming_tools.Dropout(0.25, tf.constant([i, 8]))
                keep, _ = self.factors(floats, arrays, given, dropout)
                floats["upstream"] = make_upstream(rng, floats)
                cases.append(
                    (
                        streaming(given, dropout=dropout),
                        dense(arrays, keep),
                        floats,
                    )
                )
            shared.assert_at_most_twice_the_error(self, cases, "bfloat16")


if __name__ == "__main__":
    tf.test.main()
