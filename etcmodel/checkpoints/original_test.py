import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.checkpoints import object_graph
from etcmodel.checkpoints import original
from etcmodel.models import EtcConfig
from etcmodel.models import EtcModel
from etcmodel.models import ReadTwiceConfig
from etcmodel.models import ReadTwiceModel

_ROOT = "etc_document_bert/"
_LAYER = f"{_ROOT}global_local_transformer_layers/fused_att_layer_0/"
_ATTENTION = f"{_LAYER}fused_global_local_att/"
_FEED_FORWARD = f"{_ROOT}global_local_transformer_layers/feed_forward_layer_0/"
_LABELS = ("relative_emb_table", "relative_bias_table")
# Names in a published checkpoint, cut to one layer. Long and global tokens
# share feed-forward layers, but not projections.
_ETC = {
    f"{_ROOT}token_emb_lookup/embedding_table",
    f"{_ROOT}segment_emb_lookup/embedding_table",
    *(
        f"{_ROOT}{x}_emb_layer_norm/{y}"
        for x in ("long", "global")
        for y in ("gamma", "beta")
    ),
    *(f"{_LAYER}layer_norm_{x}/{y}" for x in "01" for y in ("gamma", "beta")),
    *(
        f"{_ATTENTION}{x}_projection/linear/{y}"
        for x in (
            "long_query",
            "global_query",
            "l2l_key",
            "l2l_value",
            "l2g_key",
            "l2g_value",
            "g2g_key",
            "g2g_value",
            "g2l_key",
            "g2l_value",
        )
        for y in ("kernel", "bias")
    ),
    *(
        f"{_ATTENTION}{x}_output_projection/{y}"
        for x in ("long", "global")
        for y in ("kernel", "bias")
    ),
    *(
        f"{_ATTENTION}{x}/{y}"
        for x in (
            "long_qkv_attention/qkv_relative_attention",
            "global_qkv_attention",
        )
        for y in _LABELS
    ),
    *(
        f"{_FEED_FORWARD}{x}"
        for x in (
            "dense_layers/layer_0/kernel",
            "dense_layers/layer_0/bias",
            "dense_layers/layer_1/kernel",
            "dense_layers/layer_1/bias",
            "layer_norm/gamma",
            "layer_norm/beta",
        )
    ),
}
_READ_TWICE = "read_it_twice_bert/"


def make_etc(**options):
    config = EtcConfig.from_preset(
        "tiny", vocab_size=11, num_hidden_layers=1, **options
    )
    return EtcModel(config)


def make_read_twice():
    config = ReadTwiceConfig.from_preset(
        "tiny", vocab_size=11, num_hidden_layers=1
    )
    return ReadTwiceModel(config)


def write(path, tensors):
    """Writes tensors as a TensorFlow 1 checkpoint."""
    tf.raw_ops.SaveV2(
        prefix=path,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.convert_to_tensor(x) for x in tensors.values()],
    )


def read(path):
    reader = tf.train.load_checkpoint(path)
    return {x: reader.get_tensor(x) for x in reader.get_variable_to_shape_map()}


class OriginalTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.get_temp_dir(), "saved")
        self.checkpoint = os.path.join(self.folder, "model.ckpt")

    @parameterized.parameters(
        (make_etc, original.save_etc, original.load_etc, EtcConfig),
        (
            make_read_twice,
            original.save_read_twice,
            original.load_read_twice,
            ReadTwiceConfig,
        ),
    )
    def test_round_trip_is_exact(self, make, save, load, config_class):
        saved, loaded = make(), make()
        save(saved, self.folder)
        self.assertEqual([], load(loaded, self.folder))
        for x, y in zip(saved.weights, loaded.weights, strict=True):
            self.assertAllEqual(x, y)
        config = config_class.from_json_file(original.config_file(self.folder))
        self.assertEqual(saved.config, config)
        self.assertIsNone(original.config_file(self.get_temp_dir()))

    def test_names_of_etc(self):
        original.save_etc(make_etc(), self.folder)
        self.assertCountEqual(_ETC, read(self.checkpoint))
        self.assertIn("etc_config.json", os.listdir(self.folder))

    def test_names_of_absolute_positions(self):
        model = make_etc(max_absolute_position_embeddings=5)
        original.save_etc(model, self.folder)
        names = {
            f"position_emb_lookup_{x}/embedding_table"
            for x in ("long", "global")
        }
        self.assertCountEqual(_ETC | names, read(self.checkpoint))

    def test_names_of_read_twice(self):
        original.save_read_twice(make_read_twice(), self.folder)
        names = set(read(self.checkpoint))
        layers = "kernel", "bias"
        norm = "gamma", "beta"
        projections = [
            f"main_{x}_projection/linear" for x in ("query", "key", "value")
        ]
        parts = {
            **{
                f"attention_layer_0/fused_side_attention/{x}": layers
                for x in (*projections, "output_projection")
            },
            "attention_layer_0/layer_norm": norm,
            "feed_forward_layer_0/dense_layers/layer_0": layers,
            "feed_forward_layer_0/dense_layers/layer_1": layers,
            "feed_forward_layer_0/layer_norm": norm,
        }
        cross = f"{_READ_TWICE}cross_attention_layer"
        self.assertCountEqual(
            [
                "position_emb_lookup_long/embedding_table",
                f"{_READ_TWICE}token_emb_lookup/embedding_table",
                *(f"{_READ_TWICE}emb_layer_norm/{x}" for x in norm),
                *(
                    f"{_READ_TWICE}{stack}/{part}/{x}"
                    for stack in ("transformer_layers", "transformer_layers_1")
                    for part, weights in parts.items()
                    for x in weights
                ),
                *(
                    f"{_READ_TWICE}summary_extraction/entity_pool_linear/{x}"
                    for x in layers
                ),
                *(f"{cross}/layer_norm/{x}" for x in norm),
                f"{cross}/fused_side_attention/block_position_emb_lookup/"
                "embedding_table",
                f"{cross}/fused_side_attention/default_side_input",
            ],
            names,
        )

    def test_checkpoint_of_a_task_in_training(self):
        model = make_etc()
        original.save_etc(model, self.folder)
        tensors = read(self.checkpoint)
        others = {
            "supporting_facts_output_weights": np.zeros([1, 32]),
            "global_step": np.int64(3),
        }
        slots = {f"{x}/adam_m": y for x, y in tensors.items()}
        write(self.checkpoint, tensors | others | slots)
        other = make_etc()
        left = original.load_etc(other, self.checkpoint)
        self.assertCountEqual([*others, *slots], left)
        self.assertAllEqual(
            model.get_token_embedding_table(), other.get_token_embedding_table()
        )

    def test_message_lists_all_differences(self):
        original.save_etc(make_etc(), self.folder)
        tensors = read(self.checkpoint)
        del tensors[f"{_ROOT}long_emb_layer_norm/beta"]
        del tensors[f"{_FEED_FORWARD}layer_norm/beta"]
        tensors[f"{_ROOT}more/kernel"] = np.zeros(2)
        tensors[f"{_ROOT}segment_emb_lookup/embedding_table"] = np.zeros([2, 7])
        write(self.checkpoint, tensors)
        model = make_etc()
        model.build(None)
        before = model.get_weights()
        with self.assertRaisesRegex(
            ValueError,
            r"missing[^;]*long_emb_layer_norm/beta\s[^;]*feed_forward_layer_0/"
            r"layer_norm/beta\sin the checkpoint.*\s.*more/kernel\sshapes "
            r"differ:\s.*"
            r"segment_emb_lookup/embedding_table \[2, 7\], in the model "
            r"\[16, 32\]",
        ):
            original.load_etc(model, self.folder)
        for x, y in zip(before, model.get_weights(), strict=True):
            self.assertAllEqual(x, y)

    def test_checkpoint_of_a_bert(self):
        path = os.path.join(self.get_temp_dir(), "bert_model.ckpt")
        write(path, {"bert/embeddings/word_embeddings": np.zeros([2, 2])})
        with self.assertRaisesRegex(ValueError, f"{path} is of a BERT.* lift"):
            original.load_etc(make_etc(), path)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "expected a ReadTwiceModel"):
            original.save_read_twice(make_etc(), self.folder)
        original.save_etc(make_etc(), self.folder)
        with self.assertRaisesRegex(FileExistsError, "not an empty directory"):
            original.save_etc(make_etc(), self.folder)
        with self.assertRaisesRegex(
            ValueError,
            f"{self.folder} is of an EtcModel, but .* is a ReadTwiceModel",
        ):
            original.load_original(make_read_twice(), self.folder)
        self.assertEqual([], original.load_original(make_etc(), self.folder))
        model, other = make_etc(), make_etc()
        object_graph.load_checkpoint(model, self.folder)
        original.load_etc(other, self.folder)
        self.assertAllEqual(model.weights[0], other.weights[0])
        with self.assertRaisesRegex(FileNotFoundError, "no TensorFlow"):
            original.load_etc(make_etc(), self.get_temp_dir())


if __name__ == "__main__":
    tf.test.main()
