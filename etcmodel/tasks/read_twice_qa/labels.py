"""Labels answers in the segments of a document."""

from collections.abc import Sequence

import numpy as np

from etcmodel.feature_utils.text import word_cuts

# Answer types, as numbered in records and in `option_logits`.
ANSWER_TYPES = ("span", "yes", "no")


def label_answers(
    starts: np.ndarray,
    ends: np.ndarray,
    cuts: np.ndarray,
    spans: Sequence[tuple[int, int]],
    max_answers: int,
) -> tuple[np.ndarray, int]:
    """Labels the answers that lie completely inside each segment.

    Labels are whole words. An answer that is a part of a word is only labelled
    if the segment has no exact answer.

    Args:
        starts: first byte of each token, -1 for other tokens,
            `<int32>[segments, length]`.
        ends: exclusive end of each token.
        cuts: whether each token begins or ends inside a word; see `word_cuts`.
        spans: first byte and exclusive end of each answer, in order.
        max_answers: maximum number of answers labelled in a segment.

    Returns:
        `<int32>[3, segments, max_answers]`: first token, last token, and 1 (0
        for padding) of each answer; and the number of answers that did not fit.
    """
    labels = np.zeros([3, len(starts), max_answers], np.int32)
    cut = 0
    for row, (own_starts, own_ends) in enumerate(
        zip(starts, ends, strict=True)
    ):
        (tokens,) = np.nonzero(own_starts >= 0)
        own_starts, own_ends = own_starts[tokens], own_ends[tokens]
        first_byte, last_byte = int(own_starts[0]), int(own_ends[-1])
        found, inexact = [], []
        for start, end in spans:
            if first_byte > start or last_byte < end:
                continue
            first = np.searchsorted(own_ends, start, side="right")
            last = np.searchsorted(own_starts, end, side="left") - 1
            if first > last:
                continue
            place = tokens[first], tokens[last]
            whole = word_cuts.whole_words(cuts[row], *place)
            is_exact = own_starts[first] == start and own_ends[last] == end
            is_exact &= whole == place
            place = whole
            (found if is_exact else inexact).append(place)
        chosen = list(dict.fromkeys(found or inexact))
        cut += max(len(chosen) - max_answers, 0)
        for i, place in enumerate(chosen[:max_answers]):
            labels[:, row, i] = (*place, 1)
    return labels, cut
