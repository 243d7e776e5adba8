import itertools
import operator

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import fused_attention
from etcmodel.ops import attention
from testing import model_inputs
from testing.layer_checks import randomize

IMPLEMENTATIONS = ("full", "sparse", "streaming")

PROJECTIONS = [
    "long_query",
    "global_query",
    *(
        f"{piece}_{kind}"
        for piece in ("l2l", "l2g", "g2g", "g2l")
        for kind in ("key", "value")
    ),
    "long_output",
    "global_output",
]


class FusedGlobalLocalAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        share_kv_projections=[False, True],
        share_qkv_projections=[False, True],
        share_att_output_projection=[False, True],
    )
    def test_sharing_options(self, **options):
        layer = fused_attention.FusedGlobalLocalAttention(4, 4, 2, 1, **options)
        same = {
            frozenset([a, b])
            for a, b in itertools.combinations(PROJECTIONS, 2)
            if getattr(layer, f"{a}_projection")
            is getattr(layer, f"{b}_projection")
        }
        expected = set()
        if options["share_qkv_projections"]:
            expected.add(frozenset(["long_query", "global_query"]))
            for kind in ("key", "value"):
                names = [f"{p}_{kind}" for p in ("l2l", "l2g", "g2g", "g2l")]
                expected |= set(
                    map(frozenset, itertools.combinations(names, 2))
                )
        elif options["share_kv_projections"]:
            for kind in ("key", "value"):
                expected.add(frozenset([f"l2l_{kind}", f"l2g_{kind}"]))
                expected.add(frozenset([f"g2g_{kind}", f"g2l_{kind}"]))
        if options["share_att_output_projection"]:
            expected.add(frozenset(["long_output", "global_output"]))
        self.assertEqual(same, expected)

    def test_weights_have_the_documented_paths_and_shapes(self):
        layer = fused_attention.FusedGlobalLocalAttention(
            8, 6, 2, 3, 4, 12, relative_vocab_size=model_inputs.RELATIVE_VOCAB
        )
        layer.build((None, None, 8))
        kernels = {
            "long_query_projection.linear": (8, 4),
            "global_query_projection.linear": (6, 12),
            "l2l_key_projection.linear": (8, 4),
            "l2g_value_projection.linear": (6, 4),
            "g2g_key_projection.linear": (6, 12),
            "g2l_value_projection.linear": (8, 12),
            "long_output_projection": (4, 8),
            "global_output_projection": (12, 6),
        }
        tables = {
            "long_qkv_attention.qkv_relative_attention": (
                model_inputs.RELATIVE_VOCAB,
                2,
                2,
            ),
            "global_qkv_attention": (model_inputs.RELATIVE_VOCAB, 2, 6),
        }
        for name, shapes in (
            ("kernel", kernels),
            ("relative_emb_table", tables),
        ):
            for path, shape in shapes.items():
                weight = operator.attrgetter(f"{path}.{name}")(layer)
                self.assertEqual(shape, tuple(weight.shape), path)
        # 12 projections and two tables, each with two variables.
        self.assertLen(layer.trainable_weights, 2 * 12 + 4)

    def test_missing_masks_allow_everything(self):
        layer = fused_attention.FusedGlobalLocalAttention(8, 8, 2, 2)
        call = model_inputs.make_attention_call(5, 7, 3, 2)
        layer.build((None, None, 8))
        randomize(layer, scale=0.5)
        inputs = (call["long_input"], call["global_input"])
        ones = {
            name: tf.ones_like(value)
            for name, value in call.items()
            if name.endswith("mask")
        }
        expected = layer(*inputs, **ones)
        for given in (
            {},
            {"g2g_att_mask": ones["g2g_att_mask"]},
            {"g2l_att_mask": ones["g2l_att_mask"]},
            {"l2g_att_mask": ones["l2g_att_mask"]},
        ):
            outputs = layer(*inputs, **given)
            self.assertAllClose(outputs[0], expected[0], atol=1e-6)
            self.assertAllClose(outputs[1], expected[1], atol=1e-6)

    @parameterized.parameters(
        *zip((bool, np.uint8, np.float32), IMPLEMENTATIONS, strict=True)
    )
    def test_masks_and_ids_of_any_type(self, dtype, implementation):
        layer = fused_attention.FusedGlobalLocalAttention(
            8, 8, 2, 2, relative_vocab_size=model_inputs.RELATIVE_VOCAB
        )
        call = model_inputs.make_attention_call(8, 7, 3, 2)
        other = dict(call)
        for name in ("l2l_att_mask", "g2g_att_mask"):
            other[name] = tf.cast(call[name], dtype)
        for name in ("l2l_relative_att_ids", "g2g_relative_att_ids"):
            other[name] = tf.cast(call[name], tf.int64)
        expected = layer(**call, att_implementation=implementation)
        outputs = layer(**other, att_implementation=implementation)
        self.assertAllEqual(outputs[0], expected[0])
        self.assertAllEqual(outputs[1], expected[1])

    def test_errors_name_the_argument(self):
        make = fused_attention.FusedGlobalLocalAttention
        layer = make(
            8, 8, 2, 2, relative_vocab_size=model_inputs.RELATIVE_VOCAB
        )
        call = model_inputs.make_attention_call(6, 5, 3, 2)
        wrong = attention.SegmentMask([[0] * 5] * 2)
        for message, arguments, options in (
            ("long_total_att_size", (8, 8, 2, 1), {"long_total_att_size": 7}),
            *(
                (option, sizes, {option: True})
                for option, sizes in (
                    ("share_qkv_projections", (8, 6, 2, 1)),
                    ("share_kv_projections", (8, 6, 2, 1)),
                    ("share_att_output_projection", (8, 8, 2, 1, 4, 8)),
                )
            ),
        ):
            with self.assertRaisesRegex(ValueError, message):
                make(*arguments, **options)
        for message, change in (
            ("g2l_relative_att_ids", {"g2l_relative_att_ids": None}),
            *(
                (f"{name}.*a SegmentMask", {name: wrong})
                for name in ("g2l_att_mask", "g2l_relative_att_ids")
            ),
        ):
            with self.assertRaisesRegex(ValueError, message):
                layer(**call | change)


if __name__ == "__main__":
    tf.test.main()
