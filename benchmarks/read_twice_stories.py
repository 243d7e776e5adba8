r"""Whole books learned by heart: questions that a served model answers.

A small model of ReadTwice learns the questions of NarrativeQA about a few
stories, is exported, and is asked them again, each with the whole story as one
request of raw text:

    python -m benchmarks.read_twice_stories --qaps=qaps.csv \
        --vocab_file=vocab.txt

prints the official metrics of its answers next to those of what it has learned
from, the spans of the stories that are most like the answers. It has seen all
of them: this tells that whole books pass through labels, parts, memories and
decoding, and nothing about questions that are new.
"""

import json
import os
import time
from collections.abc import Iterable

from absl import app
from absl import flags

from benchmarks import measure
from benchmarks import training_runs
from etcmodel.datasets import narrativeqa
from etcmodel.datasets.answer_spans import find_answers
from etcmodel.datasets.narrativeqa import metrics
from etcmodel.datasets.narrativeqa import oracle
from etcmodel.datasets.narrativeqa.records import NarrativeQARecord

_LENGTH = 160
_BLOCKS = 32
_SIZES = (
    f"--block_length={_LENGTH}",
    "--block_overlap=32",
    "--max_question_length=32",
    f"--num_blocks_per_example={_BLOCKS}",
    "--max_num_annotations=8",
)
_COLUMNS = {
    "name": "s",
    "rouge_l": ".1f",
    "bleu_1": ".1f",
    "bleu_4": ".1f",
    "meteor": ".1f",
    "seconds": ".0f",
}


def best_spans(records: Iterable[NarrativeQARecord]) -> dict[str, str]:
    """What a reader of spans says at best.

    Args:
        records: questions with their answers.

    Returns:
        Record id -> of all that is learned, which is answers that are in the
        story and spans that are like them, what has the best ROUGE-L; "" if
        there is nothing.
    """
    words, found = {}, {}
    for record in records:
        if record.text not in words:
            words[record.text] = oracle.Words(record.text)
        spans = [x for x in record.answers if find_answers([record.text], [x])]
        for answer in record.answers:
            spans += [
                record.text[x.start : x.end]
                for x in oracle.find_approximate_answers(
                    words[record.text], answer
                )
            ]
        truths = [metrics.normalize_answer(x) for x in record.answers]
        found[record.id] = max(
            {*spans, ""},
            key=lambda x: metrics.rouge_l(metrics.normalize_answer(x), truths),
        )
    return found


def learn(values: flags.FlagValues, folder: str) -> str:
    """Trains and exports the model.

    Args:
        values: the flags.
        folder: where everything is written.

    Returns:
        Directory of the SavedModel.
    """
    records, run, saved_model = (
        os.path.join(folder, name) for name in ("records", "run", "saved_model")
    )
    training_runs.run_command(
        "preprocess",
        "--task=read_twice_narrativeqa",
        f"--input={values.qaps}",
        f"--vocab_file={values.vocab_file}",
        f"--output_dir={records}",
        "--num_shards=8",
        *_SIZES,
    )
    size = {"global_batch_size": values.examples * _BLOCKS}
    training_runs.train(
        run,
        "read_twice/narrativeqa",
        {
            "train_data": {"input_path": records, **size},
            "validation_data": size,
            "decode_max_size": 24,
            "model": {
                "encoder": {
                    "max_seq_length": _LENGTH,
                    "hidden_size": values.hidden_size,
                    "num_hidden_layers": 1,
                    "num_attention_heads": 4,
                    "intermediate_size": 4 * values.hidden_size,
                    "second_read_num_new_layers": 1,
                    "initializer_range": 0.1,
                    "hidden_dropout_prob": 0.0,
                    "attention_probs_dropout_prob": 0.0,
                    "cross_attention_top_k": None,
                }
            },
        },
        training_runs.make_trainer(
            values.steps, values.learning_rate, interval=50
        ),
        ["--mode=train"],
    )
    training_runs.run_command(
        "export", f"--model_dir={run}", f"--output_dir={saved_model}"
    )
    return saved_model


def ask(saved_model: str, qaps: str, output: str) -> dict[str, str]:
    """Asks all questions, one request each.

    Args:
        saved_model: directory of the SavedModel.
        qaps: the questions.
        output: file for the answers.

    Returns:
        Record id -> answer.
    """
    training_runs.run_command(
        "predict",
        f"--saved_model={saved_model}",
        f"--input={qaps}",
        f"--output={output}",
        "--batch_size=1",
    )
    with open(output, encoding="utf-8") as stream:
        answers = map(json.loads, stream)
        return {x["id"]: x["answer"] for x in answers}


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the program.

    Args:
        flag_values: where to define them.
    """
    training_runs.define_flags(flag_values)
    for name, text in (
        ("qaps", "NarrativeQA's questions, with `stories` beside."),
        ("vocab_file", "WordPiece vocabulary or SentencePiece model."),
    ):
        flags.DEFINE_string(name, None, text, flag_values=flag_values)
    for name, value, text in (
        ("steps", 1500, "Training steps."),
        ("examples", 4, f"Parts of stories a step, of {_BLOCKS} segments."),
        ("hidden_size", 128, "Of the encoder."),
    ):
        flags.DEFINE_integer(name, value, text, flag_values=flag_values)
    flags.DEFINE_float(
        "learning_rate", 2e-3, "The highest.", flag_values=flag_values
    )


def run(values: flags.FlagValues) -> list[dict[str, object]]:
    """Learns the questions, and prints the table.

    Args:
        values: the flags.

    Returns:
        The rows.
    """
    records = list(narrativeqa.FORMAT.read(values.qaps))
    gold = {x.id: narrativeqa.gold(x) for x in records}
    rows = []

    def add(name, answers, start):
        seconds = time.perf_counter() - start
        scores = narrativeqa.score(answers, gold)
        rows.append({"name": name, **scores, "seconds": seconds})
        print(measure.format_table(rows, _COLUMNS), flush=True)

    start = time.perf_counter()
    add("the spans to be learned", best_spans(records), start)
    with training_runs.open_directory(values) as folder:
        start = time.perf_counter()
        saved_model = learn(values, folder)
        output = os.path.join(folder, "answers.jsonl")
        add("answers", ask(saved_model, values.qaps, output), start)
    if values.output:
        measure.write_lines(values.output, rows)
    return rows


if __name__ == "__main__":
    define_flags(flags.FLAGS)
    flags.mark_flags_as_required(["qaps", "vocab_file"])
    app.run(lambda argv: run(flags.FLAGS) and None)
