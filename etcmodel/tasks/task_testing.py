"""Helpers shared by the tests of the tasks."""

import json
import os

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import tokenizers
from etcmodel.tasks import export_lib
from etcmodel.tasks.commands import cli


def write_test_vocab(directory: str, words: str) -> str:
    """Writes a small WordPiece vocabulary.

    Args:
        directory: where to write it.
        words: its words, separated by spaces.

    Returns:
        Path of the file.
    """
    path = os.path.join(directory, "vocab.txt")
    tokens = [*tokenizers.WORDPIECE_RESERVED_TOKENS, *words.split()]
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(f"{token}\n" for token in dict.fromkeys(tokens))
    return path


_CITIES = ["paris", "rome", "oslo", "bonn"]


def write_small_wikihop(directory: str, num_records: int) -> tuple[str, str]:
    """Writes a WikiHop file of tiny records, and a vocabulary for it.

    The answer is the one candidate that the documents mention.

    Args:
        directory: where to write them.
        num_records: how many records.

    Returns:
        Paths of the data file and of the vocabulary.
    """
    records = []
    for i in range(num_records):
        city = _CITIES[i % 4]
        records.append(
            {
                "id": f"small_{i}",
                "query": "city jan",
                "candidates": _CITIES,
                "supports": ["Jan is here.", f"Here is {city}. Jan is."],
                "answer": city,
            }
        )
    path = os.path.join(directory, "small.json")
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(records, stream)
    words = " ".join([*_CITIES, "city jan is here ."])
    return path, write_test_vocab(directory, words)


def write_small_records(directory: str, num_records: int) -> str:
    """Preprocesses tiny records with the program itself.

    Args:
        directory: where to write them.
        num_records: how many records.

    Returns:
        Directory of the TFRecords, of long length 32 and global length 16.
    """
    path, vocab_file = write_small_wikihop(directory, num_records)
    output = os.path.join(directory, "records")
    code = cli.main(
        [
            "preprocess",
            "--task=wikihop",
            f"--input={path}",
            f"--vocab_file={vocab_file}",
            f"--output_dir={output}",
            "--long_length=32",
            "--global_length=16",
            "--num_shards=2",
            "--overwrite",
        ]
    )
    assert code == 0
    return output


def write_small_saved_model(directory: str) -> str:
    """Exports a SavedModel that answers with the first candidate.

    Args:
        directory: where to write it.

    Returns:
        Its directory. Its only signature is `serving_default` of WikiHop; the
        first candidate has the probability 1.
    """

    def first_candidate(query, candidates, supports):
        del query, supports
        # [batch, candidates]
        probabilities = tf.one_hot(
            tf.zeros_like(candidates[:, 0], tf.int32), tf.shape(candidates)[1]
        )
        return {
            "answer": candidates[:, 0],
            "candidate_probabilities": probabilities,
        }

    specs = {
        "query": tf.TensorSpec([None], tf.string),
        "candidates": tf.TensorSpec([None, None], tf.string),
        "supports": tf.TensorSpec([None, None], tf.string),
    }
    request = {
        "query": np.array([b"q"], dtype=object),
        "candidates": np.array([[b"a", b"b"]], dtype=object),
        "supports": np.array([[b"s"]], dtype=object),
    }
    output = os.path.join(directory, "small_saved_model")
    export_lib.export_saved_model(
        export_lib.ServingModule(
            [], [], {export_lib.SERVING_DEFAULT: (first_candidate, specs)}
        ),
        output,
        model_name="wikihop",
        metadata={"task": "wikihop"},
        warmup_inputs={export_lib.SERVING_DEFAULT: request},
        overwrite=True,
    )
    return output
