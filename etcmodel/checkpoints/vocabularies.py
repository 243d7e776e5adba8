"""Matches rows of a token table to tokens of another vocabulary."""

import functools
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# RoBERTa's special tokens, and what they are called in a tokenizer here.
_ROBERTA = {"<s>": "cls", "</s>": "separator", "<mask>": "mask"}
# Global tokens, which no encoder like BERT knows.
GLOBAL_NAMES = ("sentence", "cpc_mask", "question", "candidate", "paragraph")
# The error of a path.
NO_TOKENIZER = (
    "{} is RoBERTa's vocabulary, which has no tokenizer here. Give "
    "the equivalent SentencePiece model as vocab_file."
)
_SPACE = "\u2581"
# Fewest pairs of related words to judge by, and share with similar rows.
_MIN_PAIRS, _MIN_SHARE = 100, 0.7


class Vocabulary(NamedTuple):
    """The pieces of a vocabulary.

    Attributes:
        path: the file.
        pieces: the pieces in the order of their ids.
        special_ids: ids of special tokens by name, as in a tokenizer; none for
            the vocabulary of a source.
        kind: "wordpiece", "sentencepiece" or "bpe", which is RoBERTa's and has
            no tokenizer here.
        notes: notes about its peculiarities.
    """

    path: str
    pieces: Sequence[str]
    special_ids: dict[str, int]
    kind: str = "wordpiece"
    notes: Sequence[str] = ()


def read_vocabulary(path: str | os.PathLike) -> Vocabulary:
    """Reads a WordPiece vocabulary or a SentencePiece model.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is neither.
    """
    path = os.fspath(path)
    if path.endswith(".json"):
        raise ValueError(NO_TOKENIZER.format(path))
    # Imported here, as only reading such a file needs TensorFlow Text.
    from etcmodel.feature_utils.text import tokenizers

    tokenizer = tokenizers.make_tokenizer(path)
    pieces = tokenizer.id_to_token(tf.range(tokenizer.vocab_size)).numpy()
    return Vocabulary(
        path,
        [piece.decode("utf-8") for piece in pieces],
        dict(tokenizer.special_ids),
        tokenizer.kind,
    )


def match_pieces(source: Vocabulary, target: Vocabulary) -> np.ndarray:
    """Finds each piece of `target` in `source`: `<int64>[target]`, -1 for none.

    RoBERTa's pieces show each byte as a character, with "Ġ" for a space. Pieces
    of the equivalent SentencePiece model have "▁" there, and such characters or
    the text itself. Special tokens of RoBERTa and of models with SentencePiece
    match by their meaning.

    Example: of the pieces `<s> Ġthe é` (written `<s> Ġthe Ã©`), `▁the` has the
    row 1, `é` the row 2, and `dog` has none.
    """
    forms = (lambda piece: piece,)
    if source.kind == "bpe":
        # Pieces of the model occur in texts, so the piece that RoBERTa makes
        # of the same text comes first.
        forms = (_as_text, lambda piece: piece.replace("\u0120", _SPACE))
    meanings = {} if source.kind == "wordpiece" else _ROBERTA
    rows = {}
    for form in forms:
        for row, piece in enumerate(source.pieces):
            if piece not in meanings:
                rows.setdefault(form(piece), row)
    found = np.array([rows.get(x, -1) for x in target.pieces], np.int64)
    for row, piece in enumerate(source.pieces):
        if meanings.get(piece) in target.special_ids:
            found[target.special_ids[meanings[piece]]] = row
    return found


class Kinship(NamedTuple):
    """A measure of how well a token table and a vocabulary fit.

    In a `share` of `pairs` of related words the rows are more alike than rows
    of other words; about half of them if the table has another vocabulary.
    """

    pairs: int
    share: float

    @property
    def is_chance(self) -> bool:
        """Whether the table seems to belong to another vocabulary."""
        return self.pairs >= _MIN_PAIRS and self.share < _MIN_SHARE

    def describe(self, vocab_file: str, source: str) -> str:
        """Returns a warning about a table of another vocabulary."""
        return (
            f"{vocab_file} does not seem to be the vocabulary of {source}: of "
            f"{self.pairs} pairs of words such as 'house' and 'houses', "
            f"{self.share:.0%} have rows that are more alike than rows of "
            "other words, which is chance."
        )


def measure_kinship(pieces: Sequence[str], table: np.ndarray) -> Kinship:
    """Measures whether related words, such as "house" and "houses", are alike.

    In every trained table, rows `<float>[pieces, size]` of words that differ by
    one more letter at the end are alike. This shows whether a vocabulary of the
    right size belongs to the table. Of BERT's, 98 % of 4,096 pairs are more
    alike than others; with the vocabulary shifted by one token, 52 %.
    """
    rows = {x.lstrip(_SPACE): i for i, x in enumerate(pieces)}
    pairs = [
        (rows[word[:-1]], row)
        for word, row in rows.items()
        if len(word) > 4 and word.isalpha() and word[:-1] in rows
    ]
    if not pairs:
        return Kinship(0, 0.0)
    shorter, longer = np.array(pairs).T
    table = table - table.mean(axis=0)
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-9)
    others = np.roll(longer, len(pairs) // 2)
    # [pairs]
    alike = np.sum(table[shorter] * table[longer], axis=1)
    by_chance = np.sum(table[shorter] * table[others], axis=1)
    return Kinship(len(pairs), float(np.mean(alike > by_chance)))


@functools.cache
def _bytes_in_disguise() -> dict[str, int]:
    """Maps characters to the bytes that they represent."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [x for x in range(256) if x not in plain]
    table = {chr(x): x for x in plain}
    return table | {chr(256 + i): x for i, x in enumerate(others)}


def _as_text(piece: str) -> str | None:
    """Converts a piece of bytes to text; None for parts of characters."""
    table = _bytes_in_disguise()
    if any(character not in table for character in piece):
        return None
    try:
        text = bytes(table[x] for x in piece).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text.replace(" ", _SPACE)
