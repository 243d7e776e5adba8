r"""OpenKP's model on generated pages: what looks and all occurrences are worth.

The keyphrases of the pages are their headings (see `testing.openkp`), so that
how a node looks tells which phrases they are. The same small model learns them
with and without visual features, and from the first or the best occurrence of
each:

    python -m benchmarks.openkp_small

prints precision, recall and F1 at 3 on pages that it has not seen, and the
seconds of the training. With `--lift` the pages have headings, too, that are no
keyphrases by what they say ("contact us"), and those that are measured on have
neither a word of a keyphrase nor such a heading in common with those that are
learned from. A BERT learns them, and next to it a model of its sizes that
begins with random weights:

    python -m benchmarks.openkp_small --lift=all-MiniLM-L6-v2
"""

import os
from collections.abc import Mapping

from absl import app
from absl import flags

from benchmarks import measure
from benchmarks import training_runs
from testing import openkp

_LENGTHS = ("--long_length=160", "--global_length=24")
_BATCH_SIZE = 32
_SMALL = {
    "preset": "tiny",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
# Name of each row -> experiment.
VARIANTS = {
    "first occurrence": "etc/openkp",
    "best occurrence": "etc/openkp_max_loss",
    "without visual features": "etc/openkp_no_visual",
}
# Headings that a page of any subject may have.
OTHER_HEADINGS = (
    "contact us",
    "related posts",
    "follow us",
    "sign up",
    "read more",
    "leave a comment",
    "terms of use",
    "about the author",
    "share this",
    "recent news",
    "log in",
    "your account",
    "frequently asked questions",
    "latest articles",
    "write a review",
    "send us an email",
    "privacy policy",
    "see also",
    "join now",
    "get started",
    "customer service",
    "how it works",
    "you may also like",
    "download our app",
    "all rights reserved",
    "subscribe today",
    "reply to this",
    "what people say",
    "report an error",
    "back to top",
)
_COLUMNS = {
    "name": "s",
    "precision_at_3": ".3f",
    "recall_at_3": ".3f",
    "f1_at_3": ".3f",
    "steps": "d",
    "seconds": ".0f",
}


def prepare(folder: str, vocab_file: str | None, pages: int, heldout: int):
    """Makes pages and preprocesses them.

    Args:
        folder: where `train` and `dev` are written.
        vocab_file: the vocabulary, for pages with other headings; None for one
            of the words of pages without.
        pages: how many to learn from.
        heldout: how many to measure on, which are others.
    """
    for i, (split, number) in enumerate((("train", pages), ("dev", heldout))):
        options = {
            "words": openkp.WORDS[i::2],
            "other_headings": OTHER_HEADINGS[i::2],
        }
        path, own = openkp.write_small_openkp(
            *(folder, number, i * 10**6), **(options if vocab_file else {})
        )
        training_runs.run_command(
            "preprocess",
            "--task=openkp",
            f"--input={path}",
            f"--split={split}",
            f"--vocab_file={vocab_file or own}",
            f"--output_dir={os.path.join(folder, split)}",
            "--num_shards=4",
            *_LENGTHS,
        )


def train(
    folder: str,
    name: str,
    experiment: str,
    steps: int,
    learning_rate: float,
    encoder: Mapping[str, object],
    *options: str,
) -> dict[str, object]:
    """Trains a model and measures it.

    Args:
        folder: with what `prepare` wrote.
        name: of the row.
        experiment: what to train.
        steps: how long.
        learning_rate: the highest.
        encoder: values of the encoder's configuration.
        *options: further flags of `train`.

    Returns:
        The row.
    """
    run = os.path.join(folder, name.replace(" ", "_"))
    size = {"global_batch_size": _BATCH_SIZE}
    data = {"input_path": os.path.join(folder, "train"), **size}
    measured = training_runs.train_and_evaluate(
        run,
        experiment,
        {
            "train_data": data,
            "validation_data": size,
            **({"model": {"encoder": encoder}} if encoder else {}),
        },
        training_runs.make_trainer(steps, learning_rate, interval=50),
        os.path.join(folder, "dev"),
        options,
    )
    return {"name": name, **measured, "steps": steps}


def measure_lifted(values: flags.FlagValues, folder: str) -> list[dict]:
    """Trains a BERT that is lifted, and random weights of its sizes.

    Args:
        values: the flags.
        folder: where everything is written.

    Returns:
        The rows.
    """
    lifted = os.path.join(folder, "lifted")
    sizes = training_runs.lift(values.lift, lifted)
    os.mkdir(folder := os.path.join(folder, "wordpieces"))
    vocab_file = os.path.join(lifted, "vocab.txt")
    prepare(folder, vocab_file, values.pages, values.heldout)
    steps, rate = values.lift_steps, values.lift_learning_rate
    experiment = VARIANTS["best occurrence"]
    return [
        train(folder, "random weights", experiment, steps, rate, sizes),
        train(
            *(folder, "BERT", experiment, steps, rate, {}),
            f"--init_checkpoint={lifted}",
        ),
    ]


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the program.

    Args:
        flag_values: where to define them.
    """
    training_runs.define_flags(flag_values)
    flags.DEFINE_string(
        "lift",
        None,
        "Directory of a BERT to begin with.",
        flag_values=flag_values,
    )
    for name, value, text in (
        ("pages", 3000, "Pages to learn from."),
        ("heldout", 300, "Pages to measure on."),
        ("steps", 600, "Training steps."),
        ("lift_steps", 80, "The same of a BERT."),
    ):
        flags.DEFINE_integer(name, value, text, flag_values=flag_values)
    for name, value, text in (
        ("learning_rate", 1e-3, "The highest."),
        ("lift_learning_rate", 2e-4, "The same of a BERT."),
    ):
        flags.DEFINE_float(name, value, text, flag_values=flag_values)


def run(values: flags.FlagValues) -> list[dict[str, object]]:
    """Trains all models and prints the table.

    Args:
        values: the flags.

    Returns:
        The rows.
    """
    with training_runs.open_directory(values) as folder:
        if values.lift:
            rows = measure_lifted(values, folder)
        else:
            prepare(folder, None, values.pages, values.heldout)
            rows = [
                train(
                    *(folder, name, experiment, values.steps),
                    *(values.learning_rate, _SMALL),
                )
                for name, experiment in VARIANTS.items()
            ]
    print(measure.format_table(rows, _COLUMNS))
    if values.output:
        measure.write_lines(values.output, rows)
    return rows


if __name__ == "__main__":
    define_flags(flags.FLAGS)
    app.run(lambda argv: run(flags.FLAGS) and None)
