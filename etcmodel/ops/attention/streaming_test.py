"""Tests of attention in chunks, from long and from global queries."""

import itertools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import attention
from etcmodel.ops import compilation
from etcmodel.ops.attention import streaming
from testing import attention_cases as testing


class ChunksTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        # Units, maximum per chunk, expected units per chunk, expected chunks.
        (7, 3, 3, 3),
        (9, 4, 3, 3),
        (10, 4, 4, 3),
        # Two chunks are merged into one.
        (8, 4, 8, 1),
        (5, 4, 5, 1),
        (4, 4, 4, 1),
        (1, 4, 1, 1),
        (5, 0.1, 1, 5),
    )
    def test_plan_chunks(self, num_units, max_units, chunk_len, num_chunks):
        with testing.chunks_of(int(100 * max_units)):
            for arguments in (
                (num_units, 100),
                (tf.constant(num_units), 100),
                # As if the batch size were unknown.
                (num_units, tf.constant(100)),
            ):
                self.assertAllEqual(
                    streaming.plan_chunks(*arguments), (chunk_len, num_chunks)
                )


class StreamingTests(metaclass=parameterized.TestGeneratorMetaclass):
    """Tests the attention that a subclass of `testing.Cases` describes."""

    def independent_parts(self, is_kept):
        """Yields pairs of equally shaped parts that are drawn separately."""
        raise NotImplementedError

    def streaming(self, given, **options):
        """Returns the attention as a function of named float inputs."""
        return self.attention(given, "streaming", **options)

    def expect(self, case, keep=None):
        return testing.run(
            self.dense(case.arrays, keep), case.floats, case.upstream
        )

    def run_case(self, case, elements=2**22, block_len=4, **options):
        """Returns the output and the gradients for a chunk size."""
        with testing.chunks_of(elements, block_len):
            return testing.run(
                self.streaming(case.given, **options),
                case.floats,
                case.upstream,
            )

    @parameterized.parameters(False, True, ((4, 2),))
    def test_equals_the_reference_at_random_sizes(self, with_specs):
        rng = np.random.default_rng(int(bool(with_specs)))
        # The chunk sizes range from one block (or key) to all of them.
        for elements, block_len in (
            (1, 1),
            (1, 5),
            (100, 1),
            (300, 5),
            (1500, 5),
            (2**22, 64),
        ):
            sizes = self.random_sizes(rng)
            message = f"sizes {sizes}, elements {elements}"
            case = self.make_case(rng, *sizes, with_specs=with_specs)
            results = self.run_case(case, elements, block_len)
            self.assertAllClose(
                results["output"], self.oracle(case), 1e-9, 1e-9, message
            )
            testing.assert_all_close(
                self, self.expect(case), results, 1e-9, message
            )

    def test_missing_arguments(self):
        for i, names in enumerate(self.LEFT_OUT):
            rng = np.random.default_rng(3)
            case = self.make_case(rng, *self.SMALL)
            missing = [x for name in names for x in self.leave_out(case, name)]
            expected = self.expect(case)
            self.assertAllClose(
                expected["output"], self.oracle(case), 1e-9, 1e-9
            )
            for name in missing:
                del case.floats[name], expected[name]
            results = self.run_case(case, (1, 2**22)[i % 2])
            testing.assert_all_close(self, expected, results, 1e-9, names)

    @parameterized.parameters(
        # Dtype, whether masks and labels are descriptions, dropout rate.
        ("float32", False, 0),
        ("bfloat16", True, 0),
        ("bfloat16", (4, 2), 0),
        ("float16", False, 0),
        ("bfloat16", False, 0.25),
    )
    def test_error_is_at_most_twice_that_of_full_attention(
        self, dtype, with_specs, rate
    ):
        rng = np.random.default_rng(4)
        cases = []
        with testing.chunks_of(200, 8):
            for i in range(2):
                case = self.make_case(rng, *self.LARGE, with_specs=with_specs)
                keep, options = None, {}
                if rate:
                    seed = tf.constant([i, 8])
                    options["dropout"] = attention.Dropout(rate, seed)
                    keep, _ = self.factors(case, options["dropout"])
                cases.append(
                    (
                        self.streaming(case.given, **options),
                        self.dense(case.arrays, keep),
                        case.floats | {"upstream": case.upstream},
                    )
                )
            testing.assert_at_most_twice_the_error(self, cases, dtype)

    @parameterized.parameters(
        ("float32", 2**22), ("bfloat16", 1), ("float16", 1)
    )
    def test_queries_with_nothing_to_attend_to(self, dtype, elements):
        rng = np.random.default_rng(5)
        case = self.make_case(rng, *self.SMALL)
        is_empty = ~self.square(case.arrays, "att_mask").any(axis=-1)
        self.assertTrue(is_empty.any() and not is_empty.all())
        case.floats = testing.cast(case.floats, dtype)
        results = testing.to_float64(self.run_case(case, elements))
        for name in ("output", "queries"):
            empty = results[name][is_empty]
            self.assertAllEqual(empty, np.zeros_like(empty))
        for value in results.values():
            self.assertAllInRange(value, -100, 100)

    def test_unknown_and_empty_sizes(self):
        rng = np.random.default_rng(6)

        def tensors(case):
            return tf.nest.map_structure(
                tf.constant, (case.floats, case.arrays, case.upstream)
            )

        def unknown(name, x):
            if name.endswith("table"):
                return tf.TensorSpec(x.shape, x.dtype)
            is_fixed = x.shape.rank == 4 or name in self.BANDS
            return tf.TensorSpec(
                [None, None, *(x.shape[2:] if is_fixed else [None])], x.dtype
            )

        floats, arrays, upstream = tensors(self.make_case(rng, *self.SMALL))
        signature = [
            {name: unknown(name, x) for name, x in floats.items()},
            {name: unknown(name, x) for name, x in arrays.items()},
            unknown("upstream", upstream),
        ]

        @tf.function(input_signature=signature)
        def attend(floats, given, upstream):
            return testing.run(self.streaming(given), floats, upstream)

        with testing.chunks_of(24 * testing.HEADS, 4):
            attend.get_concrete_function()
        for sizes in (self.SMALL, *self.EMPTY):
            case = self.make_case(rng, *sizes)
            expected = self.expect(case)
            for results in (attend(*tensors(case)), self.run_case(case)):
                testing.assert_all_close(self, expected, results, 1e-9, sizes)

    @parameterized.parameters(True, ((4, 2),))
    def test_compiled_as_a_whole(self, with_specs):
        rng = np.random.default_rng(8)
        case = self.make_case(rng, *self.SMALL, with_specs=with_specs)

        @tf.function(jit_compile=True)
        def attend(floats, upstream):
            return testing.run(self.streaming(case.given), floats, upstream)

        with testing.chunks_of(1, 4):
            results = attend(case.floats, case.upstream)
        testing.assert_all_close(self, self.expect(case), results)

    @parameterized.parameters(False, True, ((4, 2),))
    def test_compiled_in_pieces(self, with_specs):
        rng = np.random.default_rng(9)
        case = self.make_case(rng, *self.SMALL, with_specs=with_specs)
        with mock.patch.object(compilation, "MIN_ELEMENTS", 0):
            results = self.run_case(case, 1)
        testing.assert_all_close(self, self.expect(case), results)

    @parameterized.parameters(False, True, ((4, 2),))
    def test_scores_of_the_whole_length_never_exist(self, with_specs):
        rng = np.random.default_rng(10)
        case = self.make_case(rng, *self.LONG, with_specs=with_specs)
        dropout = attention.Dropout(0.1, tf.constant([1, 2]))
        attend = self.streaming(case.given, use_one_hot=True, dropout=dropout)

        @tf.function
        def run(floats, upstream):
            return testing.run(attend, floats, upstream)

        with testing.chunks_of(1, 4):
            concrete = run.get_concrete_function(case.floats, case.upstream)
        operations = testing.all_operations(concrete.graph)
        *_, from_len, _, _ = case.upstream.shape
        to_len = self.joined(case.floats, "keys", np.concatenate).shape[1]
        to_len -= from_len
        self.assertLess(
            testing.largest_size(operations, tf.float64),
            testing.HEADS * from_len * to_len / 2,
        )
        # The gradient of gathering labels would be one of these operations.
        for operation in operations:
            self.assertNotRegex(operation.type, "Scatter|Segment")

    def factors(self, case, dropout):
        """Returns dropout's factors and allowed pairs, for each head and pair.

        The outputs show them: the values are unit vectors, so each output holds
        a query's probabilities. Masked pairs have a factor of 0.
        """
        keys = self.joined(case.floats, "keys", np.concatenate)
        batch, to_len = keys.shape[:2]
        units = np.tile(
            np.eye(to_len)[None, :, None], [batch, 1, testing.HEADS, 1]
        )
        probing, start = dict(case.floats), 0
        for piece in self.PIECES:
            end = start + case.floats[f"{piece}keys"].shape[1]
            probing[f"{piece}values"] = units[:, start:end]
            start = end
        probing = testing.cast(probing, tf.float64)
        probs = self.dense(case.arrays)(**probing).numpy()
        dropped = self.streaming(case.given, dropout=dropout)(**probing).numpy()
        self.assertAllEqual(dropped[probs == 0], np.zeros(np.sum(probs == 0)))
        factors = dropped / np.where(probs == 0, 1, probs)
        return [x.transpose([0, 2, 1, 3]) for x in (factors, probs > 0)]

    @parameterized.parameters((1, True), (2**22, False))
    def test_gradients_have_the_masks_of_the_outputs(
        self, elements, with_specs
    ):
        rng = np.random.default_rng(11)
        case = self.make_case(rng, *self.SMALL, with_specs=with_specs)
        dropout = attention.Dropout(0.4, tf.constant([5, 6]))
        with testing.chunks_of(elements, 4):
            keep, _ = self.factors(case, dropout)
        testing.assert_all_close(
            self,
            self.expect(case, keep),
            self.run_case(case, elements, dropout=dropout),
        )

    @parameterized.parameters(False, True)
    def test_second_derivatives_equal_differences(self, has_dropout):
        rng = np.random.default_rng(14)
        case = self.make_case(rng, *self.SMALL)
        dropout = None
        if has_dropout:
            dropout = attention.Dropout(0.4, tf.constant([5, 6]))
        attend = self.streaming(case.given, dropout=dropout)
        floats = testing.cast(case.floats, tf.float64)
        along = {
            name: tf.constant(rng.normal(size=x.shape))
            for name, x in floats.items()
        }

        def gradients(floats):
            with tf.GradientTape() as tape:
                tape.watch(floats)
                value = tf.reduce_sum(tf.sin(attend(**floats)))
            return tape.gradient(value, floats)

        with testing.chunks_of(1, 4):
            with tf.GradientTape() as tape:
                tape.watch(floats)
                found = gradients(floats)
                slope = tf.add_n(
                    [tf.reduce_sum(found[k] * x) for k, x in along.items()]
                )
            second = tape.gradient(slope, floats)
            step = 1e-5
            ahead, behind = (
                gradients({k: x + h * along[k] for k, x in floats.items()})
                for h in (step, -step)
            )
        for name, x in second.items():
            self.assertAllClose(
                (ahead[name] - behind[name]) / (2 * step), x, 1e-5, 1e-6
            )

    def test_derivatives_of_a_jacobian_in_a_graph(self):
        # TensorFlow vectorizes loops here, but differentiates them wrongly.
        case = self.make_case(np.random.default_rng(16), *self.SMALL)
        floats = testing.cast(case.floats, tf.float64)
        name = next(iter(floats))

        def derivatives(attend):
            with tf.GradientTape() as outer:
                outer.watch(floats)
                with tf.GradientTape() as tape:
                    tape.watch(floats)
                    outputs = tf.sin(attend(**floats))[0, 0, 0]
                jacobian = tape.jacobian(outputs, floats[name])
                total = tf.reduce_sum(jacobian**2)
            return outer.gradient(total, floats[name])

        with testing.chunks_of(1, 4):
            found = tf.function(derivatives, autograph=False)(
                self.streaming(case.given)
            )
        self.assertAllClose(derivatives(self.dense(case.arrays)), found)

    def test_dropout_and_unknown_sizes_have_no_second_derivatives(self):
        case = self.make_case(np.random.default_rng(15), *self.SMALL)
        attend = self.streaming(
            case.given, dropout=attention.Dropout(0.4, tf.constant([5, 6]))
        )
        floats = testing.cast(case.floats, tf.float64)

        @tf.function
        def second(length):
            unknown = {k: x[:, :length] for k, x in floats.items()}
            with tf.autodiff.ForwardAccumulator(unknown, unknown):
                attend(**unknown)

        with self.assertRaisesRegex(NotImplementedError, "'sparse'"):
            second(tf.constant(100))

    def test_rate_and_independence_of_dropout(self):
        rng = np.random.default_rng(12)
        rate = 0.3
        case = self.make_case(rng, *self.DROPPED)
        for name, mask in case.arrays.items():
            if name.endswith("mask"):
                mask[:] = 1

        def factors(seed):
            dropout = attention.Dropout(rate, tf.constant(seed))
            with testing.chunks_of(200 * testing.HEADS, 8):
                return self.factors(case, dropout)

        keep, is_pair = factors([1, 2])
        kept = keep[is_pair] != 0
        self.assertAllClose(
            keep[is_pair], np.where(kept, 1 / (1 - rate), 0), rtol=1e-6
        )
        # For 4,000 pairs, four standard deviations are 0.029.
        self.assertGreaterEqual(kept.size, 4000)
        self.assertNear(np.mean(kept), 1 - rate, 0.029)
        self.assertAllEqual(keep, factors([1, 2])[0])
        # Two masks agree on a pair with probability 0.58. For 144 pairs or
        # more, four standard deviations are at most 0.17.
        other, _ = factors([1, 3])
        for first, second in (
            (kept, other[is_pair] != 0),
            *self.independent_parts(keep != 0),
        ):
            self.assertGreaterEqual(first.size, 144)
            self.assertNear(np.mean(first == second), 0.58, 0.17)


class LongQueriesTest(
    StreamingTests, testing.LongCases, parameterized.TestCase, tf.test.TestCase
):
    def independent_parts(self, is_kept):
        side = is_kept[..., 64:]
        # The bands of the four queries of each block, except the blocks at the
        # ends.
        bands = [
            np.stack(
                [
                    is_kept[:, :, i, i - 4 : i + 5]
                    for i in range(start, start + 4)
                ]
            )
            for start in range(4, 60, 8)
        ]
        yield side[0], side[1]
        yield side[:, 0], side[:, 1]
        yield from itertools.combinations(np.split(side, 8, axis=2), 2)
        yield from itertools.combinations(bands, 2)

    def test_masked_pairs_get_no_weight_however_high_their_score(self):
        self.radius = 1
        # In float16 the first key's product with the query overflows.
        for dtype, size in ((tf.float32, 1e6), (tf.float16, 300.0)):
            queries = tf.constant([[[[size]], [[size]]]], dtype)
            keys = tf.constant([[[[size]], [[0.0]]]], dtype)
            values = tf.constant([[[[1.0]], [[2.0]]]], dtype)
            mask = tf.constant([[[0, 0, 1], [0, 1, 0]]])
            results = testing.run(
                self.streaming({"att_mask": mask}),
                {"queries": queries, "keys": keys, "values": values},
                tf.ones_like(values),
            )
            self.assertAllEqual(results["output"], [[[[2.0]], [[2.0]]]])
            self.assertAllEqual(results["values"], [[[[0.0]], [[2.0]]]])
            self.assertAllEqual(results["queries"], tf.zeros_like(queries))


class GlobalQueriesTest(
    StreamingTests,
    testing.GlobalCases,
    parameterized.TestCase,
    tf.test.TestCase,
):
    def independent_parts(self, is_kept):
        # A chunk has ten keys.
        yield is_kept[0], is_kept[1]
        yield is_kept[:, 0], is_kept[:, 1]
        yield from itertools.combinations(np.split(is_kept, 10, axis=-1), 2)

    def test_maxima_may_come_in_any_order(self):
        # Exponentials of scores so far apart overflow in float32.
        keys = [-3e3, 1e3, 0.0, 2e3, 2e3, -1e3]
        for order in (keys, keys[::-1], sorted(keys)):
            column = tf.reshape(tf.constant(order), [1, 6, 1, 1])
            ones = tf.ones([1, 1, 1, 1])
            with testing.chunks_of(1):
                results = testing.run(
                    self.streaming({}),
                    dict(
                        queries=ones,
                        g2g_keys=1500 * ones,
                        g2g_values=7 * ones,
                        g2l_keys=column,
                        g2l_values=column,
                    ),
                    ones,
                )
            self.assertAllClose(results["output"], 2e3 * ones)
            self.assertAllClose(
                results["g2l_values"],
                tf.cast(column == 2e3, tf.float32) / 2,
                # Near 2,000, float32 has few decimal places.
                rtol=1e-4,
            )
            for value in results.values():
                self.assertAllInRange(value, -1e4, 1e4)

    def test_masked_pairs_get_no_weight_however_high_their_score(self):
        # In float16 the long key's product with the query overflows.
        for dtype, size in ((tf.float32, 1e6), (tf.float16, 300.0)):
            one = tf.ones([1, 1, 1, 1], dtype)
            results = testing.run(
                self.streaming({"g2l_att_mask": tf.constant([[[0, 1]]])}),
                dict(
                    queries=one * size,
                    g2g_keys=0 * one,
                    g2g_values=2 * one,
                    g2l_keys=tf.concat([one * size, 0 * one], axis=1),
                    g2l_values=tf.concat([one, 4 * one], axis=1),
                ),
                one,
            )
            self.assertAllEqual(results["output"], 3 * one)
            self.assertAllEqual(results["g2l_values"], [[[[0.0]], [[0.5]]]])
            self.assertAllEqual(results["queries"], 0 * one)


if __name__ == "__main__":
    tf.test.main()
