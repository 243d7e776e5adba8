"""Measures models with rounded weights: size, time and answers.

    python -m benchmarks.small_weights

Exports a HotpotQA model with random weights as float32, bfloat16 and int8, and
loads each SavedModel. Columns are the size of the directory, its ratio to that
of float32, the milliseconds of a request through `serving_default`, the seconds
to build and export the model, and the largest difference of an answer's
probability to that of float32. The first export also pays for work that is done
once per process, such as tracing shared functions.
"""

import os
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from absl import logging

from benchmarks import program
from benchmarks import serving
from etcmodel.serving import signatures

_KINDS = ("float32", "bfloat16", "int8")
_MEGABYTE = 1e6


def _size(directory: str) -> float:
    """Returns the size of all files in megabytes."""
    return sum(
        os.path.getsize(os.path.join(folder, name)) / _MEGABYTE
        for folder, _, names in os.walk(directory)
        for name in names
    )


def _probabilities(directory: str, length: int) -> np.ndarray:
    """Returns the probabilities in the answer to a request."""
    model = tf.saved_model.load(directory)
    answer = model.signatures[signatures.SERVING_DEFAULT]
    outputs = answer(**serving.request(length))
    return outputs["supporting_fact_probabilities"].numpy()


def _measure(values) -> Iterator[program.Line]:
    logging.set_verbosity(logging.ERROR)
    tf.get_logger().setLevel("ERROR")
    text, first = values.text, {}
    with tempfile.TemporaryDirectory() as root:
        vocab_file = serving.write_vocabulary(root, values.vocab_size)
        for kind in _KINDS:
            # The same random weights.
            tf.keras.utils.set_random_seed(1)
            directory = os.path.join(root, kind)
            start = time.perf_counter()
            serving.export(
                {
                    "name": values.preset,
                    "num_hidden_layers": values.layers,
                },
                values.length,
                vocab_file,
                directory,
                weights=kind,
            )
            seconds = time.perf_counter() - start
            size = _size(directory)
            made = _probabilities(directory, text)
            first = first or {"size": size, "made": made}
            found = serving.ask(directory, text, [text], values.repeats)
            yield {
                "weights": kind,
                "folder_mb": size,
                "ratio": size / first["size"],
                "milliseconds": found[text],
                "export_s": seconds,
                "difference": float(np.abs(made - first["made"]).max()),
            }


PROGRAM = program.load("small_weights", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
