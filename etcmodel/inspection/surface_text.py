"""Finds the original text of tokens, and the text that was cut.

Layouts keep only token ids. The texts of a record are tokenized again, and the
tokens of each unit are found in them.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils.text import tokenizers

# Prefix of WordPiece's pieces that continue a word, and of SentencePiece's
# pieces that begin one.
_PREFIXES = ("##", "\u2581")


class Token(NamedTuple):
    """A token as a reader sees it.

    Attributes:
        text: its original text, or its piece if the text was not found.
        piece: its piece in the vocabulary, such as "##ing".
        space: what separates it from the token before it: "", " " or a line
            feed.
    """

    text: str
    piece: str
    space: str


class Cut(NamedTuple):
    """A truncated part of the text, which the model did not get.

    Attributes:
        name: the input that it is part of, such as "texts".
        text: the text.
        number: its number of tokens.
    """

    name: str
    text: str
    number: int


class _Source(NamedTuple):
    """A text of the record, and the range of its tokens in `SurfaceTexts`."""

    name: str
    text: bytes
    first: int
    last: int


class SurfaceTexts:
    """The tokenized texts of a record.

    Args:
        tokenizer: the tokenizer of the model.
        texts: name -> the texts of an input, `Preprocessor.INPUTS`, as strings
            or nested lists of strings.
    """

    def __init__(self, tokenizer: Any, texts: Mapping[str, Any]):
        self._tokenizer = tokenizer
        named = [(name, text) for name, x in texts.items() for text in _flat(x)]
        self._sources: list[_Source] = []
        self._taken = np.zeros([0], bool)
        self._ids = self._starts = self._ends = np.zeros([0], np.int32)
        if not named:
            return
        clean = tokenizers.sanitize(
            tf.constant([text.encode("utf-8", "replace") for _, text in named])
        )
        ids, starts, ends = tokenizer.tokenize_with_offsets(clean)
        self._ids, self._starts, self._ends = (
            x.values.numpy().astype(np.int32) for x in (ids, starts, ends)
        )
        splits = ids.row_splits.numpy().tolist()
        self._sources = [
            _Source(name, text, first, last)
            for (name, _), text, first, last in zip(
                named, clean.numpy(), splits, splits[1:], strict=False
            )
        ]
        self._owner = np.repeat(np.arange(len(named)), np.diff(splits))
        self._taken = np.zeros([len(self._ids)], bool)
        self._bytes = self._ids.tobytes()

    def find(self, ids: Sequence[int], after: int = 0) -> int:
        """Finds tokens in the texts; returns the first one's index, or -1.

        Prefers a whole text that is not taken yet, then the first place at
        `after` or later, then the first place in all texts. Marks the place as
        taken.
        """
        ids = np.asarray(ids, np.int32)
        if not len(ids) or not len(self._ids):
            return -1
        found = -1
        for source in self._sources:
            if (
                source.last - source.first == len(ids)
                and not self._taken[source.first]
                and np.array_equal(self._ids[source.first : source.last], ids)
            ):
                found = source.first
                break
        if found < 0:
            found = self._search(ids, after)
        if found < 0 and after:
            found = self._search(ids, 0)
        if found >= 0:
            self._taken[found : found + len(ids)] = True
        return found

    def _search(self, ids, after):
        needle, size = ids.tobytes(), ids.itemsize
        place = self._bytes.find(needle, after * size)
        while place >= 0:
            first = place // size
            last = first + len(ids) - 1
            if place % size == 0 and self._owner[first] == self._owner[last]:
                return first
            place = self._bytes.find(needle, place + 1)
        return -1

    def tokens(self, ids: Sequence[int], place: int) -> list[Token]:
        """Returns tokens as a reader sees them.

        `place` is the result of `find`; -1 shows the pieces instead.
        """
        pieces = pieces_of(self._tokenizer, ids)
        if place < 0:
            continued = self._tokenizer.is_continuation(
                tf.constant(ids, tf.int32)
            ).numpy()
            return [
                Token(_bare(piece), piece, "" if i == 0 or joined else " ")
                for i, (piece, joined) in enumerate(
                    zip(pieces, continued, strict=True)
                )
            ]
        found, before = [], None
        for i, piece in enumerate(pieces, place):
            source = self._sources[self._owner[i]].text
            start, end = int(self._starts[i]), int(self._ends[i])
            text = source[start:end].decode("utf-8", "replace")
            space = "" if before is None else _space(source[before:start])
            if text != text.lstrip() and before is not None:
                space = space or _space(text[: -len(text.lstrip()) or None])
            found.append(Token(text.strip() or _bare(piece), piece, space))
            before = end
        return found

    def cut(self) -> list[Cut]:
        """Returns the parts of the texts that no call of `find` took."""
        parts = []
        for source in self._sources:
            taken = self._taken[source.first : source.last]
            # Begins and ends of the runs of tokens that were not taken.
            edges = np.flatnonzero(np.diff(np.r_[True, taken, True]))
            for first, last in zip(edges[::2], edges[1::2], strict=True):
                start = self._starts[source.first + first]
                end = self._ends[source.first + last - 1]
                text = source.text[start:end].decode("utf-8", "replace")
                parts.append(Cut(source.name, text.strip(), int(last - first)))
        return parts


def pieces_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Returns the pieces of token ids."""
    return [
        x.decode("utf-8", "replace")
        for x in tokenizer.id_to_token(tf.constant(ids, tf.int32)).numpy()
    ]


def _flat(value: Any) -> Iterable[str]:
    """Yields the strings in nested lists, except empty ones."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, list | tuple | np.ndarray):
        for x in value:
            yield from _flat(x)


def _space(gap: bytes | str) -> str:
    """Returns the separator to show for the text between two tokens."""
    text = gap.decode("utf-8", "replace") if isinstance(gap, bytes) else gap
    if "\n" in text:
        return "\n"
    return " " if text else ""


def _bare(piece: str) -> str:
    """Removes the mark of a word's start, or of its continuation."""
    for prefix in _PREFIXES:
        if piece.startswith(prefix) and piece != prefix:
            return piece.removeprefix(prefix)
    return piece
