import json
import math
import os
import sys
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from safetensors import numpy as safetensors_numpy

from etcmodel.checkpoints import bert_files
from etcmodel.checkpoints import bert_names

# A BERT of two layers with a vocabulary of eleven tokens.
SIZES = {
    "vocab_size": 11,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
}
# Written out, so that they do not depend on the code under test.
_LAYER = {
    "attention.self.query.kernel": (8, 8),
    "attention.self.query.bias": (8,),
    "attention.self.key.kernel": (8, 8),
    "attention.self.key.bias": (8,),
    "attention.self.value.kernel": (8, 8),
    "attention.self.value.bias": (8,),
    "attention.output.dense.kernel": (8, 8),
    "attention.output.dense.bias": (8,),
    "attention.output.LayerNorm.gamma": (8,),
    "attention.output.LayerNorm.beta": (8,),
    "intermediate.dense.kernel": (8, 12),
    "intermediate.dense.bias": (12,),
    "output.dense.kernel": (12, 8),
    "output.dense.bias": (8,),
    "output.LayerNorm.gamma": (8,),
    "output.LayerNorm.beta": (8,),
}
SHAPES = {
    "embeddings.word_embeddings": (11, 8),
    "embeddings.position_embeddings": (7, 8),
    "embeddings.token_type_embeddings": (2, 8),
    "embeddings.LayerNorm.gamma": (8,),
    "embeddings.LayerNorm.beta": (8,),
    **{
        f"encoder.layer.{i}.{name}": shape
        for i in range(2)
        for name, shape in _LAYER.items()
    },
}
HEAD = {
    "mlm.dense.kernel": (8, 8),
    "mlm.dense.bias": (8,),
    "mlm.LayerNorm.gamma": (8,),
    "mlm.LayerNorm.beta": (8,),
    "mlm.bias": (11,),
}


def make_weights(seed=0, shapes=None):
    """Weights of all sizes, by the names of `bert_names`."""
    rng = np.random.default_rng(seed)
    return {
        name: (0.4 * rng.normal(size=shape) + name.endswith("gamma")).astype(
            np.float32
        )
        for name, shape in (shapes or SHAPES).items()
    }


def write_json(folder, name, content):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w") as stream:
        json.dump(content, stream)


def write_hugging_face(folder, weights, prefix="", head="", **config):
    """Writes a directory with Hugging Face's names and layouts for PyTorch."""
    write_json(
        folder,
        "config.json",
        {"model_type": "bert", "hidden_act": "gelu", **SIZES, **config},
    )
    tensors = {"position_ids": np.arange(7)[np.newaxis]}
    for name, x in weights.items():
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if name.endswith("_embeddings"):
            name += ".weight"
        if name.endswith(".kernel"):
            name, x = name.replace(".kernel", ".weight"), x.T
        if name.startswith("mlm."):
            name = name.replace("mlm.", head)
            if head == "lm_head.":
                name = name.replace("LayerNorm", "layer_norm")
            else:
                name = name.replace("transform.bias", "bias")
        else:
            name = prefix + name
        tensors[name] = np.ascontiguousarray(x)
    tensors[f"{prefix}pooler.dense.bias"] = np.zeros(8, np.float32)
    safetensors_numpy.save_file(
        tensors, os.path.join(folder, "model.safetensors")
    )


def write_original(folder, weights, **config):
    """Writes a checkpoint with the names of Google's code."""
    write_json(
        folder, "bert_config.json", {"hidden_act": "gelu", **SIZES, **config}
    )
    tensors = {
        "cls/seq_relationship/output_weights": np.zeros([2, 8], np.float32),
        "bert/pooler/dense/kernel": np.zeros([8, 8], np.float32),
        "global_step": np.int64(7),
    }
    for name, x in weights.items():
        if name == "mlm.bias":
            name = "cls.predictions.output_bias"
        elif name.startswith("mlm."):
            name = name.replace("mlm.", "cls.predictions.transform.")
        else:
            name = "bert." + name.replace("encoder.layer.", "encoder.layer_")
        tensors[name.replace(".", "/")] = x
        tensors[name.replace(".", "/") + "/adam_m"] = x
    tf.raw_ops.SaveV2(
        prefix=os.path.join(folder, "bert_model.ckpt"),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(x) for x in tensors.values()],
    )


def hidden_states(weights, sizes, ids, exact=True, position=0):
    """Computes BERT's output for a text, in NumPy and float64.

    Args:
        weights: the arrays, by the names of `bert_names`.
        sizes: those of the encoder.
        ids: `<int>[length]`, all of the first token type.
        exact: whether gelu is the erf form.
        position: the position of the first token.

    Returns:
        `<float64>[length, hidden_size]`.
    """

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12)
        return x * weights[f"{name}.gamma"] + weights[f"{name}.beta"]

    def dense(x, name):
        return x @ weights[f"{name}.kernel"] + weights[f"{name}.bias"]

    def gelu(x):
        if exact:
            return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return 0.5 * x * (1 + np.tanh(inner))

    weights = {name: np.float64(x) for name, x in weights.items()}
    length, heads = len(ids), sizes["num_attention_heads"]
    x = weights["embeddings.word_embeddings"][ids]
    rows = slice(position, position + length)
    x = x + weights["embeddings.position_embeddings"][rows]
    x = x + weights["embeddings.token_type_embeddings"][0]
    x = norm(x, "embeddings.LayerNorm")
    for i in range(sizes["num_hidden_layers"]):
        layer = f"encoder.layer.{i}."
        query, key, value = (
            dense(x, f"{layer}attention.self.{part}")
            .reshape(length, heads, -1)
            .transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
        probs = np.exp(scores - scores.max(-1, keepdims=True))
        probs /= probs.sum(-1, keepdims=True)
        seen = (probs @ value).transpose(1, 0, 2).reshape(length, -1)
        x = norm(
            x + dense(seen, f"{layer}attention.output.dense"),
            f"{layer}attention.output.LayerNorm",
        )
        inner = gelu(dense(x, f"{layer}intermediate.dense"))
        x = norm(
            x + dense(inner, f"{layer}output.dense"),
            f"{layer}output.LayerNorm",
        )
    return x


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

    def test_every_weight_is_named_or_left_out(self):
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
        # 16 weights of the unused layer, and the head.
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

    def test_half_of_it(self):
        weights = make_weights()
        del weights["encoder.layer.0.output.dense.bias"]
        write_original(self.folder, weights)
        with self.assertRaisesRegex(
            ValueError, r"missing:\s+encoder.layer.0.output.dense.bias"
        ):
            bert_files.read_bert(self.folder)
        os.remove(
            os.path.join(self.folder, "bert_model.ckpt.data-00000-of-00001")
        )
        with self.assertRaisesRegex(FileNotFoundError, "part of a checkpoint"):
            bert_files.read_bert(self.folder)

    def test_damaged_index(self):
        write_hugging_face(self.folder, make_weights())
        os.remove(os.path.join(self.folder, "model.safetensors"))
        index_file = "model.safetensors.index.json"
        index = {"weight_map": {"x": "model-1.safetensors"}}
        write_json(self.folder, index_file, index)
        with self.assertRaisesRegex(FileNotFoundError, "model-1.*is missing"):
            bert_files.read_bert(self.folder)
        for damaged in (
            [],
            {"weight_map": {"x": "../model-1.safetensors"}},
            {"weight_map": {"x": ["a"]}},
        ):
            write_json(self.folder, index_file, damaged)
            with self.assertRaisesRegex(ValueError, "weight_map"):
                bert_files.read_bert(self.folder)

    def test_all_weights_that_are_missing(self):
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

    def test_no_file(self):
        with self.assertRaisesRegex(FileNotFoundError, "bert_config.json"):
            bert_files.read_bert(self.folder)
        write_json(self.folder, "config.json", {"hidden_act": "gelu", **SIZES})
        with self.assertRaisesRegex(FileNotFoundError, "safetensors"):
            bert_files.read_bert(self.folder)
        # PyTorch's own format.
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
