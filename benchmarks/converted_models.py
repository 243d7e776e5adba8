"""Measures a trained model in TensorFlow, LiteRT and ONNX Runtime.

    taskset -c 0,1 python -m benchmarks.converted_models

Makes a HotpotQA model with random weights for each length, and a request that
fills it. Each format computes the logits of the same features, one record at a
time: `saved_model` through the signature `features`, the others with the files
that `export --format=...` writes. Columns are the median and the fastest time
of a request, the ratio of the median to that of `saved_model`, the largest
difference from its outputs, the seconds to export, and the size of the
directory in megabytes.
"""

import os
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from benchmarks import program
from benchmarks import serving
from etcmodel.models import EtcConfig
from etcmodel.serving import converted
from etcmodel.serving import saved_model
from etcmodel.serving import signatures
from etcmodel.tasks import registry

_SENTENCE = 25

_Arrays = Mapping[str, np.ndarray]


def _features(preprocessor, length: int) -> dict[str, np.ndarray]:
    """Makes features of sentences that nearly fill the long input."""
    rng = np.random.default_rng(length)
    sentences = [
        " ".join(rng.choice(serving.WORDS, _SENTENCE))
        for _ in range((length - 6) // _SENTENCE)
    ]
    (make,) = (
        signatures.make_preprocessing_module(preprocessor).signatures().values()
    )
    made = make(
        question=tf.constant(["w1 w2 w3 w4"]),
        titles=tf.constant([["w1"]]),
        sentences=tf.constant([[sentences]]),
    )
    if int(made["tokens_cut"][0]):
        raise ValueError(f"The text does not fit into {length} tokens.")
    return {x: made[x].numpy() for x in preprocessor.SCHEMA.input_specs()}


class _Exporter:
    """Exports a model for texts of one length in each format."""

    def __init__(self, values, length: int, vocab_file: str):
        task = registry.get("hotpotqa")
        self.task_model = task.make_model()
        sizes = {"long_length": length, "global_length": max(length // 16, 64)}
        self.preprocessor = task.make_preprocessor(
            task.make_preprocessing_config(sizes), vocab_file
        )
        config = EtcConfig.from_preset(
            values.preset,
            num_hidden_layers=values.layers,
            vocab_size=int(self.preprocessor.tokenizer.vocab_size),
        )
        self.model = self.task_model.build(config, **sizes)
        self.vocab_file = vocab_file
        self.threads = values.threads

    def write(self, format: str, directory: str) -> None:
        """Writes the model in one format."""
        if format != "saved_model":
            converted.export_converted(
                self.model,
                self.preprocessor,
                directory,
                format=format,
                metadata={"task": "hotpotqa"},
                vocab_file=self.vocab_file,
            )
            return
        module, requests = signatures.make_serving_module(
            self.model, self.preprocessor, self.task_model
        )
        saved_model.export_saved_model(
            module,
            directory,
            model_name="hotpotqa",
            metadata={},
            warmup_inputs=requests,
        )

    def load(self, format: str, directory: str) -> Callable[[_Arrays], _Arrays]:
        """Returns a function that runs what `write` wrote."""
        if format != "saved_model":
            return converted.ConvertedModel(directory, self.threads)
        loaded = tf.saved_model.load(directory)
        features = loaded.signatures[signatures.FEATURES]

        # The SavedModel owns the weights.
        def run(inputs, _=loaded):
            outputs = features(
                **{name: tf.constant(x, tf.int64) for name, x in inputs.items()}
            )
            return {name: x.numpy() for name, x in outputs.items()}

        return run


def _time(
    run: Callable[[_Arrays], _Arrays], inputs: _Arrays, repeats: int
) -> list[float]:
    """Returns the milliseconds of each call."""
    # The first calls are slow.
    for _ in range(2):
        run(inputs)
    milliseconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run(inputs)
        milliseconds.append(1000 * (time.perf_counter() - start))
    return milliseconds


def _size(directory: str) -> float:
    """Returns the megabytes of all files."""
    paths = (
        os.path.join(folder, name)
        for folder, _, names in os.walk(directory)
        for name in names
    )
    return sum(map(os.path.getsize, paths)) / 1e6


def _measure(values) -> Iterator[program.Line]:
    logging.set_verbosity(logging.ERROR)
    tf.get_logger().setLevel("ERROR")
    for length in map(int, values.lengths):
        with tempfile.TemporaryDirectory() as root:
            vocab_file = serving.write_vocabulary(root)
            exporter = _Exporter(values, length, vocab_file)
            inputs = _features(exporter.preprocessor, length)
            expected = first = None
            for format in ("saved_model", *values.formats):
                directory = os.path.join(root, format)
                start = time.perf_counter()
                exporter.write(format, directory)
                export_s = time.perf_counter() - start
                run = exporter.load(format, directory)
                outputs = run(inputs)
                expected = expected or outputs
                found = _time(run, inputs, values.repeats)
                median = float(np.median(found))
                first = first or median
                yield {
                    "length": length,
                    "format": format,
                    "milliseconds": median,
                    "fastest": min(found),
                    "ratio": median / first,
                    "difference": max(
                        float(np.max(np.abs(x - outputs[name])))
                        for name, x in expected.items()
                    ),
                    "export_s": export_s,
                    "megabytes": _size(directory),
                }


PROGRAM = program.load("converted_models", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
