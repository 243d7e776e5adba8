"""Measures requests with short texts to a model that takes long texts.

    python -m benchmarks.serving

Exports a HotpotQA model with random weights for each length. Every SavedModel
gets requests with texts of its length and of each shorter length, one record at
a time, through `serving_default`: text processing, model, decoding. Columns are
the time and size of each export, the milliseconds of a request, and their ratio
to the milliseconds of the model for that length.
"""

import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from benchmarks import program
from etcmodel.models import EtcConfig
from etcmodel.serving import saved_model
from etcmodel.serving import signatures
from etcmodel.tasks import registry

# Each word is one token, so texts have exactly the intended length.
WORDS = [f"w{i}" for i in range(500)]
_SENTENCE = 25


def request(length: int) -> dict[str, tf.Tensor]:
    """Makes a request for `serving_default` with a text of nearly `length`."""
    rng = np.random.default_rng(length)
    number = (length - 6) // _SENTENCE
    sentences = [
        " ".join(rng.choice(WORDS, _SENTENCE)).encode() for _ in range(number)
    ]
    # [1, 1, sentences]
    sentences = np.array(sentences, dtype=object).reshape(1, 1, -1)
    titles = np.array([[b"w1"]], dtype=object)
    return {
        "question": tf.constant([b"w1 w2 w3 w4"]),
        "titles": tf.constant(titles),
        "sentences": tf.constant(sentences),
    }


def write_vocabulary(directory: str, size: int = 0) -> str:
    """Writes the words of requests, and others up to a size; returns a path."""
    path = os.path.join(directory, "vocab.txt")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
    words += [f"[unused{i}]" for i in range(110)] + WORDS
    words += [f"other{i}" for i in range(size - len(words))]
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(f"{word}\n" for word in words)
    return path


def _size(directory: str) -> float:
    """Returns the size of the graph in megabytes.

    All models have the same weights.
    """
    return os.path.getsize(os.path.join(directory, "saved_model.pb")) / 1e6


def sizes_of(length: int) -> dict[str, int]:
    """Returns the preprocessing options of models for a length."""
    return {"long_length": length, "global_length": max(length // 16, 64)}


def export(
    config: Mapping[str, Any],
    length: int,
    vocab_file: str,
    directory: str,
    name: str = "hotpotqa",
    weights: str = "float32",
    **reading: str,
) -> None:
    """Exports a model with random weights for texts up to a length.

    `config` has the arguments of `EtcConfig.from_preset`, `name` is a task, and
    `reading` has further preprocessing options.
    """
    task = registry.get(name)
    lengths = sizes_of(length)
    sizes = {**lengths, **reading}
    task_model = task.make_model(sizes=sizes)
    builder = task.make_preprocessor(
        task.make_preprocessing_config(sizes), vocab_file
    )
    config = EtcConfig.from_preset(
        **config, vocab_size=int(builder.tokenizer.vocab_size)
    )
    module, requests = signatures.make_serving_module(
        task_model.build(config, **lengths), builder, task_model, weights
    )
    saved_model.export_saved_model(
        module,
        directory,
        model_name=name,
        metadata={
            "task": name,
            "preprocessing_config": sizes,
            "options": dataclasses.asdict(task_model.options),
            "axes": {
                signatures.TEXT: {
                    "inputs": dict.fromkeys(builder.TEXT_REQUEST, ["records"]),
                    "outputs": task_model.ANSWER_AXES,
                }
            },
        },
        warmup_inputs=requests,
    )


def ask(
    directory: str, length: int, lengths: Sequence[int], repeats: int
) -> dict[int, float]:
    """Times requests to a SavedModel; returns text length -> milliseconds."""
    answer = tf.saved_model.load(directory).signatures[
        signatures.SERVING_DEFAULT
    ]
    requests = {x: request(x) for x in lengths if x <= length}
    # The first calls after loading are always slow.
    for text, inputs in [*requests.items()] * 3:
        if int(answer(**inputs)["tokens_cut"][0]):
            raise ValueError(
                f"A text of {text} tokens was truncated to fit {length}."
            )
    milliseconds = {}
    for text, inputs in requests.items():
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            answer(**inputs)
            seconds.append(time.perf_counter() - start)
        milliseconds[text] = 1000 * float(np.median(seconds))
    return milliseconds


def _measure(values) -> Iterator[program.Line]:
    logging.set_verbosity(logging.ERROR)
    tf.get_logger().setLevel("ERROR")
    lengths = [int(x) for x in values.lengths]
    own = {}
    with tempfile.TemporaryDirectory() as root:
        vocab_file = write_vocabulary(root)
        config = {"name": values.preset, "num_hidden_layers": values.layers}
        for length in lengths:
            directory = os.path.join(root, str(length))
            start = time.perf_counter()
            export(config, length, vocab_file, directory)
            line = {
                "model": length,
                "export_s": time.perf_counter() - start,
                "graph_mb": _size(directory),
            }
            found = ask(directory, length, lengths, values.repeats)
            own[length] = found[length]
            for text, x in found.items():
                ratio = x / own[text]
                yield {**line, "text": text, "milliseconds": x, "ratio": ratio}


PROGRAM = program.load("serving", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
