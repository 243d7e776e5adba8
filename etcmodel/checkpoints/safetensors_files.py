"""Reads tensors from the safetensors files of a directory."""

import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel import extras
from etcmodel import json_objects
from etcmodel.checkpoints import bert_configs

_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"
# Endings of weight files in other formats, and the names of these formats.
_OTHER_FORMATS = {
    (".bin", ".pt", ".pth"): "PyTorch's pickled weights",
    (".h5", ".msgpack"): "weights in another format",
}
_SAVE = (
    "Load them with Hugging Face's library and save them again: "
    "`AutoModel.from_pretrained(DIR).save_pretrained(DIR)` writes "
    f"{_FILE} (`AutoModelForMaskedLM` keeps the head)."
)


class Tensors(NamedTuple):
    """The content of safetensors files.

    `aliases` maps each further name of a shared tensor to the name that the
    tensor is stored under. It comes from the files' metadata.
    """

    arrays: dict[str, np.ndarray]
    aliases: dict[str, str]


def find_file(path: str, folder: str) -> str | None:
    """Returns the safetensors file, or the index of such files, to read.

    `path` is the directory `folder`, or a file or checkpoint in it. Returns
    None if `path` is a TensorFlow checkpoint.

    Raises:
        FileNotFoundError: the format of the weights is not supported.
    """
    names = _list(folder)
    if path == folder:
        found = bert_configs.find(folder, _FILE, _INDEX)
        if found is None and not any(x.endswith(".index") for x in names):
            raise FileNotFoundError(_no_weights(folder, names))
        return found
    for endings, what in _OTHER_FORMATS.items():
        if path.endswith(endings):
            raise FileNotFoundError(f"{path}: cannot read {what}. {_SAVE}")
    if path.endswith(".safetensors"):
        index = bert_configs.find(folder, _INDEX)
        if index and os.path.basename(path) in _files_of(index):
            return index
        return path
    if ".safetensors.index" in path and path.endswith(".json"):
        return path
    return None


def _list(folder) -> list[str]:
    return sorted(tf.io.gfile.listdir(folder or "."))


def _no_weights(folder, names) -> str:
    """Creates the error for a directory without `model.safetensors`."""
    text = f"{folder} has no {_FILE}, and no TensorFlow checkpoint."
    others = [x for x in names if x.endswith(".safetensors")]
    if others:
        return f"{text} Pass a file: {os.path.join(folder, others[0])}"
    for endings, what in _OTHER_FORMATS.items():
        found = [x for x in names if x.endswith(endings)]
        if found:
            return f"{text} {what} ({found[0]}) are not supported. {_SAVE}"
    return f"{text} Download all files of the model."


def _files_of(index) -> list[str]:
    try:
        found = set(bert_configs.read_json(index)["weight_map"].values())
        if all(map(json_objects.is_file_name, found)):
            return sorted(found)
        problem = "names of files in its directory"
    except (ValueError, KeyError, TypeError, AttributeError):
        problem = "names and files"
    raise ValueError(
        f"{index} is not an index of safetensors files. Expected a JSON object "
        f'with a "weight_map" of {problem}.'
    )


def read(path: str) -> Tensors:
    """Reads all tensors of a file, or of the files that an index lists.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged.
    """
    if path.endswith(".json"):
        folder = os.path.dirname(path)
        parts = [_read(os.path.join(folder, x)) for x in _files_of(path)]
        tensors = Tensors({}, {})
        for part in parts:
            tensors.arrays.update(part.arrays)
            tensors.aliases.update(part.aliases)
        return tensors
    return _read(path)


def _read(path) -> Tensors:
    # Imported here, since only this format needs the library.
    extras.require("safetensors")
    import safetensors

    try:
        # Read with TensorFlow, since NumPy does not support bfloat16.
        with safetensors.safe_open(path, framework="tf") as file:
            arrays = {x: file.get_tensor(x).numpy() for x in file.keys()}
            metadata = file.metadata() or {}
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{path} is damaged, or not a safetensors file: {error}. Download "
            "it again."
        ) from None
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} does not exist, but the index beside it names it. "
            "Download all files of the model."
        ) from None
    aliases = {
        alias: name
        for alias, name in metadata.items()
        if name in arrays and alias not in arrays
    }
    return Tensors(arrays, aliases)
