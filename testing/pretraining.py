"""Generated texts for tests of pre-training."""

import json
import os
import re

import numpy as np

from testing.helpers import write_vocab

# Reserved tokens of ReadTwice's vocabulary, entities and other words. A segment
# is the CLS and five words; a document has three.
SEGMENT_LENGTH, SEGMENTS, BLOCKS = 6, 3, 24
PRETRAINING_VOCAB = [
    *("[PAD] [unused0] [unused1] [unused2] [unused3] [unused4]".split()),
    *("[UNK] [CLS] [SEP] [MASK]".split()),
    *(f"e{i}" for i in range(20)),
    *(f"w{i}" for i in range(20)),
]


def write_small_documents(
    directory: str, num_records: int, seed: int = 0
) -> tuple[str, str]:
    """Writes documents with one entity each, and a vocabulary; returns paths.

    The entity is once in every segment, and all other words are noise. So a
    masked mention can be known from another segment of its document, and from
    nothing else.
    """
    rng = np.random.default_rng(seed)
    path = os.path.join(directory, "small.jsonl")
    with open(path, "w", encoding="utf-8") as stream:
        for i in range(num_records):
            entity = f"e{rng.integers(20)}"
            words = [f"w{j}" for j in rng.integers(20, size=3 * 5)]
            for segment in range(SEGMENTS):
                words[5 * segment + rng.integers(5)] = entity
            text = " ".join(words)
            mentions = [
                {"start": x.start(), "end": x.end(), "entity": entity}
                for x in re.finditer(rf"{entity}\b", text)
            ]
            record = {"id": str(i), "text": text, "mentions": mentions}
            stream.write(json.dumps(record) + "\n")
    return path, write_vocab(directory, PRETRAINING_VOCAB)


def write_small_texts(
    directory: str, num_records: int, seed: int = 0
) -> tuple[str, str]:
    """Writes texts of sentences, and a vocabulary; returns their paths.

    A text has a word of its own kind, once in each of its seven sentences; all
    other words are noise. So that word is known from another sentence of the
    text, and of a sentence that is masked it is all that can be foreseen.
    """
    rng = np.random.default_rng(seed)
    path = os.path.join(directory, "small.txt")
    with open(path, "w", encoding="utf-8") as stream:
        for _ in range(num_records):
            entity = rng.integers(20)
            for _ in range(7):
                first, second = rng.integers(20, size=2)
                stream.write(f"e{entity} w{first} w{second} .\n")
            stream.write("\n")
    return path, write_vocab(directory, (*PRETRAINING_VOCAB, "."))
