"""Finds the occurrences of answers in texts."""

import functools
import re
import unicodedata
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

from etcmodel.datasets.normalized_texts import NormalizedText
from etcmodel.datasets.normalized_texts import normalize

_MAX_SOUGHT = 64


class Occurrence(NamedTuple):
    """A place where an answer occurs in one of several texts.

    Attributes:
        text: index of the text.
        start: first byte of the answer in the UTF-8 text.
        end: exclusive end in bytes.
    """

    text: int
    start: int
    end: int


def find_answers(
    texts: Sequence[str], answers: Iterable[str], sentence_case: bool = False
) -> list[Occurrence]:
    """Finds all occurrences of all forms of an answer in texts.

    Texts and answers are compared after `normalized_texts.normalize`, which
    ignores differences in white space, Unicode normal form and HTML entities.

    Forms match whole words, as written or in capitals. If one form occurs as
    written, the other forms match in any case, except that a single word keeps
    its capitals, since "Will" is not "will". If no form occurs as written, all
    forms match in any case. If they still do not match, they are searched
    inside words as well.

    Example: `find_answers(["Art, art, ART", "party"], ["art"])` gives the
    ranges 5 to 8 and 10 to 13 of text 0.

    Args:
        texts: the texts to search.
        answers: the forms to find. Forms of only white space are ignored.
        sentence_case: whether a form that occurs as written, such as "The
            king", also matches with the other case of its first letter: "the
            king". Applies to forms of several words only.

    Returns:
        Each occurrence once, in order. Only occurrences of different forms can
        overlap.
    """
    forms = {normalize(x).strip() for x in answers} - {""}
    normalized = [_normalized(x) for x in texts]
    any_case = {x: _any_case(x) for x in forms}
    as_written = {x: re.escape(x) for x in forms}
    places = {x: _find(normalized, {x: as_written[x]}) for x in forms}
    found = set()
    if any(places.values()):
        found = _find(
            normalized,
            {x: _same_words(x, bool(places[x]), sentence_case) for x in forms},
        )
    return sorted(
        found.union(*places.values())
        or _find(normalized, any_case)
        or _find(normalized, as_written, words=False)
        or _find(normalized, any_case, words=False)
    )


# Cached, since questions about the same text are adjacent.
_normalized = functools.lru_cache(maxsize=8)(NormalizedText)


def _any_case(text: str) -> str:
    return f"(?i:{re.escape(text)})"


def _same_words(form: str, is_found: bool, sentence_case: bool) -> str:
    """Returns a pattern for a form's spellings if some form occurs as written.

    `is_found` is whether this form itself occurs as written.
    """
    has_words = " " in form
    if not is_found:
        if has_words:
            return _any_case(form)
        return "".join(
            re.escape(x) if x.isupper() else _any_case(x) for x in form
        )
    patterns = [re.escape(normalize(form.upper()) if form[1:] else form)]
    if sentence_case and has_words:
        patterns.append(_any_case(form[0]) + re.escape(form[1:]))
    return "|".join(patterns)


def _find(normalized, patterns, words=True) -> set[Occurrence]:
    """Finds forms by their patterns, as whole words or anywhere."""
    found = set()
    for form, pattern in patterns.items():
        before = behind = ""
        if words:
            # A word starts and ends where no letter or digit is adjacent.
            before = r"(?<![^\W_])" if form[0].isalnum() else ""
            behind = r"(?![^\W_])" if form[-1].isalnum() else ""
        expression = f"{before}(?:{pattern}){behind}"
        for index, text in enumerate(normalized):
            matches = _matches(text, expression, form)
            for start, end in _places(text, matches, bool(before)):
                found.add(Occurrence(index, start, end))
    return found


def _matches(
    text: NormalizedText, expression: str, form: str
) -> Iterator[re.Match]:
    """Yields the matches of `re.finditer` for spellings of a form.

    First looks up the form in the lower-case text, which is much faster than a
    regular expression. Compiles the pattern only if the form is found.
    """
    if text.lowered is None or not form.isascii():
        yield from re.finditer(expression, text.text)
        return
    places = _places_in_any_case(text, form)
    pattern, end = places and re.compile(expression), 0
    for place in places:
        match = place >= end and pattern.match(text.text, place)
        if match:
            end = match.end()
            yield match


# Cached, since several patterns of a form are tried in turn.
@functools.lru_cache(maxsize=256)
def _places_in_any_case(text: NormalizedText, form: str) -> tuple[int, ...]:
    """Returns the starts of a form in any case; occurrences may overlap."""
    lowered, sought, at, places = text.lowered, form.lower(), -1, []
    # Searches for the beginning only: each `find` first processes the whole
    # sought text, which may be long.
    start = sought[:_MAX_SOUGHT]
    while (at := lowered.find(start, at + 1)) >= 0:
        if lowered.startswith(sought, at):
            places.append(at)
    return tuple(places)


def _places(
    text: NormalizedText, matches: Iterator[re.Match], begins_word: bool
) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each match in bytes of the given text."""
    # The bytes up to here are counted: `at` in characters, `end` in bytes.
    at = end = 0
    for match in matches:
        if _splits_character(text.text, match, begins_word):
            continue
        first, last = map(text.given_place, match.span())
        if first is None or last is None:
            continue
        start = end + _num_bytes(text.given[at:first])
        at = last
        end = start + _num_bytes(text.given[first:last])
        yield start, end


def _splits_character(text: str, match, begins_word: bool) -> bool:
    """Returns whether a combining mark follows a match or precedes a word."""
    start, end = match.span()
    return _is_mark(text[end : end + 1]) or (
        begins_word and _is_mark(text[max(start - 1, 0) : start])
    )


def _is_mark(character: str) -> bool:
    return character > "\x7f" and unicodedata.category(character)[0] == "M"


def _num_bytes(text: str) -> int:
    """Returns the length in UTF-8 bytes; a lone surrogate counts as "?"."""
    return len(text.encode("utf-8", "replace"))
