"""Fuzzes readers: damages data files at random, and reads them.

A failure is an exception other than `UserError`, or a file that takes more than
20 s to read. The seed and the number of a failure reproduce it.
"""

import contextlib
import copy
import json
import os
import random
import signal
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from etcmodel.errors import BadRecords
from etcmodel.errors import UserError

_SECONDS = 20
# Values that replace a value of the file.
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


def load(path: str, number: int) -> list[Any]:
    """Loads the first records, each as the whole content of a new file.

    Splits JSON arrays, the first array in an object, JSON lines, and CSV rows
    (each with the header). For other files, returns the bytes as one content.
    """
    with open(path, "rb") as stream:
        content = stream.read()
    with contextlib.suppress(ValueError):
        value = json.loads(content)
        if isinstance(value, list):
            return [[x] for x in value[:number]]
        key = next((x for x, y in value.items() if isinstance(y, list)), None)
        if key is None:
            return [value]
        return [{**value, key: [x]} for x in value[key][:number]]
    lines = content.splitlines(keepends=True)
    if path.endswith(".csv"):
        return [lines[0] + x for x in lines[1 : number + 1]]
    with contextlib.suppress(ValueError):
        return [json.loads(x) for x in lines[:number] if x.strip()]
    return [content]


def mutate(value: Any, rng: random.Random) -> bytes:
    """Damages content in one to three places; returns it as bytes."""
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
    """Encodes JSON in UTF-8, including NaN and lone surrogates."""
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def _mutate_value(value: Any, rng: random.Random) -> Any:
    """Changes one value somewhere in a nested structure."""
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
    """Changes, removes, repeats or inserts some bytes, or cuts off the end."""
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


def _stop(number, frame):
    del number, frame
    raise TimeoutError(f"more than {_SECONDS} s")


def find_failures(
    path: str,
    read: Callable[..., Iterator[Any]],
    splits: Sequence[str],
    mutations: int,
    seed: int,
) -> tuple[int, list[str]]:
    """Reads damaged versions of a file, written to the same directory.

    Args:
        path: the file.
        read: takes paths, a split and `BadRecords`; yields records.
        splits: splits to read; each damaged file is read as one of them.
        mutations: number of damaged files.
        seed: random seed of the damage.

    Returns:
        The number of files that raised a `UserError`, and a line for each
        failure.
    """
    contents, errors, failures = load(path, 4), 0, []
    folder, name = os.path.split(path)
    before = signal.signal(signal.SIGALRM, _stop)
    try:
        for number in range(mutations):
            rng = random.Random(f"{seed} {number}")
            content = mutate(rng.choice(contents), rng)
            split = rng.choice(splits)
            with tempfile.NamedTemporaryFile(suffix=name, dir=folder) as file:
                file.write(content)
                file.flush()
                signal.alarm(_SECONDS)
                try:
                    for _ in read(file.name, split, BadRecords()):
                        pass
                except UserError:
                    errors += 1
                except Exception as error:
                    text = f"{type(error).__name__}: {str(error)[:200]}"
                    failures.append(f"{number}: {text}")
                finally:
                    signal.alarm(0)
    finally:
        signal.signal(signal.SIGALRM, before)
    return errors, failures
