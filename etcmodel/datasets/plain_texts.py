"""Plain texts as documents: one a file, one a piece, or one a heading."""

import itertools
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from etcmodel.datasets import json_stream
from etcmodel.errors import UserError

# What is longer becomes several documents, so that a file of any size can be
# read: about 200,000 tokens.
_MAX_CHARACTERS = 1 << 20
# " = = History = = " is a heading of the second level.
_HEADING = re.compile(r"\s*((?:= )+)(\S(?:.*?\S)??)((?: =)+)\s*")
# How WikiText writes what stands between digits or parts of a word.
_JOINT = re.compile(r" @([-.,])@ ")

OnPosition = Callable[[int], None] | None


def is_wikitext(path: str) -> bool:
    """Whether a file is in the format of the WikiText corpora.

    Args:
        path: a text file, plain or gzipped.

    Returns:
        Whether its first line that is not blank is a heading of the first
        level, such as " = Valkyria Chronicles III = ".

    Raises:
        UserError: the file cannot be read.
    """
    for line in json_stream.read_text_lines(path):
        if line.strip():
            return (_heading(line) or (0, ""))[0] == 1
    return False


def read_wikitext(path: str, on_position: OnPosition = None) -> Iterator[str]:
    """Yields the articles of a file in the format of the WikiText corpora.

    Example: the lines " = Crow = ", "It eats 1 @,@ 000 things .", " = = Name =
    = " and "It caws ." are one article, "Crow", "It eats 1,000 things .",
    "Name" and "It caws ." with empty lines around the headings.

    Args:
        path: a text file in UTF-8, plain or gzipped.
        on_position: see `json_stream.read_text_lines`.

    Yields:
        A text for each heading of the first level, which is its first line.

    Raises:
        UserError: the file cannot be read, or has no text.
    """

    def lines():
        for line in json_stream.read_text_lines(path, on_position):
            level, text = _heading(line) or (0, "")
            if level == 1:
                yield None
            yield f"\n{text}\n\n" if level else _JOINT.sub(r"\1", line)

    return _texts(path, lines())


def read_pieces(path: str, on_position: OnPosition = None) -> Iterator[str]:
    """Yields the pieces of a text that have empty lines between them.

    Args:
        path: a text file in UTF-8, plain or gzipped.
        on_position: see `json_stream.read_text_lines`.

    Yields:
        The pieces, with line feeds inside but none at their ends.

    Raises:
        UserError: the file cannot be read, or has no text.
    """
    lines = json_stream.read_text_lines(path, on_position)
    return _texts(path, (x if x.strip() else None for x in lines))


def read_file(path: str, on_position: OnPosition = None) -> Iterator[str]:
    """Yields all of a file as one text.

    Args:
        path: a text file in UTF-8, plain or gzipped.
        on_position: see `json_stream.read_text_lines`.

    Yields:
        The text; in parts of about a million characters, if it is longer.

    Raises:
        UserError: the file cannot be read, or has no text.
    """
    return _texts(path, json_stream.read_text_lines(path, on_position))


def _heading(line: str) -> tuple[int, str] | None:
    """Level and text of a heading; None of any other line."""
    match = _HEADING.fullmatch(line)
    if match is None or len(match[1]) != len(match[3]):
        return None
    return len(match[1]) // 2, match[2]


def _texts(path: str, lines: Iterable[str | None]) -> Iterator[str]:
    """Texts of lines; None ends one, and so does a very great length.

    Raises:
        UserError: there are none.
    """
    parts, size, is_empty = [], 0, True
    for line in itertools.chain(lines, [None]):
        if line is not None:
            parts.append(line)
            size += len(line)
            if size < _MAX_CHARACTERS:
                continue
        text = "".join(parts).strip()
        parts, size = [], 0
        if text:
            is_empty = False
            yield text
    if is_empty:
        raise UserError(
            f"{path} is empty. Expected text, or one JSON object a line; was "
            "the download cut off?"
        )
