"""The format of official predictions that several datasets share."""

import json
from collections.abc import Mapping
from typing import IO


def write_predictions(predictions: Mapping[str, str], stream: IO[str]) -> None:
    """Writes `{id: answer}`, which WikiHop's and TriviaQA's scripts read.

    Args:
        predictions: record id -> answer.
        stream: the stream to write to.
    """
    json.dump(predictions, stream, indent=0, ensure_ascii=False)
    stream.write("\n")
