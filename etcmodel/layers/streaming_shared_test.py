"""Tests that both streaming attentions must pass."""

import dataclasses
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import inner_jit
from etcmodel.layers import attention_core
from etcmodel.layers import attention_core_test
from etcmodel.layers import attention_reference
from etcmodel.layers import streaming_tools
from etcmodel.layers import streaming_tools_test as tools

HEADS = attention_core_test.HEADS
SIZE = attention_core_test.SIZE
VALUE_SIZE = attention_core_test.VALUE_SIZE
VOCAB = attention_core_test.VOCAB


@dataclasses.dataclass
class Case:
    """Inputs of an attention.

    Attributes:
        floats: float64 arrays by name, tables among them.
        arrays: masks and ids as int arrays by name.
        given: the same in the form in which they are passed.
        upstream: gradient of the output.
    """

    floats: dict
    arrays: dict
    given: dict
    upstream: np.ndarray


class StreamingTests(metaclass=parameterized.TestGeneratorMetaclass):
    """Tests of an attention, which subclasses of two test classes describe.

    Attributes:
        PIECES: the names, less `keys` and `values`, of the two kinds of keys.
        COMPILED, DROPPED, EMPTY: sizes of cases.
        LEFT_OUT: names that need not be given together.
    """

    def make_case(self, rng, *sizes, with_specs=False) -> Case:
        """Random inputs. Some queries have nothing to attend to.

        Args:
            rng: makes random numbers.
            *sizes: of the inputs.
            with_specs: whether masks and labels are described; the labels of
                both links, if they differ.
        """
        raise NotImplementedError

    def attend(self, **arguments):
        """The attention itself."""
        raise NotImplementedError

    def square(self, arrays, name):
        """Masks (`att_mask`) or ids of all pairs, `[batch, from, to]`."""
        raise NotImplementedError

    def random_sizes(self, rng):
        raise NotImplementedError

    def independent_parts(self, is_kept):
        """Parts of dropout's choices, each of the same shape."""
        raise NotImplementedError

    def leave_out(self, case, name):
        """Takes a mask or the labels out of a case, but for the floats.

        Returns:
            Names of floats that are not to be given either.
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

    def streaming(self, given, use_one_hot_lookup=False, **options):
        """The attention as a function of its float inputs by name."""

        def attend(emb_table=None, bias_table=None, **floats):
            labels = None
            if emb_table is not None:
                labels = attention_core.RelativeLabels(
                    emb_table, bias_table, use_one_hot_lookup
                )
            return self.attend(labels=labels, **floats, **given, **options)

        return attend

    def joined(self, floats, kind, concat):
        return concat([floats[f"{piece}{kind}"] for piece in self.PIECES], 1)

    def dense(self, arrays, keep=None):
        """The same by way of all pairs, of which many may be masked.

        Args:
            arrays: masks and ids.
            keep: factors of the probabilities, `[batch, heads, from, to]`.
        """

        def attend(emb_table, bias_table, **floats):
            return attention_core.dense_attention(
                floats["queries"],
                self.joined(floats, "keys", tf.concat),
                self.joined(floats, "values", tf.concat),
                att_mask=self.square(arrays, "att_mask"),
                relative_att_ids=self.square(arrays, "relative_att_ids"),
                labels=attention_core.RelativeLabels(emb_table, bias_table),
                dropout_fn=None if keep is None else drop,
            )

        def drop(probs):
            return probs * tf.cast(keep, probs.dtype)

        return attend

    def oracle(self, case, **changed):
        """The output that the paper's equations give."""
        floats = case.floats | changed
        return attention_reference.reference_attention(
            floats["queries"],
            self.joined(floats, "keys", np.concatenate),
            self.joined(floats, "values", np.concatenate),
            self.square(case.arrays, "att_mask"),
            self.square(case.arrays, "relative_att_ids"),
            floats["emb_table"],
            floats["bias_table"],
        )

    def expect(self, case, keep=None):
        return tools.run(
            self.dense(case.arrays, keep), case.floats, case.upstream
        )

    def run_case(self, case, elements=2**22, block_len=4, **options):
        """Output and gradients in chunks of a size."""
        with tools.chunks_of(elements, block_len):
            return tools.run(
                self.streaming(case.given, **options),
                case.floats,
                case.upstream,
            )

    @parameterized.parameters(False, True, ((4, 2),))
    def test_equals_the_reference_at_random_sizes(self, with_specs):
        rng = np.random.default_rng(int(bool(with_specs)))
        # From one block, or one key, to all of them in a chunk.
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
            tools.assert_all_close(
                self, self.expect(case), results, 1e-9, message
            )

    def test_what_is_left_out(self):
        for i, names in enumerate(self.LEFT_OUT):
            rng = np.random.default_rng(3)
            case = self.make_case(rng, *self.COMPILED)
            missing = [x for name in names for x in self.leave_out(case, name)]
            expected = self.expect(case)
            self.assertAllClose(
                expected["output"], self.oracle(case), 1e-9, 1e-9
            )
            for name in missing:
                del case.floats[name], expected[name]
            results = self.run_case(case, (1, 2**22)[i % 2])
            tools.assert_all_close(self, expected, results, 1e-9, names)

    @parameterized.parameters(
        # Type, whether masks and labels are described, rate of dropout.
        ("float32", False, 0),
        ("bfloat16", True, 0),
        ("bfloat16", (4, 2), 0),
        ("float16", False, 0),
        ("bfloat16", False, 0.25),
    )
    def test_error_is_at_most_twice_that_of_the_plain_form(
        self, dtype, with_specs, rate
    ):
        rng = np.random.default_rng(4)
        cases = []
        with tools.chunks_of(200, 8):
            for i in range(2):
                case = self.make_case(rng, *self.LARGE, with_specs=with_specs)
                keep, options = None, {}
                if rate:
                    seed = tf.constant([i, 8])
                    options["dropout"] = streaming_tools.Dropout(rate, seed)
                    keep, _ = self.factors(case, options["dropout"])
                cases.append(
                    (
                        self.streaming(case.given, **options),
                        self.dense(case.arrays, keep),
                        case.floats | {"upstream": case.upstream},
                    )
                )
            tools.assert_at_most_twice_the_error(self, cases, dtype)

    @parameterized.parameters(
        ("float32", 2**22), ("bfloat16", 1), ("float16", 1)
    )
    def test_queries_with_nothing_to_attend_to(self, dtype, elements):
        rng = np.random.default_rng(5)
        case = self.make_case(rng, *self.COMPILED)
        is_empty = ~self.square(case.arrays, "att_mask").any(axis=-1)
        self.assertTrue(is_empty.any() and not is_empty.all())
        case.floats = tools.cast(case.floats, dtype)
        results = tools.to_float64(self.run_case(case, elements))
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

        floats, arrays, upstream = tensors(self.make_case(rng, *self.COMPILED))
        signature = [
            {name: unknown(name, x) for name, x in floats.items()},
            {name: unknown(name, x) for name, x in arrays.items()},
            unknown("upstream", upstream),
        ]

        @tf.function(input_signature=signature)
        def attend(floats, given, upstream):
            return tools.run(self.streaming(given), floats, upstream)

        with tools.chunks_of(24 * HEADS, 4):
            attend.get_concrete_function()
        for sizes in (self.COMPILED, *self.EMPTY):
            case = self.make_case(rng, *sizes)
            expected = self.expect(case)
            for results in (attend(*tensors(case)), self.run_case(case)):
                tools.assert_all_close(self, expected, results, 1e-9, sizes)

    @parameterized.parameters(True, ((4, 2),))
    def test_compiled_as_a_whole(self, with_specs):
        rng = np.random.default_rng(8)
        case = self.make_case(rng, *self.COMPILED, with_specs=with_specs)

        @tf.function(jit_compile=True)
        def attend(floats, upstream):
            return tools.run(self.streaming(case.given), floats, upstream)

        with tools.chunks_of(1, 4):
            results = attend(case.floats, case.upstream)
        tools.assert_all_close(self, self.expect(case), results)

    @parameterized.parameters(False, True, ((4, 2),))
    def test_compiled_in_pieces(self, with_specs):
        rng = np.random.default_rng(9)
        case = self.make_case(rng, *self.COMPILED, with_specs=with_specs)
        with mock.patch.object(inner_jit, "MIN_ELEMENTS", 0):
            results = self.run_case(case, 1)
        tools.assert_all_close(self, self.expect(case), results)

    @parameterized.parameters(False, True, ((4, 2),))
    def test_scores_of_the_whole_length_never_exist(self, with_specs):
        rng = np.random.default_rng(10)
        case = self.make_case(rng, *self.LONG, with_specs=with_specs)
        dropout = streaming_tools.Dropout(0.1, tf.constant([1, 2]))
        attend = self.streaming(
            case.given, use_one_hot_lookup=True, dropout=dropout
        )

        @tf.function
        def run(floats, upstream):
            return tools.run(attend, floats, upstream)

        with tools.chunks_of(1, 4):
            concrete = run.get_concrete_function(case.floats, case.upstream)
        operations = tools.all_operations(concrete.graph)
        *_, from_len, _, _ = case.upstream.shape
        to_len = self.joined(case.floats, "keys", np.concatenate).shape[1]
        to_len -= from_len
        self.assertLess(
            tools.largest_size(operations, tf.float64),
            HEADS * from_len * to_len / 2,
        )
        # The gradient of a gather would be a scatter.
        for operation in operations:
            self.assertNotRegex(operation.type, "Gather|Scatter|Segment")

    def factors(self, case, dropout):
        """Dropout's factors of all pairs, read off the outputs.

        The values are unit vectors, so that each output is a query's
        probabilities; the factors of pairs without any are 0.

        Returns:
            `<float64>[batch, heads, from, to]`, and what may be attended to.
        """
        keys = self.joined(case.floats, "keys", np.concatenate)
        batch, to_len = keys.shape[:2]
        units = np.tile(np.eye(to_len)[None, :, None], [batch, 1, HEADS, 1])
        probing, start = dict(case.floats), 0
        for piece in self.PIECES:
            end = start + case.floats[f"{piece}keys"].shape[1]
            probing[f"{piece}values"] = units[:, start:end]
            start = end
        probing = tools.cast(probing, tf.float64)
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
        case = self.make_case(rng, *self.COMPILED, with_specs=with_specs)
        dropout = streaming_tools.Dropout(0.4, tf.constant([5, 6]))
        with tools.chunks_of(elements, 4):
            keep, _ = self.factors(case, dropout)
        tools.assert_all_close(
            self,
            self.expect(case, keep),
            self.run_case(case, elements, dropout=dropout),
        )

    def test_rate_and_independence_of_dropout(self):
        rng = np.random.default_rng(12)
        rate = 0.3
        case = self.make_case(rng, *self.DROPPED)
        for name, mask in case.arrays.items():
            if name.endswith("mask"):
                mask[:] = 1

        def factors(seed):
            dropout = streaming_tools.Dropout(rate, tf.constant(seed))
            with tools.chunks_of(200 * HEADS, 8):
                return self.factors(case, dropout)

        keep, is_pair = factors([1, 2])
        kept = keep[is_pair] != 0
        self.assertAllClose(
            keep[is_pair], np.where(kept, 1 / (1 - rate), 0), rtol=1e-6
        )
        # Of 4,000 pairs, four deviations are 0.029.
        self.assertGreaterEqual(kept.size, 4000)
        self.assertNear(np.mean(kept), 1 - rate, 0.029)
        self.assertAllEqual(keep, factors([1, 2])[0])
        # Two are equal with a probability of 0.58. Four deviations, of 144
        # pairs or more, are 0.17 at most.
        other, _ = factors([1, 3])
        for first, second in (
            (kept, other[is_pair] != 0),
            *self.independent_parts(keep != 0),
        ):
            self.assertGreaterEqual(first.size, 144)
            self.assertNear(np.mean(first == second), 0.58, 0.17)
