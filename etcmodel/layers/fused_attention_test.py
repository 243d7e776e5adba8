import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import attention_specs
from etcmodel.layers import attention_reference
from etcmodel.layers import fused_attention
from etcmodel.layers import streaming_tools_test

IMPLEMENTATIONS = ("full", "sparse", "streaming", "auto")

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
    """Sets all weights, those that start as zeros too."""
    rng = np.random.default_rng(seed)
    layer.set_weights(
        [0.5 * rng.standard_normal(w.shape) for w in layer.get_weights()]
    )


def reference(layer, call):
    """Both outputs by the paper's equations, from the layer's weights."""
    long_input, global_input = call["long_input"], call["global_input"]

    def project(name, inputs):
        projection = getattr(layer, f"{name}_projection")
        flat = np.array(inputs, np.float64) @ np.array(projection.linear.kernel)
        flat = flat + np.array(projection.linear.bias)
        return flat.reshape(*inputs.shape[:2], layer.num_heads, -1)

    def joined(kind, first, second, long_first):
        inputs = (long_input, global_input)
        if not long_first:
            inputs = inputs[::-1]
        return np.concatenate(
            [
                project(f"{first}_{kind}", inputs[0]),
                project(f"{second}_{kind}", inputs[1]),
            ],
            axis=1,
        )

    def output(name, attended):
        dense = getattr(layer, f"{name}_output_projection")
        flat = attended.reshape(*attended.shape[:2], -1)
        return flat @ np.array(dense.kernel) + np.array(dense.bias)

    square = attention_reference.square_of_band
    long_tables = layer.long_qkv_attention.qkv_relative_attention
    global_tables = layer.global_qkv_attention
    attended_long = attention_reference.reference_attention(
        project("long_query", long_input),
        joined("key", "l2l", "l2g", long_first=True),
        joined("value", "l2l", "l2g", long_first=True),
        np.concatenate(
            [square(call["l2l_att_mask"]), call["l2g_att_mask"]], axis=-1
        ),
        np.concatenate(
            [
                square(call["l2l_relative_att_ids"]),
                call["l2g_relative_att_ids"],
            ],
            axis=-1,
        ),
        np.array(long_tables.relative_emb_table),
        np.array(long_tables.relative_bias_table),
    )
    attended_global = attention_reference.reference_attention(
        project("global_query", global_input),
        joined("key", "g2g", "g2l", long_first=False),
        joined("value", "g2g", "g2l", long_first=False),
        np.concatenate([call["g2g_att_mask"], call["g2l_att_mask"]], axis=-1),
        np.concatenate(
            [call["g2g_relative_att_ids"], call["g2l_relative_att_ids"]],
            axis=-1,
        ),
        np.array(global_tables.relative_emb_table),
        np.array(global_tables.relative_bias_table),
    )
    return output("long", attended_long), output("global", attended_global)


def standard_attention(layer, size, num_heads):
    """Keras's own multi-head attention with the (shared) weights."""
    standard = tf.keras.layers.MultiHeadAttention(num_heads, size // num_heads)
    probe = tf.zeros([1, 1, size])
    standard(probe, probe)
    heads = (num_heads, size // num_heads)
    weights = []
    for name in ("long_query", "l2l_key", "l2l_value"):
        linear = getattr(layer, f"{name}_projection").linear
        weights.append(np.reshape(linear.kernel, (size, *heads)))
        weights.append(np.reshape(linear.bias, heads))
    dense = layer.long_output_projection
    weights.append(np.reshape(dense.kernel, (*heads, size)))
    weights.append(np.array(dense.bias))
    standard.set_weights(weights)
    return standard


class FusedGlobalLocalAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        dict(),
        dict(share_kv_projections=True),
        dict(share_qkv_projections=True),
        dict(share_qkv_projections=True, share_att_output_projection=True),
        dict(use_one_hot_lookup=True),
    )
    def test_equals_the_reference(self, **options):
        layer = fused_attention.FusedGlobalLocalAttention(
            8, 8, 2, local_radius=2, relative_vocab_size=VOCAB, **options
        )
        call = make_call(0, long_len=11, global_len=4, radius=2)
        layer.build((None, None, 8))
        randomize(layer)
        expected_long, expected_global = reference(layer, call)
        for implementation in IMPLEMENTATIONS:
            long_output, global_output = layer(
                **call, att_implementation=implementation
            )
            self.assertAllClose(long_output, expected_long, atol=2e-5)
            self.assertAllClose(global_output, expected_global, atol=2e-5)

    @parameterized.parameters(
        dict(), dict(share_qkv_projections=True), dict(att_dropout_prob=0.1)
    )
    def test_gradients_of_all_implementations_are_equal(self, **options):
        layer = fused_attention.FusedGlobalLocalAttention(
            8, 8, 2, local_radius=2, relative_vocab_size=VOCAB, **options
        )
        call = make_call(9, long_len=11, global_len=4, radius=2)
        layer.build((None, None, 8))
        randomize(layer)
        sources = [
            call["long_input"],
            call["global_input"],
            *layer.trainable_variables,
        ]
        gradients = {}
        for implementation in IMPLEMENTATIONS:
            with (
                streaming_tools_test.chunks_of(1),
                tf.GradientTape() as tape,
            ):
                tape.watch(sources[:2])
                outputs = layer(
                    **call, att_implementation=implementation, training=False
                )
                loss = sum(tf.reduce_sum(tf.sin(x)) for x in outputs)
            gradients[implementation] = tape.gradient(loss, sources)
        for implementation in IMPLEMENTATIONS[1:]:
            for a, b in zip(
                gradients["full"], gradients[implementation], strict=True
            ):
                self.assertAllClose(a, b, 1e-3, 1e-4, msg=implementation)

    def test_descriptions_equal_the_tensors_they_stand_for(self):
        layer = fused_attention.FusedGlobalLocalAttention(
            8, 8, 2, local_radius=2, relative_vocab_size=VOCAB
        )
        call = make_call(10, long_len=11, global_len=3, radius=2)
        layer.build((None, None, 8))
        randomize(layer)
        # Each long token is linked to one global token; the last to none.
        link = tf.constant([[0, 0, 0, 1, 1, 1, 1, 2, 2, 2, -1]] * 2)
        is_linked = np.array(link)[..., None] == np.arange(3)
        labels = np.where(is_linked, 5, 4)
        mask = attention_specs.LongGlobalMask(
            link * 0 + 1, tf.ones([2, 3], tf.int32), [link]
        )
        described = dict(
            call,
            l2g_att_mask=mask,
            g2l_att_mask=mask,
            l2g_relative_att_ids=attention_specs.LongGlobalLabels([link], 5, 4),
            g2l_relative_att_ids=attention_specs.LongGlobalLabels([link], 5, 4),
        )
        expected = reference(
            layer,
            dict(
                call,
                l2g_att_mask=is_linked.astype(int),
                g2l_att_mask=np.swapaxes(is_linked, 1, 2).astype(int),
                l2g_relative_att_ids=labels,
                g2l_relative_att_ids=np.swapaxes(labels, 1, 2),
            ),
        )
        for implementation in IMPLEMENTATIONS:
            outputs = layer(**described, att_implementation=implementation)
            for output, value in zip(outputs, expected, strict=True):
                self.assertAllClose(output, value, atol=2e-5)

    def test_sizes_may_differ_between_the_inputs(self):
        layer = fused_attention.FusedGlobalLocalAttention(
            10,
            6,
            2,
            local_radius=3,
            long_total_att_size=4,
            global_total_att_size=12,
            relative_vocab_size=VOCAB,
        )
        call = make_call(1, 9, 3, 3, long_size=10, global_size=6)
        layer.build((None, None, 10))
        randomize(layer)
        expected_long, expected_global = reference(layer, call)
        for implementation in IMPLEMENTATIONS:
            long_output, global_output = layer(
                **call, att_implementation=implementation
            )
            self.assertEqual(long_output.shape, [2, 9, 10])
            self.assertEqual(global_output.shape, [2, 3, 6])
            self.assertAllClose(long_output, expected_long, atol=2e-5)
            self.assertAllClose(global_output, expected_global, atol=2e-5)

    def test_covering_radius_and_sharing_give_standard_attention(self):
        long_len, global_len, size = 9, 4, 12
        layer = fused_attention.FusedGlobalLocalAttention(
            size,
            size,
            3,
            local_radius=long_len - 1,
            share_qkv_projections=True,
            share_att_output_projection=True,
        )
        call = make_call(2, long_len, global_len, long_len - 1, size, size)
        long_input, global_input = call["long_input"], call["global_input"]
        layer.build((None, None, size))
        randomize(layer)
        joined = tf.concat([long_input, global_input], axis=1)
        expected = standard_attention(layer, size, 3)(joined, joined)
        for implementation in IMPLEMENTATIONS:
            long_output, global_output = layer(
                long_input, global_input, att_implementation=implementation
            )
            self.assertAllClose(
                tf.concat([long_output, global_output], axis=1),
                expected,
                atol=2e-5,
            )

    def test_empty_long_input_gives_full_attention(self):
        layer = fused_attention.FusedGlobalLocalAttention(
            12,
            12,
            3,
            local_radius=2,
            share_qkv_projections=True,
            share_att_output_projection=True,
        )
        layer.build((None, None, 12))
        randomize(layer)
        tokens = make_call(3, 1, 7, 2, 12, 12)["global_input"]
        for implementation in IMPLEMENTATIONS:
            long_output, global_output = layer(
                tokens[:, :0], tokens, att_implementation=implementation
            )
            self.assertEqual(long_output.shape, [2, 0, 12])
            self.assertAllClose(
                global_output,
                standard_attention(layer, 12, 3)(tokens, tokens),
                atol=2e-5,
            )

    def test_radius_1_and_one_global_token_give_the_star_transformer(self):
        # A satellite sees itself, its two neighbours and the relay; the relay
        # sees everything.
        length = 6
        layer = fused_attention.FusedGlobalLocalAttention(4, 4, 1, 1)
        layer.build((None, None, 4))
        randomize(layer)
        call = make_call(4, length, 1, 1, 4, 4)
        long_input = call["long_input"][:1]
        global_input = call["global_input"][:1]
        position = np.arange(length)
        neighbours = np.abs(position[:, None] - position[None]) <= 1
        for implementation in ("full", "sparse", "streaming"):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch([long_input, global_input])
                outputs = layer(
                    long_input, global_input, att_implementation=implementation
                )

            def sees(output, source):
                jacobian = tape.jacobian(output, source)  # noqa: B023
                return np.abs(jacobian).sum(axis=(0, 2, 3, 5)) > 0

            self.assertAllEqual(sees(outputs[0], long_input), neighbours)
            self.assertAllEqual(
                sees(outputs[0], global_input), np.ones((length, 1), bool)
            )
            self.assertAllEqual(
                sees(outputs[1], long_input), np.ones((1, length), bool)
            )
            self.assertAllEqual(sees(outputs[1], global_input), [[True]])

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

        def shape(variable):
            return tuple(variable.shape)

        self.assertEqual(
            shape(layer.long_query_projection.linear.kernel), (8, 4)
        )
        self.assertEqual(
            shape(layer.global_query_projection.linear.kernel), (6, 12)
        )
        self.assertEqual(shape(layer.l2l_key_projection.linear.kernel), (8, 4))
        self.assertEqual(
            shape(layer.l2g_value_projection.linear.kernel), (6, 4)
        )
        self.assertEqual(shape(layer.g2g_key_projection.linear.kernel), (6, 12))
        self.assertEqual(
            shape(layer.g2l_value_projection.linear.kernel), (8, 12)
        )
        self.assertEqual(shape(layer.long_output_projection.kernel), (4, 8))
        self.assertEqual(shape(layer.global_output_projection.kernel), (12, 6))
        long_labels = layer.long_qkv_attention.qkv_relative_attention
        self.assertEqual(shape(long_labels.relative_emb_table), (VOCAB, 2, 2))
        self.assertEqual(
            shape(layer.global_qkv_attention.relative_emb_table), (VOCAB, 2, 6)
        )
        # 12 projections and two tables, each with two variables.
        self.assertLen(layer.trainable_weights, 2 * 12 + 4)

    def test_no_two_kernels_start_equal(self):
        layer = fused_attention.FusedGlobalLocalAttention(
            4,
            4,
            2,
            1,
            relative_vocab_size=VOCAB,
            initializer=tf.keras.initializers.TruncatedNormal(stddev=0.02),
        )
        layer.build((None, None, 4))
        kernels = [w for w in layer.get_weights() if np.any(w)]
        self.assertLen(kernels, 12 + 2)
        for a, b in itertools.combinations(kernels, 2):
            if a.shape == b.shape:
                self.assertNotAllEqual(a, b)

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

    @parameterized.parameters(bool, np.uint8, np.int64, np.float32)
    def test_masks_and_ids_of_any_type(self, dtype):
        layer = fused_attention.FusedGlobalLocalAttention(
            8, 8, 2, 2, relative_vocab_size=VOCAB
        )
        call = make_call(8, 7, 3, 2)
        other = dict(call)
        for name in ("l2l_att_mask", "g2g_att_mask"):
            other[name] = tf.cast(call[name], dtype)
        for name in ("l2l_relative_att_ids", "g2g_relative_att_ids"):
            other[name] = tf.cast(call[name], tf.int64)
        for implementation in IMPLEMENTATIONS:
            expected = layer(**call, att_implementation=implementation)
            outputs = layer(**other, att_implementation=implementation)
            self.assertAllEqual(outputs[0], expected[0])
            self.assertAllEqual(outputs[1], expected[1])

    def test_errors_name_the_argument(self):
        make = fused_attention.FusedGlobalLocalAttention
        with self.assertRaisesRegex(ValueError, "long_total_att_size"):
            make(8, 8, 2, 1, long_total_att_size=7)
        with self.assertRaisesRegex(ValueError, "share_qkv_projections"):
            make(8, 6, 2, 1, share_qkv_projections=True)
        with self.assertRaisesRegex(ValueError, "share_kv_projections"):
            make(8, 6, 2, 1, share_kv_projections=True)
        with self.assertRaisesRegex(ValueError, "share_att_output_projection"):
            make(8, 8, 2, 1, 4, 8, share_att_output_projection=True)
        layer = make(8, 8, 2, 2, relative_vocab_size=VOCAB)
        call = make_call(6, 5, 3, 2)
        del call["g2l_relative_att_ids"]
        with self.assertRaisesRegex(ValueError, "g2l_relative_att_ids"):
            layer(**call)
        ids = [[0] * 5] * 2
        call = make_call(6, 5, 3, 2)
        for name in ("att_mask", "relative_att_ids"):
            wrong = {**call, f"g2l_{name}": attention_specs.SegmentMask(ids)}
            with self.assertRaisesRegex(
                ValueError, f"g2l_{name}.*a SegmentMask"
            ):
                layer(**wrong)

    def test_config_round_trip(self):
        arguments = dict(
            long_hidden_size=8,
            global_hidden_size=8,
            num_heads=2,
            local_radius=3,
            long_total_att_size=4,
            global_total_att_size=4,
            relative_vocab_size=9,
            att_dropout_prob=0.2,
            share_kv_projections=True,
            share_qkv_projections=True,
            share_att_output_projection=True,
            use_one_hot_lookup=True,
            name="given",
        )
        layer = fused_attention.FusedGlobalLocalAttention(
            initializer=tf.keras.initializers.TruncatedNormal(stddev=0.01),
            **arguments,
        )
        config = layer.get_config()
        self.assertEqual({k: config[k] for k in arguments}, arguments)
        copy = type(layer).from_config(config)
        self.assertEqual(copy.get_config(), config)
        self.assertEqual(copy.initializer.get_config()["stddev"], 0.01)

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    def test_mixed_precision(self, policy):
        layer = fused_attention.FusedGlobalLocalAttention(
            8, 8, 2, 2, relative_vocab_size=VOCAB, dtype=policy
        )
        call = make_call(7, 11, 4, 2)
        layer.build((None, None, 8))
        randomize(layer)
        expected = reference(layer, call)
        for implementation in IMPLEMENTATIONS:
            outputs = layer(**call, att_implementation=implementation)
            for output, value in zip(outputs, expected, strict=True):
                self.assertEqual(output.dtype.name, policy[len("mixed_") :])
                error = np.abs(np.array(output, np.float64) - value).mean()
                self.assertLess(error, 0.02 * np.abs(value).mean())
        for weight in layer.trainable_weights:
            self.assertEqual(tf.as_dtype(weight.dtype), tf.float32)


if __name__ == "__main__":
    tf.test.main()
