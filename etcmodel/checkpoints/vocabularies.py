"""Matches rows of a token table to tokens of another vocabulary."""

import functools
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# RoBERTa's special tokens -> their names in this package's tokenizers.
_ROBERTA = {"<s>": "cls", "</s>": "separator", "<mask>": "mask"}
# Global tokens, which BERT-like encoders lack.
GLOBAL_NAMES = ("sentence", "cpc_mask", "question", "candidate", "paragraph")
# Error message, formatted with the vocabulary's path.
NO_TOKENIZER = (
    "{} is RoBERTa's vocabulary, for which this package has no tokenizer. "
    "Pass the equivalent SentencePiece model as vocab_file."
)
_SPACE = "\u2581"
# A table does not match the vocabulary if, among at least `_MIN_PAIRS` pairs of
# related words, a share below `_MIN_SHARE` has similar rows.
_MIN_PAIRS, _MIN_SHARE = 100, 0.7


class Vocabulary(NamedTuple):
    """The pieces of a vocabulary.

    Attributes:
        path: the file.
        pieces: the pieces in the order of their ids.
        special_ids: ids of special tokens by name, as in a tokenizer; empty for
            the vocabulary of a source.
        kind: "wordpiece", "sentencepiece" or "bpe" (RoBERTa's, for which the
            package has no tokenizer).
        notes: differences from a plain vocabulary, as sentences.
    """

    path: str
    pieces: Sequence[str]
    special_ids: dict[str, int]
    kind: str = "wordpiece"
    notes: Sequence[str] = ()


def read_vocabulary(path: str | os.PathLike) -> Vocabulary:
    """Reads a WordPiece vocabulary or a SentencePiece model.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is neither of these.
    """
    path = os.fspath(path)
    if path.endswith(".json"):
        raise ValueError(NO_TOKENIZER.format(path))
    # Imported here, since only reading such a file needs TensorFlow Text.
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

    RoBERTa's vocabulary writes each byte as a character, and a space as "Ġ".
    The equivalent SentencePiece model writes a space as "▁". It may write other
    text byte by byte, too, or unchanged. Special tokens of RoBERTa and
    SentencePiece models match by their meaning.

    Example: if `source` has `<s> Ġthe é` (written `<s> Ġthe Ã©`), then `▁the`
    is in row 1, `é` in row 2, and `dog` is not found.
    """
    forms = (lambda piece: piece,)
    if source.kind == "bpe":
        # Prefers the piece that RoBERTa's tokenizer makes of the piece's text.
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
    """A measure of how well a token table fits a vocabulary.

    `pairs` is the number of pairs of related words. `share` is the share of
    these pairs whose rows are more similar than the rows of unrelated words. It
    is about one half if the table belongs to another vocabulary.
    """

    pairs: int
    share: float

    @property
    def is_chance(self) -> bool:
        """Whether a low share shows that the table does not fit."""
        return self.pairs >= _MIN_PAIRS and self.share < _MIN_SHARE

    def describe(self, vocab_file: str, source: str) -> str:
        """Returns a warning that a table belongs to another vocabulary."""
        return (
            f"{vocab_file} does not seem to be the vocabulary of {source}: of "
            f"{self.pairs} pairs of words such as 'house' and 'houses', only "
            f"{self.share:.0%} have rows that are more similar than those of "
            "other words; chance is 50%."
        )


def measure_kinship(pieces: Sequence[str], table: np.ndarray) -> Kinship:
    """Measures whether words like "house" and "houses" have similar rows.

    In a trained table, `<float>[pieces, size]`, words that differ only in one
    added last letter have similar rows. The result shows whether a vocabulary
    of the right size belongs to the table: in BERT's table, 98 % of 4,096 such
    pairs are more similar than other pairs. With the vocabulary shifted by one
    token, 52 % are.
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
    """Maps characters of RoBERTa's vocabulary to the bytes they represent."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [x for x in range(256) if x not in plain]
    table = {chr(x): x for x in plain}
    return table | {chr(256 + i): x for i, x in enumerate(others)}


def _as_text(piece: str) -> str | None:
    """Decodes a RoBERTa piece; None if its bytes are not UTF-8."""
    table = _bytes_in_disguise()
    if any(character not in table for character in piece):
        return None
    try:
        text = bytes(table[x] for x in piece).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text.replace(" ", _SPACE)
