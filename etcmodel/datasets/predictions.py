"""Writes official prediction files: one JSON object, or JSON lines."""

import json
from collections.abc import Iterable
from collections.abc import Mapping
from typing import IO


def write_predictions(predictions: Mapping[str, str], stream: IO[str]) -> None:
    """Writes `{id: answer}`, the format of WikiHop, TriviaQA and SQuAD."""
    _write(predictions, stream, indent=0)


def write_lines(lines: Iterable[Mapping], stream: IO[str]) -> None:
    """Writes one JSON object per line."""
    for line in lines:
        _write(line, stream)


def _write(value: object, stream: IO[str], indent: int | None = None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # Lone surrogates, which UTF-8 cannot encode, become "?".
    stream.write(text.encode("utf-8", "replace").decode("utf-8") + "\n")
