"""Ablation of structure: Table 3 of the ETC paper, in small.

Trains the same small model from random weights, with and without

*   candidate links: the label that ties a candidate to its mentions,
*   paragraph structure: local attention that stops at the document's end, a
    global token for each document, no order among documents (`flat` is the
    paper's ablation, which has no candidate links either),
*   the hard g2l mask: a sentence's global token sees its own sentence only,

on generated questions of three kinds (see `etcmodel/demo/corpus.py`): those of
the demo, those whose two properties change with the question, and those where
a person has to be followed from one document to the next.

    python -m benchmarks.structure

Held-out records are about islands that no training record has. Chance is 1 in
6; following only one of the two properties gives 1 in 3.
"""

from collections.abc import Iterator

from benchmarks import program
from benchmarks import training_runs
from etcmodel.demo import corpus
from etcmodel.demo import demo
from etcmodel.demo import vocab

# name -> options of WikiHop's model, and the hard g2l mask.
VARIANTS = {
    "full": {},
    "no hard g2l": {"encoder": {"use_hard_g2l_mask": False}},
    "no links": {"use_links": False},
    "flat": {"flat_sequence": True},
}
# Long and global length that hold every record.
_LENGTHS = {
    "fixed": (demo.LONG_LENGTH, demo.GLOBAL_LENGTH),
    "asked": (demo.LONG_LENGTH, demo.GLOBAL_LENGTH),
    "bridge": (351, 48),
}
# The optimizer of the demo: BERT's epsilon of 1e-6 would hide the first
# gradients.
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
