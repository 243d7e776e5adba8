"""Finds the tokens of answers in the long input; host code."""

from collections.abc import Mapping

import numpy as np

from etcmodel.feature_utils.text import word_cuts


class SpanFinder:
    """Finds spans of bytes of units as whole words in the long input.

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
        """Returns the first and last token; None if all were cut.

        Args:
            group: the unit's group.
            unit: the unit in its group.
            start: first byte of the span in the unit.
            end: the exclusive end.
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

    def text(self, unit: str, first: int, last: int) -> bytes:
        """Returns the text of tokens of a unit, stripped of white space."""
        content = unit.encode("utf-8", "replace")
        return content[self.starts[first] : self.ends[last]].strip()
