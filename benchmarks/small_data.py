r"""Trains `classify`, `select` and `answer` on small real data sets.

Compares the defaults of `train` with other settings, on sets of 50 to 1,400
records that people would bring:

*   `reviews`: whether a sentence from a film review is favourable;
*   `few_reviews`: the same, from 50 sentences;
*   `ratings`: the mean rating of a sentence of a product review, a number;
*   `sources`: whether a sentence is from a tweet, a film review, a product
    review or a newspaper;
*   `articles`: the article of SQuAD that a paragraph is from;
*   `languages`: the language of a sentence, one of eleven;
*   `novelists`, `novelists_0`, `novelists_1`: the author of a passage of 1,800
    words; the test passages are from each author's third, first or second
    novel;
*   `facts`: HotpotQA's supporting facts, with `select`;
*   `questions`: SQuAD's questions, with `answer`.

    python -m benchmarks.small_data --lift=all-MiniLM-L6-v2 --data=DIR \
        --sentiment=DIR --setting= --setting=5e-5,3,16 --setting=2e-4,10,16

`--data` has `squad/more_train.json`, `squad/train.json`, a file of sentences
for each language (`languages/de.txt`), `authors/train.jsonl` and `dev.jsonl`
(`{"id", "paragraphs", "label"}`), `hotpotqa/train_200.json` and `dev_95.json`.
`--sentiment` has the ratings of sentences (Hutto and Gilbert, "VADER", 2014),
which come with the source distribution of the package vaderSentiment 2.5
(`additional_resources/hutto_ICWSM_2014.tar.gz`).

A setting is a learning rate, a number of epochs and a batch size; the empty one
stands for `train`'s defaults. All runs have `task.trim_batches`. There is no
validation during the training, so the last checkpoint is measured, with a
threshold of 0.5 for `select`.

Columns: `trained` is the number of training records, `score` the accuracy,
Spearman's correlation (`ratings`) or F1 (`facts`, `questions`), `majority` the
accuracy of the most frequent label, `labels` the number of labels that the
model predicts.
"""

import os
import random
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from benchmarks import own_documents
from benchmarks import program
from benchmarks import training_runs
from etcmodel.datasets.hotpotqa.records import FORMAT

Rows = list[dict[str, Any]]

_SOURCES = {
    "tweet": "tweets",
    "film": "movieReviewSnippets",
    "product": "amazonReviewSnippets",
    "news": "nytEditorialSnippets",
}


class Set(NamedTuple):
    """A data set.

    Attributes:
        task: name of the task.
        read: returns the training and the validation records.
        metric: name of the metric.
        sizes: flags of `preprocess`.
    """

    task: str
    read: Callable[[Any], tuple[Rows, Rows]]
    metric: str = "accuracy"
    sizes: Mapping[str, Any] = {"long_length": 256, "global_length": 64}


def _sentences(values, source: str) -> list[tuple[float, str]]:
    """Reads the rated sentences of a source, shuffled."""
    if values.sentiment is None:
        raise ValueError(
            "few_reviews, reviews, ratings and sources need --sentiment."
        )
    name = f"{_SOURCES[source]}_GroundTruth.txt"
    path = os.path.join(values.sentiment, name)
    with open(path, encoding="utf-8", errors="replace") as stream:
        lines = [line.rstrip("\n").split("\t") for line in stream]
    rows = [(float(x[1]), x[2]) for x in lines if len(x) == 3]
    random.Random(1).shuffle(rows)
    return rows


def _split(rows: Rows, number: int, held_out: int) -> tuple[Rows, Rows]:
    """Splits records into training and validation records."""
    return rows[:number], rows[number : number + held_out]


def _reviews(number: int):
    def read(values):
        rows = [
            {"text": text, "label": "good" if rating > 0 else "bad"}
            for rating, text in _sentences(values, "film")
            # Others are mixed or neutral.
            if abs(rating) >= 1
        ]
        return _split(rows, number, 1000)

    return read


def _ratings(values):
    rows = [
        {"text": text, "label": rating}
        for rating, text in _sentences(values, "product")
    ]
    return _split(rows, 1000, 1000)


def _sources(values):
    rows = [
        {"text": text, "label": source}
        for source in _SOURCES
        for _, text in _sentences(values, source)[:400]
    ]
    random.Random(2).shuffle(rows)
    return _split(rows, 300, 1000)


def _articles(values):
    path = os.path.join(values.data, "squad", "more_train.json")
    articles = [
        x
        for x in own_documents.read_articles(path)
        if len(x["paragraphs"]) >= 40
    ]
    train: Rows = []
    dev: Rows = []
    for article in articles[:10]:
        rows = [
            {"text": x["context"], "label": article["title"]}
            for x in article["paragraphs"][:40]
        ]
        train, dev = train + rows[:20], dev + rows[20:]
    return train, dev


def _languages(values):
    rows = []
    folder = os.path.join(values.data, "languages")
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as stream:
            lines = [x.strip() for x in stream if x.strip()]
        random.Random(name).shuffle(lines)
        rows += [{"text": x, "label": name[:2]} for x in lines[:60]]
    random.Random(3).shuffle(rows)
    return _split(rows, len(rows) // 3, len(rows))


def _novelists(number):
    """Returns a reader that holds out novel 0, 1 or 2 of each author."""

    def read(values):
        folder = os.path.join(values.data, "authors")
        sets = {True: [], False: []}
        for split in ("train", "dev"):
            for row in own_documents.read_lines(
                os.path.join(folder, f"{split}.jsonl")
            ):
                # In the id train_jan0_70, jan0 is the novel (Jane Eyre); the
                # digit is its number among its author's three.
                novel = row["id"].split("_")[1]
                sets[novel.endswith(str(number))].append(row)
        return sets[False], sets[True]

    return read


def _facts(values):
    folder = os.path.join(values.data, "hotpotqa")
    return tuple(
        own_documents.selection_rows(FORMAT.read(os.path.join(folder, name)))
        for name in ("train_200.json", "dev_95.json")
    )


def _questions(values):
    articles = own_documents.read_articles(
        os.path.join(values.data, "squad", "train.json")
    )
    random.Random(4).shuffle(articles)
    train: Rows = []
    dev: Rows = []
    for article in articles:
        # No article is in both sets.
        chosen = train if len(train) < 1400 else dev
        chosen += [
            {
                "id": qa["id"],
                "question": qa["question"],
                "text": paragraph["context"],
                "answers": qa["answers"],
            }
            for paragraph in article["paragraphs"]
            for qa in paragraph["qas"]
        ]
    return train, dev


SETS = {
    "few_reviews": Set("classify", _reviews(50)),
    "reviews": Set("classify", _reviews(1000)),
    "ratings": Set("classify", _ratings, "spearman"),
    "sources": Set("classify", _sources),
    "articles": Set(
        "classify", _articles, sizes={"long_length": 512, "global_length": 64}
    ),
    "languages": Set("classify", _languages),
    **{
        f"novelists{suffix}": Set(
            "classify",
            _novelists(number),
            sizes={
                "long_length": 4096,
                "global_length": 192,
                "units": "paragraphs",
            },
        )
        for suffix, number in (("", 2), ("_0", 0), ("_1", 1))
    },
    "facts": Set(
        "select", _facts, "f1", {"long_length": 2048, "global_length": 192}
    ),
    "questions": Set(
        "answer", _questions, "f1", {"long_length": 512, "global_length": 64}
    ),
}


def _setting(text: str) -> dict[str, str]:
    """Returns the flags of a setting, such as `2e-4,10,16`."""
    names = ("learning_rate", "epochs", "batch_size")
    parts = text.split(",") if text else []
    if len(parts) not in (0, len(names)):
        raise ValueError(
            f"--setting={text}: expected {', '.join(names)}, such as "
            "2e-4,10,16, or nothing for the defaults."
        )
    return dict(zip(names, parts, strict=False))


def _measure(values, runs) -> Iterator[program.Line]:
    vocab_file, init = values.vocab_file, None
    if values.lift:
        options = (*own_documents.LIFT, *values.lift_option)
        vocab_file = runs.lift(values.lift, "lifted", *options)
        init = runs.path("lifted")
    for name in values.sets:
        chosen = SETS[name]
        numbers = []
        for split, rows in zip(
            ("train", "dev"), chosen.read(values), strict=True
        ):
            numbers.append(len(rows))
            data = runs.write(f"{name}_{split}.jsonl", rows, lines=True)
            like = split == "dev" and runs.path(f"{name}_train")
            sizes = {"vocab_file": vocab_file, **chosen.sizes}
            runs.preprocess(
                *(f"{name}_{split}", chosen.task, split),
                input=data,
                **({"like": like} if like else sizes),
            )
        for setting in values.setting or [""]:
            for seed in values.seeds:
                run = training_runs.run_name(f"{name} {setting} {seed}")
                seconds = runs.run_train(
                    *(run, f"etc/{chosen.task}"),
                    "--params_override=runtime.mixed_precision_dtype="
                    + ",".join(
                        [values.dtype, "task.trim_batches=true"]
                        + values.override
                    ),
                    train_data=runs.path(f"{name}_train"),
                    preset=values.preset,
                    init_checkpoint=init,
                    seed=seed,
                    **_setting(setting),
                )
                found = runs.evaluate(run, f"{name}_dev")
                yield {
                    "name": name,
                    "setting": setting or "defaults",
                    "seed": seed,
                    "trained": numbers[0],
                    "steps": found.get("step"),
                    "score": found[chosen.metric],
                    "majority": found.get("majority_accuracy"),
                    "labels": found.get("labels_predicted"),
                    "seconds": seconds,
                }


PROGRAM = training_runs.make_program("small_data", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
