from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import attention
from etcmodel.ops.attention import blocks
from etcmodel.ops.attention import dispatch
from etcmodel.ops.attention import full
from etcmodel.ops.attention import streaming
from testing import attention_cases as testing

IMPLEMENTATIONS = ("full", "sparse", "streaming")


class SideLabels(attention.PairLabels):
    """Labels that compare a global token's number with a long token's.

    The class is written as users would write their own labels.
    """

    columns = (3, 0, 2)

    def __init__(self, long_numbers, global_numbers):
        self.long_numbers = tf.convert_to_tensor(long_numbers)
        self.global_numbers = tf.convert_to_tensor(global_numbers)

    def long_tensors(self):
        return [self.long_numbers]

    def part(self, long_tensors, global_len):
        del global_len
        (long_numbers,) = long_tensors
        difference = (
            self.global_numbers[:, tf.newaxis] - long_numbers[..., tf.newaxis]
        )
        return tf.sign(difference) + 1


class ImplementationsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        cases=[testing.LongCases, testing.GlobalCases],
        implementation=IMPLEMENTATIONS,
    )
    def test_user_defined_labels(self, cases, implementation):
        rng = np.random.default_rng(0)
        self.check(cases(), implementation, rng, "own type")

    @parameterized.product(
        cases=[testing.LongCases, testing.GlobalCases],
        implementation=IMPLEMENTATIONS,
        use_one_hot=[False, True],
    )
    def test_labels_beyond_the_table_add_nothing(
        self, cases, implementation, use_one_hot
    ):
        rng = np.random.default_rng(1)
        self.check(cases(), implementation, rng, "beyond", use_one_hot)

    def check(self, cases, implementation, rng, what, use_one_hot=False):
        """Compares outputs with a reference, gradients with full attention."""
        case = cases.make_case(rng, *cases.SMALL)
        batch, long_len = case.upstream.shape[:2]
        name, global_len = "side_relative_att_ids", cases.SMALL[2]
        if isinstance(cases, testing.GlobalCases):
            name, long_len, global_len = "g2l_relative_att_ids", 13, long_len
        if what == "own type":
            numbers = [
                rng.integers(4, size=(batch, length))
                for length in (long_len, global_len)
            ]
            case.given[name] = SideLabels(*numbers)
            ids = np.where(
                numbers[1][:, np.newaxis] < numbers[0][..., np.newaxis],
                3,
                np.where(
                    numbers[1][:, np.newaxis] == numbers[0][..., np.newaxis],
                    0,
                    2,
                ),
            )
            if name.startswith("g2l"):
                ids = np.swapaxes(ids, 1, 2)
            case.arrays[name] = ids
        else:
            for x in case.arrays:
                if x.endswith("ids"):
                    case.arrays[x] = rng.integers(
                        -3, testing.VOCAB + 3, size=case.arrays[x].shape
                    )
                    case.given[x] = tf.constant(case.arrays[x])
        with testing.chunks_of(1, 4):
            results = testing.run(
                cases.attention(case.given, implementation, use_one_hot),
                case.floats,
                case.upstream,
            )
        # A label with a zero vector and bias acts like no label.
        vocab_size = testing.VOCAB
        case.arrays = {
            x: np.where((ids < 0) | (ids >= vocab_size), vocab_size, ids)
            if x.endswith("ids")
            else ids
            for x, ids in case.arrays.items()
        }
        for x in ("emb_table", "bias_table"):
            table = case.floats[x]
            case.floats[x] = np.concatenate([table, 0 * table[:1]])
        self.assertAllClose(results["output"], cases.oracle(case), 1e-9, 1e-9)
        expected = testing.run(
            cases.dense(case.arrays), case.floats, case.upstream
        )
        for x in ("emb_table", "bias_table"):
            expected[x] = expected[x][:-1]
        testing.assert_all_close(self, expected, results)

    @parameterized.product(cases=[testing.LongCases, testing.GlobalCases])
    def test_auto_depends_only_on_the_static_length(self, cases):
        longest = dispatch.MAX_AUTO_FULL_LENGTH

        def chosen(length, implementation="auto"):
            signature = [
                tf.TensorSpec([1, None, 1, 2]),
                tf.TensorSpec([1, length, 1, 2]),
            ]
            called = []

            def call(name):
                return lambda *_: called.append(name) or tf.zeros([])

            @tf.function(input_signature=signature)
            def attend(own, long):
                if cases is testing.LongCases:
                    return attention.long_attention(
                        long,
                        attention.Keys(long, long),
                        attention.Keys(own, own),
                        2,
                        implementation=implementation,
                    )
                return attention.global_attention(
                    own,
                    attention.Keys(own, own),
                    attention.Keys(long, long),
                    implementation=implementation,
                )

            with (
                mock.patch.object(full, "long_attention", call("full")),
                mock.patch.object(full, "global_attention", call("full")),
                mock.patch.object(blocks, "attend", call("sparse")),
                mock.patch.object(streaming, "attend", call("streaming")),
            ):
                attend.get_concrete_function()
            return called

        self.assertEqual(["full"], chosen(longest))
        self.assertEqual(["streaming"], chosen(longest + 1))
        self.assertEqual(["streaming"], chosen(None))
        for implementation in IMPLEMENTATIONS:
            self.assertEqual([implementation], chosen(300, implementation))

    def test_unknown_batch_sizes_give_as_many_chunks(self):
        # 16 examples are cut into as many chunks whether or not the graph knows
        # the batch size.
        cases = testing.LongCases()
        case = cases.make_case(np.random.default_rng(2), 16, 64, 3, 2)
        attend = cases.attention(case.given, "streaming")
        case.floats = {name: tf.constant(x) for name, x in case.floats.items()}
        plans = []

        def plan_chunks(*arguments):
            plan = original(*arguments)
            plans.append(plan)
            return plan

        original = streaming.plan_chunks
        elements = 16 * testing.HEADS * 64 * 20
        with (
            testing.chunks_of(elements, 8),
            mock.patch.object(streaming, "plan_chunks", plan_chunks),
            # Without the function call, the plan's tensors are in this graph.
            mock.patch.object(
                dispatch,
                "_long_attention",
                dispatch._long_attention.__wrapped__,
            ),
        ):
            attend(**case.floats)

            @tf.function(
                input_signature=[
                    {
                        name: tf.TensorSpec(
                            [
                                None if name.endswith(("s", "y")) else n
                                for n in x.shape[:1]
                            ]
                            + x.shape[1:],
                            x.dtype,
                        )
                        for name, x in case.floats.items()
                    }
                ]
            )
            def unknown(floats):
                output = attend(**floats)
                return output, plans[-1]

            _, dynamic = unknown(case.floats)
        self.assertAllEqual(plans[0], dynamic)


class ChecksTest(parameterized.TestCase, tf.test.TestCase):
    """Tests that all implementations raise the same errors."""

    def attend_long(self, implementation="streaming", **given):
        cases = testing.LongCases()
        case = cases.make_case(np.random.default_rng(0), 2, 13, 3, 3)
        case.given.update(given)
        return cases.attention(case.given, implementation)(**case.floats)

    def attend_global(self, implementation="streaming", **given):
        cases = testing.GlobalCases()
        case = cases.make_case(np.random.default_rng(0), 2, 3, 13)
        case.given.update(given)
        return cases.attention(case.given, implementation)(**case.floats)

    @parameterized.product(
        wrong=[
            ("att_mask", [2, 12, 7], "[2, 13, 7]"),
            ("att_mask", [2, 13, 6], "[2, 13, 7]"),
            ("att_mask", [13, 7], "[2, 13, 7]"),
            ("relative_att_ids", [3, 13, 7], "[2, 13, 7]"),
            ("side_att_mask", [2, 13, 1], "[2, 13, 3]"),
            ("side_relative_att_ids", [2, 3, 13], "[2, 13, 3]"),
            ("g2g_att_mask", [2, 3, 2], "[2, 3, 3]"),
            ("g2g_relative_att_ids", [2, 3, 13], "[2, 3, 3]"),
            ("g2l_att_mask", [2, 3, 14], "[2, 3, 13]"),
            ("g2l_relative_att_ids", [2, 13, 3], "[2, 3, 13]"),
        ],
        implementation=IMPLEMENTATIONS,
    )
    def test_shapes(self, wrong, implementation):
        name, shape, expected = wrong
        attend = self.attend_global if name[0] == "g" else self.attend_long
        with self.assertRaises(ValueError) as caught:
            attend(implementation, **{name: tf.ones(shape, tf.int32)})
        self.assertStartsWith(
            str(caught.exception),
            f"{name} must have the shape {expected}, but has {shape}.",
        )

    @parameterized.product(
        wrong=[
            ("att_mask", lambda: attention.SegmentMask(tf.zeros([2, 12]))),
            (
                "side_att_mask",
                lambda: attention.LongGlobalMask(
                    tf.zeros([2, 13]), tf.zeros([2, 4])
                ),
            ),
            (
                "side_relative_att_ids",
                lambda: attention.LongGlobalLabels(
                    [tf.zeros([2, 14], tf.int32)], 1, 0
                ),
            ),
            (
                "g2l_att_mask",
                lambda: attention.LongGlobalMask(
                    tf.zeros([2, 3]), tf.zeros([2, 3])
                ),
            ),
        ],
        implementation=IMPLEMENTATIONS,
    )
    def test_shapes_of_descriptions(self, wrong, implementation):
        name, make = wrong
        attend = self.attend_global if name[0] == "g" else self.attend_long
        with self.assertRaisesRegex(
            ValueError, f"tokens of {name} must have the shape"
        ):
            attend(implementation, **{name: make()})

    def test_descriptions_in_the_wrong_place(self):
        ids = tf.zeros([2, 13], tf.int32)
        band_mask = attention.SegmentMask(ids)
        band_labels = attention.DistanceLabels([0] * 7)
        pair_mask = attention.LongGlobalMask(ids, ids[:, :3])
        pair_labels = attention.LongGlobalLabels([ids], 1, 0)
        for attend, name, wrong, expected in (
            (self.attend_long, "att_mask", pair_mask, "SegmentMask"),
            (self.attend_long, "relative_att_ids", pair_labels, "BandLabels"),
            (self.attend_long, "side_att_mask", pair_labels, "LongGlobalMask"),
            (
                self.attend_long,
                "side_relative_att_ids",
                band_labels,
                "PairLabels",
            ),
            (self.attend_global, "g2l_att_mask", band_mask, "LongGlobalMask"),
            (
                self.attend_global,
                "g2l_relative_att_ids",
                pair_mask,
                "PairLabels",
            ),
        ):
            with self.assertRaisesRegex(
                ValueError,
                f"{name} must be a tensor or a {expected}, but is a "
                f"{type(wrong).__name__}",
            ):
                attend(**{name: wrong})
        with self.assertRaisesRegex(
            ValueError, "g2g_att_mask must be a tensor"
        ):
            self.attend_global(g2g_att_mask=pair_mask)

    def test_labels_of_only_some_keys(self):
        for attend, name in (
            (self.attend_long, "relative_att_ids"),
            (self.attend_long, "side_relative_att_ids"),
            (self.attend_global, "g2g_relative_att_ids"),
            (self.attend_global, "g2l_relative_att_ids"),
        ):
            with self.assertRaisesRegex(ValueError, "labels of all its keys"):
                attend(**{name: None})

    def test_unknown_implementation(self):
        for attend in (self.attend_long, self.attend_global):
            with self.assertRaisesRegex(ValueError, "'fast', but must be one"):
                attend("fast")

    def test_a_pattern_for_another_radius(self):
        with self.assertRaisesRegex(
            ValueError, r"2\*local_radius \+ 1 = 7 distances, but has 5"
        ):
            self.attend_long(relative_att_ids=attention.DistanceLabels([0] * 5))

    def test_masks_for_all_examples(self):
        mask = tf.cast(tf.random.uniform([1, 13, 7]) < 0.5, tf.int32)
        for implementation in IMPLEMENTATIONS:
            self.assertAllClose(
                self.attend_long(implementation, att_mask=mask),
                self.attend_long(
                    implementation, att_mask=tf.tile(mask, [2, 1, 1])
                ),
            )


if __name__ == "__main__":
    tf.test.main()
