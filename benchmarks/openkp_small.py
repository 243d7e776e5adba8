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

from collections.abc import Iterator

from benchmarks import program
from benchmarks import training_runs
from testing import openkp

_LENGTHS = {"long_length": 160, "global_length": 24}
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
    "contact us, related posts, follow us, sign up, read more, leave a "
    "comment, terms of use, about the author, share this, recent news, "
    "log in, your account, frequently asked questions, latest articles, "
    "write a review, send us an email, privacy policy, see also, join "
    "now, get started, customer service, how it works, you may also like, "
    "download our app, all rights reserved, subscribe today, reply to "
    "this, what people say, report an error, back to top"
).split(", ")


def prepare(
    runs: training_runs.Runs, vocab_file: str | None, pages: int, heldout: int
) -> None:
    """Makes and preprocesses `train` and `dev`, which has other pages.

    Args:
        runs: where they are made.
        vocab_file: the vocabulary, for pages with other headings; None for one
            of the words of pages without.
        pages: how many to learn from.
        heldout: how many to measure on.
    """
    for i, (split, number) in enumerate((("train", pages), ("dev", heldout))):
        options = {
            "words": openkp.WORDS[i::2],
            "other_headings": OTHER_HEADINGS[i::2],
        }
        path, own = openkp.write_small_openkp(
            *(runs.directory, number, i * 10**6),
            **(options if vocab_file else {}),
        )
        runs.preprocess(
            *(split, "openkp", split),
            input=path,
            vocab_file=vocab_file or own,
            **_LENGTHS,
        )


def _measure(values) -> Iterator[program.Line]:
    with training_runs.open_runs(values) as runs:
        vocab_file = None
        steps, rate = values.steps, values.learning_rate
        # Name, experiment, encoder, beginning.
        rows = [(*row, _SMALL, None) for row in VARIANTS.items()]
        if values.lift:
            vocab_file = runs.lift(values.lift, "lifted", **training_runs.LIFT)
            steps, rate = values.lift_steps, values.lift_learning_rate
            experiment = VARIANTS["best occurrence"]
            rows = [
                ("random weights", experiment, runs.sizes("lifted"), None),
                ("BERT", experiment, {}, "lifted"),
            ]
        prepare(runs, vocab_file, values.pages, values.heldout)
        for name, experiment, encoder, init in rows:
            training = training_runs.Training(
                name.replace(" ", "_"),
                experiment,
                "train",
                *(steps, rate, _BATCH_SIZE),
                encoder=encoder,
                init=init,
            )
            yield runs.measure(name, training)


PROGRAM = program.Program(
    "openkp_small",
    {
        **training_runs.FLAGS,
        "lift": (None, "Directory of a BERT to begin with."),
        "pages": (3000, "Pages to learn from."),
        "heldout": (300, "Pages to measure on."),
        "steps": (600, "Training steps."),
        "lift_steps": (80, "The same of a BERT."),
        "learning_rate": (1e-3, "The highest."),
        "lift_learning_rate": (2e-4, "The same of a BERT."),
    },
    {
        "name": "s",
        "precision_at_3": ".3f",
        "recall_at_3": ".3f",
        "f1_at_3": ".3f",
        "steps": "d",
        "seconds": ".0f",
    },
    _measure,
    environment=training_runs.ENVIRONMENT,
)

if __name__ == "__main__":
    program.main(PROGRAM)
