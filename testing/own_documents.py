"""Writes small user documents with labels, selected texts, or answers.

Most documents say in which city Jan is.
"""

import json
import os
from collections.abc import Sequence

from etcmodel.feature_utils.text import tokenizers
from testing.helpers import write_vocab

CITIES = ("Bonn", "Oslo", "Rome")
_WORDS = "bonn oslo rome jan is he in here it rains where . ?".split()
# Parameters of `fit`. Without dropout, results do not depend on padding.
ONE_PLAIN_LAYER = {
    "task.model.encoder.num_hidden_layers": 1,
    "task.model.encoder.hidden_dropout_prob": 0.0,
    "task.model.encoder.attention_probs_dropout_prob": 0.0,
}
SIZES = ("--long_length=32", "--global_length=16")


def _texts(number: int) -> list[list[str]]:
    """Returns one or two paragraphs; the first paragraph names the city."""
    city, other = CITIES[number % 3], CITIES[(number + 1) % 3]
    paragraphs = [["Jan is here.", f"He is in {city}."]]
    if number % 2:
        paragraphs.append([f"It rains in {other}."])
    return paragraphs


def _write(directory: str, rows: Sequence[dict]) -> tuple[str, str]:
    path = os.path.join(directory, "rows.jsonl")
    with open(path, "w", encoding="utf-8") as stream:
        for i, row in enumerate(rows):
            line = {"id": f"small_{i}", **row}
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    tokens = (*tokenizers.WORDPIECE_RESERVED_TOKENS, *_WORDS)
    return path, write_vocab(directory, tokens)


def write_small_labels(directory: str, num_records: int) -> tuple[str, str]:
    """Writes documents labelled with the city, and a vocabulary.

    Like all writers in this module, returns the paths of the data file and of
    the vocabulary. Documents are strings, and all labels are equally frequent.
    """
    return _write(
        directory,
        [
            {
                "text": "\n\n".join(map(" ".join, _texts(i))),
                "label": CITIES[i % 3],
            }
            for i in range(num_records)
        ],
    )


def write_small_selections(directory: str, num_records: int) -> tuple[str, str]:
    """Writes documents as lists of texts; the one with the city is selected.

    Every fourth document does not name the city, and has no selected text.
    """
    rows = []
    for i in range(num_records):
        paragraphs = _texts(i)
        if i % 4 == 3:
            del paragraphs[0][1]
        selected = [[0, 1]] if len(paragraphs[0]) > 1 else []
        rows.append(
            {
                "query": "Where is Jan?",
                "paragraphs": paragraphs,
                "selected": selected,
            }
        )
    return _write(directory, rows)


def write_small_answers(directory: str, num_records: int) -> tuple[str, str]:
    """Writes documents with a title, a question, and answer positions.

    In each group of four questions, the last has no answer, and the first has
    labelled evidence.
    """
    rows = []
    for i in range(num_records):
        paragraphs = _texts(i)
        if i % 4 == 3:
            del paragraphs[0][1]
        text = "\n\n".join(map(" ".join, paragraphs))
        city, answers = CITIES[i % 3], []
        if i % 4 != 3:
            answers = [{"text": city, "answer_start": text.index(city)}]
        row = {
            "question": "Where is Jan?",
            "sections": [{"title": "Jan", "text": text}],
            "answers": answers,
        }
        if i % 4 == 0:
            row["evidence"] = [f"He is in {city}."]
        rows.append(row)
    return _write(directory, rows)
