"""Answers questions about documents; some questions have no answer.

    python -m examples.answer_questions

Trains a tiny model from random weights for a few seconds; see
docs/own_documents.md.
"""

import etcmodel
from examples.classify_documents import DATA
from examples.classify_documents import read


def main() -> dict[str, float]:
    """Trains, predicts and evaluates a model; returns the metrics."""
    rows = read("questions.jsonl")
    train, test = rows[:36], rows[36:]
    model = etcmodel.QuestionAnswerer.from_pretrained(
        "tiny",
        vocab_file=str(DATA / "vocab.txt"),
        long_length=64,
        global_length=32,
    )
    model.fit(train, epochs=60, small=True, seed=1, verbose=False)
    question = "Where does Eva live?"
    text = "Eva works as a cook. A cat sleeps on the stairs. Eva lives in Oslo."
    (answer,) = model.predict([{"question": question, "text": text}])
    print(answer["answer"])  # Oslo
    found = model.predict(test[:3], progress=False)
    for row, answer in zip(test, found, strict=False):
        text = answer["answer"] or "no answer"
        chance = answer["no_answer_probability"]
        print(f"{row['question']} {text} (no answer: {chance:.2f})")
    metrics = model.evaluate(test, progress=False)
    print(f"Exact match on {len(test)} others: {metrics['exact_match']:.0%}")
    return metrics


if __name__ == "__main__":
    main()
