r"""Draws learning curves: F1 by the number of training questions.

    python -m benchmarks.learning_curves --lift=all-MiniLM-L6-v2 \
        --train=more_train.json --dev=train.json --picture=curves.png

Trains `answer` and a plain reader of windows (see `own_documents`) on parts of
SQuAD's questions, and answers the questions of `--dev`. Each part consists of
whole paragraphs, drawn at random from all articles, and contains all smaller
parts. With `--results`, the picture also shows what earlier runs with
`--output` measured. Columns are the reader, the number of questions it is
trained on (`trained`), the seed, the reader's exact match and F1, the number of
`questions` answered, and the seconds for training and answering.
"""

import collections
import os
import random
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from benchmarks import own_documents
from benchmarks import program
from benchmarks import training_runs

_NAMES = {"answer": "answer (ETC)", "windows": "windows of 384 tokens (BERT)"}


def choose_questions(articles: Sequence[dict], number: int) -> list[dict]:
    """Draws paragraphs until they have at least `number` questions.

    Args:
        articles: articles in SQuAD's format.
        number: number of questions. The articles must have at least as many.

    Returns:
        One article for each paragraph, in the order of the articles.
    """
    paragraphs = [
        {"title": article["title"], "paragraphs": [paragraph]}
        for article in articles
        for paragraph in article["paragraphs"]
    ]
    order = [*range(len(paragraphs))]
    random.Random(1).shuffle(order)
    chosen, found = [], 0
    for i in order:
        if found >= number:
            break
        chosen.append(i)
        found += len(paragraphs[i]["paragraphs"][0]["qas"])
    if found < number:
        raise ValueError(f"There are {found} questions, not {number}.")
    return [paragraphs[i] for i in sorted(chosen)]


def draw(lines: Sequence[Mapping], path: str) -> None:
    """Draws the mean F1 over seeds of each reader."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for reader, label in _NAMES.items():
        found = {
            (line["trained"], line.get("seed")): line["f1"]
            for line in lines
            if line["name"] == reader
        }
        points = collections.defaultdict(list)
        for (number, _), score in found.items():
            points[number].append(score)
        numbers = sorted(points)
        means = [sum(points[x]) / len(points[x]) for x in numbers]
        if points:
            axes.plot(numbers, means, marker="o", label=label)
    axes.set_xscale("log")
    ticks = sorted({line["trained"] for line in lines})
    axes.set_xticks(ticks, [f"{x:,}" for x in ticks], rotation=30)
    axes.minorticks_off()
    axes.set_xlabel("questions to learn from")
    axes.set_ylabel("F1")
    axes.grid(alpha=0.3)
    axes.legend()
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    figure.savefig(path, dpi=150)


def _measure(values, runs) -> Iterator[program.Line]:
    measurement = own_documents.Measurement(values, runs)
    articles = [
        x for name in values.train for x in own_documents.read_articles(name)
    ]
    dev = own_documents.read_articles(values.dev)
    before = [own_documents.read_lines(path) for path in values.results]
    lines = [line for found in before for line in found]
    for number in map(int, values.numbers):
        train = choose_questions(articles, number)
        trained = sum(1 for _ in own_documents.questions_of(train))
        for seed in values.seeds:
            for name, answers, seconds in measurement.read_squad(
                str(number), train, dev, int(seed)
            ):
                lines.append(
                    {
                        "name": name,
                        "trained": trained,
                        "seed": seed,
                        **own_documents.score(answers, dev),
                        "seconds": seconds,
                    }
                )
                yield lines[-1]
    if values.picture:
        draw(lines, values.picture)


PROGRAM = training_runs.make_program(
    "learning_curves", own_documents.in_precision(_measure)
)

if __name__ == "__main__":
    program.main(PROGRAM)
