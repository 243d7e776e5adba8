"""Loads and saves checkpoints of the original code, in TensorFlow 1's format.

Variables have names such as
`etc_document_bert/global_local_transformer_layers/fused_att_layer_0/...`; the
layers here have the same names. A JSON configuration is in the same directory.
Heads, which have other variable names, and variables of optimizers are ignored.
"""

import os
import re
import uuid

import tensorflow as tf

from etcmodel import json_objects
from etcmodel.checkpoints import files
from etcmodel.checkpoints import lora_factors
from etcmodel.layers import keras_compat
from etcmodel.models import EtcModel
from etcmodel.models import LanguageModelHead
from etcmodel.models import ReadTwiceModel
from etcmodel.weight_paths import get_weight_paths

CHECKPOINT = "model.ckpt"
# Encoder class -> scope of its variables and name of its configuration file.
_KINDS = {
    EtcModel: ("etc_document_bert", "etc_config.json"),
    ReadTwiceModel: ("read_it_twice_bert", "read_it_twice_bert_config.json"),
}
# The original code creates these variables in a constructor, without a scope.
_OUTSIDE = "position_emb_lookup_"
# The original code calls both layers by the same name.
_NAMES = {"side_attention": "fused_side_attention"}
# Weight of the masked language model's head -> its name in BERT.
_HEAD = {
    "dense/kernel": "cls/predictions/transform/dense/kernel",
    "dense/bias": "cls/predictions/transform/dense/bias",
    "layer_norm/gamma": "cls/predictions/transform/LayerNorm/gamma",
    "layer_norm/beta": "cls/predictions/transform/LayerNorm/beta",
    "output_bias": "cls/predictions/output_bias",
}
_OF_OPTIMIZERS = re.compile(r"/(adam_[mv]|lamb_[mv]|Adam(_1)?|LAMB.*)$")


def load_etc(model: tf.keras.Model, path: str | os.PathLike) -> list[str]:
    """Loads the weights of an original checkpoint into an ETC encoder.

    Args:
        model: an `EtcModel`, or a model with one inside; see
            `load_checkpoint`.
        path: the checkpoint, such as "etc_base/model.ckpt", or its directory.

    Returns:
        Names of the checkpoint's variables that were not loaded, such as those
        of heads and optimizers.

    Raises:
        FileNotFoundError: the checkpoint, or one of its files, is missing.
        ValueError: names or shapes of variables differ; the message lists all
            differences, and nothing is loaded. Layers that embed values may be
            missing.
    """
    return _load(model, path, EtcModel)


def save_etc(
    model: tf.keras.Model,
    directory: str | os.PathLike,
    head: LanguageModelHead | None = None,
) -> None:
    """Writes an ETC encoder in the original code's format.

    Args:
        model: an `EtcModel`, or a model with one inside; its heads are not
            written.
        directory: where to write `model.ckpt` and `etc_config.json`. It must be
            empty or not exist. It is created only when all files are complete.
        head: a built head to write, too, under BERT's names. (The original code
            wrote no heads.)

    Raises:
        ValueError: the model does not contain exactly one ETC encoder.
        FileExistsError: the directory is a file, or not empty.
    """
    _save(model, directory, EtcModel, head)


def load_read_twice(
    model: tf.keras.Model, path: str | os.PathLike
) -> list[str]:
    """Loads a ReadTwice encoder from an original checkpoint; see `load_etc`."""
    return _load(model, path, ReadTwiceModel)


def save_read_twice(
    model: tf.keras.Model,
    directory: str | os.PathLike,
    head: LanguageModelHead | None = None,
) -> None:
    """Writes a ReadTwice encoder in the original code's format; see `save_etc`.

    The configuration is `read_it_twice_bert_config.json`.
    """
    _save(model, directory, ReadTwiceModel, head)


def config_file(path: str | os.PathLike) -> str | None:
    """Returns the path of an original checkpoint's configuration, or None."""
    for _, name in _KINDS.values():
        file = files.beside(path, name)
        if tf.io.gfile.exists(file):
            return file
    return None


def load_original(model: tf.keras.Model, path: str | os.PathLike) -> list[str]:
    """Calls `load_etc` or `load_read_twice`, as fits the encoder's class."""
    kind = next(x for x in _KINDS if isinstance(files.find_encoder(model), x))
    return _load(model, path, kind)


def _find(model, kind):
    """Returns a model's encoder of class `kind`, and its weights by name."""
    encoder = files.find_encoder(model)
    if not isinstance(encoder, kind):
        raise ValueError(
            f"{model.name} has a {type(encoder).__name__}, expected a "
            f"{kind.__name__}."
        )
    keras_compat.build_once(encoder, None)
    scope, _ = _KINDS[kind]
    weights = {}
    for path, weight in get_weight_paths(encoder).items():
        *attributes, last = path.split("/")
        is_outside = attributes[0].startswith(_OUTSIDE)
        layer, names = encoder, [] if is_outside else [scope]
        for attribute in attributes:
            # Keras stores some sublayers in attributes such as `_layer`.
            layer = getattr(layer, attribute, None) or getattr(
                layer, f"_{attribute}"
            )
            names.append(_NAMES.get(layer.name, layer.name))
        weights["/".join([*names, last])] = weight
    return encoder, weights


def _load(model, path, kind):
    encoder, weights = _find(model, kind)
    weights, factors = lora_factors.split(weights)
    path = os.fspath(path)
    checkpoint = files.open_checkpoint(path)
    shapes = checkpoint.shapes
    files.check_kind(encoder, path, shapes)
    scope, _ = _KINDS[kind]
    of_encoder = {
        name
        for name in shapes
        if name.startswith((f"{scope}/", _OUTSIDE))
        and not _OF_OPTIMIZERS.search(name)
    }
    weights = files.without_new(encoder, weights, of_encoder)
    files.assign(
        weights,
        {name: shapes[name] for name in of_encoder & set(weights)},
        checkpoint.read,
        sorted(of_encoder - set(weights)),
        f"The checkpoint {path} does not fit the model {encoder.name}",
    )
    lora_factors.restart(factors)
    return sorted(set(shapes) - of_encoder)


def _head_weights(head) -> dict[str, tf.Variable]:
    return {_HEAD[path]: x for path, x in get_weight_paths(head).items()}


def load_original_head(head: LanguageModelHead, path: str) -> bool:
    """Loads the head's weights from a checkpoint with BERT's names.

    See `load_head`.
    """
    checkpoint = files.open_checkpoint(path)
    weights, shapes = _head_weights(head), checkpoint.shapes
    found = {name: shapes[name] for name in weights if name in shapes}
    if not found:
        return False
    files.assign(
        weights,
        found,
        checkpoint.read,
        [],
        f"The head in the checkpoint {path} does not fit {head.name}",
    )
    return True


def _save(model, directory, kind, head):
    encoder, weights = _find(model, kind)
    weights, factors = lora_factors.split(weights)
    if head is not None:
        weights |= _head_weights(head)
    directory = os.fspath(directory).rstrip("/")
    if tf.io.gfile.exists(directory) and (
        not tf.io.gfile.isdir(directory) or tf.io.gfile.listdir(directory)
    ):
        raise FileExistsError(
            f"{directory} exists and is not an empty directory. Pass a new or "
            "empty directory."
        )
    partial = f"{directory}.{uuid.uuid4().hex}.partial"
    tf.io.gfile.makedirs(partial)
    names = sorted(weights)
    try:
        tf.raw_ops.SaveV2(
            prefix=os.path.join(partial, CHECKPOINT),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[
                tf.convert_to_tensor(
                    lora_factors.merge(weights[x], *factors.get(x, ()))
                )
                for x in names
            ],
        )
        config_file = os.path.join(partial, _KINDS[kind][1])
        with tf.io.gfile.GFile(config_file, "w") as stream:
            stream.write(json_objects.dump_note(encoder.config.to_dict()))
        if tf.io.gfile.exists(directory):
            tf.io.gfile.rmtree(directory)
        tf.io.gfile.rename(partial, directory)
    except BaseException:
        tf.io.gfile.rmtree(partial)
        raise
