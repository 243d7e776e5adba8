"""Helpers shared by the tests of the tasks."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from collections.abc import Sequence

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


# Runs in a process of its own: what a program without this package sees.
_PROGRAM = """
import json, sys
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

path, request = sys.argv[1], json.loads(sys.argv[2])
from tensorflow.core.protobuf import saved_model_pb2
with open(path + "/saved_model.pb", "rb") as stream:
    saved_model = saved_model_pb2.SavedModel.FromString(stream.read())
graph = saved_model.meta_graphs[0].graph_def
functions = graph.library.function
nodes = list(graph.node) + [n for f in functions for n in f.node_def]
ops = {node.op for node in nodes} - {f.signature.name for f in functions}
other = sorted(op for op in ops if op_def_registry.get(op) is None)

import tensorflow_text
unknown = sorted(op for op in ops if op_def_registry.get(op) is None)

signature = tf.saved_model.load(path).signatures["serving_default"]
outputs = signature(**{k: tf.constant(v) for k, v in request.items()})
result = {
    "python": {k: v.numpy().tolist() for k, v in outputs.items()},
    "ops": sorted(ops), "other": other, "unknown": unknown,
}
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    meta = tf.compat.v1.saved_model.loader.load(session, ["serve"], path)
    signature = meta.signature_def["serving_default"]
    result["session"] = {
        k: v.tolist() for k, v in session.run(
            {k: v.name for k, v in signature.outputs.items()},
            {signature.inputs[k].name: v for k, v in request.items()},
        ).items()
    }
assert not any(name.startswith("etcmodel") for name in sys.modules)
json.dump(result, sys.stdout, default=lambda text: text.decode())
"""


def run_without_package(
    saved_model: str, request: Mapping[str, Sequence]
) -> dict:
    """Answers, and operations, of a SavedModel in a process of its own.

    Args:
        saved_model: its directory.
        request: inputs of `serving_default` as lists.

    Returns:
        A dict with the outputs as `python` (`tf.saved_model.load`) and as
        `session` (the loader of TensorFlow Serving); and the operations as
        `ops` (all), `other` (not TensorFlow's own) and `unknown` (not of
        tensorflow-text either).
    """
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                _PROGRAM,
                saved_model,
                json.dumps(request),
            ],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise AssertionError(done.stderr[-3000:])
    return json.loads(done.stdout)
