"""What `lift` notes beside weights, so that records are made for them."""

import json
import os

import tensorflow as tf

from etcmodel import checkpoints
from etcmodel.errors import UserError
from etcmodel.tasks import tfrecords

FILE = "lift.json"


def write(directory: str, vocab_file: str, source: str) -> None:
    """Notes where weights are from, and which vocabulary belongs to them.

    Args:
        directory: where they are.
        vocab_file: name of the vocabulary there.
        source: what was lifted.
    """
    content = {
        "from": source,
        "vocab_file": vocab_file,
        "vocab_fingerprint": tfrecords.fingerprint(
            os.path.join(directory, vocab_file)
        ),
    }
    tfrecords.write_json(directory, FILE, content)


def check_vocabulary(path: str, metadata: dict | None) -> None:
    """Checks that records were made with the vocabulary of the weights.

    Args:
        path: the checkpoint or its directory.
        metadata: what `preprocess` noted about the records, or None.

    Raises:
        UserError: they were made with another one.
    """
    file = checkpoints.beside(path, FILE)
    if metadata is None or not tf.io.gfile.exists(file):
        return
    with tf.io.gfile.GFile(file) as stream:
        note = json.load(stream)
    if note["vocab_fingerprint"] != metadata["vocab_fingerprint"]:
        own = checkpoints.beside(path, note["vocab_file"])
        raise UserError(
            f"The records in {metadata['directory']} were made with another "
            "vocabulary than that of the weights to begin with. Preprocess "
            f"with --vocab_file={own}."
        )
