import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import models
from etcmodel.models import lora
from etcmodel.weight_paths import get_weight_paths
from testing import models as models_lib

_INPUTS = {
    "token_ids": np.array([[3, 4, 5, 6, 0], [7, 8, 3, 0, 0]], np.int32),
    "global_token_ids": np.array([[1, 1], [1, 2]], np.int32),
}


def _config(**options):
    return models.EtcConfig.from_preset(
        "tiny", vocab_size=9, num_hidden_layers=1, **options
    )


def _encoder(**options):
    encoder = models.EtcModel(_config(**options))
    encoder.build(None)
    models_lib.set_random_weights(encoder, 0.2)
    return encoder


def _set_updates(encoder):
    """Makes the second factors, which start at zero, random."""
    generator = np.random.default_rng(1)
    for path, weight in get_weight_paths(encoder).items():
        if path.endswith("lora_kernel_b"):
            shape = tuple(weight.shape)
            weight.assign(0.2 * generator.normal(size=shape))


def _trained_paths(encoder):
    ids = {id(x) for x in encoder.trainable_weights}
    return [x for x, y in get_weight_paths(encoder).items() if id(y) in ids]


def _step(encoder, **options):
    """Returns the loss and its gradients, path -> array."""

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            output = encoder(_INPUTS, training=True, **options)
            loss = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in output])
        weights = [_variable(x) for x in encoder.trainable_weights]
        return loss, tape.gradient(loss, weights)

    loss, gradients = run()
    return loss, dict(
        zip([id(x) for x in encoder.trainable_weights], gradients, strict=True)
    )


def _variable(weight):
    return weight if isinstance(weight, tf.Variable) else weight.value


@pytest.mark.both_kerases
class AddLoraTest(tf.test.TestCase, parameterized.TestCase):
    def test_a_step(self):
        encoder = _encoder()
        before = {x: y.numpy() for x, y in get_weight_paths(encoder).items()}
        expected = encoder(_INPUTS)
        lora.add_lora(encoder, 2)
        for x, y in zip(expected, encoder(_INPUTS), strict=True):
            self.assertAllClose(x, y, 1e-6, 1e-6)
        _, gradients = _step(encoder)
        for weight in encoder.trainable_weights:
            # Labels have no gradients, since the inputs have none.
            if gradients[id(weight)] is not None:
                weight.assign(weight - 0.1 * gradients[id(weight)])
        for path, weight in get_weight_paths(encoder).items():
            value = weight.numpy()
            if path.endswith("lora_kernel_b"):
                self.assertGreater(np.abs(value).max(), 0, path)
            elif path in before:
                # Bit by bit.
                self.assertAllEqual(before[path], value, path)

    def test_gradients_of_a_whole_encoder(self):
        """Equal those of an encoder without LoRA, projected.

        Also with gradient checkpointing.
        """
        encoder, merged = _encoder(grad_checkpointing_period=1), _encoder()
        lora.add_lora(encoder, 2)
        _set_updates(encoder)
        paths, of_merged = get_weight_paths(encoder), get_weight_paths(merged)
        products = {}
        for path, weight in of_merged.items():
            pair = [
                path.replace("kernel", f"lora_kernel_{x}") for x in ("a", "b")
            ]
            if path.endswith("/kernel") and pair[0] in paths:
                a, b = (paths[x].numpy() for x in pair)
                products[path] = *pair, a, b
                weight.assign(weight + a @ b)
        # Ten projections to heads, two outputs, two feed-forward layers.
        self.assertLen(products, 14)
        loss, gradients = _step(encoder)
        expected_loss, expected = _step(merged)
        self.assertAllClose(expected_loss, loss, 1e-5, 1e-5)
        for path, (name_a, name_b, a, b) in products.items():
            d_kernel = expected[id(of_merged[path])].numpy()
            for name, value in (
                (name_a, d_kernel @ b.T),
                (name_b, a.T @ d_kernel),
            ):
                self.assertAllClose(
                    value, gradients[id(paths[name])], 1e-4, 1e-4, msg=name
                )

    def test_what_is_trained(self):
        for encoder, expected in (
            (_encoder(), {"relative_emb_table", "relative_bias_table"}),
            (
                models.ReadTwiceModel(
                    models.ReadTwiceConfig.from_preset("tiny", vocab_size=9)
                ),
                {
                    "summary_extraction/entity_pool_linear/kernel",
                    "summary_extraction/entity_pool_linear/bias",
                    "cross_attention_layer/normalization_layers_0/gamma",
                    "cross_attention_layer/normalization_layers_0/beta",
                    "cross_attention_layer/inner_layer/default_side_input",
                    "cross_attention_layer/inner_layer"
                    "/block_position_emb_lookup/embedding_table",
                },
            ),
        ):
            lora.add_lora(encoder, 1)
            found = {x for x in _trained_paths(encoder) if "lora" not in x}
            if isinstance(encoder, models.EtcModel):
                found = {x.rpartition("/")[2] for x in found}
            self.assertEqual(expected, found)

    def test_unused_outputs_have_no_factors(self):
        encoder = models.StructuredEtcModel(
            _config(), outputs=["global_output"]
        )
        encoder.build(None)
        self.assertNotIn(
            "long_output_projection", "".join(_trained_paths(encoder))
        )
        lora.add_lora(encoder, 1)
        trained = "".join(_trained_paths(encoder))
        self.assertIn("global_output_projection/lora_kernel_a", trained)
        self.assertNotIn("long_output_projection", trained)

    def test_errors(self):
        encoder = _encoder()
        with self.assertRaisesRegex(ValueError, "LoRA rank is 0, but must be"):
            lora.add_lora(encoder, 0)
        lora.add_lora(encoder, 1)
        with self.assertRaisesRegex(ValueError, "already has LoRA factors"):
            lora.add_lora(encoder, 1)
        encoder = _encoder()
        encoder.trainable = False
        with self.assertRaisesRegex(ValueError, "trainable; add_lora freezes"):
            lora.add_lora(encoder, 1)


if __name__ == "__main__":
    tf.test.main()
