r"""Long documents learned by heart: questions that a served model answers.

A model of ReadTwice learns a few official records, is exported, and is asked
the same questions again, each with its whole document as one request of raw
text. It has seen all of them: this tells that whole books pass through labels,
parts, memories and decoding, and nothing about questions that are new.

A small model and NarrativeQA's stories:

    python -m benchmarks.read_twice_by_heart --input=qaps.csv \
        --vocab_file=vocab.txt

A BERT and TriviaQA's pages, with the memories of the ReadTwice paper and with
each segment's own alone:

    python -m benchmarks.read_twice_by_heart --task=triviaqa \
        --input=qa/web-train.json --lift=all-MiniLM-L6-v2 --variants=E,SS

A stage `8x9x1600x2e-3` reads parts of 8 segments, 9 of them a step, for 1,600
steps, at a rate of 2e-3 at most; with `xbest` behind it, each question of
NarrativeQA is learned with its best span alone, not with all that are like one.
Each stage begins with the weights of the one before it.

It prints the official metrics of the answers, those of NarrativeQA next to what
the best spans of the stories score; the loss of spans, and the seconds of the
training.
"""

import csv
import json
import os
import re
import shutil
import time
from collections.abc import Iterable
from collections.abc import Mapping
from typing import NamedTuple

from absl import app
from absl import flags

from benchmarks import measure
from benchmarks import training_runs
from etcmodel.datasets.narrativeqa import metrics
from etcmodel.datasets.narrativeqa.records import NarrativeQARecord
from etcmodel.tasks import registry
from etcmodel.tasks.read_twice_qa import preprocessor

# Task -> sizes of segments.
_SIZES = {
    "narrativeqa": {
        "block_length": 320,
        "block_overlap": 32,
        "max_question_length": 32,
        "max_num_annotations": 16,
    },
    "triviaqa": {
        "block_length": 256,
        "block_overlap": 64,
        "max_question_length": 32,
        "max_num_annotations": 16,
    },
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
_COLUMNS = {
    "narrativeqa": ("rouge_l", "bleu_1", "bleu_4", "meteor"),
    "triviaqa": ("exact_match", "f1"),
}
_STAGE = re.compile(
    r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)x(\d+(?:\.\d+)?(?:e-?\d+)?)(?:x(best))?"
)
_NO_DROPOUT = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


class Stage(NamedTuple):
    """A part of the training.

    Attributes:
        segments: of a part of a document.
        parts: of a step.
        steps: how many.
        rate: the highest learning rate.
        labels: "best" for the best spans alone, or "all".
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
    """What the flag says, or what the task needs.

    Args:
        values: the flags.

    Returns:
        The stages.

    Raises:
        app.UsageError: one is not written as the flag says, or needs the best
            spans of a task that has none.
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


def read_variants(values: flags.FlagValues) -> list[str]:
    """Names of the rows, as the flag says or the task needs.

    Args:
        values: the flags.

    Returns:
        The names.
    """
    return values.variants or _MEMORIES[values.task]


def best_spans(records: Iterable[NarrativeQARecord]) -> dict[str, str]:
    """What a reader of spans says at best.

    Args:
        records: questions with their answers.

    Returns:
        Record id -> of all that is learned, which is answers that are in the
        story and spans that are like them, what has the best ROUGE-L; "" if
        there is nothing.
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
    """NarrativeQA's questions, each with its best span as the only answer.

    Args:
        records: the questions.
        best: what `best_spans` found.
        folder: where to write them, and copies of the stories.

    Returns:
        The csv file, without the questions that have no span.
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
    values: flags.FlagValues, folder: str, inputs: Mapping[str, str]
) -> None:
    """Preprocesses the records, for a BERT's vocabulary if there is one.

    Args:
        values: the flags.
        folder: where the stages' records, `dev`, and a lifted model by each
            preset's name are written; `dev` has all records, those to learn no
            parts without an answer.
        inputs: the files to learn, by the stages' labels.
    """
    vocab = values.vocab_file
    variants = read_variants(values)
    for preset in {_VARIANTS[x][1] for x in variants if values.lift}:
        lifted = os.path.join(folder, preset)
        training_runs.run_command(
            "lift",
            f"--from={values.lift}",
            "--model=read_twice",
            f"--preset={preset}",
            f"--output_dir={lifted}",
        )
        vocab = vocab or os.path.join(lifted, "vocab.txt")
    stages = read_stages(values)
    runs = {x.records: ("train", inputs[x.labels], x.segments) for x in stages}
    runs["dev"] = ("dev", values.input, stages[-1].segments)
    for records, (split, path, segments) in runs.items():
        training_runs.run_command(
            "preprocess",
            f"--task=read_twice_{values.task}",
            f"--input={path}",
            f"--split={split}",
            f"--vocab_file={vocab}",
            f"--output_dir={os.path.join(folder, records)}",
            "--num_shards=4",
            f"--num_blocks_per_example={segments}",
            *(f"--{name}={x}" for name, x in _SIZES[values.task].items()),
        )


def learn(
    values: flags.FlagValues, folder: str, variant: str
) -> tuple[dict[str, float], dict[str, str]]:
    """Trains a model, exports it and asks it.

    Args:
        values: the flags.
        folder: with what `prepare` has written.
        variant: which memories.

    Returns:
        What was measured, and record id -> served answer.
    """
    suffix, preset = _VARIANTS[variant]
    encoder = _NO_DROPOUT | {"cross_attention_top_k": None}
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
    before = os.path.join(folder, preset) if values.lift else None
    seconds = 0
    for number, stage in enumerate(read_stages(values), 1):
        run = os.path.join(folder, f"{variant}_{number}")
        size = {"global_batch_size": stage.parts * stage.segments}
        seconds += training_runs.train(
            run,
            f"read_twice/{values.task}{suffix}",
            {
                "train_data": {
                    "input_path": os.path.join(folder, stage.records),
                    **size,
                },
                "validation_data": size,
                "decode_max_size": 24,
                "model": {"encoder": encoder},
            },
            training_runs.make_trainer(stage.steps, stage.rate, interval=50),
            [
                "--mode=train",
                *([f"--init_checkpoint={before}"] if before else []),
            ],
        )
        before = run
    measured = training_runs.evaluate(run, os.path.join(folder, "dev"))
    training_runs.run_command(
        "export", f"--model_dir={run}", f"--output_dir={run}_saved_model"
    )
    answers = ask(f"{run}_saved_model", values.input, f"{run}_answers.json")
    return measured | {"seconds": seconds}, answers


def ask(saved_model: str, files: str, output: str) -> dict[str, str]:
    """Asks all questions, one request each.

    Args:
        saved_model: directory of the SavedModel.
        files: the questions.
        output: file for the answers.

    Returns:
        Record id -> answer.
    """
    training_runs.run_command(
        "predict",
        f"--saved_model={saved_model}",
        f"--input={files}",
        f"--output={output}",
        "--batch_size=1",
    )
    with open(output, encoding="utf-8") as stream:
        text = stream.read()
    if text.startswith('{"id"'):
        # Answers may have what `splitlines` takes for an end of a line.
        lines = map(json.loads, text.strip().split("\n"))
        return {x["id"]: x["answer"] for x in lines}
    return json.loads(text)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the program.

    Args:
        flag_values: where to define them.
    """
    training_runs.define_flags(flag_values)
    flags.DEFINE_enum(
        "task", "narrativeqa", [*_SIZES], "Which.", flag_values=flag_values
    )
    for name, text in (
        ("input", "Official files, with their texts beside them."),
        ("vocab_file", "The vocabulary, unless it is the BERT's."),
        ("lift", "Directory of a BERT to begin with."),
    ):
        flags.DEFINE_string(name, None, text, flag_values=flag_values)
    flags.DEFINE_list(
        "variants",
        None,
        f"Memories: {', '.join(_VARIANTS)}.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "stages",
        None,
        "Segments of a part, parts of a step, steps, and rate: 8x9x1600x2e-3.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "hidden_size",
        128,
        "Of the encoder, unless it is lifted.",
        flag_values=flag_values,
    )


def run(values: flags.FlagValues) -> list[dict[str, object]]:
    """Learns the records, and prints the table.

    Args:
        values: the flags.

    Returns:
        The rows.

    Raises:
        app.UsageError: a flag's value is none; see `read_stages`.
    """
    labels = {x.labels for x in read_stages(values)}
    names = ("name", *_COLUMNS[values.task], "span_loss", "seconds")
    columns = dict.fromkeys(names, ".1f") | {"name": "s", "span_loss": ".3f"}
    dataset = registry.get(f"read_twice_{values.task}").dataset
    records = [
        x for path in values.input.split(",") for x in dataset.FORMAT.read(path)
    ]
    gold = {x.id: dataset.gold(x) for x in records}
    rows = []
    if values.task == "narrativeqa":
        start = time.perf_counter()
        best = best_spans(records)
        scores = dataset.score(best, gold)
        seconds = time.perf_counter() - start
        row = {"name": "best spans", **scores, "seconds": seconds}
        rows.append(dict.fromkeys(names) | row)
    with training_runs.open_directory(values) as folder:
        inputs = {"all": values.input}
        if "best" in labels:
            inputs["best"] = write_best_spans(records, best, folder)
        prepare(values, folder, inputs)
        for variant in read_variants(values):
            measured, answers = learn(values, folder, variant)
            rows.append(
                {
                    "name": variant,
                    **dataset.score(answers, gold),
                    "span_loss": measured["span_loss"],
                    "seconds": measured["seconds"],
                }
            )
            print(measure.format_table(rows, columns), flush=True)
    if values.output:
        measure.write_lines(values.output, rows)
    return rows


if __name__ == "__main__":
    define_flags(flags.FLAGS)
    flags.mark_flags_as_required(["input"])
    app.run(lambda argv: run(flags.FLAGS) and None)
