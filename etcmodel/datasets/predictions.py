"""Writes official prediction files: one JSON object, or JSON lines."""

import json
from collections.abc import Iterable
from collections.abc import Mapping
from typing import IO

import numpy as np

# Below it, rounding to float32 keeps whole numbers.
_MAX_SHORT = 2.0**24


def write_predictions(predictions: Mapping[str, str], stream: IO[str]) -> None:
    """Writes `{id: answer}`, the format of WikiHop, TriviaQA and SQuAD."""
    write_json(predictions, stream, indent=0)


def write_lines(lines: Iterable[Mapping], stream: IO[str]) -> None:
    """Writes one JSON object per line."""
    for line in lines:
        write_json(line, stream)


def write_json(
    value: object, stream: IO[str], indent: int | None = None
) -> None:
    """Writes a line of JSON, in UTF-8 and with the fewest digits."""
    text = json.dumps(_shortest(value), indent=indent, ensure_ascii=False)
    # Lone surrogates, which UTF-8 cannot encode, become "?".
    stream.write(text.encode("utf-8", "replace").decode("utf-8") + "\n")


def _shortest(value: object) -> object:
    """Rounds float32 numbers to the fewest digits that identify them.

    Example: `[0.10000000149011612]`, which is 0.1 in float32, gives `[0.1]`.
    """
    if isinstance(value, Mapping):
        return {x: _shortest(y) for x, y in value.items()}
    if isinstance(value, list | tuple):
        return [_shortest(x) for x in value]
    if isinstance(value, float) and abs(value) < _MAX_SHORT:
        short = np.float32(value)
        return float(str(short)) if float(short) == value else value
    return value
