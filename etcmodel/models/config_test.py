import json
import os

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import config as config_lib

# A file as the original code writes it, with two keys that it ignores.
_ORIGINAL_JSON = """{
  "attention_probs_dropout_prob": 0.1,
  "embedding_size": 768,
  "grad_checkpointing_period": 0,
  "hidden_act": "gelu",
  "hidden_dropout_prob": 0.1,
  "hidden_size": 768,
  "initializer_range": 0.02,
  "intermediate_size": 3072,
  "local_radius": 84,
  "max_absolute_position_embeddings": 0,
  "num_attention_heads": 12,
  "num_hidden_layers": 12,
  "relative_pos_max_distance": 42,
  "relative_vocab_size": 96,
  "segment_vocab_size": 16,
  "share_qkv_projections": false,
  "type_vocab_size": 2,
  "use_hard_g2l_mask": true,
  "vocab_size": 30522,
  "att_size_per_head": null,
  "model_type": "etc"
}
"""


class EtcConfigTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, text):
        path = os.path.join(self.get_temp_dir(), "etc_config.json")
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_defaults(self):
        self.assertEqual(
            {
                "vocab_size": 30522,
                "segment_vocab_size": 16,
                "embedding_size": None,
                "hidden_size": 768,
                "num_hidden_layers": 12,
                "num_attention_heads": 12,
                "local_radius": 84,
                "att_size_per_head": None,
                "relative_pos_max_distance": 12,
                "relative_vocab_size": 32,
                "max_absolute_position_embeddings": 0,
                "intermediate_size": 3072,
                "hidden_act": "gelu",
                "hidden_dropout_prob": 0.1,
                "attention_probs_dropout_prob": 0.1,
                "initializer_range": 0.02,
                "share_feed_forward_params": True,
                "share_kv_projections": False,
                "share_qkv_projections": True,
                "share_att_output_projection": False,
                "use_pre_activation_order": False,
                "use_hard_g2l_mask": False,
                "use_hard_l2g_mask": False,
                "grad_checkpointing_period": 0,
            },
            config_lib.EtcConfig(vocab_size=30522).to_dict(),
        )

    def test_reads_a_file_of_the_original_and_reports_unknown_keys(self):
        path = self._write(_ORIGINAL_JSON)
        with self.assertLogs("absl", "WARNING") as logs:
            config = config_lib.EtcConfig.from_json_file(path)
        self.assertEqual(["model_type", "type_vocab_size"], config.unknown_keys)
        self.assertIn("model_type, type_vocab_size", logs.output[0])
        self.assertEqual(42, config.relative_pos_max_distance)
        self.assertEqual(96, config.relative_vocab_size)
        self.assertFalse(config.share_qkv_projections)
        self.assertTrue(config.use_hard_g2l_mask)
        self.assertEqual(768, config.embedding_size)
        self.assertNotIn("model_type", config.to_dict())

    def test_json_round_trip(self):
        config = config_lib.EtcConfig(7, hidden_size=24, hidden_act="relu")
        text = config.to_json_string()
        self.assertEndsWith(text, "}\n")
        self.assertStartsWith(text, '{\n  "att_size_per_head": null,')
        self.assertEqual(config.to_dict(), json.loads(text))
        self.assertEqual(
            config, config_lib.EtcConfig.from_json_file(self._write(text))
        )

    def test_from_dict_does_not_validate(self):
        config = config_lib.EtcConfig.from_dict({"hidden_size": 24})
        self.assertIsNone(config.vocab_size)
        self.assertEqual(24, config.hidden_size)
        with self.assertRaisesRegex(ValueError, "vocab_size is None"):
            config.validate()

    def test_bad_files(self):
        for text, message in [
            ("{", "not a JSON file"),
            ("[1]", "one JSON object"),
            ('{"hidden_size": 24}', "vocab_size is None"),
        ]:
            path = self._write(text)
            with self.assertRaisesRegex(ValueError, message) as raised:
                config_lib.EtcConfig.from_json_file(path)
            self.assertStartsWith(str(raised.exception), path)
        with self.assertRaises(tf.errors.NotFoundError):
            config_lib.EtcConfig.from_json_file("/no/such/file.json")

    @parameterized.parameters(
        (dict(hidden_size=0), "hidden_size is 0"),
        (dict(local_radius=84.5), "local_radius is 84.5"),
        (dict(num_hidden_layers=True), "num_hidden_layers is True"),
        (dict(relative_pos_max_distance=-1), "max_distance is -1"),
        (dict(embedding_size=0), "embedding_size is 0"),
        (dict(hidden_dropout_prob=1.0), "hidden_dropout_prob is 1.0"),
        (dict(hidden_act="swishy"), "hidden_act: .*swishy"),
        (dict(num_attention_heads=7), r"hidden_size \(768\) is no multiple"),
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
        with self.assertRaisesRegex(ValueError, "'huge'.*base, base_shared"):
            config_lib.EtcConfig.from_preset("huge")
        with self.assertRaisesRegex(ValueError, "no attribute colour"):
            config_lib.EtcConfig.from_preset("tiny", colour=3)

    def test_paper_sizes(self):
        # ETC paper, Table 8 and Appendix A.
        base = config_lib.EtcConfig.from_preset("base")
        self.assertEqual(
            (12, 768, 12, 84, 12),
            (
                base.num_hidden_layers,
                base.hidden_size,
                base.num_attention_heads,
                base.local_radius,
                base.relative_pos_max_distance,
            ),
        )
        large = config_lib.EtcConfig.from_preset("large")
        self.assertEqual(
            (24, 1024, 16, 169, 24),
            (
                large.num_hidden_layers,
                large.hidden_size,
                large.num_attention_heads,
                large.local_radius,
                large.relative_pos_max_distance,
            ),
        )


if __name__ == "__main__":
    tf.test.main()
