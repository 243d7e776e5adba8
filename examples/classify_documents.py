"""Classifies documents as weather, sport or food.

    python -m examples.classify_documents

Trains a tiny model from random weights for a few seconds. For your own
documents, start from pre-trained weights instead of "tiny"; see
docs/own_documents.md.
"""

import json
import pathlib

import etcmodel

DATA = pathlib.Path(__file__).parent / "data"


def read(name: str) -> list[dict]:
    """Returns the rows of a JSON Lines file."""
    with open(DATA / name, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def main() -> dict[str, float]:
    """Trains, predicts and evaluates a model; returns the metrics."""
    rows = read("notices.jsonl")
    train, test = rows[:36], rows[36:]
    model = etcmodel.DocumentClassifier.from_pretrained(
        "tiny",
        vocab_file=str(DATA / "vocab.txt"),
        long_length=64,
        global_length=16,
    )
    model.fit(train, epochs=12, small=True, seed=1, verbose=False)
    (answer,) = model.predict(["Snow and wind in Graz tonight."])
    print(answer["label"])  # weather
    print(answer["probabilities"])
    metrics = model.evaluate(test, progress=False)
    print(f"Accuracy on {len(test)} others: {metrics['accuracy']:.0%}")
    return metrics


if __name__ == "__main__":
    main()
