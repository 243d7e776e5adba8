r"""How fast records become features: graph code against plain Python.

Both turn the same WikiHop records, raw strings, into serialized `tf.Example`s:
the feature builder, batch by batch on all cores, and the plain Python of
`wikihop_python_reference`, one record and one token after another.

    python -m benchmarks.preprocess --input=train.json --vocab_file=vocab.txt
"""

import json
import os
import time
from collections.abc import Callable
from concurrent import futures
from typing import NamedTuple

# Before TensorFlow starts: without its start-up messages.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf  # noqa: E402
from absl import app  # noqa: E402
from absl import flags  # noqa: E402

from benchmarks import wikihop_python_reference  # noqa: E402
from etcmodel.feature_utils import etc_features  # noqa: E402
from etcmodel.feature_utils import tokenizers  # noqa: E402
from etcmodel.feature_utils.texts import ragged_strings  # noqa: E402
from etcmodel.tasks.wikihop import features  # noqa: E402

_INPUT = flags.DEFINE_string(
    "input", None, "WikiHop records, a JSON array.", required=True
)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file",
    None,
    "WordPiece vocabulary or SentencePiece model.",
    required=True,
)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 32, "Records of a batch.")
_REPEAT = flags.DEFINE_integer(
    "repeat", 40, "How many times the graph code goes through the records."
)
_PYTHON_REPEAT = flags.DEFINE_integer(
    "python_repeat", 1, "How many times plain Python does."
)


class Cost(NamedTuple):
    """What one record costs.

    Attributes:
        wall: seconds on the clock.
        cpu: seconds of all cores together; other programs hardly change it.
    """

    wall: float
    cpu: float


def measure(run: Callable[[], int]) -> Cost:
    """What a record costs in a function that returns how many it treated."""
    wall, cpu = time.perf_counter(), time.process_time()
    number = run()
    return Cost(
        (time.perf_counter() - wall) / number,
        (time.process_time() - cpu) / number,
    )


def measure_graph(records, builder, batch_size, repeat) -> dict[str, Cost]:
    """Costs of the feature builder: features alone, and serialized as well."""
    spec = tf.RaggedTensorSpec([None, None], tf.string)
    build = tf.function(
        builder.__call__,
        input_signature=[tf.TensorSpec([None], tf.string), spec, spec],
    )

    def make(start: int, finish) -> int:
        """Treats one batch."""
        batch = [
            records[i % len(records)] for i in range(start, start + batch_size)
        ]
        made = build(
            tf.constant([record["query"] for record in batch]),
            ragged_strings([r["candidates"] for r in batch]),
            ragged_strings([r["supports"] for r in batch]),
        )
        finish(made)
        return len(batch)

    def run(finish) -> int:
        """Treats all batches, on all cores: the graph leaves Python free."""
        with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            starts = range(0, len(records) * repeat, batch_size)
            return sum(pool.map(lambda start: make(start, finish), starts))

    make(0, len)
    return {
        "graph code, features": measure(lambda: run(len)),
        "graph code, serialized": measure(
            lambda: run(etc_features.serialize_batch)
        ),
    }


def measure_python(records, tokenizer, repeat) -> dict[str, Cost]:
    """Costs of plain Python."""

    def run(finish) -> int:
        """Makes features, and does something with them."""
        for record in records * repeat:
            finish(
                wikihop_python_reference.convert(
                    record["query"],
                    record["candidates"],
                    record["supports"],
                    tokenizer,
                )
            )
        return len(records) * repeat

    to_example = wikihop_python_reference.to_example
    return {
        "plain Python, features": measure(lambda: run(len)),
        "plain Python, serialized": measure(lambda: run(to_example)),
    }


def print_table(costs: dict[str, Cost]) -> None:
    """Prints what was measured, relative to plain Python with serializing."""
    base = costs.get("plain Python, serialized")
    print(
        f"{'':26}{'records/s':>10}{'ratio':>8}{'CPU ms/record':>15}{'ratio':>8}"
    )
    for name, cost in costs.items():
        ratios = ("", "")
        if base:
            ratios = (
                f"{base.wall / cost.wall:.1f}x",
                f"{base.cpu / cost.cpu:.1f}x",
            )
        print(
            f"{name:26}{1 / cost.wall:10.1f}{ratios[0]:>8}"
            f"{cost.cpu * 1e3:15.2f}{ratios[1]:>8}"
        )


def main(argv: list[str]) -> None:
    """Measures and prints a table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    with open(_INPUT.value, encoding="utf-8") as file:
        records = json.load(file)
    tokenizer = tokenizers.make_tokenizer(_VOCAB_FILE.value)
    builder = features.WikiHopFeatureBuilder(
        features.WikiHopFeatureConfig(), tokenizer
    )
    print(
        f"{len(records)} records, {os.cpu_count()} cores, batches of "
        f"{_BATCH_SIZE.value}, {tokenizer.kind}"
    )
    costs = {}
    if tokenizer.kind == "wordpiece":
        python_tokenizer = wikihop_python_reference.BertTokenizer(
            tokenizers.load_vocab(_VOCAB_FILE.value)
        )
        costs.update(
            measure_python(records, python_tokenizer, _PYTHON_REPEAT.value)
        )
    else:
        print("(The plain Python tokenizer is WordPiece: graph code only.)")
    costs.update(
        measure_graph(records, builder, _BATCH_SIZE.value, _REPEAT.value)
    )
    print_table(costs)


if __name__ == "__main__":
    app.run(main)
