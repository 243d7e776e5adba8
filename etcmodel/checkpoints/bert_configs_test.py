import json
import os

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.checkpoints import bert_configs
from testing.small_berts import SIZES


class BertConfigsTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.get_temp_dir()

    def read(self, **config):
        config = {"model_type": "bert", "hidden_act": "gelu", **SIZES, **config}
        with open(os.path.join(self.folder, "config.json"), "w") as stream:
            json.dump(config, stream)
        return bert_configs.read_config(self.folder, self.folder)

    @parameterized.parameters(
        ({}, 0),
        ({"model_type": "roberta"}, 2),
        ({"model_type": "xlm-roberta", "pad_token_id": None}, 2),
        ({"model_type": "camembert", "pad_token_id": 1}, 2),
        ({"model_type": "roberta", "pad_token_id": 0}, 1),
        ({"model_type": "electra", "embedding_size": 8}, 0),
    )
    def test_first_position(self, config, expected):
        self.assertEqual(expected, self.read(**config).first_position)

    @parameterized.parameters(
        ("gelu", "exact_gelu"), ("gelu_python", "exact_gelu"),
        ("gelu_new", "gelu"), ("gelu_fast", "gelu"), ("relu", "relu"),
    )  # fmt: skip
    def test_activations(self, name, expected):
        config = self.read(hidden_act=name)
        self.assertEqual(expected, config.sizes["hidden_act"])

    def test_token_types(self):
        self.assertFalse(self.read().has_types)
        self.assertTrue(self.read(type_vocab_size=2).has_types)

    @parameterized.parameters(
        ({"model_type": "albert"}, "'albert', .*: its layers share"),
        ({"model_type": "t5"}, "'t5', which cannot be lifted. Use one of"),
        ({"quantization_config": {"bits": 4}}, "without quantization"),
        ({"is_decoder": True}, "is_decoder is True, expected False"),
    )
    def test_refused(self, config, message):
        with self.assertRaisesRegex(ValueError, message):
            self.read(**config)

    def test_no_such_directory(self):
        for path, name in (
            ("bert-base-uncased", "google-bert/bert-base-uncased"),
            ("google-bert/bert", "google-bert/bert"),
            (self.folder + "/none", "ORGANIZATION/none"),
        ):
            with self.assertRaisesRegex(
                FileNotFoundError,
                f"no directory or checkpoint {path}. Nothing is downloaded.*"
                f"`hf download {name} --local-dir={path}`",
            ):
                bert_configs.check_exists(path)

    def test_advice_for_similar_directories(self):
        # A model's directory in Hugging Face's cache.
        os.makedirs(os.path.join(self.folder, "snapshots", "1f2e"))
        with self.assertRaisesRegex(FileNotFoundError, "snapshots/1f2e"):
            bert_configs.read_config(self.folder, self.folder)
        with open(os.path.join(self.folder, "adapter_config.json"), "w"):
            pass
        with self.assertRaisesRegex(FileNotFoundError, "merge_and_unload"):
            bert_configs.read_config(self.folder, self.folder)


if __name__ == "__main__":
    tf.test.main()
