"""Splits plain texts into documents: by file, by empty line or by heading."""

import itertools
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from etcmodel.readers import json_stream

# Texts longer than this, about 200,000 tokens, are split into several
# documents, so that files of any size can be read.
_MAX_CHARACTERS = 1 << 20
# Ends of paragraphs, lines, sentences and words. A long text is split after one
# of these, in this order of preference.
_ENDS = ("\n\n", "\n\r\n", "\n", ". ", "。", " ")
# WikiText writes "1,000" as "1 @,@ 000".
_JOINT = re.compile(r" @([-.,])@ ")

OnPosition = Callable[[int], None] | None


def divide(text: str) -> Iterator[str]:
    """Splits a text of more than about a million characters into parts.

    Each split is in the second half of the maximum length: after a paragraph,
    or else after a line, a sentence or a word.
    """
    start = 0
    while start + _MAX_CHARACTERS < len(text):
        end = start + _MAX_CHARACTERS
        middle = start + _MAX_CHARACTERS // 2
        for mark in _ENDS:
            place = text.rfind(mark, middle, end)
            if place >= 0:
                end = place + len(mark)
                break
        yield text[start:end]
        start = end
    yield text[start:]


def is_wikitext(path: str) -> bool:
    """Returns whether a file is in the format of the WikiText corpora.

    In this format, the first line that is not blank is a top-level heading,
    such as " = Valkyria Chronicles III = ".
    """
    for line in json_stream.read_text_lines(path):
        if line.strip():
            return (_heading(line) or (0, ""))[0] == 1
    return False


def read_wikitext(path: str, on_position: OnPosition = None) -> Iterator[str]:
    """Yields the articles of a file in the format of the WikiText corpora.

    Example: the lines " = Crow = ", "It eats 1 @,@ 000 things .", " = = Name =
    = " and "It caws ." become one article: "Crow", "It eats 1,000 things .",
    "Name" and "It caws .", with empty lines around the headings.

    In the official files, empty lines precede and follow each heading. A line
    such as " = 1 henry = " without empty lines around it is a formula. If the
    file's first heading has no empty line after it, all such lines are
    headings.
    """

    def lines():
        found = json_stream.read_text_lines(path, on_position)
        stands_apart, before = None, ""
        for line, after in itertools.pairwise(itertools.chain(found, [""])):
            level, text = _heading(line) or (0, "")
            if level and stands_apart is None:
                stands_apart = not after.strip()
            if stands_apart and (before.strip() or after.strip()):
                level = 0
            if level == 1:
                yield None
            cleaned = _JOINT.sub(r"\1", text if level else line)
            yield f"\n{cleaned}\n\n" if level else cleaned
            before = line

    return _texts(lines())


def read_pieces(path: str, on_position: OnPosition = None) -> Iterator[str]:
    """Yields the parts of a text that are separated by empty lines."""
    lines = json_stream.read_text_lines(path, on_position)
    return _texts(x if x.strip() else None for x in lines)


def read_file(path: str, on_position: OnPosition = None) -> Iterator[str]:
    """Yields a file as one text, or as parts (see `divide`) if it is long."""
    return _texts(json_stream.read_text_lines(path, on_position))


def _heading(line: str) -> tuple[int, str] | None:
    """Returns the level and text of a heading; None for any other line.

    Example: " = = History = = " gives 2 and "History".
    """
    line, level = line.strip(), 0
    while line.startswith("= ", 2 * level):
        level += 1
    text = line[2 * level : len(line) - 2 * level]
    if (
        not level
        or not text
        or text != text.strip()
        or text.endswith(" =")
        or not line.endswith(" =" * level)
    ):
        return None
    return level, text


def _texts(lines: Iterable[str | None]) -> Iterator[str]:
    """Joins lines to texts. A text ends at None or at the maximum length."""
    pending, size = [], 0
    for line in itertools.chain(lines, [None]):
        if line is not None:
            pending.append(line)
            size += len(line)
            if size <= _MAX_CHARACTERS:
                continue
        parts = list(divide("".join(pending)))
        # The text may continue in the next line, so its last part is kept.
        pending = [] if line is None else [parts.pop()]
        size = sum(map(len, pending))
        for part in parts:
            if stripped := part.strip():
                yield stripped
