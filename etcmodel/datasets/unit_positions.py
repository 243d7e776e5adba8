"""Reads the selected units, such as sentences or paragraphs, of a document."""

import bisect
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

from etcmodel.datasets.normalized_texts import normalize
from etcmodel.errors import RecordError
from etcmodel.errors import show
from etcmodel.readers.sectioned import Document
from etcmodel.readers.sectioned import Row
from etcmodel.readers.sectioned import whole

UNITS = ("auto", "sentences", "texts", "paragraphs")
WHOLE_PARAGRAPH = -1

# Unicode categories of upper- and lower-case letters, their marks, and digits.
_WORD_CATEGORIES = ("Lu", "Ll", "Lt", "Mn", "Mc", "Nd")

# Numbers without brackets may be positions, so they do not count as text.
_NUMBERS = re.compile(r"[\d\s,;]+")
Position = tuple[int, int]
"""Index of a paragraph, counted through all sections, and of a text in it."""

_NO_FLAGS = (
    "true and false, texts, or [title, text], since 0 and 1 can be flags or "
    "positions here"
)
_EXPECTED = (
    "a list of positions [paragraph, text] or [title, text], a list of texts, "
    "or true or false for each text"
)


class Selected(NamedTuple):
    """The selected units of a document.

    Attributes:
        positions: the units' positions, sorted and without repetitions. The
            text is -1 for a whole paragraph.
        texts: the selected texts, instead of positions, if the document is not
            split into sentences yet; `find_units` finds their positions.
    """

    positions: tuple[Position, ...] = ()
    texts: tuple[str, ...] = ()


def check_units(units: str) -> None:
    """Raises a `ValueError` if the units are not one of `UNITS`."""
    if units not in UNITS:
        raise ValueError(
            f"units is {units!r}, expected one of {', '.join(UNITS)}."
        )


class _Paragraph:
    """The texts of a paragraph, joined; all white space is removed.

    Attributes:
        ends: end of each text, in characters.
    """

    def __init__(self, texts: Iterable[str]):
        words = [normalize(x).split() for x in texts]
        self._content = "".join(itertools.chain.from_iterable(words))
        self.ends = list(itertools.accumulate(len("".join(x)) for x in words))
        lengths = map(len, itertools.chain.from_iterable(words))
        self._word_ends = set(itertools.accumulate(lengths))

    def whole_texts(self, sought: str) -> Iterator[tuple[int, int]]:
        """Yields the places where whole texts equal the sought text."""
        for start in dict.fromkeys([0, *self.ends]):
            end = start + len(sought)
            if self._content.startswith(sought, start) and end in self.ends:
                yield start, end

    def places(self, sought: str, words: bool) -> Iterator[tuple[int, int]]:
        """Yields the places of a text, as whole words or anywhere."""
        start = self._content.find(sought)
        while start >= 0:
            end = start + len(sought)
            is_right = not words or not (
                self._is_in_word(start) or self._is_in_word(end)
            )
            if is_right:
                yield start, end
            start = self._content.find(sought, end if is_right else start + 1)

    def _is_in_word(self, place: int) -> bool:
        """Returns whether a place is between two letters or digits of a word.

        Letters without case are ignored: most of their scripts have no spaces
        between words, or attach particles to words.
        """
        around = self._content[max(place - 1, 0) : place + 1]
        return (
            len(around) == 2
            and place not in self._word_ends
            and all(unicodedata.category(x) in _WORD_CATEGORIES for x in around)
        )


def _find_places(
    paragraphs: Sequence[_Paragraph], text: str
) -> list[tuple[int, int, int]]:
    """Finds a text in paragraphs, ignoring white space.

    First looks for whole texts that equal the text, then for the text as whole
    words, then for the text anywhere.

    Returns:
        Paragraph, start and end of each match of the first search that finds
        something.
    """
    sought = "".join(normalize(text).split())
    if not sought:
        return []
    for find in (
        _Paragraph.whole_texts,
        functools.partial(_Paragraph.places, words=True),
        functools.partial(_Paragraph.places, words=False),
    ):
        found = [
            (i, *place)
            for i, paragraph in enumerate(paragraphs)
            for place in find(paragraph, sought)
        ]
        if found:
            return found
    return []


def find_units(
    texts: Iterable[str], units: Iterable[tuple[int, int, str]]
) -> tuple[set[Position], int]:
    """Finds texts in the units of a document, ignoring white space.

    A unit that equals a text is selected, and so are adjacent units that equal
    it together. If there are none, the text is searched in paragraphs as whole
    words, then anywhere. A match selects each unit that is more than half
    inside the match, as in a selected passage, and the unit with the largest
    part of the match, as for a phrase.

    Example: of the units "He said: We won." and "We won.", the text "We won."
    selects the second. Without the second unit, it selects the first.

    Args:
        texts: the selected texts.
        units: paragraph, index in the paragraph and content of all units, in
            order.

    Returns:
        The positions, and the number of texts that were not found.
    """
    positions, paragraphs = [], []
    for _, group in itertools.groupby(units, key=lambda x: x[0]):
        group = list(group)
        positions.append([x[:2] for x in group])
        paragraphs.append(_Paragraph(x[2] for x in group))
    found, num_missing = set(), 0
    for text in texts:
        places = _find_places(paragraphs, text)
        num_missing += not places
        for i, start, end in places:
            covered = _covered(paragraphs[i].ends, start, end)
            found.update(positions[i][j] for j in covered)
    return found, num_missing


def _covered(ends: Sequence[int], start: int, end: int) -> list[int]:
    """Returns the units that a match selects; see `find_units`."""
    shares, overlaps = {}, {}
    for i in range(bisect.bisect_right(ends, start), len(ends)):
        first = ends[i - 1] if i else 0
        if first >= end:
            break
        overlaps[i] = min(end, ends[i]) - max(start, first)
        shares[i] = overlaps[i] / max(ends[i] - first, 1)
    most = max(overlaps, key=overlaps.get)
    return [i for i, share in shares.items() if share > 0.5 or i == most]


def read_selected(
    row: Row, field: str, document: Document, units: str = "auto"
) -> Selected:
    """Reads the units that a field of a row selects.

    The value has one of these formats. All indices start at 0.

    *   A list of positions `[paragraph, text]`, or `[title, text]` as in
        HotpotQA.
    *   A list of texts, or a single text.
    *   For each paragraph, a list with true or false, or 1 or 0, for each text.
    *   If `units` is "paragraphs": a list of paragraph indices, or of true or
        false for each paragraph.

    Args:
        row: the row.
        field: the field, which the row contains.
        document: the row's document.
        units: "paragraphs"; "sentences", if the document is not split into
            sentences yet; "texts", for the texts of the row's paragraphs; or
            "auto", which means "sentences" if paragraphs are strings, and
            "texts" if they are lists.

    Raises:
        RecordError: the value has another type, or is not in the document; or
            `units` is "sentences", but paragraphs are lists of texts.
    """
    reader = _Reader(row, field, document, units == "paragraphs")
    selected = reader.read(row.values[field])
    if units == "sentences" and any(x >= 0 for _, x in selected.positions):
        raise row.error(
            "paragraphs are lists",
            field=field,
            problem=(
                "a paragraph is a list of texts, so indices of texts are not "
                "indices of sentences"
            ),
            advice="Leave `units` out",
        )
    return selected


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _with_whole_numbers(value: object) -> object:
    """Converts floats that are whole numbers to ints, including in lists."""
    if isinstance(value, list):
        return [_with_whole_numbers(x) for x in value]
    return whole(value) if isinstance(value, float) else value


class _Reader:
    def __init__(self, row: Row, field: str, document: Document, whole: bool):
        self._row = row
        self._field = field
        self._document = document
        # Whether paragraphs are selected, rather than their texts.
        self._whole = whole
        self._paragraphs = [
            x for section in document.sections for x in section.paragraphs
        ]

    def read(self, value: object) -> Selected:
        """Converts the field's value to a selection."""
        value = _with_whole_numbers(value)
        if isinstance(value, str) and not _NUMBERS.fullmatch(value):
            value = [value]
        if not isinstance(value, list):
            raise self._wrong(value)
        if value and all(isinstance(x, str) for x in value):
            return self._texts(value)
        if value and all(isinstance(x, bool) for x in value):
            positions = self._paragraph_flags(value)
        elif value and all(map(_is_number, value)):
            positions = self._paragraph_numbers(value)
        elif all(isinstance(x, list) for x in value):
            positions = self._lists(value)
        else:
            raise self._wrong(value)
        return Selected(tuple(sorted(set(positions))))

    def _wrong(self, value, expected=_EXPECTED, place="") -> RecordError:
        return self._row.wrong(self._field + place, value, expected)

    def _texts(self, texts: list) -> Selected:
        positions = set()
        for i, text in enumerate(texts):
            place = f"{self._field}[{i}]"
            self._row.text(place, text, may_be_empty=False)
            found = self._find(text)
            if not found:
                is_unit = self._document.has_units and not self._whole
                what = "one of the texts" if is_unit else "a part"
                raise self._row.error(
                    "selected text is not in the document",
                    field=place,
                    problem=(
                        f"got {show(text)}, expected {what} of the document"
                    ),
                )
            positions |= found
        if not self._has_numbers:
            return Selected(texts=tuple(dict.fromkeys(texts)))
        return Selected(tuple(sorted(positions)))

    def _find(self, text: str) -> set[Position]:
        """Returns the units equal to a text, or the paragraphs with it."""
        if self._document.has_units and not self._whole:
            form = normalize(text).strip()
            return {
                (i, j)
                for i, texts in enumerate(self._paragraphs)
                for j, unit in enumerate(texts)
                if unit == text or normalize(unit).strip() == form
            }
        found = _find_places(self._contents, text)
        return {(i, WHOLE_PARAGRAPH) for i, *_ in found}

    @functools.cached_property
    def _contents(self) -> list[_Paragraph]:
        return [_Paragraph(x) for x in self._paragraphs]

    def _paragraph_flags(self, flags: list) -> list[Position]:
        if not self._whole:
            raise self._wrong(
                flags, "for each paragraph, a list of true and false"
            )
        if len(flags) != len(self._paragraphs):
            raise self._wrong(
                flags,
                "true or false for each of the document's "
                f"{len(self._paragraphs)} paragraphs",
            )
        return [(i, WHOLE_PARAGRAPH) for i, x in enumerate(flags) if x]

    def _paragraph_numbers(self, numbers: list) -> list[Position]:
        if not self._whole:
            raise self._wrong(
                numbers, f"{_EXPECTED}; for paragraphs, set units=paragraphs"
            )
        if len(set(numbers)) < len(numbers):
            raise self._wrong(
                numbers,
                "different indices of paragraphs, or true or false for each",
            )
        positions = [
            self._position(number, WHOLE_PARAGRAPH, f"[{i}]")
            for i, number in enumerate(numbers)
        ]
        if len(numbers) == len(self._paragraphs) and {*numbers} <= {0, 1}:
            raise self._wrong(numbers, _NO_FLAGS)
        return positions

    def _lists(self, value: list) -> list[Position]:
        if value and all(
            len(x) == 2 and isinstance(x[0], str) and _is_number(x[1])
            for x in value
        ):
            return [
                self._by_title(*x, place=f"[{i}]") for i, x in enumerate(value)
            ]
        flags = self._flags(value)
        if not all(len(x) == 2 and all(map(_is_number, x)) for x in value):
            if flags is None:
                raise self._wrong(value)
            return flags
        if flags is not None and not self._are_in_document(value):
            return flags
        positions = [
            self._position(*x, place=f"[{i}]") for i, x in enumerate(value)
        ]
        if flags is not None and set(flags) != set(positions):
            raise self._wrong(value, _NO_FLAGS)
        return positions

    def _flags(self, value: list) -> list[Position] | None:
        """Reads a flag for each text; returns None for other lists."""
        if not self._has_numbers or any(
            not isinstance(flag, int) or flag not in (0, 1)
            for x in value
            for flag in x
        ):
            return None
        if list(map(len, value)) != list(map(len, self._paragraphs)):
            return None
        return [
            self._in_units(i, j)
            for i, x in enumerate(value)
            for j, flag in enumerate(x)
            if flag
        ]

    @property
    def _has_numbers(self) -> bool:
        return self._document.has_units or self._whole

    def _are_in_document(self, pairs: list) -> bool:
        return all(
            0 <= i < len(self._paragraphs) and 0 <= j < len(self._paragraphs[i])
            for i, j in pairs
        )

    def _in_units(self, paragraph: int, text: int) -> Position:
        return paragraph, WHOLE_PARAGRAPH if self._whole else text

    def _position(self, paragraph: int, text: int, place: str) -> Position:
        """Returns a position after checking that it is in the document."""
        count = len(self._paragraphs)
        if not 0 <= paragraph < count:
            raise self._wrong(
                paragraph,
                f"the index of one of the {count} paragraphs, from 0",
                place,
            )
        if text != WHOLE_PARAGRAPH:
            self._check_number(text, len(self._paragraphs[paragraph]), place)
        return self._in_units(paragraph, text)

    def _check_number(self, text: int, count: int, place: str) -> None:
        """Raises an error if a paragraph or section lacks the text."""
        if not self._has_numbers:
            raise self._wrong(
                text,
                "texts, since indices need paragraphs that are lists of texts; "
                "or set units=paragraphs",
                place,
            )
        if not 0 <= text < count:
            raise self._wrong(
                text, f"the index of one of {count} texts, from 0", place
            )

    def _by_title(self, title: str, text: int, place: str) -> Position:
        """Returns the position of a text in the section with a title."""
        sections, first = {}, 0
        for section in self._document.sections:
            positions = [
                (first + i, j)
                for i, x in enumerate(section.paragraphs)
                for j in range(len(x))
            ]
            first += len(section.paragraphs)
            sections.setdefault(section.title, []).append(positions)
        if title not in sections:
            form = normalize(title).strip()
            same = (x for x in sections if normalize(x).strip() == form)
            title = next(same, title)
        if title not in sections:
            raise self._wrong(
                title, "the title of a section of the document", f"{place}[0]"
            )
        # Several sections may have the title: the first one with the text
        # counts.
        longest = max(sections[title], key=len)
        self._check_number(text, len(longest), f"{place}[1]")
        positions = next(x for x in sections[title] if text < len(x))
        return self._in_units(*positions[text])


class Unit(NamedTuple):
    """A unit of a document with its prediction.

    Attributes:
        paragraph: index of the paragraph, counted through all sections.
        text: index of the text in the paragraph; -1 for a whole paragraph.
        score: predicted probability that the unit is right.
        is_selected: whether the unit is predicted to be right.
        content: the unit's text, needed if the right units are texts.
    """

    paragraph: int
    text: int
    score: float = 1.0
    is_selected: bool = True
    content: str = ""


def right_positions(selected: Selected, units: Iterable[Unit]) -> set[Position]:
    """Returns the positions of the right units, given all units of a document.

    A selected paragraph stands for all its units. A selected text that is not
    found gets a position outside the document, so that it counts as missed.
    """
    units = list(units)
    known = {x[:2] for x in units}
    right = set()
    for position in selected.positions:
        paragraph, text = position
        inside = {x for x in known if x[0] == paragraph}
        is_whole = text == WHOLE_PARAGRAPH and position not in known
        right |= inside if is_whole and inside else {position}
    found, num_missing = find_units(
        selected.texts, ((*x[:2], x.content) for x in units)
    )
    return right | found | {(-1, i) for i in range(num_missing)}
