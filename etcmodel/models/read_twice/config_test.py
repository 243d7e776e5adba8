import json
import os

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models.read_twice import config as config_lib

ReadTwiceConfig = config_lib.ReadTwiceConfig
_CROSS = dict(
    second_read_type="cross_attend_once",
    second_read_num_new_layers=2,
    second_read_num_cross_attention_heads=0,
)
_NEW_LAYERS = dict(second_read_type="new_layers", second_read_num_new_layers=2)

# A file that the original code wrote.
_ORIGINAL_JSON = """{
  "attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1,
  "cross_attention_pos_emb_mode": "simple_relative",
  "cross_attention_top_k": 100, "embedding_size": null,
  "grad_checkpointing_period": 0, "hidden_act": "gelu", "hidden_size": 768,
  "initializer_range": 0.02, "intermediate_size": 3072,
  "max_num_blocks_per_document": 256, "max_seq_length": 512,
  "num_attention_heads": 12, "num_hidden_layers": 12,
  "second_read_enable_default_side_input": true,
  "second_read_num_cross_attention_heads": 0,
  "second_read_num_new_layers": 2, "second_read_type": "cross_attend_once",
  "share_kv_projections": false, "summary_mode": "entity",
  "summary_postprocessing_num_layers": null,
  "summary_postprocessing_type": "none", "text_block_extract_every_x": null,
  "use_sparse_memory_attention": true, "vocab_size": 32000
}
"""


class ReadTwiceConfigTest(tf.test.TestCase, parameterized.TestCase):
    def test_reads_a_file_of_the_original(self):
        path = os.path.join(self.get_temp_dir(), "config.json")
        with open(path, "w") as file:
            file.write(_ORIGINAL_JSON)
        config = ReadTwiceConfig.from_json_file(path)
        self.assertEqual([], config.unknown_keys)
        written = json.loads(config.to_json_string())
        original = json.loads(_ORIGINAL_JSON)
        self.assertEqual(original, {key: written[key] for key in original})
        self.assertEqual(
            {"cross_attention_pos_emb_size", "summary_padding_token_id"},
            set(written) - set(original),
        )

    def test_defaults_of_the_original(self):
        config = ReadTwiceConfig(vocab_size=9)
        config.validate()
        self.assertEqual("from_scratch", config.second_read_type)
        self.assertEqual("cls", config.summary_mode)
        self.assertEqual("none", config.summary_postprocessing_type)
        self.assertEqual(512, config.max_seq_length)
        self.assertEqual(256, config.max_num_blocks_per_document)

    def test_the_models_of_the_paper(self):
        for name in ("base", "base_cls", "base_sts", "tiny"):
            ReadTwiceConfig.from_preset(name).validate()
        # Section 2.1 and Appendix A.
        config = ReadTwiceConfig.from_preset("base").to_dict()
        expected = dict(
            summary_mode="entity",
            cross_attention_pos_emb_size=10,
            cross_attention_pos_emb_mode="simple_relative",
            use_sparse_memory_attention=True,
            second_read_enable_default_side_input=True,
            second_read_num_new_layers=2,
        )
        self.assertEqual(config, config | expected)
        config = ReadTwiceConfig.from_preset("base_sts")
        self.assertEqual(32, config.text_block_extract_every_x)
        self.assertFalse(config.use_sparse_memory_attention)

    @parameterized.parameters(
        (dict(summary_padding_token_id=-1), "token_id is -1"),
        (dict(num_attention_heads=7), r"hidden_size \(768\) is not a multiple"),
        (dict(second_read_type="thrice"), "'thrice'.*'from_scratch'"),
        (dict(summary_mode="words"), "'words'.*'text_block'"),
        (dict(summary_postprocessing_type="mlp"), "'mlp'.*'linear'"),
        (
            dict(second_read_type="new_layers"),
            "'new_layers' needs second_read_num_new_layers",
        ),
        (
            _CROSS | dict(second_read_num_cross_attention_heads=None),
            "needs second_read_num_cross_attention_heads",
        ),
        (
            _CROSS | dict(second_read_num_cross_attention_heads=7),
            "not a multiple of second_read_num_cross_attention_heads",
        ),
        (
            _NEW_LAYERS | dict(second_read_enable_default_side_input=True),
            "'new_layers' has no no-op memory",
        ),
        (dict(cross_attention_top_k=5), "cross_attention_top_k is 5"),
        (
            _NEW_LAYERS | dict(cross_attention_pos_emb_mode="absolute"),
            "only second_read_type 'cross_attend_once'",
        ),
        (
            _CROSS | dict(cross_attention_pos_emb_mode="relative"),
            "cross_attention_pos_emb_mode is 'relative'",
        ),
        (
            _CROSS
            | dict(
                cross_attention_pos_emb_mode="absolute",
                summary_postprocessing_type="pos",
            ),
            "Use only one of them",
        ),
        (
            dict(summary_postprocessing_type="transformer"),
            "needs summary_postprocessing_num_layers",
        ),
        (
            dict(summary_mode="text_block"),
            "'text_block' needs text_block_extract_every_x",
        ),
    )
    def test_validation(self, kwargs, message):
        config = ReadTwiceConfig(30522, **kwargs)
        with self.assertRaisesRegex(ValueError, message):
            config.validate()


if __name__ == "__main__":
    tf.test.main()
