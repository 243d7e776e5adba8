r"""Overfits ReadTwice on long documents, and evaluates the exported model.

A model is trained on a few official records until it has memorized them, and is
exported. It then answers the same questions, each with its whole document as
one request of raw text. This tests that labels, memories and decoding work for
whole books, not how well the model answers new questions.

A small model and NarrativeQA's stories:

    python -m benchmarks.read_twice_by_heart --input=qaps.csv \
        --vocab_file=vocab.txt

A BERT and TriviaQA's pages, with the memories of the ReadTwice paper (E), and
with each segment's own memories only (SS):

    python -m benchmarks.read_twice_by_heart --task=triviaqa \
        --input=qa/web-train.json --lift=all-MiniLM-L6-v2 --variants=E,SS

A stage `8x9x1600x2e-3` divides documents into parts of 8 segments. It trains on
9 parts per step, for 1,600 steps, with a peak learning rate of 2e-3. With
`xbest` at the end, only the best span of each question of NarrativeQA is a
label. Each stage starts from the weights of the previous one.

Columns are the official metrics of the answers, the span loss, and the seconds
of the training. For NarrativeQA, the first row is the upper bound: the metrics
of the best spans of the stories.
"""

import csv
import json
import os
import re
import shutil
import time
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import NamedTuple

from absl import app
from absl import flags

from benchmarks import program
from benchmarks import training_runs
from etcmodel.datasets.narrativeqa import metrics
from etcmodel.datasets.narrativeqa.records import NarrativeQARecord
from etcmodel.tasks import registry
from etcmodel.tasks.read_twice_qa import preprocessor

# Task -> sizes of segments.
_SIZES = {
    task: {
        "block_length": length,
        "block_overlap": overlap,
        "max_question_length": 32,
        "max_num_annotations": 16,
    }
    for task, length, overlap in (
        ("narrativeqa", 320, 32),
        ("triviaqa", 256, 64),
    )
}
# Task -> stages of the training. Earlier stages train only on parts that have
# an answer. The last stage of NarrativeQA trains on whole novels.
_STAGES = {
    "narrativeqa": [
        "8x9x1000x2e-3",
        "8x9x150x1e-3xbest",
        "320x1x240x2e-4xbest",
    ],
    "triviaqa": ["16x1x80x1e-4"],
}
# Task -> default variants. A step on a whole novel takes 10 GB with a memory
# per segment (CLS), 16 GB with a memory per mention (E).
_MEMORIES = {"narrativeqa": ["CLS"], "triviaqa": ["E"]}
# Variant -> suffix of the experiment, and preset to which a BERT is lifted.
VARIANTS = {
    "E": ("", "base"),
    "STS": ("_sts", "base_sts"),
    "CLS": ("_cls", "base_cls"),
    "SS": ("_single_segment", "base"),
}
_STAGE = re.compile(
    r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)x(\d+(?:\.\d+)?(?:e-?\d+)?)(?:x(best))?"
)


class Stage(NamedTuple):
    """The settings of one stage of the training.

    Attributes:
        segments: number of segments per part of a document.
        parts: number of parts per step.
        steps: number of steps.
        rate: peak learning rate.
        labels: "best" to train only on the best spans, otherwise "all".
    """

    segments: int
    parts: int
    steps: int
    rate: float
    labels: str

    @property
    def records(self) -> str:
        """Name of the stage's preprocessed records."""
        return f"train_{self.segments}_{self.labels}"


def read_stages(values: flags.FlagValues) -> list[Stage]:
    """Returns the stages in `--stages`, or the default stages of the task.

    Raises:
        app.UsageError: a stage is invalid, or needs best spans for a task other
            than NarrativeQA.
    """
    stages = []
    for text in values.stages or _STAGES[values.task]:
        found = _STAGE.fullmatch(text)
        if not found or (found[5] and values.task != "narrativeqa"):
            raise app.UsageError(
                f"--stages has {text!r}, expected segments per part, parts per "
                "step, steps and learning rate, such as 8x9x1600x2e-3. For "
                "NarrativeQA, add xbest to train only on the best spans."
            )
        numbers = map(int, found.group(1, 2, 3))
        stages.append(Stage(*numbers, float(found[4]), found[5] or "all"))
    return stages


def best_spans(records: Iterable[NarrativeQARecord]) -> dict[str, str]:
    """Finds the best answers of an extractive model: its upper bound.

    Returns:
        Record id -> the labelled span with the best ROUGE-L; "" without spans.
    """
    spec = registry.get("read_twice_narrativeqa")
    builder = preprocessor.NarrativeQAPreprocessor(
        spec.make_preprocessing_config({}), None
    )
    found = {}
    for record in records:
        text = record.text.encode("utf-8", "replace")
        spans = {
            text[x.start : x.end].decode("utf-8") for x in builder.find(record)
        }
        truths = [metrics.normalize_answer(x) for x in record.answers]
        found[record.id] = max(
            sorted(spans | {""}),
            key=lambda x: metrics.rouge_l(metrics.normalize_answer(x), truths),
        )
    return found


def write_best_spans(
    records: Iterable[NarrativeQARecord], best: Mapping[str, str], folder: str
) -> str:
    """Writes NarrativeQA's questions with their best spans as the only answers.

    Also copies the stories. Leaves out questions without a span. Returns the
    path of the CSV file.
    """
    found = [x for x in records if best[x.id]]
    for path in {os.path.abspath(x.source.path) for x in found}:
        stories = os.path.join(os.path.dirname(path), "stories")
        copies = os.path.join(folder, "stories")
        shutil.copytree(stories, copies, dirs_exist_ok=True)
    output = os.path.join(folder, "best.csv")
    rows = ((x.id.split(": ", 1)[0], x.question, best[x.id]) for x in found)
    write_questions(output, rows)
    return output


def write_questions(path: str, rows: Iterable[tuple[str, str, str]]) -> None:
    """Writes questions of NarrativeQA's training set, with one answer each.

    Args:
        path: the CSV file to write.
        rows: tuples of document id, question and answer.
    """
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(
            ["document_id", "set", "question", "answer1", "answer2"]
        )
        for document, question, answer in rows:
            writer.writerow([document, "train", question, answer, ""])


def prepare(
    values: flags.FlagValues,
    runs: training_runs.Runs,
    variants: Iterable[str],
    inputs: Mapping[str, str],
) -> None:
    """Lifts a BERT to each preset, and preprocesses the records.

    The training records have only parts with an answer; `dev` has all records.

    Args:
        values: the parsed flags.
        runs: runs the commands.
        variants: names in `VARIANTS`.
        inputs: labels of a stage ("all" or "best") -> data file.
    """
    vocab_file = values.vocab_file
    for preset in {VARIANTS[x][1] for x in variants if values.lift}:
        options = ("--model=read_twice", f"--preset={preset}")
        lifted = runs.lift(values.lift, preset, *options)
        vocab_file = vocab_file or lifted
    stages = read_stages(values)
    made = {x.records: ("train", inputs[x.labels], x.segments) for x in stages}
    made["dev"] = ("dev", values.input, stages[-1].segments)
    for name, (split, path, segments) in made.items():
        runs.preprocess(
            *(name, f"read_twice_{values.task}", split),
            input=path,
            vocab_file=vocab_file,
            num_blocks_per_example=segments,
            **_SIZES[values.task],
        )


def learn(
    values: flags.FlagValues, runs: training_runs.Runs, variant: str
) -> tuple[dict[str, float], dict[str, str]]:
    """Trains and exports a model; returns metrics, and id -> served answer."""
    suffix, preset = VARIANTS[variant]
    encoder = {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "cross_attention_top_k": None,
    }
    if not values.lift:
        encoder |= {
            "max_seq_length": _SIZES[values.task]["block_length"],
            "hidden_size": values.hidden_size,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "intermediate_size": 4 * values.hidden_size,
            "second_read_num_new_layers": 1,
            "initializer_range": 0.1,
        }
    run = preset if values.lift else None
    seconds = 0
    for number, stage in enumerate(read_stages(values), 1):
        training = training_runs.Training(
            f"{variant}_{number}",
            f"read_twice/{values.task}{suffix}",
            stage.records,
            *(stage.steps, stage.rate, stage.parts * stage.segments),
            encoder=encoder,
            task={"decode_max_size": 24},
            init=run,
        )
        seconds += runs.train(training)
        run = training.name
    span_loss = runs.evaluate(run, "dev")["span_loss"]
    # Sends each question as a separate request.
    answers = runs.predict(run, values.input, batch_size=1)
    return {"span_loss": span_loss, "seconds": seconds}, read_answers(answers)


def read_answers(path: str) -> dict[str, str]:
    """Reads the prediction file of `predict`; returns record id -> answer."""
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    if text.startswith('{"id"'):
        # `splitlines` would also split at other characters, which answers may
        # contain.
        lines = map(json.loads, text.strip().split("\n"))
        return {x["id"]: x["answer"] for x in lines}
    return json.loads(text)


def _measure(values, runs) -> Iterator[program.Line]:
    labels = {x.labels for x in read_stages(values)}
    variants = values.variants or _MEMORIES[values.task]
    dataset = registry.get(f"read_twice_{values.task}").dataset
    records = [
        x for path in values.input.split(",") for x in dataset.FORMAT.read(path)
    ]
    gold = {x.id: dataset.gold(x) for x in records}
    inputs = {"all": values.input}
    if values.task == "narrativeqa":
        start = time.perf_counter()
        best = best_spans(records)
        scores = dataset.score(best, gold)
        seconds = time.perf_counter() - start
        yield {"name": "best spans", **scores, "seconds": seconds}
        if "best" in labels:
            inputs["best"] = write_best_spans(records, best, runs.directory)
    prepare(values, runs, variants, inputs)
    for variant in variants:
        measured, answers = learn(values, runs, variant)
        yield {"name": variant, **dataset.score(answers, gold), **measured}


PROGRAM = training_runs.make_program("read_twice_by_heart", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
