r"""Ablation of the memory: the answer depends on two segments.

In generated documents of HotpotQA's format, each of four people is in a city,
and one of them has the ring. Every paragraph is a segment, so no segment says
both where a person is and who has the ring. The question is where the ring is.
The same small model is trained for the same number of steps with the memories
of the ReadTwice paper (Table 3), and with each segment's own memories only
("SS"):

    python -m benchmarks.read_twice_small

prints the exact match in percent on held-out documents for each memory, and for
guessing one of the document's cities, and the seconds of the training.
"""

import random
from collections.abc import Iterator

from benchmarks import program
from benchmarks import training_runs
from etcmodel.feature_utils.text import tokenizers
from testing import helpers

NAMES = (
    "Adam Bella Clara David Emma Felix Greta Hugo Ivan Julia Karl Lena Max "
    "Nora Oscar Paula Quinn Rosa Simon Tina"
).split()
CITIES = (
    "Athens Berlin Cairo Dublin Essen Faro Geneva Hanoi Izmir Jena Kiev Lima "
    "Madrid Naples Oslo Paris Quito Rome Sofia Tunis"
).split()
# Number of people in a document: "Adam is in Faro.", "Adam has the ring.", ...
_PEOPLE = 4
_SIZES = {
    "block_length": 24,
    "block_overlap": 0,
    "max_question_length": 8,
    "num_blocks_per_example": 8,
    "max_num_annotations": 2,
}
_SEGMENTS = 256
_ENCODER = {
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
# Name of each row -> experiment, and overrides of the encoder.
VARIANTS = {
    "mentions (E)": ("hotpotqa", {}),
    "every 8 tokens (STS)": ("hotpotqa_sts", {"text_block_extract_every_x": 8}),
    "segments (CLS)": ("hotpotqa_cls", {}),
    "each segment alone (SS)": ("hotpotqa_single_segment", {}),
}


def make_record(seed: int) -> dict:
    """Makes a record about people and a ring, in HotpotQA's format."""
    rng = random.Random(seed)
    names, cities = rng.sample(NAMES, _PEOPLE), rng.sample(CITIES, _PEOPLE)
    people = list(zip(names, cities, strict=True))
    owner, answer = rng.choice(people)
    texts = [f"{name} is in {city}." for name, city in people]
    texts.append(f"{owner} has the ring.")
    rng.shuffle(texts)
    return {
        "_id": str(seed),
        "question": "Where is the ring?",
        "context": [[str(i), [text]] for i, text in enumerate(texts)],
        "answer": answer,
        "supporting_facts": [
            [str(i), 0] for i, text in enumerate(texts) if owner in text
        ],
    }


def _measure(values, runs) -> Iterator[program.Line]:
    words = [x.lower() for x in (*NAMES, *CITIES)]
    words += "where is the ring in has ? .".split()
    vocab_file = helpers.write_vocab(
        runs.directory, (*tokenizers.WORDPIECE_RESERVED_TOKENS, *words)
    )
    for split, number, first in (
        ("train", values.records, 0),
        ("dev", values.heldout, 10**6),
    ):
        records = map(make_record, range(first, first + number))
        runs.preprocess(
            *(split, "read_twice_hotpotqa", split),
            input=runs.write(f"{split}.json", records),
            vocab_file=vocab_file,
            **_SIZES,
        )
    yield {"name": "one of the cities, by chance", "em": 1 / _PEOPLE}
    rows = {
        name: (f"read_twice/{experiment}", _ENCODER | changes, None)
        for name, (experiment, changes) in VARIANTS.items()
    }
    yield from runs.measure(rows, values.steps, values.learning_rate, _SEGMENTS)


PROGRAM = training_runs.make_program("read_twice_small", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
