import itertools
import operator

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import fused_attention
from etcmodel.layers import fused_side_attention_test as shared
from etcmodel.ops import attention
from testing import attention_cases

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
VOCAB = 6


def make_call(seed, long_len, global_len, radius, long_size=8, global_size=8):
    """Random arguments of the layer's call; every token sees itself."""
    rng = np.random.default_rng(seed)
    width = 2 * radius + 1

    def ints(high, *shape):
        return tf.constant(rng.integers(high, size=shape), tf.int32)

    shapes = {
        "l2l": (2, long_len, width),
        "g2g": (2, global_len, global_len),
        "l2g": (2, long_len, global_len),
        "g2l": (2, global_len, long_len),
    }
    masks = {f"{piece}_att_mask": ints(2, *s) for piece, s in shapes.items()}
    masks["l2l_att_mask"] |= tf.one_hot(radius, width, dtype=tf.int32)
    masks["g2g_att_mask"] |= tf.eye(global_len, dtype=tf.int32)
    return dict(
        long_input=tf.constant(
            rng.standard_normal((2, long_len, long_size)), tf.float32
        ),
        global_input=tf.constant(
            rng.standard_normal((2, global_len, global_size)), tf.float32
        ),
        **masks,
        **{
            f"{piece}_relative_att_ids": ints(VOCAB, *shape)
            for piece, shape in shapes.items()
        },
    )


def randomize(layer, seed=0):
    """Randomizes all weights, also those that start at zero."""
    rng = np.random.default_rng(seed)
    layer.set_weights(
        [0.5 * rng.standard_normal(w.shape) for w in layer.get_weights()]
    )


def reference(layer, call):
    """Both outputs by the paper's equations, from the layer's weights."""
    inputs = {"l": call["long_input"], "g": call["global_input"]}
    outputs = []
    # Keys are in the order of the masks' columns.
    for name, pieces in (("long", ("l2l", "l2g")), ("global", ("g2g", "g2l"))):

        def project(piece, kind):
            projection = getattr(layer, f"{piece}_{kind}_projection")
            return shared.project(projection, inputs[piece[-1]])

        def keys(kind, pieces=pieces):
            return np.concatenate([project(x, kind) for x in pieces], axis=1)

        def columns(kind, pieces=pieces):
            parts = [call.get(f"{piece}_{kind}") for piece in pieces]
            if parts[0] is None:
                return None
            if pieces[0] == "l2l":
                parts[0] = attention_cases.square_of_band(parts[0])
            return np.concatenate(parts, axis=-1)

        tables = getattr(layer, f"{name}_qkv_attention")
        tables = getattr(tables, "qkv_relative_attention", tables)
        labels = columns("relative_att_ids")
        projection = getattr(layer, f"{name}_query_projection")
        attended = attention_cases.reference_attention(
            shared.project(projection, inputs[name[0]]),
            keys("key"),
            keys("value"),
            columns("att_mask"),
            labels,
            None if labels is None else np.array(tables.relative_emb_table),
            None if labels is None else np.array(tables.relative_bias_table),
        )
        outputs.append(
            shared.dense(
                getattr(layer, f"{name}_output_projection"),
                attended.reshape(*attended.shape[:2], -1),
            )
        )
    return outputs


class FusedGlobalLocalAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        share_kv_projections=[False, True],
        share_qkv_projections=[False, True],
        share_att_output_projection=[False, True],
    )
    def test_what_is_shared(self, **options):
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
            8, 6, 2, 3, 4, 12, relative_vocab_size=VOCAB
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
            "long_qkv_attention.qkv_relative_attention": (VOCAB, 2, 2),
            "global_qkv_attention": (VOCAB, 2, 6),
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
        call = make_call(5, 7, 3, 2)
        layer.build((None, None, 8))
        randomize(layer)
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
            8, 8, 2, 2, relative_vocab_size=VOCAB
        )
        call = make_call(8, 7, 3, 2)
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
        layer = make(8, 8, 2, 2, relative_vocab_size=VOCAB)
        call = make_call(6, 5, 3, 2)
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
