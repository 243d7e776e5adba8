"""Finds answers in documents, at their offsets or nearby."""

import bisect
import itertools
from collections.abc import Iterator

import msgspec

from etcmodel.datasets.answer_spans import find_answers
from etcmodel.readers.sectioned import Document


class Place(msgspec.Struct, frozen=True):
    """A part of one text of a document.

    Attributes:
        paragraph: index of the paragraph, counted through all sections.
        text: index of the text in the paragraph; 0 if the paragraph is not
            split.
        start: first character in the text.
        end: exclusive end in the text.
    """

    paragraph: int
    text: int
    start: int
    end: int


class AnswerFinder:
    """Finds answers in a document, and counts misplaced answers.

    Attributes:
        num_moved: number of answers found elsewhere than at their offset.
        num_missing: number of answers that were not found.
    """

    def __init__(self, document: Document):
        self.num_moved = 0
        self.num_missing = 0
        paragraphs = itertools.chain.from_iterable(
            x.paragraphs for x in document.sections
        )
        # For each text: (paragraph, index), start in the document, and content.
        self._positions: list[tuple[int, int]] = []
        self._starts: list[int] = []
        self._texts: list[str] = []
        for i, (texts, start) in enumerate(
            zip(paragraphs, document.offsets, strict=True)
        ):
            for j, text in enumerate(texts):
                self._positions.append((i, j))
                self._starts.append(start)
                self._texts.append(text)
                start += len(text) + 1

    def find(self, answer: str, start: int | None) -> Place | None:
        """Finds an answer by its offset in the document.

        Returns the place at the offset if the answer is there. Otherwise,
        returns the nearest exact match, or else the nearest match of
        `answer_spans.find_answers`. Returns None if there is no match, or if
        `start` is None.
        """
        stripped = answer.strip()
        if start is None:
            if not any(stripped in x for x in self._texts):
                self.num_missing += not find_answers(self._texts, [answer])
            return None
        start += len(answer) - len(answer.lstrip())
        i = bisect.bisect_right(self._starts, start) - 1
        first = start - self._starts[i]
        if i >= 0 and self._texts[i].startswith(stripped, first):
            return self._place(i, first, first + len(stripped))
        found = list(self._exact(stripped)) or list(self._similar(answer))
        if not found:
            self.num_missing += 1
            return None
        self.num_moved += 1
        return self._place(
            *min(found, key=lambda x: abs(self._starts[x[0]] + x[1] - start))
        )

    def _place(self, i: int, start: int, end: int) -> Place:
        return Place(*self._positions[i], start, end)

    def _exact(self, answer: str) -> Iterator[tuple[int, int, int]]:
        """Yields the places where an answer occurs as written."""
        for i, text in enumerate(self._texts):
            place = text.find(answer)
            while place >= 0:
                yield i, place, place + len(answer)
                place = text.find(answer, place + 1)

    def _similar(self, answer: str) -> Iterator[tuple[int, int, int]]:
        """Yields the places where an answer occurs after normalization."""
        for i, start, end in find_answers(self._texts, [answer]):
            # Converts bytes to characters.
            data = self._texts[i].encode("utf-8", "replace")
            first = len(data[:start].decode("utf-8"))
            yield i, first, first + len(data[start:end].decode("utf-8"))
