r"""What the second read is worth: answers that another segment tells.

In generated documents of HotpotQA's format some people are each in a city, and
one of them has the ring. Every paragraph is a segment of its own: where a
person is, and who has the ring, are never read together. The question is where
the ring is. The same small model learns it for the same number of steps with
the memories of the ReadTwice paper (Table 3), and with each segment's own alone
("SS"):

    python -m benchmarks.read_twice_small

prints the exact match on documents that it has not seen, in percent, next to
that of one of the document's cities by chance, and the seconds of the training.
"""

import json
import os
import random

from absl import app
from absl import flags

from benchmarks import measure
from benchmarks import training_runs
from etcmodel.feature_utils.text import tokenizers

NAMES = (
    "Adam Bella Clara David Emma Felix Greta Hugo Ivan Julia Karl Lena Max "
    "Nora Oscar Paula Quinn Rosa Simon Tina"
).split()
CITIES = (
    "Athens Berlin Cairo Dublin Essen Faro Geneva Hanoi Izmir Jena Kiev Lima "
    "Madrid Naples Oslo Paris Quito Rome Sofia Tunis"
).split()
QUESTION = "Where is the ring?"
# Of these Adam has the ring: "Adam has the ring.", "Adam is in Faro.", ...
_PEOPLE = 4
_SIZES = (
    "--block_length=24",
    "--block_overlap=0",
    "--max_question_length=8",
    "--num_blocks_per_example=8",
    "--max_num_annotations=2",
)
_SEGMENTS = 256
# Name of each row -> experiment.
VARIANTS = {
    "mentions (E)": "read_twice/hotpotqa",
    "every 8 tokens (STS)": "read_twice/hotpotqa_sts",
    "segments (CLS)": "read_twice/hotpotqa_cls",
    "each segment alone (SS)": "read_twice/hotpotqa_single_segment",
}
_COLUMNS = {
    "name": "s",
    "em": ".1%",
    "span_loss": ".3f",
    "steps": "d",
    "seconds": ".0f",
}


def make_record(seed: int) -> dict:
    """A record of HotpotQA about people and a ring.

    Args:
        seed: another record for each.

    Returns:
        The record.
    """
    rng = random.Random(seed)
    people = list(
        zip(
            rng.sample(NAMES, _PEOPLE), rng.sample(CITIES, _PEOPLE), strict=True
        )
    )
    owner, answer = rng.choice(people)
    texts = [f"{name} is in {city}." for name, city in people]
    texts.append(f"{owner} has the ring.")
    rng.shuffle(texts)
    return {
        "_id": str(seed),
        "question": QUESTION,
        "context": [[str(i), [text]] for i, text in enumerate(texts)],
        "answer": answer,
        "supporting_facts": [
            [str(i), 0] for i, text in enumerate(texts) if owner in text
        ],
    }


def prepare(folder: str, records: int, heldout: int) -> None:
    """Makes records and preprocesses them.

    Args:
        folder: where `train` and `dev` are written.
        records: how many to learn from.
        heldout: how many to measure on, which are others.
    """
    words = [x.lower() for x in (*NAMES, *CITIES)]
    words += "where is the ring in has ? .".split()
    vocab = os.path.join(folder, "vocab.txt")
    with open(vocab, "w", encoding="utf-8") as stream:
        for token in (*tokenizers.WORDPIECE_RESERVED_TOKENS, *words):
            stream.write(f"{token}\n")
    for split, number, first in (
        ("train", records, 0),
        ("dev", heldout, 10**6),
    ):
        path = os.path.join(folder, f"{split}.json")
        with open(path, "w", encoding="utf-8") as stream:
            json.dump([make_record(first + i) for i in range(number)], stream)
        training_runs.run_command(
            "preprocess",
            "--task=read_twice_hotpotqa",
            f"--input={path}",
            f"--split={split}",
            f"--vocab_file={vocab}",
            f"--output_dir={os.path.join(folder, split)}",
            "--num_shards=4",
            *_SIZES,
        )


def train(
    folder: str, name: str, experiment: str, steps: int, learning_rate: float
) -> dict[str, object]:
    """Trains a model and measures it.

    Args:
        folder: with what `prepare` wrote.
        name: of the row.
        experiment: what to train.
        steps: how long.
        learning_rate: the highest.

    Returns:
        The row.
    """
    run = os.path.join(folder, experiment.replace("/", "_"))
    size = {"global_batch_size": _SEGMENTS}
    encoder = {
        "max_seq_length": 24,
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "second_read_num_new_layers": 1,
        "initializer_range": 0.1,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "cross_attention_top_k": None,
    }
    if experiment.endswith("_sts"):
        encoder["text_block_extract_every_x"] = 8
    measured = training_runs.train_and_evaluate(
        run,
        experiment,
        {
            "train_data": {
                "input_path": os.path.join(folder, "train"),
                **size,
            },
            "validation_data": size,
            "model": {"encoder": encoder},
        },
        training_runs.make_trainer(steps, learning_rate, interval=50),
        os.path.join(folder, "dev"),
    )
    return {"name": name, **measured, "steps": steps}


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the program.

    Args:
        flag_values: where to define them.
    """
    training_runs.define_flags(flag_values)
    for name, value, text in (
        ("records", 4000, "Documents to learn from."),
        ("heldout", 300, "Documents to measure on."),
        ("steps", 1500, "Training steps, of 256 segments."),
    ):
        flags.DEFINE_integer(name, value, text, flag_values=flag_values)
    flags.DEFINE_float(
        "learning_rate", 3e-3, "The highest.", flag_values=flag_values
    )


def run(values: flags.FlagValues) -> list[dict[str, object]]:
    """Trains all models and prints the table.

    Args:
        values: the flags.

    Returns:
        The rows.
    """
    with training_runs.open_directory(values) as folder:
        prepare(folder, values.records, values.heldout)
        rows = [
            {
                **dict.fromkeys(_COLUMNS),
                "name": "one of the cities, by chance",
                "em": 1 / _PEOPLE,
            }
        ]
        for name, experiment in VARIANTS.items():
            rows.append(
                train(
                    *(folder, name, experiment, values.steps),
                    values.learning_rate,
                )
            )
            print(measure.format_table(rows, _COLUMNS))
    if values.output:
        measure.write_lines(values.output, rows)
    return rows


if __name__ == "__main__":
    define_flags(flags.FLAGS)
    app.run(lambda argv: run(flags.FLAGS) and None)
