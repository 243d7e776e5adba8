"""Writes small models in Hugging Face's format, for tests of lifting."""

import os
import pathlib
import re
import unicodedata

import numpy as np
from safetensors import numpy as safetensors_numpy

from testing import small_berts

_DOCS = pathlib.Path(__file__).parents[1] / "docs" / "warm_starts.md"
_UNUSED = [f"[unused{i}]" for i in range(5)]
WORDS = ["one", "two", "##s", "three"]
# A small version of BERT's vocabulary: [CLS] in row 7, [SEP] in 8, "one" in 10.
LINES = ["[PAD]", *_UNUSED, "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
MLM = "cls.predictions.transform."


def make_weights(rows=14, head=False, types=2, positions=9):
    """Returns random weights of these sizes, keyed as in `bert_names`."""
    shapes = small_berts.SHAPES | (small_berts.HEAD if head else {})
    weights = small_berts.make_weights(
        shapes=shapes
        | {
            "embeddings.word_embeddings": (rows, 8),
            "embeddings.position_embeddings": (positions, 8),
            "embeddings.token_type_embeddings": (types, 8),
        }
    )
    if head:
        weights["mlm.bias"] = np.arange(rows, dtype=np.float32)
    return weights


def write(folder, weights=None, lines=LINES, prefix="bert.", **config):
    """Writes a directory in Hugging Face's format; returns the weights."""
    weights = weights or make_weights()
    rows = len(weights["embeddings.word_embeddings"])
    head = config.pop("head", MLM)
    config = {"vocab_size": rows, "type_vocab_size": 2} | config
    small_berts.write_hugging_face(folder, weights, prefix, head, **config)
    if lines is not None:
        small_berts.write_vocab(os.path.join(folder, "vocab.txt"), lines)
    return weights


def rewrite(folder, rename=lambda x: x, file="model.safetensors", **metadata):
    """Renames tensors; drops those for which `rename` returns None."""
    path = os.path.join(folder, "model.safetensors")
    tensors = safetensors_numpy.load_file(path)
    os.remove(path)
    tensors = {rename(name): x for name, x in tensors.items()}
    tensors.pop(None, None)
    path = os.path.join(folder, file)
    safetensors_numpy.save_file(tensors, path, metadata.get("metadata"))
    return path


def documented_sources():
    """Returns the supported and the rejected sources in docs/warm_starts.md."""
    text = unicodedata.normalize("NFC", _DOCS.read_text("utf-8"))
    return [
        re.findall(r"^\| ([^|]+) \|", part, re.MULTILINE)[2:]
        for part in text.split("## What is rejected")
    ]
