"""Tests special cases of the stack that the paper mentions."""

import numpy as np
import tensorflow as tf

from etcmodel.layers import transformer
from testing import references

SIZE, HEADS = 12, 3


def standard_transformer(stack, tokens):
    """Runs a post-norm Transformer with the weights of the long stream."""
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
        attended = attention(tokens, tokens)
        tokens = normalize(block.normalization_layers[0], tokens + attended)
        # BERT uses the tanh form of gelu.
        fed = references.feed_forward(
            feed_forward.inner_layer, np.array(tokens)
        )
        tokens = normalize(feed_forward.normalization_layers[0], tokens + fed)
    return tokens


def normalize(norm, x):
    normalized = references.normalize(norm, np.array(x))
    return tf.constant(normalized, tf.float32)


class SpecialCasesTest(tf.test.TestCase):
    def test_covering_radius_and_sharing_give_a_standard_transformer(self):
        # Section 3.6: BERT's weights can therefore initialize ETC ("lifting").
        long_len, global_len = 7, 3
        stack = transformer.GlobalLocalTransformerLayers(
            SIZE,
            SIZE,
            num_hidden_layers=2,
            num_attention_heads=HEADS,
            local_radius=long_len,
            long_intermediate_size=20,
            global_intermediate_size=20,
            share_qkv_projections=True,
            share_att_output_projection=True,
        )
        stack.build((None, None, SIZE))
        rng = np.random.default_rng(0)
        stack.set_weights(
            [0.5 * rng.standard_normal(w.shape) for w in stack.get_weights()]
        )
        # The attention of each stream has its own norm; all weights are equal.
        for block in stack.fused_att_layers:
            long_norm, global_norm = block.normalization_layers
            global_norm.set_weights(long_norm.get_weights())
        tokens = tf.constant(
            rng.standard_normal((2, long_len + global_len, SIZE)),
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


if __name__ == "__main__":
    tf.test.main()
