"""Checks that records and initial weights have the same vocabulary.

Lifted weights are BERT's or RoBERTa's weights that `lift` converted to an
encoder of this package. `lift.json` beside them describes their source and
vocabulary.
"""

import glob
import os

import numpy as np
import tensorflow as tf
from absl import logging

from etcmodel import checkpoints
from etcmodel import run_paths
from etcmodel.checkpoints import vocabularies
from etcmodel.errors import UserError
from etcmodel.feature_utils.text import tokenizer_settings
from etcmodel.feature_utils.text.tokenizer_settings import TokenizerSettings
from etcmodel.pipeline import metadata_files
from etcmodel.pipeline import tfrecords
from etcmodel.training import runs

FILE = "lift.json"
_KEYS = {
    "vocab_file": metadata_files.FileName,
    "vocab_fingerprint": str,
}
_ADVICE = "Copy it again from the source of the weights."
# Patterns for the file names of vocabularies beside published checkpoints.
_NAMES = ("*vocab*.txt", "*.model")


def write(
    directory: str,
    vocab_file: str,
    source: str,
    settings: TokenizerSettings | None,
) -> None:
    """Writes `lift.json`, which describes lifted weights.

    Args:
        directory: the directory of the weights and their vocabulary.
        vocab_file: file name of the vocabulary.
        source: origin of the weights.
        settings: tokenizer settings, also written beside the vocabulary; None
            for SentencePiece.
    """
    if settings:
        tokenizer_settings.write_settings(directory, settings)
    content = {
        "from": source,
        "vocab_file": vocab_file,
        "vocab_fingerprint": tfrecords.fingerprint(
            os.path.join(directory, vocab_file)
        ),
        "tokenizer": settings and settings._asdict(),
    }
    metadata_files.write(os.path.join(directory, FILE), content)


def check_vocabulary(path: str, metadata: dict | None) -> bool:
    """Raises a `UserError` if records and weights differ in vocabulary.

    `lift` and `train` store the weights' vocabulary; published checkpoints have
    it in their directory.

    Args:
        path: the checkpoint.
        metadata: the records' `preprocessing_config.json`; None if unknown.

    Returns:
        Whether the weights' vocabulary is known. If not, use
        `warn_of_vocabulary`, which examines the token table.
    """
    if not metadata:
        return True
    own, settings = _vocabularies(path)
    if own and metadata["vocab_fingerprint"] not in own.values():
        raise UserError(
            f"The records in {metadata['directory']} and the initial weights, "
            f"`init_checkpoint={path}`, have different vocabularies "
            f"(vocab_fingerprint: {metadata['vocab_fingerprint']} and "
            f"{', '.join(own.values())}). Preprocess with "
            f"`vocab_file={' or '.join(own)}`."
        )
    if settings and metadata["tokenizer"] != settings:
        raise UserError(
            f"The records in {metadata['directory']} and the initial weights, "
            f"`init_checkpoint={path}`, have different tokenizer settings "
            f"({metadata['tokenizer']} and {settings}). Preprocess with "
            f"`vocab_file={' or '.join(own)}`."
        )
    return bool(own)


def _vocabularies(path: str) -> tuple[dict[str, str], dict | None]:
    """Returns path -> fingerprint of each possible vocabulary, and settings."""
    folder = os.path.dirname(checkpoints.beside(path, FILE))
    run = run_paths.directory(path)
    for directory, name in ((folder, FILE), (run, run_paths.RUN_FILE)):
        file = os.path.join(directory, name)
        if tf.io.gfile.exists(file):
            note = metadata_files.read(file, advice=_ADVICE)
            if name == run_paths.RUN_FILE:
                note = note.get("records")
                if note is None:
                    continue
            metadata_files.check(file, note, _KEYS, _ADVICE)
            own = os.path.join(directory, note["vocab_file"])
            return {own: note["vocab_fingerprint"]}, note.get("tokenizer")
    # A published checkpoint, or a run without `etcmodel.json`.
    if checkpoints.config_file(path) is not None:
        beside = folder
    elif tf.io.gfile.exists(os.path.join(run, run_paths.PARAMS_FILE)):
        beside = run
    else:
        return {}, None
    return {
        file: tfrecords.fingerprint(file)
        for pattern in _NAMES
        for file in sorted(
            tf.io.gfile.glob(os.path.join(glob.escape(beside), pattern))
        )
    }, None


def warn_of_vocabulary(path: str, metadata: dict, table: np.ndarray) -> None:
    """Warns if records and a token table seem to differ in vocabulary.

    Args:
        path: the checkpoint, for the message.
        metadata: the records' `preprocessing_config.json`.
        table: the checkpoint's token embeddings, `<float>[vocab_size, size]`.
    """
    file = os.path.join(metadata["directory"], metadata["vocab_file"])
    pieces = vocabularies.read_vocabulary(file).pieces
    kinship = vocabularies.measure_kinship(pieces, table)
    if kinship.is_chance:
        # Without `verbose`, messages below the level "error" are hidden.
        logging.error("%s", kinship.describe(file, path))


def load_heads(path: str, spec, task_model, model: tf.keras.Model) -> None:
    """Loads the heads of a checkpoint into a model.

    Loads all heads from a run of the same task with the same labels; from other
    checkpoints, only the heads that tasks share. Missing heads keep their
    initialization.
    """
    note = runs.find_of(path)
    is_same = note.get("task") == spec.name
    before = note.get("records", {}).get("preprocessing_config", {})
    different = [
        x
        for x in task_model.OUTPUTS
        if is_same and before.get(x) != task_model.sizes.get(x)
    ]
    if different:
        # Without `verbose`, messages below the level "error" are hidden.
        logging.error(
            "%s: the records' value differs from that of %s, so only the "
            "encoder's weights are loaded.",
            different[0],
            path,
        )
        return
    heads = task_model.pretrained_heads(model)
    for layer in task_model.heads(model) if is_same else heads:
        if checkpoints.load_head(layer, path, task_model.OPTIONAL):
            logging.info("%s of %s: loaded", layer.name, path)
        else:
            logging.log(
                logging.ERROR if is_same else logging.INFO,
                "%s is not in %s, so it is initialized at random.",
                layer.name,
                path,
            )
