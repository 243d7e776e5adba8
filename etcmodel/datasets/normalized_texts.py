"""Normalizes texts for comparison, and maps offsets back to the original text.

Texts are equal after normalization if they differ only in white space,
canonically equivalent Unicode characters, or HTML entities.
"""

import bisect
import functools
import html
import re
import unicodedata
from collections.abc import Iterable
from collections.abc import Iterator
from typing import NamedTuple

_ENTITY = re.compile(r"&(?:#\d+|#[xX][\da-fA-F]+|[a-zA-Z][\da-zA-Z]*);")
# Dotted capital i, dotless i, the long s and the Kelvin sign: changing their
# case can give an ASCII letter.
_LETTERS = re.compile("[\u0130\u0131\u017f\u212a]")
_NON_ASCII = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+")
# White space other than one space between two words.
_SPACES = re.compile(r"\s{2,}|[^\S ]")
_EMPTY_LINE = re.compile(r"\n\s*\n|\u2029")


def normalize(text: str) -> str:
    r"""Normalizes a text for comparison.

    HTML entities are decoded, and characters are converted to Unicode normal
    form C. Runs of white space become one space, or a line feed if they contain
    an empty line; spaces at the ends are kept.

    Example: `"Caf\u00e9 &\u00a0bar"` and
    `"Cafe\u0301  &amp;\nbar"` become `"Caf\u00e9 & bar"`.
    """
    return NormalizedText(text).text


class NormalizedText:
    """A normalized text; maps its offsets to the given text.

    Attributes:
        given: the given text.
        text: the normalized text.
    """

    def __init__(self, given: str):
        self.given = given
        self._steps = _steps(given)
        self.text = self._steps[-1].text if self._steps else given

    @functools.cached_property
    def lowered(self) -> str | None:
        """The text in lower case, character by character.

        None if the text has a non-ASCII character whose upper or lower case is
        an ASCII letter, such as the Kelvin sign.
        """
        lowered = self.text.lower()
        is_plain = len(lowered) == len(self.text)
        return None if not is_plain or _LETTERS.search(self.text) else lowered

    def given_place(self, place: int) -> int | None:
        """Maps an offset in `text` to an offset in `given`, in characters.

        Returns None inside characters that replace one part of `given`.
        """
        for step in reversed(self._steps):
            if place is not None:
                place = step.to_source(place)
        return place


class _Replacement(NamedTuple):
    """A part of a text, and its replacement."""

    start: int
    end: int
    value: str


class _Step:
    """A text with replaced parts; maps its offsets back to the source."""

    def __init__(self, source: str, replacements: Iterable[_Replacement]):
        """Replaces parts, given in order; a replacement must not be empty."""
        parts, at, size = [], 0, 0
        # Boundaries of parts whose length changes, in this text and in the
        # source.
        self._here, self._there = [0], [0]
        for start, end, value in replacements:
            parts += (source[at:start], value)
            size += start - at
            if len(value) != end - start or len(value) > 1:
                self._here += (size, size + len(value))
                self._there += (start, end)
            size += len(value)
            at = end
        self.text = "".join((*parts, source[at:]))

    def to_source(self, place: int) -> int | None:
        """Maps an offset to the source; None inside a replaced part."""
        i = bisect.bisect_right(self._here, place) - 1
        shift = place - self._here[i]
        # Boundaries with an odd index are the starts of replaced parts.
        return None if shift and i % 2 else self._there[i] + shift


def _entities(text: str) -> Iterator[_Replacement]:
    for match in _ENTITY.finditer(text):
        value = html.unescape(match[0])
        if value and value != match[0]:
            yield _Replacement(*match.span(), value)


def _compositions(text: str) -> Iterator[_Replacement]:
    """Yields replacements of characters that Unicode normal form C changes."""
    if unicodedata.is_normalized("NFC", text):
        return
    for match in _NON_ASCII.finditer(text):
        start = match.start()
        for end in range(start + 1, match.end() + 1):
            own = text[start:end]
            if end < match.end() and _combines(own, text[end]):
                continue
            if _compose(own) != own:
                yield _Replacement(start, end, _compose(own))
            start = end


_compose = functools.partial(unicodedata.normalize, "NFC")


def _combines(before: str, character: str) -> bool:
    """Returns whether a character is normalized together with earlier ones."""
    return bool(unicodedata.combining(character)) or (
        _compose(before + character) != _compose(before) + _compose(character)
    )


def _spaces(text: str) -> Iterator[_Replacement]:
    """Yields replacements of white space by a space or a line feed."""
    for match in _SPACES.finditer(text):
        value = "\n" if _EMPTY_LINE.search(match[0]) else " "
        yield _Replacement(*match.span(), value)


def _steps(text: str) -> tuple[_Step, ...]:
    steps = []
    for replacements in (_entities, _compositions, _spaces):
        step = _Step(text, replacements(text))
        if step.text != text:
            steps.append(step)
            text = step.text
    return tuple(steps)
