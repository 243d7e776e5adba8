r"""How fast records become features: the package against plain Python.

Both turn the same records of a task into serialized `tf.Example`s with their
labels: the package as `preprocess` does it, batch by batch on all cores, and
the plain Python of `task_oracles.py`, one record and one token
after another. Features alone are measured as well.

    python -m benchmarks.preprocess --task=wikihop --input=train.json \
        --vocab_file=vocab.txt
"""

import os
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
from typing import Any
from typing import NamedTuple

# Before TensorFlow starts: without its start-up messages.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app  # noqa: E402
from absl import flags  # noqa: E402

from benchmarks.reference_tokenizer import BertTokenizer  # noqa: E402
from benchmarks.task_oracles import ORACLES  # noqa: E402
from etcmodel.cli import preprocess  # noqa: E402
from etcmodel.errors import BadRecords  # noqa: E402
from etcmodel.feature_utils.text import vocabulary_files  # noqa: E402
from etcmodel.pipeline.example_writer import FeatureEncoder  # noqa: E402
from etcmodel.tasks import registry  # noqa: E402

_SPLIT = "train"

_TASK = flags.DEFINE_enum("task", "wikihop", sorted(ORACLES), "The task.")
_INPUT = flags.DEFINE_string(
    "input", None, "Records in the task's official format.", required=True
)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file",
    None,
    "WordPiece vocabulary or SentencePiece model.",
    required=True,
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 8, "Records of a batch, where features alone are measured."
)
_SECONDS = flags.DEFINE_float(
    "seconds",
    20.0,
    "How long each way goes through the records, again and again; always to "
    "their end.",
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


def repeated(records: Sequence[Any], seconds: float) -> Iterator[Any]:
    """All records, and all of them again, until the time is over."""
    end = time.perf_counter() + seconds
    while True:
        yield from records
        if time.perf_counter() >= end:
            return


def measure_package(
    encoder: FeatureEncoder,
    records: Sequence[Any],
    batch_size: int,
    seconds: float,
) -> dict[str, Cost]:
    """Costs of the package: features alone, and all that is stored.

    Args:
        encoder: the task's encoder.
        records: the records.
        batch_size: records of a batch, for features alone.
        seconds: how long to go through the records.

    Returns:
        The costs by their names.
    """

    def batches() -> Iterator[Sequence[Any]]:
        """Batches of all records, over and over."""
        batch = []
        for record in repeated(records, seconds):
            batch.append(record)
            if len(batch) == batch_size:
                yield batch
                batch = []
        if batch:
            yield batch

    def build() -> int:
        """Builds features, on all cores: the graph leaves Python free."""
        workers = os.cpu_count() or 1

        def work(source) -> int:
            number = 0
            for batch in source:
                encoder.build(batch)
                number += len(batch)
            return number

        with futures.ThreadPoolExecutor(workers) as pool:
            return sum(pool.map(work, [batches() for _ in range(workers)]))

    def encode() -> int:
        """Makes all that is stored, as `preprocess` does."""
        return sum(
            len(encoded)
            for encoded in preprocess.encode_all(
                encoder, repeated(records, seconds), _SPLIT, BadRecords(True)
            )
        )

    # The first call traces the graph.
    encoder.encode(records[:1], _SPLIT)
    return {
        "graph code, features": measure(build),
        "package, serialized": measure(encode),
    }


def measure_python(
    reference,
    tokenizer: BertTokenizer,
    config,
    records: Sequence[Any],
    seconds: float,
) -> dict[str, Cost]:
    """Costs of plain Python.

    Args:
        reference: one of `ORACLES`.
        tokenizer: the tokenizer.
        config: sizes of the features.
        records: the records.
        seconds: how long to go through the records.

    Returns:
        The costs by their names.
    """

    def run(function) -> int:
        """Treats one record after another."""
        number = 0
        for record in repeated(records, seconds):
            function(record, tokenizer, config)
            number += 1
        return number

    return {
        "plain Python, features": measure(lambda: run(reference.make_features)),
        "plain Python, serialized": measure(lambda: run(reference.encode)),
    }


def print_table(costs: dict[str, Cost]) -> None:
    """Prints what was measured, relative to plain Python of the same kind."""
    print(
        f"{'':26}{'records/s':>10}{'ratio':>8}{'CPU ms/record':>15}{'ratio':>8}"
    )
    for name, cost in costs.items():
        ratios = ("", "")
        base = costs.get(f"plain Python, {name.split(', ')[1]}")
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
    task = registry.get(_TASK.value)
    config = task.feature_config({})
    bad_records = BadRecords(True)
    records = list(
        task.dataset.FORMAT.read(_INPUT.value, _SPLIT, bad_records, None)
    )
    encoder = task.record_encoder(config, _VOCAB_FILE.value)
    kind = encoder.builder.tokenizer.kind
    print(
        f"{_TASK.value}: {len(records)} records, {os.cpu_count()} cores, "
        f"batches of {_BATCH_SIZE.value}, {kind}"
    )
    if bad_records.total:
        print(bad_records.summary())
    costs = {}
    if kind == "wordpiece":
        costs.update(
            measure_python(
                ORACLES[_TASK.value],
                BertTokenizer(vocabulary_files.load_vocab(_VOCAB_FILE.value)),
                config,
                records,
                _SECONDS.value,
            )
        )
    else:
        print("(The plain Python tokenizer is WordPiece: the package only.)")
    costs.update(
        measure_package(encoder, records, _BATCH_SIZE.value, _SECONDS.value)
    )
    print_table(costs)


if __name__ == "__main__":
    app.run(main)
