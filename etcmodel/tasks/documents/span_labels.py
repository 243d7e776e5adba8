"""Finds the tokens of answers in the long input; host code."""

from collections.abc import Iterable
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from etcmodel.feature_utils.text import word_cuts


class FoundSpans(NamedTuple):
    """Token spans in the long input, except spans that were cut.

    Attributes:
        begins, ends: first and last token of each span.
        num_inexact: number of spans that have more text than the answer,
            because they are whole words: "South Koreans" for "South Korea".
    """

    begins: list[int]
    ends: list[int]
    num_inexact: int


class SpanFinder:
    """Finds the tokens of byte spans, as whole words in the long input.

    Args:
        section: index of the layout's section with the document.
        long_sources: `<int>[long, 4]` of `Layout`.
        places: `long_starts`, `long_ends` and `long_word_cuts`, `<int>[long]`;
            see `span_decoding.FIELDS`.
    """

    def __init__(
        self,
        section: int,
        long_sources: np.ndarray,
        places: Mapping[str, np.ndarray],
    ):
        self._groups = np.where(
            long_sources[:, 0] == section, long_sources[:, 1], -1
        )
        self._units = long_sources[:, 2]
        self.starts = places["long_starts"]
        self.ends = places["long_ends"]
        self._cuts = places["long_word_cuts"]

    def find(
        self, group: int, unit: int, start: int, end: int
    ) -> tuple[int, int] | None:
        """Returns a span's first and last token; None if all were cut.

        `start` and `end` (exclusive) are bytes of the unit.
        """
        (tokens,) = np.nonzero(
            (self._groups == group)
            & (self._units == unit)
            & (self.ends > start)
            & (self.starts < end)
        )
        if not tokens.size:
            return None
        return word_cuts.whole_words(self._cuts, tokens[0], tokens[-1])

    def find_all(
        self, spans: Iterable[tuple[int, int, str, int, int]]
    ) -> FoundSpans:
        """Finds spans given as (group, unit, text of the unit, start, end)."""
        begins, ends, num_inexact = [], [], 0
        for group, unit, text, start, end in spans:
            found = self.find(group, unit, start, end)
            if found is None:
                continue
            first, last = found
            content = text.encode("utf-8", "replace")
            content = content[self.starts[first] : self.ends[last]].strip()
            begins.append(first)
            ends.append(last)
            num_inexact += len(content) > end - start
        return FoundSpans(begins, ends, num_inexact)
