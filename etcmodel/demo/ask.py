"""Asks an exported WikiHop model questions in plain text.

    python ask.py SAVED_MODEL                asks you for a question
    python ask.py SAVED_MODEL FILE.json ...  answers the questions in files

A file has a record `{"query": ..., "candidates": [...], "supports": [...]}` or
a list of records, as in WikiHop's files; `answer` is optional. This program
needs only TensorFlow and tensorflow-text, so it can be copied along with the
SavedModel.
"""

import argparse
import json
import os
import sys
import textwrap

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
import tensorflow_text  # noqa: F401  The graph uses its operations.

_BATCH_SIZE = 32
# Maximum number of records in a file for which each record is shown. For longer
# files, answers are only counted.
_MAX_SHOWN = 3


def pad(rows):
    """Pads rows with empty strings to a rectangular string tensor."""
    width = max(map(len, rows))
    # [rows, width]
    return tf.constant(
        [row + [""] * (width - len(row)) for row in rows],
        tf.string,
        shape=[len(rows), width],
    )


def answer(model, records):
    """Returns each record's answer, with the candidates' probabilities."""
    answers = []
    for start in range(0, len(records), _BATCH_SIZE):
        batch = records[start : start + _BATCH_SIZE]
        outputs = model.signatures["serving_default"](
            query=tf.constant([record["query"] for record in batch]),
            candidates=pad([record["candidates"] for record in batch]),
            supports=pad([record["supports"] for record in batch]),
        )
        texts = outputs["answer"].numpy()
        probabilities = outputs["candidate_probabilities"].numpy().tolist()
        answers += zip([x.decode() for x in texts], probabilities, strict=True)
    return answers


def show(record, text, probabilities):
    """Prints a record and its answer."""
    print()
    for document in record["supports"]:
        for line in textwrap.wrap(document, 74):
            print(f"  | {line}")
        print("  |")
    print(f"  Question: {record['query']}")
    for candidate, probability in zip(
        record["candidates"], probabilities, strict=False
    ):
        print(f"    {probability:7.1%}  {candidate}")
    print(f"  Answer:   {text}")


def read_records(path):
    """Reads a record or a list of records; ends the program on errors."""
    try:
        with open(path, encoding="utf-8") as file:
            records = json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"{path} cannot be read: {error}")
    records = records if isinstance(records, list) else [records]
    if not records:
        sys.exit(f"{path} has no question; expected at least one.")
    for number, record in enumerate(records):
        where = f"{path}, record {number}"
        if not isinstance(record, dict):
            sys.exit(f"{where} is {record!r}; expected a JSON object.")
        query = record.get("query")
        if not isinstance(query, str):
            sys.exit(f"{where}: 'query' is {query!r}; expected a string.")
        for field in ("candidates", "supports"):
            texts = record.get(field)
            if not (
                texts
                and isinstance(texts, list)
                and all(isinstance(text, str) for text in texts)
            ):
                sys.exit(
                    f"{where}: {field!r} is {texts!r}; expected a list of "
                    "strings."
                )
    return records


def type_record():
    """Reads a record from the keyboard."""

    def line(prompt):
        try:
            return input(prompt).strip()
        except EOFError:
            return ""

    def lines(prompt):
        print(f"{prompt} (one per line; an empty line ends the list):")
        return list(iter(lambda: line("> "), "")) or [""]

    return {
        "supports": lines("Documents"),
        "candidates": lines("Candidate answers"),
        "query": line("Question (island_with lighthouse and beehives):\n> "),
    }


def main():
    """Answers the questions in files, or one typed by the user."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("saved_model", help="directory of the SavedModel")
    parser.add_argument("files", nargs="*", help="JSON files with questions")
    parser.add_argument("--output", help="JSON file for the answers")
    arguments = parser.parse_args()

    if not tf.saved_model.contains_saved_model(arguments.saved_model):
        sys.exit(
            f"{arguments.saved_model} is not a SavedModel; expected the "
            "directory that `export` wrote."
        )
    model = tf.saved_model.load(arguments.saved_model)
    found = {}
    for path in arguments.files:
        records = read_records(path)
        answers = answer(model, records)
        pairs = list(zip(records, answers, strict=True))
        if len(records) <= _MAX_SHOWN:
            for record, (text, probabilities) in pairs:
                show(record, text, probabilities)
        known = [
            text == record["answer"].strip().lower()
            for record, (text, _) in pairs
            if "answer" in record
        ]
        if known:
            print(f"\n  {path}: {sum(known)} of {len(known)} answers right.")
        found[path] = {
            "answers": [text for text, _ in answers],
            "num_right": sum(known),
            "num_known": len(known),
        }
    if not arguments.files:
        record = type_record()
        ((text, probabilities),) = answer(model, [record])
        show(record, text, probabilities)
    if arguments.output:
        modules = sorted(m for m in sys.modules if m.startswith("etcmodel"))
        with open(arguments.output, "w", encoding="utf-8") as file:
            json.dump({"files": found, "etcmodel_modules": modules}, file)


if __name__ == "__main__":
    main()
