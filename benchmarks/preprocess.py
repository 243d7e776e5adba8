r"""How fast records become features: the package against plain Python.

Both turn the same records of a task into serialized `tf.Example`s with their
labels: the package as `preprocess` does it, batch by batch on all cores, and
the plain Python of `task_oracles.py`, one record and one token after another,
with the tokens of Hugging Face's `tokenizers`. Features alone are measured as
well.

    python -m benchmarks.preprocess --task=wikihop --input=train.json \
        --vocab_file=vocab.txt
"""

import itertools
import os
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
from typing import Any
from typing import NamedTuple

from benchmarks import program
from benchmarks.layout_oracle import Oracle
from benchmarks.reference_tokenizer import BertTokenizer
from benchmarks.task_oracles import ORACLES
from etcmodel.engine import preprocess
from etcmodel.errors import BadRecords
from etcmodel.feature_utils.text import vocabulary_files
from etcmodel.pipeline import example_maker
from etcmodel.pipeline.example_maker import ExampleMaker
from etcmodel.tasks import registry

_SPLIT = "train"


class Cost(NamedTuple):
    """Seconds of one record, on the clock and of all cores together.

    Other programs hardly change the latter.
    """

    wall: float
    cpu: float


def measure(run: Callable[[], int]) -> Cost:
    """Measures a function that returns how many records it treated."""
    wall, cpu = time.perf_counter(), time.process_time()
    number = run()
    return Cost(
        (time.perf_counter() - wall) / number,
        (time.process_time() - cpu) / number,
    )


def repeated(records: Sequence[Any], seconds: float) -> Iterator[Any]:
    """Yields all records again and again until the time is over."""
    end = time.perf_counter() + seconds
    while True:
        yield from records
        if time.perf_counter() >= end:
            return


def measure_package(
    encoder: ExampleMaker,
    records: Sequence[Any],
    batch_size: int,
    seconds: float,
) -> dict[str, Cost]:
    """Measures the package: features alone, and all that is stored."""
    workers = os.cpu_count() or 1

    def work(_) -> int:
        number = 0
        source = repeated(records, seconds)
        while batch := list(itertools.islice(source, batch_size)):
            encoder.preprocess(batch)
            number += len(batch)
        return number

    def build() -> int:
        """Builds features, on all cores: the graph leaves Python free."""
        with futures.ThreadPoolExecutor(workers) as pool:
            return sum(pool.map(work, range(workers)))

    def encode() -> int:
        """Makes all that is stored, as `preprocess` does."""
        return sum(
            len(encoded)
            for encoded in preprocess.make_all_examples(
                encoder, repeated(records, seconds), _SPLIT, BadRecords(True)
            )
        )

    # The first call traces the graph.
    encoder.make_examples(records[:1], _SPLIT)
    return {
        "graph code, features": measure(build),
        "package, serialized": measure(encode),
    }


def measure_python(
    oracle: Oracle,
    tokenizer: BertTokenizer,
    config,
    records: Sequence[Any],
    seconds: float,
) -> dict[str, Cost]:
    """Measures plain Python, one record after another."""

    def run(function) -> int:
        number = 0
        for record in repeated(records, seconds):
            function(record, tokenizer, config)
            number += 1
        return number

    return {
        "plain Python, features": measure(lambda: run(oracle.make_features)),
        "plain Python, serialized": measure(lambda: run(oracle.encode)),
    }


def _measure(values) -> Iterator[program.Line]:
    task = registry.get(values.task)
    config = task.make_preprocessing_config({})
    bad_records = BadRecords(True)
    records = list(
        task.dataset.FORMAT.read(values.input, _SPLIT, bad_records, None)
    )
    encoder = example_maker.of_task(task, config, values.vocab_file)
    kind = encoder.preprocessor.tokenizer.kind
    print(
        f"{values.task}: {len(records)} records, batches of "
        f"{values.batch_size}, {kind}"
    )
    if bad_records.total:
        print(bad_records.summary())
    costs = {}
    if kind == "wordpiece":
        vocab = vocabulary_files.load_vocab(values.vocab_file)
        costs = measure_python(
            ORACLES[values.task],
            BertTokenizer(vocab),
            *(config, records, values.seconds),
        )
    else:
        print("(The plain Python tokenizer is WordPiece: the package only.)")
    costs |= measure_package(
        encoder, records, values.batch_size, values.seconds
    )
    for name, cost in costs.items():
        line = {
            "name": name,
            "records_per_s": 1 / cost.wall,
            "cpu_ms": cost.cpu * 1e3,
        }
        # Relative to plain Python of the same kind.
        base = costs.get(f"plain Python, {name.split(', ')[1]}")
        if base:
            line["speedup"] = base.wall / cost.wall
            line["cpu_speedup"] = base.cpu / cost.cpu
        yield line


PROGRAM = program.Program(
    "preprocess",
    {
        "task": ("wikihop", "The task.", ORACLES),
        "input": (program.REQUIRED, "Records in the task's official format."),
        "vocab_file": (
            program.REQUIRED,
            program.VOCABULARY,
        ),
        "batch_size": (8, "Records of a batch, for features alone."),
        "seconds": (
            20.0,
            "How long each way goes through the records, again and again; "
            "always to their end.",
        ),
    },
    program.read_columns(
        "name records_per_s:.1f speedup:.1f cpu_ms:.2f cpu_speedup:.1f"
    ),
    _measure,
)

if __name__ == "__main__":
    program.main(PROGRAM)
