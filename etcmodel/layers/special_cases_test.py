"""What the stack becomes in the special cases that the paper names."""

import numpy as np
import tensorflow as tf

from etcmodel.layers import transformer

SIZE = 12
HEADS = 3
INNER = 20


def make_stack(local_radius, **options):
    stack = transformer.GlobalLocalTransformerLayers(
        long_hidden_size=SIZE,
        global_hidden_size=SIZE,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        local_radius=local_radius,
        long_intermediate_size=INNER,
        global_intermediate_size=INNER,
        **options,
    )
    stack.build((None, None, SIZE))
    rng = np.random.default_rng(0)
    stack.set_weights(
        [0.5 * rng.standard_normal(w.shape) for w in stack.get_weights()]
    )
    return stack


def standard_transformer(stack, tokens, attention_mask=None):
    """A post-norm Transformer of Keras's own layers with the long weights."""
    for block, feed_forward in zip(
        stack.fused_att_layers, stack.long_feed_forward_layers, strict=True
    ):
        fused = block.inner_layer
        attention = tf.keras.layers.MultiHeadAttention(HEADS, SIZE // HEADS)
        attention(tokens, tokens)
        weights = []
        for name in ("long_query", "l2l_key", "l2l_value"):
            linear = getattr(fused, f"{name}_projection").linear
            weights.append(np.reshape(linear.kernel, (SIZE, HEADS, -1)))
            weights.append(np.reshape(linear.bias, (HEADS, -1)))
        dense = fused.long_output_projection
        weights.append(np.reshape(dense.kernel, (HEADS, -1, SIZE)))
        weights.append(np.array(dense.bias))
        attention.set_weights(weights)
        attended = attention(tokens, tokens, attention_mask=attention_mask)
        tokens = normalize(tokens + attended, block.normalization_layers[0])
        inner, outer = feed_forward.inner_layer.layers
        hidden = tf.matmul(tokens, inner.kernel) + inner.bias
        # The tanh form of gelu, as BERT's.
        hidden = tf.nn.gelu(hidden, approximate=True)
        fed = tf.matmul(hidden, outer.kernel) + outer.bias
        tokens = normalize(tokens + fed, feed_forward.normalization_layers[0])
    return tokens


def normalize(x, norm):
    x = np.array(x)
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    unit = (x - mean) / np.sqrt(variance + 1e-12)
    return tf.constant(unit * np.array(norm.gamma) + np.array(norm.beta))


class SpecialCasesTest(tf.test.TestCase):
    def test_covering_radius_and_sharing_give_a_standard_transformer(self):
        # Section 3.6: this is why BERT's weights can be lifted.
        long_len, global_len = 7, 3
        stack = make_stack(
            local_radius=long_len,
            share_qkv_projections=True,
            share_att_output_projection=True,
        )
        # The two streams' attention has a norm each; the same numbers here.
        for block in stack.fused_att_layers:
            long_norm, global_norm = block.normalization_layers
            global_norm.set_weights(long_norm.get_weights())
        tokens = tf.constant(
            np.random.default_rng(1).standard_normal(
                (2, long_len + global_len, SIZE)
            ),
            tf.float32,
        )
        expected = standard_transformer(stack, tokens)
        for implementation in ("full", "sparse"):
            outputs = stack(
                tokens[:, :long_len],
                tokens[:, long_len:],
                att_implementation=implementation,
            )
            self.assertAllClose(
                tf.concat(outputs, axis=1), expected, rtol=1e-4, atol=1e-4
            )

    def test_empty_long_input_gives_a_standard_transformer(self):
        # Section 3.2: all tokens in the global input.
        stack = make_stack(
            local_radius=2,
            share_qkv_projections=True,
            share_att_output_projection=True,
        )
        for block in stack.fused_att_layers:
            long_norm, global_norm = block.normalization_layers
            long_norm.set_weights(global_norm.get_weights())
        tokens = tf.constant(
            np.random.default_rng(2).standard_normal((2, 9, SIZE)), tf.float32
        )
        for implementation in ("full", "sparse"):
            long_output, global_output = stack(
                tokens[:, :0], tokens, att_implementation=implementation
            )
            self.assertEqual(long_output.shape, [2, 0, SIZE])
            self.assertAllClose(
                global_output,
                standard_transformer(stack, tokens),
                rtol=1e-4,
                atol=1e-4,
            )

    def test_masks_give_sliding_window_attention(self):
        # No global token is seen: each layer is attention within the radius.
        length, radius = 10, 2
        stack = make_stack(local_radius=radius)
        tokens = tf.constant(
            np.random.default_rng(3).standard_normal((2, length, SIZE)),
            tf.float32,
        )
        position = np.arange(length)
        near = np.abs(position[:, None] - position[None]) <= radius
        expected = standard_transformer(stack, tokens, near[None])
        for implementation in ("full", "sparse"):
            long_output, _ = stack(
                tokens,
                tokens[:, :1],
                l2g_att_mask=tf.zeros([2, length, 1], tf.int32),
                att_implementation=implementation,
            )
            self.assertAllClose(long_output, expected, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    tf.test.main()
