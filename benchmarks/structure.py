"""Ablation of structure: Table 3 of the ETC paper, at a small scale.

Trains the same small model from random weights, with and without

*   candidate links: relative labels between a candidate and its mentions,
*   paragraph structure: local attention stops at the end of a document, each
    document has a global token, and documents have no order (`flat` is the
    paper's ablation, which also has no candidate links),
*   the hard g2l mask: a sentence's global token attends only to its sentence,

on three kinds of generated questions (see `etcmodel/demo/corpus.py`): `fixed`
asks for the same two properties, as in the demo; `asked` asks for different
properties in each question; `bridge` follows a person from one document to the
next.

    python -m benchmarks.structure

Held-out records are about islands that are not in the training records.
Guessing is right in 1 of 6 cases; using only one of the two properties, in 1 of
3 cases.
"""

from collections.abc import Iterator

from benchmarks import program
from benchmarks import training_runs
from etcmodel.demo import corpus
from etcmodel.demo import demo
from etcmodel.demo import vocab

# Variant -> options of WikiHop's model, and of its encoder.
VARIANTS = {
    "full": {},
    "no hard g2l": {"encoder": {"use_hard_g2l_mask": False}},
    "no links": {"use_links": False},
    "flat": {"flat_sequence": True},
}
# Kind -> long and global length, at which no record is truncated.
_LENGTHS = {
    "fixed": (demo.LONG_LENGTH, demo.GLOBAL_LENGTH),
    "asked": (demo.LONG_LENGTH, demo.GLOBAL_LENGTH),
    "bridge": (351, 48),
}
# The optimizer of the demo. BERT's epsilon of 1e-6 is too large for the small
# gradients of the first steps.
_OPTIMIZER = "trainer.optimizer_config"
_OVERRIDES = (
    f"--params_override={_OPTIMIZER}.optimizer.adamw.epsilon=1e-8,"
    f"{_OPTIMIZER}.optimizer.adamw.weight_decay_rate=0.0,"
    f"{_OPTIMIZER}.learning_rate.polynomial.end_learning_rate=5e-4,"
    f"{_OPTIMIZER}.warmup.linear.warmup_steps=20"
)


def _measure(values, runs) -> Iterator[program.Line]:
    for kind in values.question_kinds:
        vocab_file = runs.path("vocab.txt")
        for split, number in (
            ("train", values.num_train),
            ("heldout", values.num_heldout),
        ):
            records = corpus.make_records(number, kind, split, values.seed)
            if split == "train":
                texts = [[*x["supports"], x["query"]] for x in records[:1000]]
                vocab.build_vocab(sum(texts, []), vocab_file)
            runs.preprocess(
                *(f"{kind}_{split}", "wikihop"),
                "train" if split == "train" else "dev",
                input=runs.write(f"{kind}_{split}.json", records),
                vocab_file=vocab_file,
                **dict(
                    zip(
                        ("long_length", "global_length"),
                        _LENGTHS[kind],
                        strict=True,
                    )
                ),
            )
        for variant in values.variants:
            model = dict(VARIANTS[variant])
            sizes = {"num_hidden_layers": values.num_layers}
            name = training_runs.run_name(f"{kind} {variant}")
            seconds = runs.train(
                training_runs.Training(
                    *(name, "etc/wikihop", f"{kind}_train", values.steps),
                    *(values.learning_rate, values.batch_size),
                    encoder=demo.ENCODER | sizes | model.pop("encoder", {}),
                    model=model,
                    options=[f"--seed={values.seed}", _OVERRIDES],
                )
            )
            found = runs.evaluate(name, f"{kind}_heldout")
            line = {"accuracy": found["accuracy"], "seconds": seconds}
            yield {"question_kind": kind, "variant": variant, **line}


PROGRAM = training_runs.make_program("structure", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
