r"""Answers questions about long documents that ReadTwice has not seen.

A lifted BERT first learns to read, on single paragraphs of SQuAD. Each model
then starts from this reader, and is trained on stories of several paragraphs of
SQuAD. It answers questions about other articles of SQuAD. Then it is trained on
spans of all novels but one, and answers questions about that novel. Each
question is a request of raw text, with a whole article or a whole novel:

    python -m benchmarks.read_twice_books --input=qaps.csv \
        --squad=more_train.json --heldout=train.json --lift=all-MiniLM-L6-v2

`--layers` is the number of layers of the first read. The second read has two
layers, initialized from BERT's next ones, if there are any.

Each kind of memory (`CLS` has a memory for each segment, `STS` for every few
tokens, `E` for each mention) is measured with the memories of the whole
document, and with those of the token's own segment only. The difference is what
the memory adds. Both settings and all seeds share one reader: most single
paragraphs fit into one segment.

Columns are the official metrics of NarrativeQA, and the seconds for training
and answering. `best sentences` are the sentences that share most words with
their questions, `best spans` the spans with the best ROUGE-L, the upper bound
of an extractive model. A model learns some of them (see `is_label`).
"""

import collections
import itertools
import os
import random
import re
import shutil
import time
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from absl import app

from benchmarks import own_documents
from benchmarks import program
from benchmarks import read_twice_by_heart as by_heart
from benchmarks import training_runs
from etcmodel.datasets import narrativeqa
from etcmodel.datasets.narrativeqa import metrics
from etcmodel.datasets.narrativeqa.records import NarrativeQARecord

_TASK = "read_twice_narrativeqa"
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
# Segments of an example in training; an example holds several stories.
_SEGMENTS = 8
# The spans of other novels that a model learns: the highest number of
# occurrences in the novel, and the lowest ROUGE-L.
_OCCURRENCES = 10
_ROUGE_L = 0.5
# Name -> memories that a token attends to.
_MEMORIES = {"all memories": "doc", "own segment": "block"}
_SIZES = {
    "block_length": 256,
    "block_overlap": 32,
    "max_question_length": 32,
    "max_num_annotations": 16,
}


def best_sentence(question: str, sentences: Sequence[str]) -> str:
    """Returns the sentence that shares most words with a question.

    Among equal ones, the shortest is the best. Example: for "Who paints?" and
    `["Jan sings.", "Eve paints houses.", "Eve paints."]`, it is "Eve paints."
    """
    words = {*_WORD.findall(question.lower())}
    return max(
        sentences,
        key=lambda x: (len(words & {*_WORD.findall(x.lower())}), -len(x)),
    )


def squad_rows(
    articles: Iterable[dict], number: int, paragraphs: int
) -> Iterator[tuple[str, str, str, str]]:
    """Draws questions of SQuAD, each with paragraphs of its article.

    Args:
        articles: articles in SQuAD's format.
        number: number of questions; 0 for all.
        paragraphs: number of adjacent paragraphs that make up a story; 0 for
            the whole article.

    Yields:
        Name of the story, its text, the question and the answer.
    """
    found = []
    for i, article in enumerate(articles):
        texts = [x["context"] for x in article["paragraphs"]]
        length = paragraphs or len(texts)
        for j, paragraph in enumerate(article["paragraphs"]):
            start = j - j % length
            story = "\n\n".join(texts[start : start + length])
            found += [
                (f"{i}_{start}", story, x["question"], x["answers"][0]["text"])
                for x in paragraph["qas"]
                if x["answers"]
            ]
    number = min(number or len(found), len(found))
    yield from random.Random(1).sample(found, number)


def is_label(span: str, record: NarrativeQARecord) -> bool:
    """Returns whether a novel's best span is worth learning.

    Every occurrence of a span is a label. A span that occurs often, such as
    "his" or a name, says little about where its question is answered. A span
    with a low ROUGE-L, such as "he seems more of a" for "finding a gold mine",
    says little about the answer.
    """
    text = " ".join(record.text.split()).lower()
    if not 0 < text.count(" ".join(span.split()).lower()) <= _OCCURRENCES:
        return False
    truths = [metrics.normalize_answer(x) for x in record.answers]
    return metrics.rouge_l(metrics.normalize_answer(span), truths) >= _ROUGE_L


class Measurement:
    """Trains and measures the variants.

    Args:
        values: the parsed flags.
        runs: runs the commands.
    """

    def __init__(self, values, runs: training_runs.Runs):
        self._values, self._runs = values, runs
        self._records = [*narrativeqa.FORMAT.read(values.input)]
        self._novels: dict[str, list[NarrativeQARecord]] = (
            collections.defaultdict(list)
        )
        for record in self._records:
            self._novels[record.id.split(": ", 1)[0]].append(record)
        # The other questions are only for training.
        number = values.novel_questions or None
        self._asked = {x: y[:number] for x, y in self._novels.items()}
        articles = [
            x
            for x in own_documents.read_articles(values.heldout)
            if len(x["paragraphs"]) >= values.fewest
        ]
        if not articles:
            raise app.UsageError(
                f"--fewest={values.fewest} leaves no article of --heldout. "
                "Use a lower number of paragraphs."
            )
        if values.reader and len(values.variants) > 1:
            raise app.UsageError(
                "--reader has the weights of one variant, but --variants has "
                f"{', '.join(values.variants)}. Measure one at a time."
            )
        rows = squad_rows(articles, values.article_questions, 0)
        self._articles = self._write("articles", rows)
        # Name of the documents -> records whose questions are asked.
        self._questions = {
            "articles": [*narrativeqa.FORMAT.read(self._articles)],
            "novels": [x for y in self._asked.values() for x in y],
        }

    def lines(self) -> Iterator[program.Line]:
        """Yields the lines of the benchmark."""
        for documents, records in self._questions.items():
            start = time.perf_counter()
            # Text -> its sentences.
            sentences = {
                text: _SENTENCE.split(" ".join(text.split()))
                for text in {x.text for x in records}
            }
            found = {
                x.id: best_sentence(x.question, sentences[x.text])
                for x in records
            }
            yield self._line("best sentences", documents, found, start)
        start = time.perf_counter()
        best = by_heart.best_spans(self._records)
        yield self._line("best spans", "novels", best, start)
        self._prepare(best)
        for variant in self._values.variants:
            reader = self._values.reader
            if reader is None:
                start = time.perf_counter()
                reader = self._train_reader(variant)
                seconds = time.perf_counter() - start
                yield {"name": f"{variant} reader", "seconds": seconds}
            for seed, name in itertools.product(self._values.seeds, _MEMORIES):
                settings = {"variant": variant, "memories": name, "seed": seed}
                yield from self._memory_lines(settings, reader)

    def _memory_lines(
        self, settings: Mapping[str, str], reader: str
    ) -> Iterator[program.Line]:
        """Yields the lines of articles and of novels, for a kind of memory."""
        name = f"{settings['variant']}, {settings['memories']}"
        seed = settings["seed"]
        start = time.perf_counter()
        run = self._train(
            "stories", self._values.story_steps, init=reader, **settings
        )
        found = self._answers(run, self._articles)
        yield self._line(name, "articles", found, start, seed=seed)
        start = time.perf_counter()
        found = self._answer_novels(settings, run)
        yield self._line(name, "novels", found, start, seed=seed)

    def _line(
        self, name: str, documents: str, answers, start, **given
    ) -> program.Line:
        gold = {x.id: narrativeqa.gold(x) for x in self._questions[documents]}
        return {
            "name": name,
            "documents": documents,
            **given,
            "questions": len(gold),
            **narrativeqa.score(answers, gold),
            "seconds": time.perf_counter() - start,
        }

    def _prepare(self, best) -> None:
        """Lifts the BERT, and writes and preprocesses all training data."""
        values, runs = self._values, self._runs
        for preset in {by_heart.VARIANTS[x][1] for x in values.variants}:
            vocab_file = runs.lift(
                *(values.lift, preset, "--model=read_twice"),
                preset=preset,
                num_hidden_layers=values.layers or None,
            )
        articles = own_documents.read_articles(values.squad)
        sources = {}
        for name, paragraphs in (
            ("paragraphs", 1),
            ("stories", values.paragraphs),
        ):
            rows = squad_rows(articles, values.questions, paragraphs)
            sources[name] = self._write(name, rows)
        labels = [
            (name, None, x.question, best[x.id])
            for name, records in self._novels.items()
            for x in records
            if is_label(best[x.id], x)
        ]
        for novel in self._novels:
            rows = [x for x in labels if x[0] != novel]
            sources[f"without_{novel}"] = self._write(f"no_{novel}", rows)
        for name, path in sources.items():
            runs.preprocess(
                *(name, _TASK, "train"),
                input=path,
                vocab_file=vocab_file,
                num_blocks_per_example=_SEGMENTS,
                # Only the answer itself is a label.
                min_rouge_l_oracle_score=1.0,
                **_SIZES,
            )

    def _write(self, name: str, rows: Iterable[tuple]) -> str:
        """Writes rows and their stories in NarrativeQA's format.

        Each row has a story's name, its text (None copies the novel of this
        name), a question and an answer. Returns the path of the CSV file.
        """
        folder = self._runs.path(f"{name}_data")
        os.makedirs(os.path.join(folder, "stories"))
        path = os.path.join(folder, "qaps.csv")
        novels = os.path.join(os.path.dirname(self._values.input), "stories")
        questions = []
        for story, text, question, answer in rows:
            questions.append((story, question, answer))
            file = f"{story}.content"
            copy = os.path.join(folder, "stories", file)
            if text is None and not os.path.exists(copy):
                shutil.copyfile(os.path.join(novels, file), copy)
            elif text is not None:
                with open(copy, "w", encoding="utf-8") as target:
                    target.write(text)
        by_heart.write_questions(path, questions)
        return path

    def _train_reader(self, variant: str) -> str:
        """Trains the model that all others start from; returns its run."""
        return self._train(
            "paragraphs",
            self._values.reader_steps,
            rate=self._values.reader_rate,
            init=by_heart.VARIANTS[variant][1],
            variant=variant,
        )

    def _answer_novels(
        self, settings: Mapping[str, str], init: str
    ) -> dict[str, str]:
        """Trains a model for each novel; returns the answers to its questions.

        All models start from the run `init`.
        """
        answers: dict[str, str] = {}
        for novel, records in self._asked.items():
            run = self._train(
                f"without_{novel}",
                self._values.novel_steps,
                init=init,
                **settings,
            )
            rows = ((novel, None, x.question, x.answers[0]) for x in records)
            path = self._write(f"{run}_questions", rows)
            answers |= self._answers(run, path)
        return answers

    def _answers(self, run: str, path: str) -> dict[str, str]:
        """Returns the answers of a run to the questions of a file, by id."""
        found = self._runs.predict(run, path, batch_size=1)
        return by_heart.read_answers(found)

    def _train(
        self,
        records: str,
        steps: int,
        *,
        init: str,
        variant: str,
        memories: str = "all memories",
        seed: str = "1",
        rate: float | None = None,
    ) -> str:
        """Trains a model; returns its run."""
        values = self._values
        suffix, _ = by_heart.VARIANTS[variant]
        training = training_runs.Training(
            training_runs.run_name(f"{variant} {memories} {seed} {records}"),
            f"read_twice/narrativeqa{suffix}",
            records,
            *(steps, rate or values.learning_rate),
            values.batch_size * _SEGMENTS,
            encoder={"cross_attention_top_k": None},
            model={"cross_block_attention_mode": _MEMORIES[memories]},
            task={"decode_max_size": 24},
            init=init,
            options=[
                f"--seed={seed}",
                "--params_override=runtime.mixed_precision_dtype="
                + values.dtype,
            ],
        )
        self._runs.train(training)
        return training.name


def _measure(values, runs) -> Iterator[dict[str, Any]]:
    yield from Measurement(values, runs).lines()


PROGRAM = training_runs.make_program("read_twice_books", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
