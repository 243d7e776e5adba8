r"""Memorizes long documents, and asks the exported model.

A model of ReadTwice learns a few official records, is exported, and gets the
same questions again, each with its whole document as one request of raw text.
This shows that labels, parts, memories and decoding handle whole books, not how
well the model answers new questions.

A small model and NarrativeQA's stories:

    python -m benchmarks.read_twice_by_heart --input=qaps.csv \
        --vocab_file=vocab.txt

A BERT and TriviaQA's pages, with the memories of the ReadTwice paper and with
each segment's own alone:

    python -m benchmarks.read_twice_by_heart --task=triviaqa \
        --input=qa/web-train.json --lift=all-MiniLM-L6-v2 --variants=E,SS

A stage `8x9x1600x2e-3` reads parts of 8 segments, 9 of them a step, for 1,600
steps, at a rate of 2e-3 at most; with `xbest`, only the best span of each
question of NarrativeQA is learned. Each stage starts from the weights of the
previous one.

Columns are the official metrics of the answers, the loss of spans, and the
seconds of the training. For NarrativeQA, the first row has the metrics of the
best spans of the stories.
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
# Task -> stages of the training. Whole novels come last: a part in which a
# question has no answer is not learned from.
_STAGES = {
    "narrativeqa": [
        "8x9x1000x2e-3",
        "8x9x150x1e-3xbest",
        "320x1x240x2e-4xbest",
    ],
    "triviaqa": ["16x1x80x1e-4"],
}
# Task -> memories. A step on a whole novel takes 10 GB with one for each
# segment, 16 GB with one for each mention.
_MEMORIES = {"narrativeqa": ["CLS"], "triviaqa": ["E"]}
# Name of each row -> the experiment's, and the preset that a BERT is lifted to.
_VARIANTS = {
    "E": ("", "base"),
    "STS": ("_sts", "base_sts"),
    "CLS": ("_cls", "base_cls"),
    "SS": ("_single_segment", "base"),
}
_STAGE = re.compile(
    r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)x(\d+(?:\.\d+)?(?:e-?\d+)?)(?:x(best))?"
)


class Stage(NamedTuple):
    """A stage: segments of a part of a document, parts of a step, ...

    Labels are "best" for the best spans alone, or "all".
    """

    segments: int
    parts: int
    steps: int
    rate: float
    labels: str

    @property
    def records(self) -> str:
        """Name of the records to learn."""
        return f"train_{self.segments}_{self.labels}"


def read_stages(values: flags.FlagValues) -> list[Stage]:
    """Returns the stages of the flag, or the default ones of the task.

    Raises:
        app.UsageError: a stage cannot be read, or needs best spans outside of
            NarrativeQA.
    """
    stages = []
    for text in values.stages or _STAGES[values.task]:
        found = _STAGE.fullmatch(text)
        if not found or (found[5] and values.task != "narrativeqa"):
            raise app.UsageError(
                f"--stages has {text!r}, expected segments of a part, parts of "
                "a step, steps, and rate, as in 8x9x1600x2e-3, with xbest "
                "behind it for the best spans of NarrativeQA alone."
            )
        numbers = map(int, found.group(1, 2, 3))
        stages.append(Stage(*numbers, float(found[4]), found[5] or "all"))
    return stages


def best_spans(records: Iterable[NarrativeQARecord]) -> dict[str, str]:
    """Finds the upper bound of a reader of spans.

    Returns:
        Record id -> the learned span with the best ROUGE-L; "" if there is
        none.
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
    """Writes NarrativeQA's questions with their best spans as only answers.

    Copies the stories. Returns the csv file, which leaves out questions without
    a span.
    """
    found = [x for x in records if best[x.id]]
    for path in {os.path.abspath(x.source.path) for x in found}:
        stories = os.path.join(os.path.dirname(path), "stories")
        copies = os.path.join(folder, "stories")
        shutil.copytree(stories, copies, dirs_exist_ok=True)
    output = os.path.join(folder, "best.csv")
    with open(output, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(
            ["document_id", "set", "question", "answer1", "answer2"]
        )
        for record in found:
            document, _ = record.id.split(": ", 1)
            answer = best[record.id]
            writer.writerow([document, "train", record.question, answer, ""])
    return output


def prepare(
    values: flags.FlagValues,
    runs: training_runs.Runs,
    variants: Iterable[str],
    inputs: Mapping[str, str],
) -> None:
    """Lifts models to their presets' names, and preprocesses the records.

    `dev` has all records, those to learn have no parts without an answer.
    `inputs` are the files to learn, by the stages' labels.
    """
    vocab_file = values.vocab_file
    for preset in {_VARIANTS[x][1] for x in variants if values.lift}:
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
    """Trains a model; returns what was measured, and id -> served answer."""
    suffix, preset = _VARIANTS[variant]
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
    # One request each.
    answers = runs.predict(run, values.input, batch_size=1)
    return {"span_loss": span_loss, "seconds": seconds}, read_answers(answers)


def read_answers(path: str) -> dict[str, str]:
    """Reads what `predict` has written; returns record id -> answer."""
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    if text.startswith('{"id"'):
        # Answers may have what `splitlines` takes for an end of a line.
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
