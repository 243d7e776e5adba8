r"""Compares `classify`, `select` and `answer` with baselines on real documents.

Each part trains models from a lifted BERT (converted to ETC) with several
seeds, and evaluates them. `authors` and `squad` also evaluate baselines on the
same records:

*   `authors`: predicts the author of a passage of 1,800 words from a held-out
    novel, with the whole passage or its first 384 tokens. The baselines are
    logistic regression on TF-IDF (of the whole passage or its first 350 words)
    and on the mean vectors of each of BERT's layers (the mean over all chunks
    of 256 tokens).
*   `squad`: trains on `--train` and answers the questions of `--dev`; without
    `--dev`, five-fold cross-validation, split by article. The baseline is the
    same BERT as an extractive model on windows of 384 tokens.
*   `select`: selects the supporting facts of HotpotQA.

    python -m benchmarks.own_documents --part=authors \
        --lift=all-MiniLM-L6-v2 --layers=2 --epochs=8 --batch_size=8 \
        --learning_rate=1e-4 --label_smoothing=0.5 --units=paragraphs \
        --lift_option=--local_radius=42 --lift_option=--global_tokens=cls \
        --train=authors/train.jsonl --dev=authors/dev.jsonl
    python -m benchmarks.own_documents --part=squad \
        --lift=all-MiniLM-L6-v2 --epochs=2 --train=squad/train.json
    python -m benchmarks.own_documents --part=squad --epochs=2 \
        --lift=all-MiniLM-L6-v2 --train=more_train.json --dev=train.json
    python -m benchmarks.own_documents --part=select \
        --lift=all-MiniLM-L6-v2 --lift_option=--local_radius=42 \
        --batch_size=8 --learning_rate=1e-4 --threshold=0.4 \
        --train=train_200.json --train=train_200.json \
        --train=2wiki_train_500.json --dev=dev_95.json

With `--paragraphs=2 --epochs=1`, `squad` trains `answer` on each question
twice: with its own paragraph, and with another one beside it.

Add `--seeds=1` for one seed, and `--dtype=float32` for a processor without
bfloat16 instructions. `--lora_rank=8 --learning_rate=1e-3` trains with LoRA.
`--init` starts from a run instead of the lifted weights, such as a run of
`answer` from `benchmarks.hotpotqa_small --squad`; `--lift` is still needed for
the vocabulary.
"""

import collections
import copy
import functools
import json
import os
import random
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

# The baselines are trained in this process, and need Keras 2.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

# isort: split
import msgspec
import tensorflow as tf
from official.modeling import performance
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import hotpotqa_small
from benchmarks import plain_bert
from benchmarks import program
from benchmarks import training_runs
from etcmodel import checkpoints
from etcmodel.datasets.hotpotqa.records import FORMAT
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.question_answering import metrics
from etcmodel.datasets.question_answering import squad
from etcmodel.readers.sectioned import Fields

# Flags of `lift` for documents with questions.
LIFT = ("--absolute_positions=paragraph", "--question_words_in_global=true")
_FIRST_WORDS = 350
_FIRST_TOKENS = 384
_NUM_FOLDS = 5
# Tokens of the longest paragraph of SQuAD, with some to spare.
_SQUAD_LENGTH = 1024


class Measurement:
    """Trains and evaluates the models of one part."""

    def __init__(self, values, runs: training_runs.Runs):
        self._values = values
        self._runs = runs
        self._vocab_file = runs.lift(
            values.lift,
            "lifted",
            *LIFT,
            *values.lift_option,
            num_hidden_layers=values.layers or None,
        )

    def authors(self) -> Iterator[program.Line]:
        """Yields the lines of the part `authors`."""
        values = self._values
        sets = [read_lines(x) for x in (*values.train, values.dev)]
        texts = [["\n".join(x["paragraphs"]) for x in rows] for rows in sets]
        labels = [[x["label"] for x in rows] for rows in sets]
        bert = checkpoints.read_bert(values.lift)
        regression = LogisticRegression(max_iter=1000)
        words = make_pipeline(
            TfidfVectorizer(sublinear_tf=True),
            LogisticRegression(C=100, max_iter=1000),
        )
        first = [
            [" ".join(text.split()[:_FIRST_WORDS]) for text in group]
            for group in texts
        ]
        vectors = [plain_bert.mean_vectors(bert, group) for group in texts]
        for name, model, inputs in (
            ("TF-IDF of words, whole passages", words, texts),
            (f"TF-IDF of words, first {_FIRST_WORDS} words", words, first),
            *(
                (
                    f"mean vectors of 256 tokens, layer {i + 1}",
                    make_pipeline(StandardScaler(), regression),
                    [group[i] for group in vectors],
                )
                for i in range(bert.sizes["num_hidden_layers"])
            ),
        ):
            start = time.perf_counter()
            model.fit(inputs[0], labels[0])
            accuracy = float(model.score(inputs[1], labels[1]))
            seconds = time.perf_counter() - start
            yield {"name": name, "accuracy": accuracy, "seconds": seconds}
        for name, length in (
            ("whole passages", values.long_length),
            (f"first {_FIRST_TOKENS} tokens", _FIRST_TOKENS),
        ):
            self._preprocess("classify", values.train, values.dev, length)
            for words in (True, False):
                label = "classify" if words else "classify without word counts"
                yield from self._train(
                    *(f"{label}, {name}", "classify", len(sets[0])),
                    model={"word_counts": words},
                    options={"label_smoothing": values.label_smoothing},
                )

    def select(self) -> Iterator[program.Line]:
        """Yields the lines of the part `select`."""
        values = self._values
        files, numbers = [], []
        for split, names in (("train", values.train), ("dev", [values.dev])):
            records = [x for name in names for x in FORMAT.read(name)]
            rows = selection_rows(records)
            files.append(self._runs.write(f"{split}.jsonl", rows, lines=True))
            numbers.append(len(rows))
        self._preprocess("select", [files[0]], files[1], values.long_length)
        yield from self._train(
            *("select", "select", numbers[0]),
            options={"threshold": values.threshold},
        )

    def squad(self) -> Iterator[program.Line]:
        """Yields the lines of the part `squad`."""
        values = self._values
        articles = [x for name in values.train for x in read_articles(name)]
        if values.dev:
            splits = {"dev": (articles, read_articles(values.dev))}
        else:
            splits = {
                f"fold {fold}": (
                    [x for x in articles if _fold(x) != int(fold)],
                    [x for x in articles if _fold(x) == int(fold)],
                )
                for fold in values.folds
            }
        measured = [x for _, dev in splits.values() for x in dev]
        for seed in values.seeds:
            found: dict[str, dict] = {}
            seconds = collections.Counter()
            for split, (train, dev) in splits.items():
                for name, answers, took in self.read_squad(
                    split, train, dev, int(seed)
                ):
                    found.setdefault(name, {}).update(answers)
                    seconds[name] += took
                    row = {"seed": seed, **score(answers, dev), "seconds": took}
                    yield {"name": f"{name}, {split}", **row}
            if len(splits) > 1:
                for name, answers in found.items():
                    row = {"seed": seed, **score(answers, measured)}
                    yield {"name": name, **row, "seconds": seconds[name]}

    def read_squad(
        self, name: str, train: Sequence[dict], dev: Sequence[dict], seed: int
    ) -> Iterator[tuple[str, dict[str, str], float]]:
        """Trains the readers that `--readers` names on the same questions.

        Args:
            name: name of the split.
            train: articles to train on.
            dev: articles with the questions to answer.
            seed: seed of weights, order and dropout.

        Yields:
            For each reader, its name, its answers by id, and the seconds for
            training and answering.
        """
        values = self._values
        files, number = self._write_split(name, train, dev)
        readers = {
            "answer": functools.partial(self._answer, name, number),
            "windows": functools.partial(
                plain_bert.read_squad,
                checkpoints.read_bert(values.lift),
                epochs=values.epochs,
                learning_rate=values.learning_rate,
                batch_size=values.batch_size,
            ),
        }
        for reader in values.readers:
            start = time.perf_counter()
            answers = readers[reader](*files, seed=seed)
            yield reader, answers, time.perf_counter() - start

    def _answer(self, split, number, train, dev, seed) -> dict[str, str]:
        """Trains a model of `answer`; returns its answers for `dev` by id."""
        records = f" {split}"
        if self._values.paragraphs > 1:
            train, number = self._add_paragraphs(split, train, seed)
            records += f" {seed}"
        self._preprocess("answer", [train], dev, _SQUAD_LENGTH, records)
        name = training_runs.run_name(f"answer {seed} {split}")
        self._learn(name, "answer", number, seed)
        with open(self._runs.predict(name, dev), "rb") as stream:
            return json.load(stream)

    def _add_paragraphs(self, split, train, seed) -> tuple[str, int]:
        """Writes all questions twice, the second time among `--paragraphs`.

        Returns the path and the number of records.
        """
        rows = [row for _, row in squad.read_questions(train, None, Fields())]
        rng = random.Random(seed)
        number = self._values.paragraphs
        rows += hotpotqa_small.add_paragraphs(rows, number, rng)
        rows = [{**row, "id": f"{i}-{row['id']}"} for i, row in enumerate(rows)]
        rng.shuffle(rows)
        name = f"train {split} {seed}.jsonl".replace(" ", "_")
        return self._runs.write(name, rows, lines=True), len(rows)

    def _write_split(self, split, train, dev) -> tuple[list[str], int]:
        """Writes training and validation files in SQuAD's format.

        Returns their paths, and the number of training questions.
        """
        train = copy.deepcopy(train)
        questions = [*questions_of(train)]
        for qa in questions:
            del qa["answers"][1:]
        paths = []
        for name, data in (("train", train), ("dev", dev)):
            path = self._runs.path(f"{name} {split}.json".replace(" ", "_"))
            with open(path, "wb") as stream:
                stream.write(
                    msgspec.json.encode({"version": "1.1", "data": data})
                )
            paths.append(path)
        return paths, len(questions)

    def _preprocess(self, task, train, dev, length, split="") -> None:
        """Preprocesses training and validation records, unless done before."""
        values = self._values
        self._names = [
            f"{task} {x} {length}{split}".replace(" ", "_")
            for x in ("train", "dev")
        ]
        for name, split, files in zip(
            self._names, ("train", "dev"), (train, [dev]), strict=True
        ):
            if os.path.exists(self._runs.path(name)):
                continue
            like = split == "dev" and self._runs.path(self._names[0])
            sizes = {
                "vocab_file": self._vocab_file,
                "long_length": length,
                "global_length": values.global_length,
                "units": values.units,
            }
            self._runs.preprocess(
                *(name, task, split),
                input=",".join(files),
                **({"like": like} if like else sizes),
            )

    def _train(self, label, task, number, **given) -> Iterator[program.Line]:
        """Trains and evaluates a model per seed; yields their lines."""
        for seed in self._values.seeds:
            name = training_runs.run_name(f"{label} {seed}")
            seconds = self._learn(name, task, number, seed, **given)
            row = self._runs.evaluate(name, self._names[1])
            row = {x: y for x, y in row.items() if x in PROGRAM.columns}
            yield {"name": label, "seed": seed, **row, "seconds": seconds}

    def _learn(self, name, task, number, seed, options=None, **given) -> float:
        """Trains a model on `number` records; returns the seconds."""
        values = self._values
        steps = int(values.epochs * number) // values.batch_size
        return self._runs.train(
            training_runs.Training(
                name,
                f"etc/{task}",
                self._names[0],
                *(steps, values.learning_rate, values.batch_size),
                task={"trim_batches": True, **(options or {})},
                init=os.path.abspath(values.init) if values.init else "lifted",
                options=[
                    f"--seed={seed}",
                    f"--lora_rank={values.lora_rank}",
                    "--params_override=runtime.mixed_precision_dtype="
                    + values.dtype,
                ],
                **given,
            )
        )


def read_lines(path: str) -> list[dict[str, Any]]:
    """Reads JSON lines."""
    with open(path, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def _fold(article: dict) -> int:
    """Returns the fold of an article, which depends only on its title."""
    return random.Random(article["title"]).randrange(_NUM_FOLDS)


def read_articles(path: str) -> list[dict]:
    """Reads the articles of a file in SQuAD's format."""
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)["data"]


def selection_rows(records: Iterable[HotpotQARecord]) -> list[dict[str, Any]]:
    """Converts records of HotpotQA to records of `select`."""
    return [
        {
            # Unique ids let records of repeated files count twice.
            "id": f"{i}-{x.id}",
            "query": x.question,
            "context": [[p.title, p.sentences] for p in x.context],
            # Keeps the facts in the context; 2Wiki also has facts outside of
            # it.
            "supporting_facts": [
                (x.context[paragraph].title, number)
                for paragraph, number in x.fact_positions
            ],
        }
        for i, x in enumerate(records)
    ]


def questions_of(articles: Sequence[dict]) -> Iterator[dict]:
    """Yields the questions of articles."""
    for article in articles:
        for paragraph in article["paragraphs"]:
            yield from paragraph["qas"]


def score(answers: dict[str, str], articles: Sequence[dict]) -> program.Line:
    """Computes SQuAD's metrics over the questions of all articles."""
    questions = [*questions_of(articles)]
    em = f1 = 0.0
    for qa in questions:
        texts = [x["text"] for x in qa["answers"]]
        scores = metrics.answer_scores(answers[qa["id"]], texts)
        em, f1 = em + scores[0], f1 + scores[1]
    number = len(questions)
    return {"exact_match": em / number, "f1": f1 / number, "questions": number}


def in_precision(measure: Callable) -> Callable:
    """Wraps a benchmark's function to compute in the dtype of its flag."""

    def measure_in_precision(values, runs):
        precision = tf.keras.mixed_precision
        before = precision.global_policy()
        performance.set_mixed_precision_policy(values.dtype)
        try:
            yield from measure(values, runs)
        finally:
            precision.set_global_policy(before)

    return measure_in_precision


def _measure(values, runs) -> Iterator[program.Line]:
    yield from getattr(Measurement(values, runs), values.part)()


PROGRAM = training_runs.make_program("own_documents", in_precision(_measure))

if __name__ == "__main__":
    program.main(PROGRAM)
