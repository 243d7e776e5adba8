"""Generates texts for tests of pre-training."""

import json
import os
import re

import numpy as np

from testing.helpers import write_vocab

# A segment has [CLS] and five words; a document has three segments; a batch has
# 24 segments. The vocabulary has reserved tokens, entities and other words.
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

    The entity occurs once in every segment, and all other words are noise. A
    masked mention can therefore be predicted only from the document's other
    segments.
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

    Each text has one entity, which occurs once in each of its seven sentences;
    all other words are noise. In a masked sentence, only the entity can
    therefore be predicted, from other sentences of the text.
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
