r"""Compares the time of answers with that of Hugging Face's models in PyTorch.

    python -m venv /tmp/hf
    /tmp/hf/bin/python -m pip install torch transformers
    python -m benchmarks.serving_beside --interpreter=/tmp/hf/bin/python

Answers questions about the same texts, from strings to strings, on this
machine's processor. All weights are random, so only times count.

*   `--models=small`: a model of `answer` with MiniLM's size (6 layers of 384),
    beside a BERT of that size that reads windows of 384 tokens.
*   `--models=base`: a model of `answer` with the preset `base`, beside
    Longformer base.

Each sentence and each paragraph has a global token; with `--units=paragraphs`,
only paragraphs have one.

Each side runs in separate processes, which take turns in random order. Columns
are `p50_ms` and `p95_ms` of a request, `text_ms` of its text processing alone
(median), `text_share`, its share of the request, and `ratio`, `p50_ms` relative
to this package.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks import measure
from benchmarks import program
from benchmarks import serving
from benchmarks import serving_load
from etcmodel.serving import answers
from etcmodel.serving import signatures
from etcmodel.tasks import registry

_TASK = "answer"
_CONFIGS = {
    "small": dict(
        name="base",
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
    ),
    "base": dict(name="base", num_hidden_layers=12),
}
_BESIDE = {"small": "windowed MiniLM", "base": "Longformer base"}


class HuggingFace:
    """Runs `hugging_face.py` in a process of another Python interpreter."""

    def __init__(self, interpreter: str, **model):
        path = str(pathlib.Path(__file__).with_name("hugging_face.py"))
        # `PYTHONPATH` is for this package's interpreter only.
        variables = {x: y for x, y in os.environ.items() if x != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [interpreter, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
        )
        self.order(**model)

    def order(self, **values) -> dict:
        """Sends an object to the process; returns the answer."""
        self._process.stdin.write(f"{json.dumps(values)}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("The process of Hugging Face's models ended.")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def _inputs(length: int, batch: int) -> dict[str, list[str]]:
    """Makes the records of a request."""
    return {
        "query": [serving_load.QUERY] * batch,
        "text": [serving_load.make_text(length, x) for x in range(batch)],
    }


def make_answer(directory: str, length: int, batch: int) -> measure.Step:
    """Loads an exported model; returns a step that answers a request."""
    answer = answers.load_saved_model(directory).signatures[signatures.TEXT]
    inputs = _inputs(length, batch)
    inputs = {name: tf.constant(x) for name, x in inputs.items()}
    cut = int(tf.reduce_sum(answer(**inputs)["tokens_cut"]))
    if cut:
        raise ValueError(f"{cut} tokens of {length} do not fit the model.")
    return lambda: answer(**inputs)


def make_text_step(
    vocab_file: str, sizes: dict, length: int, batch: int
) -> measure.Step:
    """Returns a step that only makes the model's inputs."""
    task = registry.get(_TASK)
    preprocessor = task.make_preprocessor(
        task.make_preprocessing_config(sizes), vocab_file
    )
    inputs = {x: tf.constant(y) for x, y in _inputs(length, batch).items()}

    @tf.function(autograph=False)
    def process(query, text):
        raw, _ = preprocessor.of_text(query, text)
        return preprocessor.batch_of_raw(**raw).inputs

    return lambda: process(**inputs)


def _measure(values) -> Iterator[program.Line]:
    tf.get_logger().setLevel("ERROR")
    lengths = [int(x) for x in values.lengths]
    model_length = max(lengths) * 9 // 8 + 64
    reading = {"units": values.units} if values.units else {}
    sizes = {**serving.sizes_of(model_length), **reading}
    for name in values.models:
        config = dict(_CONFIGS[name])
        if values.layers:
            config["num_hidden_layers"] = values.layers
        with (
            serving_load.exported(config, model_length, **reading) as directory,
            contextlib.ExitStack() as stack,
        ):
            vocab_file = serving_load.vocab_of(directory)
            other = None
            if values.interpreter:
                other = HuggingFace(
                    values.interpreter,
                    model=name,
                    vocab_file=vocab_file,
                    layers=values.layers,
                )
                stack.callback(other.close)
            for length in lengths:
                for batch in map(int, values.batches):
                    if length * batch <= values.max_tokens:
                        yield from _compare(
                            (directory, vocab_file, sizes),
                            (length, batch),
                            name,
                            other,
                            values.repeats,
                        )


def _compare(model, request, name, other, repeats) -> Iterator[program.Line]:
    """Measures requests of one size on both sides; yields a line for each."""
    print(name, *request, file=sys.stderr, flush=True)
    directory, vocab_file, sizes = model
    own = f"etcmodel, {name}"
    with contextlib.ExitStack() as stack:
        steps = {
            (own, "answer"): measure.StepProcess(
                make_answer, directory, *request
            ),
            (own, "text"): measure.StepProcess(
                make_text_step, vocab_file, sizes, *request
            ),
        }
        for step in steps.values():
            stack.callback(step.close)
        if other is not None:
            records = _inputs(*request)
            other.order(queries=records["query"], texts=records["text"])
            for what in ("answer", "text"):
                steps[_BESIDE[name], what] = lambda what=what: other.order(
                    do=what
                )
        times = measure.time_interleaved(steps, repeats)
    ours = np.median(times[own, "answer"])
    for side in dict.fromkeys(x for x, _ in steps):
        middle, high = np.percentile(times[side, "answer"], [50, 95])
        text = float(np.median(times[side, "text"]))
        yield {
            "model": side,
            "length": request[0],
            "batch": request[1],
            "p50_ms": middle,
            "p95_ms": high,
            "text_ms": text,
            "text_share": text / middle,
            "ratio": middle / ours,
        }


PROGRAM = program.load("serving_beside", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
