r"""Ablation of visual features: OpenKP's model on generated pages.

The keyphrases of the pages are their headings (see `testing.openkp`), so visual
features identify them. The same small model is trained with and without visual
features, and on the first or the best occurrence of each keyphrase:

    python -m benchmarks.openkp_small

prints precision, recall and F1 at 3 on held-out pages, and the seconds of the
training. With `--lift`, some headings, such as "contact us", are not
keyphrases. Held-out pages share neither keyphrase words nor such headings with
training pages. This compares a lifted BERT (converted to ETC) with a model of
equal size that starts from random weights:

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
# Headings that can appear on any page, so they are not keyphrases.
OTHER_HEADINGS = (
    "contact us, related posts, follow us, sign up, read more, leave a "
    "comment, terms of use, about the author, share this, recent news, "
    "log in, your account, frequently asked questions, latest articles, "
    "write a review, send us an email, privacy policy, see also, join "
    "now, get started, customer service, how it works, you may also like, "
    "download our app, all rights reserved, subscribe today, reply to "
    "this, what people say, report an error, back to top"
).split(", ")


def _measure(values, runs) -> Iterator[program.Line]:
    vocab_file = None
    steps, rate = values.steps, values.learning_rate
    if values.lift:
        vocab_file = runs.lift(values.lift, "bert", **training_runs.LIFT)
        steps, rate = values.lift_steps, values.lift_learning_rate
    for i, (split, number) in enumerate(
        (("train", values.pages), ("dev", values.heldout))
    ):
        options = {
            "words": openkp.WORDS[i::2],
            "other_headings": OTHER_HEADINGS[i::2],
        }
        path, own = openkp.write_small_openkp(
            *(runs.directory, number, i * 10**6),
            **(options if values.lift else {}),
        )
        runs.preprocess(
            *(split, "openkp", split),
            input=path,
            vocab_file=vocab_file or own,
            **_LENGTHS,
        )
    rows = {name: (x, _SMALL, None) for name, x in VARIANTS.items()}
    if values.lift:
        experiment = VARIANTS["best occurrence"]
        rows = {
            "random weights": (experiment, runs.sizes("bert"), None),
            "BERT": (experiment, {}, "bert"),
        }
    yield from runs.measure(rows, steps, rate, _BATCH_SIZE)


PROGRAM = training_runs.make_program("openkp_small", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
