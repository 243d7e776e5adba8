"""Reads BERT and RoBERTa from the files that exist of them."""

import json
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel import extras
from etcmodel.checkpoints import bert_names
from etcmodel.checkpoints import files

_CONFIG_FILES = ("config.json", "bert_config.json")
_SAFETENSORS = "model.safetensors"
# Beside files that share the weights.
_INDEX = "model.safetensors.index.json"
_ARCHITECTURES = ("bert", "roberta")
# Their "gelu": Hugging Face means the exact form, Google the one with tanh.
_ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
}


class Bert(NamedTuple):
    """An encoder like BERT, as it was read.

    Attributes:
        path: where from.
        architecture: "bert" or "roberta".
        sizes: `vocab_size`, `hidden_size`, `num_hidden_layers`,
            `num_attention_heads`, `intermediate_size`, and `hidden_act` by the
            names of `EtcConfig`.
        layer_norm_epsilon: added to the variances.
        weights: what `bert_names.expected_names` lists, and the head of the
            masked language model if the file has it, as `<float32>` arrays:
            kernels are `[inputs, outputs]`; of position tables, rows in front
            of the first position are left out.
        names: what the weights are called in the file.
        left_out: other weights of the file, and why.
        vocab_file: the vocabulary beside it, or None.
    """

    path: str
    architecture: str
    sizes: Mapping[str, int | str]
    layer_norm_epsilon: float
    weights: Mapping[str, np.ndarray]
    names: Mapping[str, str]
    left_out: Mapping[str, str]
    vocab_file: str | None

    @property
    def has_head(self) -> bool:
        """Whether the head of the masked language model is there."""
        return "mlm.dense.kernel" in self.weights


def read_bert(path: str | os.PathLike) -> Bert:
    """Reads an encoder like BERT.

    Three kinds of files are known: a directory as Hugging Face has it, with
    `config.json` and `model.safetensors`, or its parts and
    `model.safetensors.index.json`, of BERT or RoBERTa; and a TensorFlow
    checkpoint of BERT beside its `bert_config.json`, either of Google's code
    (TensorFlow 1) or of the Model Garden's encoders.

    Args:
        path: the directory, or the checkpoint, such as "bert_model.ckpt". Of a
            directory that has both, `model.safetensors` is read.

    Returns:
        The encoder.

    Raises:
        FileNotFoundError: there is no configuration, or there are no weights.
        ValueError: they are those of something else, weights are missing or
            have other shapes than the configuration says.
    """
    path = os.fspath(path)
    folder = path if tf.io.gfile.isdir(path) else os.path.dirname(path)
    config, config_file = _read_config(folder, path)
    architecture = config.get("model_type", "bert")
    if architecture not in _ARCHITECTURES:
        raise ValueError(
            f"{config_file}: model_type is {architecture!r}, but only "
            f"{' and '.join(_ARCHITECTURES)} can be read."
        )
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ValueError(
            f"{config_file}: position_embedding_type is "
            f"{config['position_embedding_type']!r}, expected 'absolute'."
        )
    safetensors_file = _find(folder, _SAFETENSORS, _INDEX)
    # A checkpoint beside it can be asked for by its name.
    is_hugging_face = safetensors_file is not None and path in (
        folder,
        safetensors_file,
    )
    sizes = _sizes(config, config_file, is_hugging_face)
    if is_hugging_face:
        tensors = _read_safetensors(safetensors_file)
        replacements = bert_names.HUGGING_FACE
    else:
        tensors, replacements = _read_checkpoint(path, folder)
    weights, names, left_out = _name(tensors, replacements, sizes, path)
    if is_hugging_face:
        weights = {
            name: x.T if name.endswith(".kernel") else x
            for name, x in weights.items()
        }
    if architecture == "roberta":
        # The first position follows that of padding.
        padding = config.get("pad_token_id")
        first = (1 if padding is None else int(padding)) + 1
        weights[bert_names.POSITIONS] = weights[bert_names.POSITIONS][first:]
    _check(weights, sizes, config, path)
    return Bert(
        path=path,
        architecture=architecture,
        sizes=sizes,
        layer_norm_epsilon=float(config.get("layer_norm_eps", 1e-12)),
        weights=weights,
        names=names,
        left_out=left_out,
        vocab_file=_find(folder, "vocab.txt", "vocab.json"),
    )


def _find(folder, *names):
    for name in names:
        if tf.io.gfile.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    return None


def _read_config(folder, path):
    """The content of the configuration, and its path."""
    file = _find(folder, *_CONFIG_FILES)
    if file is None:
        raise FileNotFoundError(
            f"{path}: there is no {' or '.join(_CONFIG_FILES)} in "
            f"{folder or '.'}. Give the directory of a BERT or RoBERTa, or a "
            "checkpoint with its bert_config.json beside it."
        )
    with tf.io.gfile.GFile(file) as stream:
        try:
            config = json.load(stream)
        except ValueError as error:
            raise ValueError(f"{file} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{file} holds no JSON object.")
    return config, file


def _sizes(config, config_file, is_hugging_face) -> dict:
    names = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "hidden_act",
    )
    missing = [name for name in names if name not in config]
    if missing:
        raise ValueError(
            f"{config_file} lacks {', '.join(missing)}: expected the "
            "configuration of BERT or RoBERTa."
        )
    sizes = {name: config[name] for name in names}
    known = {
        **_ACTIVATIONS,
        "gelu": "exact_gelu" if is_hugging_face else "gelu",
    }
    if sizes["hidden_act"] not in known:
        raise ValueError(
            f"{config_file}: hidden_act is {sizes['hidden_act']!r}, expected "
            f"one of {', '.join(sorted(known))}."
        )
    sizes["hidden_act"] = known[sizes["hidden_act"]]
    return sizes


def _read_safetensors(path) -> dict[str, np.ndarray]:
    """All tensors of a file, or of the files that an index names."""
    if path.endswith(_INDEX):
        with tf.io.gfile.GFile(path) as stream:
            try:
                names = set(json.load(stream)["weight_map"].values())
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ValueError(
                    f"{path} is no index of safetensors files: expected a JSON "
                    'object with a "weight_map" of names and files.'
                ) from None
        folder = os.path.dirname(path)
        tensors = {}
        for name in sorted(names):
            tensors |= _read_safetensors(os.path.join(folder, name))
        return tensors
    # Only what is read from such a file needs the library.
    extras.require("safetensors")
    import safetensors

    try:
        # PyTorch's bfloat16 is known to TensorFlow, and not to NumPy.
        with safetensors.safe_open(path, framework="tf") as file:
            return {name: file.get_tensor(name).numpy() for name in file.keys()}
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{path} is no safetensors file, or a damaged one: {error}"
        ) from None
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is missing: the index beside it names it. Get all files "
            "of the directory."
        ) from None


def _read_checkpoint(path, folder):
    """All tensors of a TensorFlow checkpoint, and whose names they have."""
    try:
        checkpoint = files.open_checkpoint(path, advice="")
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{folder or '.'} has no {_SAFETENSORS}, and {error} (PyTorch's "
            "own pytorch_model.bin is not read. Hugging Face's library writes "
            f"it as {_SAFETENSORS}: `save_pretrained` of the model.)"
        ) from None
    tensors = {
        name: checkpoint.read(name)
        for name in checkpoint.shapes
        if name != files.OBJECT_GRAPH
    }
    if files.OBJECT_GRAPH in checkpoint.shapes:
        return tensors, bert_names.MODEL_GARDEN
    return tensors, bert_names.ORIGINAL


def _name(tensors, replacements, sizes, path):
    """Weights and their names in the file, by name; and what is left out."""
    layers = sizes["num_hidden_layers"]
    wanted = bert_names.expected_names(layers)
    wanted = {*wanted, *bert_names.head_names()}
    weights, names, left_out = {}, {}, {}
    for name, tensor in tensors.items():
        common = bert_names.common_name(name, replacements)
        if common in wanted and common not in weights:
            weights[common] = np.asarray(tensor, np.float32)
            names[common] = name
        elif _layer_of(common) >= layers:
            raise ValueError(
                f"{path}: there is a weight {name}, but by the configuration "
                f"there are {layers} layers."
            )
        else:
            left_out[name] = bert_names.why_left_out(name)
    return weights, names, left_out


def _layer_of(name) -> int:
    """The number of a weight's layer; -1 if it is in none."""
    found = re.match(r"encoder\.layer\.(\d+)\.", name)
    return int(found[1]) if found else -1


def _check(weights, sizes, config, path) -> None:
    """Checks that all weights are there, and gives them the shapes they need.

    Model Garden's kernels have the heads as an axis of their own.
    """
    layers = sizes["num_hidden_layers"]
    names = bert_names.expected_names(layers)
    if bert_names.TYPES not in weights and "type_vocab_size" not in config:
        names.remove(bert_names.TYPES)
    missing = [name for name in names if name not in weights]
    if missing:
        raise ValueError(
            f"{path}: weights of a BERT of {layers} layers are missing:"
            f"{files.listed(missing)}"
        )
    wrong = []
    for name, x in weights.items():
        expected = bert_names.expected_shape(name, sizes)
        heads = sizes["num_attention_heads"]
        if x.ndim > len(expected) and heads in x.shape:
            x = weights[name] = x.reshape([n or -1 for n in expected])
        if x.ndim != len(expected) or any(
            n not in (None, m) for n, m in zip(expected, x.shape, strict=True)
        ):
            wrong.append(
                f"{name} {list(x.shape)}, by the configuration "
                f"{['any' if n is None else n for n in expected]}"
            )
    if wrong:
        raise ValueError(
            f"{path}: weights have other shapes than the configuration says:"
            f"{files.listed(wrong)}"
        )
