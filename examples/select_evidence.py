"""Selects the sentence that answers a question.

    python -m examples.select_evidence

Trains a tiny model from random weights for a few seconds; see
docs/own_documents.md.
"""

import etcmodel
from examples.classify_documents import DATA
from examples.classify_documents import read


def main() -> dict[str, float]:
    """Trains, predicts and evaluates a model; returns the metrics."""
    rows = read("evidence.jsonl")
    train, test = rows[:36], rows[36:]
    model = etcmodel.SentenceSelector.from_pretrained(
        "tiny",
        vocab_file=str(DATA / "vocab.txt"),
        long_length=64,
        global_length=32,
    )
    model.fit(train, epochs=40, small=True, seed=1, verbose=False)
    (units,) = model.predict(test[:1], progress=False)
    print(test[0]["query"])
    for unit in sorted(units, key=lambda x: -x["probability"])[:3]:
        print(f"  {unit['probability']:.2f}  {unit['text']}")
    metrics = model.evaluate(test, progress=False)
    print(f"Average precision: {metrics['mean_average_precision']:.2f}")
    return metrics


if __name__ == "__main__":
    main()
