"""Writes small reading-comprehension data sets in their official formats."""

import csv
import json
import os

from etcmodel.feature_utils.text import tokenizers
from testing.helpers import write_vocab

_CITIES = ("Paris", "Rome", "Oslo", "Bonn")
_TOKENS = (
    *tokenizers.WORDPIECE_RESERVED_TOKENS,
    *map(str.lower, _CITIES),
    *"jan lives in here it rains who where does live is ? .".split(),
)
# With these sizes, each text has several overlapping segments.
SIZES = (
    "--block_length=24",
    "--block_overlap=4",
    "--max_question_length=8",
    "--num_blocks_per_example=8",
    "--max_num_annotations=2",
)


def make_text(number: int) -> tuple[str, str, str]:
    """Returns a question, a text, and the answer, which the text has once."""
    city = _CITIES[number % 4]
    lines = ["It rains here."] * (3 + number % 5)
    lines.insert(number % 3, f"Jan lives in {city}.")
    return "Where does Jan live?", "\n".join(lines), city


def write_small_triviaqa(directory: str, num_records: int) -> tuple[str, str]:
    """Writes a TriviaQA file with pages, and a vocabulary; returns paths."""
    pages = os.path.join(directory, "evidence", "wikipedia")
    for folder in (pages, os.path.join(directory, "qa")):
        os.makedirs(folder, exist_ok=True)
    records = []
    for i in range(num_records):
        question, text, answer = make_text(i)
        with open(os.path.join(pages, f"{i}.txt"), "w") as stream:
            stream.write(text)
        records.append(
            {
                "QuestionId": f"small_{i}",
                "Question": question,
                "EntityPages": [{"Filename": f"{i}.txt"}],
                "Answer": {
                    "Value": answer,
                    "NormalizedAliases": [answer.lower()],
                },
            }
        )
    path = os.path.join(directory, "qa", "small.json")
    with open(path, "w", encoding="utf-8") as stream:
        json.dump({"Data": records}, stream)
    return path, write_vocab(directory, _TOKENS)


def write_small_narrativeqa(
    directory: str, num_records: int
) -> tuple[str, str]:
    """Writes a NarrativeQA file with stories, and a vocabulary."""
    stories = os.path.join(directory, "stories")
    os.makedirs(stories, exist_ok=True)
    path = os.path.join(directory, "qaps.csv")
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(
            ["document_id", "set", "question", "answer1", "answer2"]
        )
        for i in range(num_records):
            question, text, answer = make_text(i)
            with open(os.path.join(stories, f"{i}.content"), "w") as story:
                story.write(text)
            writer.writerow([str(i), "train", question, answer, f"in {answer}"])
    return path, write_vocab(directory, _TOKENS)
