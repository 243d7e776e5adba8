import numpy as np
import pytest
import tensorflow as tf

from etcmodel.models import EtcConfig
from etcmodel.models.etc import pretraining
from etcmodel.tasks.pretrain import sentence_masking
from testing import model_references
from testing.layer_checks import randomize

# Row 0 has two texts: the first has sentences of 3 and 2 tokens, the second has
# one of 2 tokens. Row 1 has a text of two sentences, and padding.
_TOKENS = [[5, 6, 7, 8, 9, 11, 12, 0], [15, 16, 17, 18, 19, 0, 0, 0]]
_SENTENCES = [[0, 0, 0, 1, 1, 2, 2, -1], [0, 0, 0, 1, 1, -1, -1, -1]]
_ENDS = [[0, 0, 0, 0, 1, 0, 1, 0], [0, 0, 0, 0, 1, 0, 0, 0]]


def make_model(**options):
    config = EtcConfig.from_preset(
        "tiny",
        vocab_size=20,
        num_hidden_layers=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        use_hard_g2l_mask=True,
    )
    model = pretraining.EtcPretrainModel(config, **options)
    randomize(model, 0)
    return model


def make_inputs(max_tokens=7):
    """Masks sentences 0 and 2 of the first row, and 1 of the second."""
    masked = np.array(_TOKENS)
    masked[0, [0, 1, 2, 5, 6]] = masked[1, [3, 4]] = 2
    masked[0, 3] = 4
    inputs = {
        "long_token_ids": masked,
        "sentence_ids": _SENTENCES,
        "long_breakpoints": _ENDS,
        "global_token_ids": [[1, 1, 1], [1, 1, 0]],
        "global_breakpoints": [[0, 1, 1], [0, 1, 0]],
        "masked_positions": [[3, 0], [1, 2]],
    }
    inputs = {name: tf.constant(x, tf.int32) for name, x in inputs.items()}
    taken = sentence_masking.take_sentences(
        tf.constant(_TOKENS),
        inputs["sentence_ids"],
        tf.constant([[1, 0, 1], [0, 1, 0]]),
        max_sentences=2,
        max_tokens=max_tokens,
    )
    return inputs | {f"taken_{k}": x for k, x in taken._asdict().items()}


@pytest.mark.both_kerases
class EtcPretrainModelTest(tf.test.TestCase):
    def test_outputs(self):
        model, inputs = make_model(), make_inputs()
        outputs = model(inputs)
        long_output, global_output = model.encoder(inputs)
        states = tf.stack(
            [long_output[0, 3], long_output[0, 0], *long_output[1, 1:3]]
        )
        table = model.encoder.get_token_embedding_table()
        self.assertAllClose(
            model.head(states, table),
            tf.reshape(outputs["logits"], [4, 20]),
            1e-4,
            1e-4,
        )
        # Each sentence is encoded alone, without padding.
        alone = []
        for tokens in ([5, 6, 7], [11, 12], [18, 19]):
            _, encoded = model.encoder(
                {
                    "long_token_ids": tf.constant([tokens]),
                    "sentence_ids": tf.zeros([1, len(tokens)], tf.int32),
                    "long_breakpoints": tf.constant(
                        [[0] * (len(tokens) - 1) + [1]]
                    ),
                    "global_token_ids": tf.constant([[1]]),
                    "global_breakpoints": tf.constant([[1]]),
                }
            )
            alone.append(encoded[0, 0].numpy())
        foreseen = [*global_output.numpy()[0, [0, 2]], global_output[1, 1]]
        losses, right = model_references.contrastive_loss(
            np.array(model.contrast.bilinear.kernel),
            np.array(foreseen),
            np.array(alone),
            [1, 1, 1],
        )
        self.assertAllClose([*losses, 0], outputs["cpc_losses"], 1e-4, 1e-4)
        self.assertAllEqual([*right, 0], outputs["cpc_is_correct"])
        self.assertAllClose([1 / 3, 1 / 3, 1 / 3, 0], outputs["cpc_chance"])

    def test_only_one_of_mlm_and_cpc(self):
        model, inputs = make_model(use_cpc=False), make_inputs()
        inputs = {k: x for k, x in inputs.items() if "taken" not in k}
        self.assertEqual(["logits"], list(model(inputs)))
        model, inputs = make_model(use_mlm=False), make_inputs()
        del inputs["masked_positions"]
        self.assertCountEqual(
            ["cpc_losses", "cpc_is_correct", "cpc_chance"], model(inputs)
        )

    def test_xla_compiles_a_training_step(self):
        model, inputs = make_model(), make_inputs()

        def step():
            with tf.GradientTape() as tape:
                outputs = model(inputs, training=True)
                loss = tf.reduce_sum(tf.sin(outputs["logits"]))
                loss += tf.reduce_sum(outputs["cpc_losses"])
            return loss, tape.gradient(loss, model.trainable_variables)

        expected, gradients = step()
        loss, compiled = tf.function(step, jit_compile=True)()
        self.assertAllClose(expected, loss, 1e-4, 1e-4)
        for weight, x, y in zip(
            model.trainable_variables, gradients, compiled, strict=True
        ):
            self.assertIsNotNone(x, weight.name)
            self.assertAllClose(
                tf.convert_to_tensor(x), tf.convert_to_tensor(y), 1e-3, 1e-3
            )


if __name__ == "__main__":
    tf.test.main()
