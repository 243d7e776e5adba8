"""Compares lifted models with the Model Garden's encoders they start from."""

import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from official.modeling import tf_utils
from official.nlp.modeling import models
from official.nlp.modeling import networks

from etcmodel.checkpoints import bert_files
from etcmodel.checkpoints import lifting
from etcmodel.models import EtcModel
from etcmodel.models import LanguageModelHead
from testing.small_berts import SIZES
from testing.small_berts import encode_long
from testing.small_berts import write_json

_IDS = [3, 10, 9, 9, 6]


class ModelGardenTest(tf.test.TestCase, parameterized.TestCase):
    def make(self, kind):
        """Returns an encoder with random weights, and its inputs."""
        encoder = getattr(networks, kind)(
            vocab_size=11,
            hidden_size=8,
            num_layers=2,
            num_attention_heads=2,
            max_sequence_length=7,
            type_vocab_size=2,
            inner_dim=12,
        )
        ids = tf.constant([_IDS])
        inputs = {
            "input_word_ids": ids,
            "input_mask": tf.ones_like(ids),
            "input_type_ids": tf.zeros_like(ids),
        }
        if kind == "BertEncoder":
            inputs = list(inputs.values())
        encoder(inputs)
        rng = np.random.default_rng(0)
        encoder.set_weights(
            [w + 0.3 * rng.normal(size=w.shape) for w in encoder.get_weights()]
        )
        return encoder, inputs

    def save(self, **items):
        """Writes a checkpoint, and reads it with `read_bert`."""
        folder = self.get_temp_dir()
        tf.train.Checkpoint(**items).write(os.path.join(folder, "ckpt"))
        write_json(
            folder,
            "bert_config.json",
            {"hidden_act": "gelu"} | SIZES,
        )
        return bert_files.read_bert(folder)

    @parameterized.parameters("BertEncoderV2", "BertEncoder")
    def test_lifted_encoder_equals_the_source(self, kind):
        encoder, inputs = self.make(kind)
        outputs = encoder(inputs)
        if isinstance(outputs, dict):
            expected = outputs["sequence_output"]
        else:
            expected = outputs[0]
        bert = self.save(encoder=encoder)
        self.assertEqual({"pooler"}, set(bert.left_out.values()))
        model = EtcModel(
            lifting.lifted_config(
                bert, preset="tiny", absolute_positions="paragraph"
            )
        )
        lifting.lift(model, bert, global_tokens="keep")
        self.assertAllClose(encode_long(model, _IDS), expected[0], 1e-4, 1e-4)

    def test_with_the_head(self):
        encoder, inputs = self.make("BertEncoderV2")
        garden = models.BertPretrainerV2(
            encoder, mlm_activation=tf_utils.get_activation("gelu")
        )
        positions = tf.constant([[1, 3]])
        call = inputs | {"masked_lm_positions": positions}
        garden(call)
        rng = np.random.default_rng(1)
        for weight in garden.masked_lm.weights:
            weight.assign_add(0.3 * rng.normal(size=weight.shape))
        expected = garden(call)["mlm_logits"]
        bert = self.save(model=garden)
        model = EtcModel(
            lifting.lifted_config(
                bert, preset="tiny", absolute_positions="paragraph"
            )
        )
        head = LanguageModelHead(11, 8, layer_norm_epsilon=1e-12)
        head.build((None, 8))
        lifting.lift(model, bert, global_tokens="keep", head=head)
        states = encode_long(model, _IDS)
        self.assertAllClose(
            head(tf.gather(states, [1, 3]), model.get_token_embedding_table()),
            expected[0],
            1e-4,
            1e-4,
        )

    def test_another_number_of_heads(self):
        encoder, _ = self.make("BertEncoderV2")
        folder = self.get_temp_dir()
        self.save(encoder=encoder)
        write_json(
            folder,
            "bert_config.json",
            {"hidden_act": "gelu"} | SIZES | {"num_attention_heads": 8},
        )
        with self.assertRaisesRegex(ValueError, r"\[2, 4\]"):
            bert_files.read_bert(folder)


if __name__ == "__main__":
    tf.test.main()
