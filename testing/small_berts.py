"""Writes files of a BERT of two layers; computes its states in NumPy."""

import json
import math
import os

import numpy as np
import tensorflow as tf
from safetensors import numpy as safetensors_numpy

from etcmodel.checkpoints import bert_files
from etcmodel.feature_utils.text import tokenizers

# A BERT of two layers with a vocabulary of eleven tokens.
SIZES = {
    "vocab_size": 11,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
}
# These names are written out so that they do not come from the code under test.
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
    """Returns random weights, keyed by their names in `bert_names`."""
    rng = np.random.default_rng(seed)
    return {
        name: (0.4 * rng.normal(size=shape) + name.endswith("gamma")).astype(
            np.float32
        )
        for name, shape in (shapes or SHAPES).items()
    }


def write_json(folder, name, content):
    """Writes a JSON file, and creates its directory."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w") as stream:
        json.dump(content, stream)


def write_hugging_face(folder, weights, prefix="", head="", **config):
    """Writes Hugging Face's files, with PyTorch's names and kernel layout."""
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
    """Writes a checkpoint of Google's code."""
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
    """Computes BERT's hidden states of a text, in float64 NumPy.

    Args:
        weights: weights, keyed by their names in `bert_names`.
        sizes: sizes of the encoder, as in `BertConfig`.
        ids: `<int>[length]`, all of the first token type.
        exact: whether gelu is the erf form.
        position: position of the first token.

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


TOKENS = [*tokenizers.WORDPIECE_RESERVED_TOKENS, "one"]


def make_bert(folder, exact=True, vocab=True, head=False, **config):
    """Writes a BERT of `SIZES`, with a vocabulary of one word, and reads it.

    Returns the result of `read_bert`, and the weights.
    """
    shapes = SHAPES | (HEAD if head else {})
    weights = make_weights(shapes=shapes)
    if exact:
        write_hugging_face(
            folder, weights, "bert.", "cls.predictions.transform.", **config
        )
    else:
        write_original(folder, weights, **config)
    if vocab:
        write_vocab(os.path.join(folder, "vocab.txt"), TOKENS)
    return bert_files.read_bert(folder), weights


def write_vocab(path, tokens):
    """Writes one token per line; returns the path."""
    with open(path, "w") as stream:
        stream.write("".join(f"{token}\n" for token in tokens))
    return path


def encode_long(model, ids):
    """Returns an `EtcModel`'s output for a text, `[length, hidden_size]`."""
    config = model.config
    labels = np.random.default_rng(0).integers(
        config.relative_vocab_size,
        size=[1, len(ids), 2 * config.local_radius + 1],
        dtype=np.int32,
    )
    outputs, _ = model(
        tf.constant([ids]),
        tf.constant([[1, 1]]),
        l2g_att_mask=tf.zeros([1, len(ids), 2], tf.int32),
        l2l_relative_att_ids=labels,
        l2g_relative_att_ids=labels[:, :, :2],
    )
    return outputs[0]
