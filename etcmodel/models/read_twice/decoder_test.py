import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models.read_twice import decoder as decoder_lib
from testing import references
from testing.layer_checks import check_gradients
from testing.small_read_twice import make_config

LENGTH, HIDDEN, MEMORIES = 5, 12, 4
PADDING = 3
# Padding is 3. Padding at the start attends to no token.
IDS = np.array([[5, 0, 9, 2, 3], [3, 7, 1, 1, 6], [4, 3, 3, 3, 3]], np.int32)
MASK = np.array([[1, 0, 1, 0], [0, 1, 1, 1], [0, 0, 0, 0]], np.int32)


def make_decoder(num_layers=2, heads=3, dtype=None, config=None, **kwargs):
    """Returns a built decoder with random weights, except in normalizations."""
    config = dict(
        hidden_size=HIDDEN,
        max_seq_length=LENGTH + 1,
        embedding_size=7,
        summary_padding_token_id=PADDING,
    ) | (config or {})
    decoder = decoder_lib.ReadTwiceDecoderModel(
        make_config(**config),
        num_layers,
        heads,
        dtype=dtype,
        **kwargs,
    )
    decoder.build(None)
    rng = np.random.default_rng(0)
    decoder.set_weights(
        [w + 0.4 * rng.normal(size=w.shape) for w in decoder.get_weights()]
    )
    return decoder


def make_memories():
    return np.random.default_rng(2).normal(size=[MEMORIES, HIDDEN])


def reference(decoder, memories, side_mask=MASK, positions=None):
    """Computes the output from the decoder's weights, in float64."""
    if positions is None:
        positions = np.arange(LENGTH)
    lookup = decoder.token_emb_lookup
    x = np.array(lookup.embedding_table, np.float64)[IDS]
    x = references.dense(lookup.projection, x)
    table = decoder.position_emb_lookup_long.embedding_table
    x = references.normalize(
        decoder.emb_layer_norm, x + np.array(table)[positions]
    )
    mask = np.zeros([len(IDS), LENGTH, LENGTH + MEMORIES], bool)
    for text, token, other in np.ndindex(len(IDS), LENGTH, LENGTH):
        is_token = IDS[text, other] != PADDING
        mask[text, token, other] = is_token and other <= token
    mask[:, :, LENGTH:] = side_mask[:, None]
    transformer = decoder.transformer_with_side_inputs
    return references.side_transformer(
        transformer,
        x,
        [memories] * transformer.num_hidden_layers,
        mask,
    )


class ReadTwiceDecoderModelTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # Heads, default memory, number of layers, number of memories.
        (0, True, 2, 2),
        (1, False, 1, 1),
        (3, False, None, 1),
    )
    def test_equals_the_reference(self, heads, default, layers, number):
        self.check(heads, default, layers, number)

    @pytest.mark.both_kerases
    def test_one_corner(self):
        self.check(3, True, 2, 2)

    def check(self, heads, default, num_layers, number):
        """Compares outputs and gradients with those of the reference."""
        decoder = make_decoder(
            num_layers,
            heads,
            enable_default_side_input=default,
            dtype="float64",
        )
        layers = decoder.transformer_with_side_inputs.attention_layers
        self.assertLen(layers, number)
        check_gradients(
            self,
            decoder,
            [make_memories()],
            lambda x: decoder(
                IDS, side_input=x, token2side_input_att_mask=MASK
            ),
            lambda x: reference(decoder, x),
        )
        self.assertAllClose(
            reference(decoder, make_memories()),
            decoder(
                IDS,
                side_input=make_memories(),
                token2side_input_att_mask=MASK,
            ),
        )

    def test_defaults(self):
        decoder = make_decoder(dtype="float64")
        memories = make_memories()
        everything = np.ones_like(MASK)
        expected = reference(decoder, memories, everything)
        self.assertAllClose(expected, decoder(IDS, side_input=memories))
        # Without memories, the result is that of masked memories.
        expected = reference(decoder, memories, 0 * MASK)
        self.assertAllClose(expected, decoder({"token_ids": IDS}))
        # Given positions, and a mask for each token.
        positions = np.array([[5, 4, 3, 2, 1]] * 3)
        expected = reference(decoder, memories, MASK, positions)
        mask = np.repeat(MASK[:, None], LENGTH, axis=1)
        actual = decoder(
            IDS,
            side_input=memories,
            token2side_input_att_mask=mask,
            position_ids=positions,
        )
        self.assertAllClose(expected, actual)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "7 tokens has more"):
            make_decoder()(tf.ones([1, LENGTH + 2], tf.int32))
        with self.assertRaisesRegex(ValueError, "num_hidden_layers"):
            make_decoder(0)
        with self.assertRaisesRegex(ValueError, "num_cross_attention_heads"):
            make_decoder(1, -1)


if __name__ == "__main__":
    tf.test.main()
