import os
import sys
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.checkpoints import bert_files
from etcmodel.checkpoints import bert_names
from testing.small_berts import HEAD
from testing.small_berts import SHAPES
from testing.small_berts import SIZES
from testing.small_berts import make_weights
from testing.small_berts import write_hugging_face
from testing.small_berts import write_json
from testing.small_berts import write_original


class ReadBertTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.get_temp_dir()

    def test_hugging_face(self):
        weights = make_weights(shapes=SHAPES | HEAD)
        write_hugging_face(
            self.folder, weights, "bert.", "cls.predictions.transform."
        )
        bert = bert_files.read_bert(self.folder)
        self.assertCountEqual(weights, bert.weights)
        for name, x in weights.items():
            self.assertAllEqual(x, bert.weights[name], name)
        self.assertEqual(SIZES | {"hidden_act": "exact_gelu"}, bert.sizes)
        self.assertEqual("bert", bert.architecture)
        self.assertEqual(
            {
                "position_ids": "numbers of the positions",
                "bert.pooler.dense.bias": "pooler",
            },
            bert.left_out,
        )
        self.assertEqual(
            "bert.encoder.layer.1.output.LayerNorm.weight",
            bert.names["encoder.layer.1.output.LayerNorm.gamma"],
        )

    def test_every_weight_is_used_or_left_out(self):
        self.assertCountEqual(SHAPES, bert_names.expected_names(2))
        self.assertCountEqual(HEAD, bert_names.head_names())
        for name, shape in (SHAPES | HEAD).items():
            expected = bert_names.expected_shape(name, SIZES)
            self.assertTrue(
                all(
                    n in (None, m) for n, m in zip(expected, shape, strict=True)
                ),
                (name, expected),
            )

    def test_first_layers(self):
        bert = bert_files.Bert(
            path="P",
            architecture="bert",
            sizes=SIZES,
            layer_norm_epsilon=1e-12,
            weights=make_weights(shapes=SHAPES | HEAD),
            names={x: f"file/{x}" for x in SHAPES | HEAD},
            left_out={"pooler": "no place"},
            vocab_file=None,
        )
        self.assertIs(bert, bert.first_layers(2))
        cut = bert.first_layers(1)
        kept = {x for x in SHAPES if "layer.1." not in x}
        self.assertEqual(kept, {*cut.weights})
        self.assertEqual(kept, {*cut.names})
        self.assertEqual(1, cut.sizes["num_hidden_layers"])
        self.assertFalse(cut.has_head)
        # Drops the 16 weights of the second layer, and the head.
        self.assertLen(cut.left_out, 1 + 16 + len(HEAD))
        self.assertIn("file/mlm.bias", cut.left_out)
        for number in (0, 3):
            with self.assertRaisesRegex(ValueError, "expected 1 to 2"):
                bert.first_layers(number)

    @parameterized.parameters(
        ({"model_type": "luke"}, "'luke'.*one of the types bert, roberta"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"hidden_act": "silu"}, "'silu'"),
        ({"vocab_size": 12}, r"word_embeddings \[11, 8\].*\[12, 8\]"),
        ({"num_hidden_layers": 3}, r"layer.2.attention.self.query.kernel"),
        ({"intermediate_size": 13}, r"\[8, 12\].*\[8, 13\]"),
    )
    def test_another_configuration(self, config, message):
        write_hugging_face(self.folder, make_weights(), **config)
        with self.assertRaisesRegex(ValueError, message):
            bert_files.read_bert(self.folder)

    def test_missing_files_of_a_checkpoint(self):
        weights = make_weights()
        del weights["encoder.layer.0.output.dense.bias"]
        write_original(self.folder, weights)
        with self.assertRaisesRegex(
            ValueError, r"Missing:\s+encoder.layer.0.output.dense.bias"
        ):
            bert_files.read_bert(self.folder)
        os.remove(
            os.path.join(self.folder, "bert_model.ckpt.data-00000-of-00001")
        )
        with self.assertRaisesRegex(FileNotFoundError, "is incomplete"):
            bert_files.read_bert(self.folder)

    def test_damaged_index(self):
        write_hugging_face(self.folder, make_weights())
        os.remove(os.path.join(self.folder, "model.safetensors"))
        index_file = "model.safetensors.index.json"
        index = {"weight_map": {"x": "model-1.safetensors"}}
        write_json(self.folder, index_file, index)
        with self.assertRaisesRegex(
            FileNotFoundError, "model-1.*does not exist"
        ):
            bert_files.read_bert(self.folder)
        for damaged in (
            [],
            {"weight_map": {"x": "../model-1.safetensors"}},
            {"weight_map": {"x": ["a"]}},
        ):
            write_json(self.folder, index_file, damaged)
            with self.assertRaisesRegex(ValueError, "weight_map"):
                bert_files.read_bert(self.folder)

    def test_message_lists_all_missing_weights(self):
        write_original(self.folder, {})
        with self.assertRaises(ValueError) as raised:
            bert_files.read_bert(self.folder)
        self.assertContainsSubset(
            SHAPES.keys() - {"embeddings.token_type_embeddings"},
            str(raised.exception).split(),
        )

    def test_without_the_library(self):
        write_hugging_face(self.folder, make_weights())
        with (
            mock.patch.dict(sys.modules, {"safetensors": None}),
            self.assertRaisesRegex(ImportError, r"etcmodel\[text\]"),
        ):
            bert_files.read_bert(self.folder)

    def test_missing_files(self):
        with self.assertRaisesRegex(FileNotFoundError, "bert_config.json"):
            bert_files.read_bert(self.folder)
        write_json(self.folder, "config.json", {"hidden_act": "gelu", **SIZES})
        with self.assertRaisesRegex(FileNotFoundError, "safetensors"):
            bert_files.read_bert(self.folder)
        # A file in PyTorch's pickle format, which is not supported.
        torch_file = os.path.join(self.folder, "pytorch_model.bin")
        with open(torch_file, "wb"):
            pass
        for path in (self.folder, torch_file):
            with self.assertRaises(FileNotFoundError) as raised:
                bert_files.read_bert(path)
            message = str(raised.exception)
            self.assertRegex(message, "pytorch_model.bin.*save_pretrained")
            self.assertNotIn("lifted first", message)
        path = os.path.join(self.folder, "model.safetensors")
        with open(path, "wb") as stream:
            stream.write(b"nothing")
        with self.assertRaisesRegex(ValueError, "damaged"):
            bert_files.read_bert(self.folder)
        write_json(self.folder, "config.json", {"hidden_act": "gelu"})
        with self.assertRaisesRegex(ValueError, "lacks vocab_size"):
            bert_files.read_bert(self.folder)
        write_json(self.folder, "config.json", [])
        with self.assertRaisesRegex(ValueError, "a list, not an object"):
            bert_files.read_bert(self.folder)


if __name__ == "__main__":
    tf.test.main()
