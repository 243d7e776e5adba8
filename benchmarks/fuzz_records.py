"""What damaged records do: features, or an error that a user understands.

Takes real records of a task, damages them at random, as bytes or as JSON, and
reads and preprocesses them. Everything but features and a `UserError` is a
failure: another exception, and more than 20 s for a record. The seed and the
number of a failure make it again.

    python -m benchmarks.fuzz_records --task=nq --input=nq-train-00.jsonl.gz \
        --vocab_file=vocab.txt --mutations=10000
"""

import collections
import contextlib
import copy
import json
import os
import random
import re
import resource
import signal
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from benchmarks import program
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.pipeline import example_maker
from etcmodel.pipeline.example_maker import ExampleMaker
from etcmodel.readers import files
from etcmodel.tasks import registry

_SECONDS = 20
_MAX_SHOWN = 5
# Takes the place of a value.
_VALUES = (
    *(None, True, 0, -1, 1, 2**31, 2**63, 10**30, 1e308, float("nan"), 0.5),
    *("", " ", "a", "\0", "\n\n", "\ud800", "\uffff\ufffe\uffff", "é" * 3),
    *("\u202e\u0301", "a" * 5000, "[SEP]", "<P>", "yes", "true", "-1"),
    *([], {}, [[]], [None], [""], [[], []], {"": None}, {"text": "a"}),
)
_BYTES = (
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"\n",
    b"[" * 3000,
)


class Reading(NamedTuple):
    """How the records of a task are read and preprocessed.

    Attributes:
        read: takes paths, a split and `BadRecords`; yields records.
        writer: makes examples of them; None to read alone.
        name: name of the data file, whose ending may tell its kind.
        folder: of the data file; other files may be there that it names.
    """

    read: Callable[..., Iterator[Any]]
    writer: ExampleMaker | None
    name: str
    folder: str


class Outcome(NamedTuple):
    """What became of one damaged file.

    Attributes:
        kind: "features", "error" or "failure".
        detail: the reason of an error; type and message of a failure.
        seconds: how long it took.
    """

    kind: str
    detail: str
    seconds: float


def load(path: str, number: int) -> list[Any]:
    """Loads the first records of a file, each as a file's whole content.

    Divides JSON arrays, arrays in an object's only field, JSON lines, and CSV
    rows (each with the header). Of all other files the beginning is one
    content, in bytes.
    """
    raw, plain = files.open_plain(path)
    with raw, plain:
        content = plain.read(1 << 26)
    with contextlib.suppress(ValueError):
        value = json.loads(content)
        key = (
            next((x for x, y in value.items() if isinstance(y, list)), None)
            if isinstance(value, dict)
            else None
        )
        if key is not None:
            return [{**value, key: [x]} for x in value[key][:number]]
        if isinstance(value, list):
            return [[x] for x in value[:number]]
        return [value]
    lines = content.splitlines(keepends=True)
    if path.endswith((".csv", ".csv.gz")) and len(lines) > 1:
        return [lines[0] + x for x in lines[1 : number + 1]]
    with contextlib.suppress(ValueError):
        return [json.loads(x) for x in lines[:number] if x.strip()]
    return [b"".join(lines[: 40 * number])[: 1 << 16]]


def mutate(value: Any, rng: random.Random) -> bytes:
    """Damages a content in one to three places; returns it as bytes."""
    count = rng.choice((1, 1, 2, 3))
    if not isinstance(value, bytes) and rng.random() < 0.7:
        value = copy.deepcopy(value)
        for _ in range(count):
            value = _mutate_value(value, rng)
        return to_bytes(value)
    data = value if isinstance(value, bytes) else to_bytes(value)
    for _ in range(count):
        data = _mutate_bytes(data, rng)
    return data


def to_bytes(value: Any) -> bytes:
    """Returns JSON in UTF-8, also of what is neither JSON nor UTF-8."""
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def _mutate_value(value: Any, rng: random.Random) -> Any:
    """Changes one value somewhere in nested ones."""
    is_inner = isinstance(value, list | dict) and bool(value)
    if is_inner and rng.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = rng.choice(keys)
        choice = rng.random()
        if choice < 0.1:
            del value[key]
        elif choice < 0.15 and isinstance(value, list):
            value.insert(key, copy.deepcopy(rng.choice(value)))
        elif choice < 0.2 and isinstance(value, list):
            rng.shuffle(value)
        elif choice < 0.25 and isinstance(value, dict):
            value[rng.choice([*value, "", "x"])] = value.pop(key)
        else:
            value[key] = _mutate_value(value[key], rng)
        return value
    if isinstance(value, str) and value and rng.random() < 0.5:
        place = rng.randrange(len(value))
        new = rng.choice([x for x in _VALUES if isinstance(x, str)])
        return value[:place] + new + value[place + rng.randrange(9) :]
    if isinstance(value, int) and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 1000, -1000))
    if rng.random() < 0.02:
        nested = value
        for _ in range(rng.choice((3, 100))):
            nested = [nested]
        return nested
    return copy.deepcopy(rng.choice(_VALUES))


def _mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Changes, removes, repeats or inserts some bytes, or cuts the end off."""
    if not data:
        return rng.choice(_BYTES)
    start = rng.randrange(len(data))
    stop = start + rng.choice((0, 1, 2, 10, 1000))
    choice = rng.randrange(5)
    if choice == 0:
        return data[:start]
    if choice == 1:
        return data[:start] + data[stop:]
    if choice == 2:
        return data[:stop] + data[start:]
    if choice == 3:
        return data[:start] + rng.choice(_BYTES) + data[start:]
    byte = bytes([data[start] ^ 1 << rng.randrange(8)])
    return data[:start] + byte + data[start + 1 :]


def try_content(content: bytes, reading: Reading, split: str) -> Outcome:
    """Writes a content as a data file, reads it and makes its examples."""

    def stop(number, frame):
        del number, frame
        raise TimeoutError(f"more than {_SECONDS} s")

    start = time.perf_counter()
    handle, path = tempfile.mkstemp(suffix=reading.name, dir=reading.folder)
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_SECONDS)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        kind, detail = "features", ""
        records = list(reading.read(path, split, BadRecords()))
        if reading.writer is not None and records:
            for made in reading.writer.make_examples(records, split):
                if isinstance(made, RecordError):
                    kind, detail = "error", made.reason
                    break
    except UserError as error:
        kind, detail = "error", getattr(error, "reason", "file")
    except Exception as error:
        kind = "failure"
        detail = f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        os.unlink(path)
    return Outcome(kind, detail, time.perf_counter() - start)


def fuzz(
    contents: Sequence[Any],
    reading: Reading,
    splits: Sequence[str],
    mutations: int,
    seed: int,
) -> program.Line:
    """Tries damaged contents; returns counts, and the first failures."""
    kinds, reasons = collections.Counter(), collections.Counter()
    failures, slowest = [], 0.0
    for number in range(mutations):
        rng = random.Random(f"{seed} {number}")
        content = mutate(rng.choice(contents), rng)
        outcome = try_content(content, reading, rng.choice(splits))
        kinds[outcome.kind] += 1
        slowest = max(slowest, outcome.seconds)
        if outcome.kind == "error":
            reasons[re.sub(r"\d+", "0", outcome.detail)] += 1
        elif outcome.kind == "failure" and len(failures) < _MAX_SHOWN:
            failures.append(f"{number}: {outcome.detail}")
    return {
        "mutations": mutations,
        **{name: kinds[name] for name in ("features", "error", "failure")},
        "reasons": len(reasons),
        "slowest_seconds": slowest,
        # In kilobytes, on Linux.
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "failures": failures,
    }


def _measure(values) -> Iterator[program.Line]:
    task = registry.get(values.task)
    config = task.make_preprocessing_config(json.loads(values.sizes))
    if task.complete:
        from etcmodel.pipeline.spec import load as load_place

        records = task.format(config).read(values.input, "train")
        config = load_place(task.complete)(config, records)
    writer = example_maker.of_task(task, config, values.vocab_file)
    folder, name = os.path.split(os.path.abspath(values.input))
    reading = Reading(task.format(config).read, writer, name, folder)
    if values.folder:
        reading = reading._replace(folder=values.folder)
    elif not os.access(folder, os.W_OK):
        reading = reading._replace(folder=tempfile.gettempdir())
    if name.endswith(".gz"):
        reading = reading._replace(name=name.removesuffix(".gz"))
    splits = task.dataset.FORMAT.splits
    contents = load(values.input, values.records)
    line = fuzz(contents, reading, splits, values.mutations, values.seed)
    yield {"name": values.task, **line}


PROGRAM = program.Program(
    name="fuzz_records",
    flags={
        "task": (program.REQUIRED, "The task."),
        "input": (program.REQUIRED, "A data file of it."),
        "vocab_file": (program.REQUIRED, "The vocabulary."),
        "sizes": ("{}", "Sizes of `preprocess` that differ, as JSON."),
        "mutations": (10000, "How many damaged files are tried."),
        "records": (50, "How many records of the file are damaged."),
        "folder": (None, "Where damaged files are written."),
        "seed": (0, "Of the damages."),
    },
    columns=program.read_columns(
        "name mutations:d features:d error:d failure:d reasons:d "
        "slowest_seconds:.2f peak_gb:.2f"
    ),
    measure=_measure,
)

if __name__ == "__main__":
    program.main(PROGRAM)
