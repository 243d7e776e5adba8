"""Where answers stand in texts."""

import re
from collections.abc import Iterable
from collections.abc import Sequence
from typing import NamedTuple


class Occurrence(NamedTuple):
    """Where an answer stands in one of several texts.

    Attributes:
        text: index of the text.
        start: where it starts, in bytes.
        end: its exclusive end.
    """

    text: int
    start: int
    end: int


def find_answers(
    texts: Sequence[str], answers: Iterable[str]
) -> list[Occurrence]:
    """Finds all forms of an answer in texts.

    Between word boundaries as they are written, or else in any case; only where
    there is none, inside of words, too, in the same order: "art" is found in
    "party" only where no text has the word "art" or "Art".

    Example: `find_answers(["Art, art", "party"], ["art"])` gives
    `[Occurrence(text=0, start=5, end=8)]`.

    Args:
        texts: where to search.
        answers: what to search for; what is but white space is nowhere.

    Returns:
        Occurrences in order, each once. Only those of different answers may
        overlap.
    """
    forms = {x for x in map(str.strip, answers) if x}
    for with_boundaries in (True, False):
        for flags in (0, re.IGNORECASE):
            found = _find(texts, forms, with_boundaries, flags)
            if found:
                return found
    return []


def _find(texts, forms, with_boundaries, flags) -> list[Occurrence]:
    found = set()
    for form in forms:
        pattern = re.escape(form)
        if with_boundaries:
            # A word neither begins nor ends between two letters or digits.
            before = r"(?<![^\W_])" if form[0].isalnum() else ""
            behind = r"(?![^\W_])" if form[-1].isalnum() else ""
            pattern = f"{before}{pattern}{behind}"
        expression = re.compile(pattern, flags)
        for index, text in enumerate(texts):
            # How far the text was read, in characters and in bytes.
            at = end = 0
            for match in expression.finditer(text):
                start = end + _num_bytes(text[at : match.start()])
                at = match.end()
                end = start + _num_bytes(match[0])
                found.add(Occurrence(index, start, end))
    return sorted(found)


def _num_bytes(text: str) -> int:
    """Length in UTF-8, with "?" for what has none, as lone surrogates."""
    return len(text.encode("utf-8", "replace"))
