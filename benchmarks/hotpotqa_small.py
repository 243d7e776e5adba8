r"""Trains a small model on a few hundred records of HotpotQA.

The model starts from random weights or from a BERT, and is trained in stages,
each from the weights of the previous one. Prints the official metrics in
percent on held-out records, for two baselines and the model. The baselines:

*   word overlap: the supporting facts are the sentences that share the most
    words with the question, and the answer is the title of the best sentence's
    paragraph. The number of sentences is tuned on the training records;
*   most frequent answer type: the type is the most frequent one of the training
    records (yes, no or span), and the answer is always the more frequent one of
    "yes" and "no".

    python -m benchmarks.hotpotqa_small --train=train_200.json \
        --train=2wiki_train_500.json --dev=dev_95.json --vocab_file=vocab.txt

This model has no pre-training. With `--lift`, it starts from a BERT:

    python -m benchmarks.hotpotqa_small --lift=all-MiniLM-L6-v2 \
        --lift_option=--absolute_positions=paragraph \
        --lift_option=--question_words_in_global \
        --lift_option=--local_radius=42 --lift_option=--global_tokens=cls \
        --pseudo_steps=350 --steps=250 \
        --copies=2 --long_length=640 --evaluated_length=2048 \
        --learning_rate=1e-4 --fact_prior=0.1 --fact_threshold=0.3 \
        --train=train_200.json --train=train_200.json --train=train_200.json \
        --train=2wiki_train_500.json --dev=dev_95.json \
        --train_option=--params_override=runtime.mixed_precision_dtype=bfloat16

It is first trained on pseudo-questions about the paragraphs of the records,
then on copies of the records, each with other distractors (see
`augmentation`). With `--pretrain_steps`, the first stage is pre-training on the
texts of the records and of `--pretrain_text`.

With `--squad`, it is first trained on SQuAD's questions, each with three
paragraphs, with the task `answer`:

    python -m benchmarks.hotpotqa_small --lift=all-MiniLM-L6-v2 \
        --lift_option=--absolute_positions=paragraph \
        --lift_option=--question_words_in_global \
        --squad=squad/train.json --steps=338 --learning_rate=1e-4 \
        --fact_prior=0.1 --fact_threshold=0.4 --answer_places=8 \
        --query_reads_all=1 \
        --train=train_200.json --train=train_200.json \
        --train=2wiki_train_500.json --dev=dev_95.json \
        --train_option=--params_override=runtime.mixed_precision_dtype=bfloat16

`--init` starts from the weights of a run, such as a run of `answer` from
`benchmarks.own_documents --part=squad --directory=DIR`. This is the best recipe
so far:

    python -m benchmarks.hotpotqa_small --init=RUN --copies=3 \
        --long_length=640 --evaluated_length=2048 --steps=282 \
        --learning_rate=2e-4 --fact_prior=0.1 --fact_threshold=0.4 \
        --answer_places=8 --query_reads_all=1 --multiply_facts=1 \
        --train=train_200.json --train=train_714.json \
        --train=2wiki_train_500.json --dev=dev_95.json \
        --train_option=--params_override=runtime.mixed_precision_dtype=bfloat16
"""

import collections
import os
import random
import re
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

import msgspec
from absl import app
from absl import flags

from benchmarks import program
from benchmarks import training_runs
from etcmodel.datasets.hotpotqa import augmentation
from etcmodel.datasets.hotpotqa import metrics
from etcmodel.datasets.hotpotqa.records import FORMAT
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.question_answering import squad
from etcmodel.readers.sectioned import Fields

_GLOBAL_LENGTH = 192
_SQUAD_BATCH_SIZE = 16
_SQUAD_LENGTH = 768
_SQUAD_PARAGRAPHS = 3
# Mean length of a WordPiece in English text, with separators of paragraphs.
_CHARACTERS_PER_TOKEN = 3.7
# Stop words, which do not count as overlap.
_COMMON_WORDS = frozenset(
    "a an and are as at by for from has in is it its of on or that the this to "
    "was were what when where which who whom whose with".split()
)

# The answer and the supporting facts (title, position of the sentence).
Prediction = tuple[str, list[tuple[str, int]]]


def words_of(text: str) -> frozenset[str]:
    """Returns the lower-case words of a text, without stop words."""
    return frozenset(re.findall(r"\w+", text.lower())) - _COMMON_WORDS


def rank_sentences(record: HotpotQARecord) -> list[tuple[str, int]]:
    """Ranks sentences by the number of words they share with the question.

    The title counts as a part of each sentence of its paragraph. Ties keep the
    order of the text.
    """
    question = words_of(record.question)
    shared = {
        (paragraph.title, index): len(
            question & (words_of(paragraph.title) | words_of(sentence))
        )
        for paragraph in record.context
        for index, sentence in enumerate(paragraph.sentences)
    }
    return sorted(shared, key=shared.get, reverse=True)


def predict_by_overlap(
    records: Sequence[HotpotQARecord], num_facts: int
) -> dict[str, Prediction]:
    """Predicts the `num_facts` best sentences of each record as facts.

    The answer is the title of the best sentence's paragraph.
    """
    facts = {x.id: rank_sentences(x)[:num_facts] for x in records}
    return {key: (found[0][0], found) for key, found in facts.items()}


def answer_type(record: HotpotQARecord) -> str:
    """Returns the type of the answer: "yes", "no" or "span"."""
    return record.answer if record.answer in ("yes", "no") else "span"


def score(
    predictions: dict[str, Prediction], records: Sequence[HotpotQARecord]
) -> dict[str, float]:
    """Computes the official metrics; see `metrics.evaluate`."""
    return metrics.evaluate(
        {key: answer for key, (answer, _) in predictions.items()},
        {key: facts for key, (_, facts) in predictions.items()},
        {x.id: (x.answer, x.supporting_facts) for x in records},
    )


def measure_baselines(
    train: Sequence[HotpotQARecord], dev: Sequence[HotpotQARecord]
) -> dict[str, dict[str, float]]:
    """Scores both baselines on `dev`; tunes them on `train`."""
    num_facts = max(
        range(1, 7),
        key=lambda n: score(predict_by_overlap(train, n), train)["sp_f1"],
    )
    types = collections.Counter(map(answer_type, train))
    most = types.most_common(1)[0][0]
    word = max(("yes", "no"), key=lambda word: types[word])
    right = sum(answer_type(record) == most for record in dev)
    return {
        f"word overlap, {num_facts} sentences": score(
            predict_by_overlap(dev, num_facts), dev
        ),
        f'most frequent type ({most}), or always "{word}"': {
            **score({record.id: (word, []) for record in dev}, dev),
            "answer_type_accuracy": right / len(dev),
        },
    }


def make_records(
    records: Sequence[HotpotQARecord],
    number: int,
    make: Callable[[HotpotQARecord], HotpotQARecord | None],
    seed: int,
) -> list[HotpotQARecord]:
    """Returns shuffled variants of records, with new ids.

    Args:
        records: the records.
        number: number of variants per record.
        make: returns a variant of a record, or None if it cannot.
        seed: seed of the order.
    """
    made = [make(record) for record in records for _ in range(number)]
    made = [record for record in made if record is not None]
    random.Random(seed).shuffle(made)
    return [
        msgspec.structs.replace(x, id=f"{i}-{x.id}") for i, x in enumerate(made)
    ]


def add_paragraphs(
    rows: Sequence[dict], number: int, rng: random.Random
) -> list[dict]:
    """Adds other paragraphs to the context of each SQuAD question.

    Up to `number // 2 + 1` of the added paragraphs come from the question's
    article.

    Args:
        rows: see `squad.read_questions`.
        number: number of paragraphs per question.
        rng: chooses and shuffles the paragraphs.

    Returns:
        The rows with the sections of all their paragraphs.
    """
    articles = collections.defaultdict(dict)
    for row in rows:
        (section,) = row["context"]
        articles[section["title"]].setdefault(section["text"], section)
    everything = [x for texts in articles.values() for x in texts.values()]
    made = []
    for row in rows:
        (own,) = row["context"]
        near = [x for x in articles[own["title"]].values() if x != own]
        others = rng.sample(near, min(number // 2 + 1, number - 1, len(near)))
        while len(others) < number - 1:
            other = rng.choice(everything)
            if other != own and other not in others:
                others.append(other)
        sections = [own, *others]
        rng.shuffle(sections)
        before = sections[: sections.index(own)]
        shift = sum(len(x["text"]) + 2 for x in before)
        answers = [
            {**x, "answer_start": x["answer_start"] + shift}
            for x in row["answers"]
        ]
        made.append({**row, "context": sections, "answers": answers})
    return made


class Stages:
    """Trains a model in stages; each starts from the previous one."""

    def __init__(
        self,
        values: flags.FlagValues,
        runs: training_runs.Runs,
        records: Sequence[HotpotQARecord],
    ):
        self._values = values
        self._runs = runs
        self._records = records
        self._rng = random.Random(values.seed)
        self._vocab_file = values.vocab_file
        self._init = None

    def run(self) -> dict[str, float]:
        """Runs all stages that the flags select; returns the metrics."""
        values, records = self._values, self._records
        if values.lift:
            options = ("--local_radius=84", *values.lift_option)
            self._vocab_file = self._runs.lift(values.lift, "lifted", *options)
            self._init = "lifted"
        if values.init:
            self._init = os.path.abspath(values.init)
            self._vocab_file = os.path.join(self._init, "vocab.txt")
        first_rate = values.first_learning_rate
        if values.pretrain_steps:
            self._pretrain(values.pretrain_steps, first_rate)
        if values.squad:
            self._learn_squad(first_rate)
        if values.pseudo_steps:
            made = make_records(
                *(records, values.pseudo_questions, self._make_pseudo_question),
                values.seed,
            )
            self._learn("pseudo", made, values.pseudo_steps, first_rate)
        # `make_records` gives unique ids to the records of repeated files.
        make = self._shorten if values.copies else lambda record: record
        made = make_records(records, max(values.copies, 1), make, values.seed)
        self._learn("train", made, values.steps, values.learning_rate)
        length = values.evaluated_length or values.long_length
        self._preprocess("dev", "hotpotqa", values.dev, length, split="dev")
        override = f"--params_override=task.model.long_length={length}"
        return self._runs.evaluate("train_run", "dev", override)

    def _shorten(self, record):
        """Keeps as many paragraphs as fit into `--long_length`."""
        room = int(_CHARACTERS_PER_TOKEN * self._values.long_length)
        return augmentation.choose_paragraphs(record, room, self._rng)

    def _make_pseudo_question(self, record):
        """Makes a pseudo-question, regardless of the real supporting facts."""
        record = msgspec.structs.replace(record, supporting_facts=None)
        return augmentation.make_pseudo_question(
            self._shorten(record), self._rng
        )

    def _pretrain(self, steps, rate):
        """Pre-trains on the texts of the training records."""
        texts = {
            "".join(paragraph.sentences): paragraph.title
            for record in self._records
            for paragraph in record.context
        }
        lines = ({"text": f"{title}\n\n{x}"} for x, title in texts.items())
        files = [self._runs.write("texts.jsonl", lines, lines=True)]
        files += filter(None, [self._values.pretrain_text])
        length = self._values.long_length
        self._preprocess(
            *("texts", "pretrain", ",".join(files), length),
            global_length=length // 9,
            # The default would leave out paragraphs, which have few sentences.
            min_sentences=3,
        )
        self._train("texts", "pretrain", steps, rate)

    def _learn_squad(self, rate):
        """Trains on SQuAD's questions."""
        values = self._values
        read = squad.read_questions(values.squad, None, Fields())
        rows = [row for _, row in read]
        # Each epoch adds different paragraphs to the questions.
        made = [
            {**row, "id": f"{number}-{row['id']}"}
            for number in range(values.squad_epochs)
            for row in add_paragraphs(rows, _SQUAD_PARAGRAPHS, self._rng)
        ]
        file = self._runs.write("squad.jsonl", made, lines=True)
        self._preprocess("squad", "answer", file, _SQUAD_LENGTH)
        steps = len(made) // _SQUAD_BATCH_SIZE
        self._train("squad", "answer", steps, rate, _SQUAD_BATCH_SIZE)

    def _learn(self, name, records, steps, rate):
        """Trains on records of HotpotQA."""
        values = self._values
        file = self._runs.write(f"{name}.json", records)
        self._preprocess(name, "hotpotqa", file, values.long_length)
        encoder = {
            "preset": "tiny",
            "hidden_size": values.hidden_size,
            "num_hidden_layers": values.layers,
            "num_attention_heads": 4,
            "intermediate_size": 4 * values.hidden_size,
            "local_radius": 32,
        }
        self._train(
            *(name, "hotpotqa", steps, rate, values.batch_size),
            encoder={} if self._init else encoder,
            model={
                "unit_prior": values.fact_prior,
                "answer_places": values.answer_places,
                "query_ignore_hard_g2l": bool(values.query_reads_all),
            },
            supporting_fact_threshold=values.fact_threshold,
            supporting_fact_weight=values.fact_weight,
            multiply_fact_probability=bool(values.multiply_facts),
        )

    def _preprocess(self, name, task, file, length, split="train", **given):
        self._runs.preprocess(
            *(name, task, split),
            input=file,
            vocab_file=self._vocab_file,
            long_length=length,
            **{"global_length": _GLOBAL_LENGTH, **given},
        )

    def _train(
        self,
        name,
        task,
        steps,
        rate,
        batch_size=None,
        encoder=(),
        model=(),
        **options,
    ):
        values = self._values
        training = training_runs.Training(
            *(f"{name}_run", f"etc/{task}", name, steps, rate),
            batch_size or values.batch_size,
            encoder=dict(encoder),
            model=dict(model),
            task={"trim_batches": True, **options},
            init=self._init,
            options=[f"--seed={values.seed}", *values.train_option],
        )
        self._runs.train(training)
        self._init = training.name


def _measure(values, runs) -> Iterator[program.Line]:
    if not values.train:
        raise app.UsageError("Give --train, the training records.")
    if sum(map(bool, (values.vocab_file, values.lift, values.init))) != 1:
        raise app.UsageError("Give one of --vocab_file, --lift and --init.")
    if values.pretrain_steps and not values.lift:
        raise app.UsageError("--pretrain_steps needs --lift. Give both.")
    read = [list(FORMAT.read(file)) for file in values.train]
    # Baselines use repeated files once.
    once = dict(zip(values.train, read, strict=True)).values()
    train, dev = sum(once, []), list(FORMAT.read(values.dev))
    sizes = {"train_records": len(train), "dev_records": len(dev)}
    for name, row in measure_baselines(train, dev).items():
        yield {"name": name, **sizes, **row}
    start = time.perf_counter()
    row = Stages(values, runs, sum(read, [])).run()
    seconds = time.perf_counter() - start
    name = f"ETC, {values.steps} steps"
    yield {"name": name, **sizes, **row, "seconds": seconds}


PROGRAM = training_runs.make_program("hotpotqa_small", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
