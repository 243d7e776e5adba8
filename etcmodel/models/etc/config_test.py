import json
import os

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models.etc import config as config_lib

# Part of a file as the original code writes it, with two keys that it ignores.
_ORIGINAL_JSON = """{
  "embedding_size": 768,
  "relative_pos_max_distance": 42,
  "relative_vocab_size": 96,
  "share_qkv_projections": false,
  "type_vocab_size": 2,
  "use_hard_g2l_mask": true,
  "vocab_size": 30522,
  "model_type": "etc"
}
"""
_PAPER_SIZES = (
    "num_hidden_layers hidden_size num_attention_heads local_radius "
    "relative_pos_max_distance"
)
_DEFAULTS = """{
  "vocab_size": 30522, "segment_vocab_size": 16, "embedding_size": null,
  "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
  "local_radius": 84, "att_size_per_head": null,
  "relative_pos_max_distance": 12, "relative_vocab_size": 32,
  "max_absolute_position_embeddings": 0, "intermediate_size": 3072,
  "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
  "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02,
  "share_feed_forward_params": true, "share_kv_projections": false,
  "share_qkv_projections": true, "share_att_output_projection": false,
  "use_pre_activation_order": false, "use_hard_g2l_mask": false,
  "use_hard_l2g_mask": false, "grad_checkpointing_period": 0,
  "absolute_positions": "sequence", "question_words_in_global": false
}
"""


class EtcConfigTest(tf.test.TestCase, parameterized.TestCase):
    def test_defaults(self):
        self.assertEqual(
            json.loads(_DEFAULTS),
            config_lib.EtcConfig(vocab_size=30522).to_dict(),
        )

    def test_reads_a_file_of_the_original_and_reports_unknown_keys(self):
        path = os.path.join(self.get_temp_dir(), "etc_config.json")
        with open(path, "w") as file:
            file.write(_ORIGINAL_JSON)
        with self.assertLogs("absl", "WARNING") as logs:
            config = config_lib.EtcConfig.from_json_file(path)
        self.assertEqual(["model_type", "type_vocab_size"], config.unknown_keys)
        self.assertIn("model_type, type_vocab_size", logs.output[0])
        known = json.loads(_ORIGINAL_JSON)
        for key in config.unknown_keys:
            del known[key]
        self.assertEqual(json.loads(_DEFAULTS) | known, config.to_dict())

    @parameterized.parameters(
        (dict(relative_pos_max_distance=-1), "max_distance is -1"),
        (dict(num_attention_heads=7), r"hidden_size \(768\) is not a multiple"),
        (dict(relative_vocab_size=None), "relative_vocab_size is None"),
        (dict(relative_vocab_size=27), "at least 28"),
    )
    def test_validation(self, kwargs, message):
        config = config_lib.EtcConfig(30522, **kwargs)
        with self.assertRaisesRegex(ValueError, message):
            config.validate()

    def test_valid_at_the_edge(self):
        for kwargs in (
            dict(relative_vocab_size=28),
            dict(relative_vocab_size=None, relative_pos_max_distance=0),
            dict(num_attention_heads=7, att_size_per_head=64),
        ):
            config_lib.EtcConfig(30522, **kwargs).validate()

    def test_presets(self):
        for name in ("base", "base_shared", "large", "small", "tiny"):
            config_lib.EtcConfig.from_preset(name).validate()
        tiny = config_lib.EtcConfig.from_preset("tiny", vocab_size=99)
        self.assertEqual(99, tiny.vocab_size)
        self.assertEqual(32, tiny.hidden_size)

    def test_paper_sizes(self):
        # ETC paper, Table 8 and Appendix A.
        for name, *expected in (
            ("base", 12, 768, 12, 84, 12),
            ("large", 24, 1024, 16, 169, 24),
        ):
            config = config_lib.EtcConfig.from_preset(name)
            actual = [getattr(config, size) for size in _PAPER_SIZES.split()]
            self.assertEqual(expected, actual)


if __name__ == "__main__":
    tf.test.main()
