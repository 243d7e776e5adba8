"""Finds the spans of a story that are most similar to an answer.

Most answers of NarrativeQA do not occur in the story. Extractive models are
trained on the spans with the best ROUGE-L (ReadTwice paper, Appendix C.4). The
score of the best span is the upper bound for an extractive model.
"""

import re
from typing import NamedTuple

import numpy as np

from etcmodel.datasets.narrativeqa import metrics

_NUM_PROMISING = 64


class Span(NamedTuple):
    """A span of a text that is similar to an answer.

    Attributes:
        start: first character.
        end: exclusive end.
        score: ROUGE-L of the span and the answer, from 0 to 1.
    """

    start: int
    end: int
    score: float


class Words:
    """The words of a text, prepared once for many answers.

    Attributes:
        spans: first character and exclusive end of each word.
        known: lower-case word -> its number.
        numbers: the number of each word in `known`, `<int>[words]`.
    """

    def __init__(self, text: str):
        found = list(re.finditer(r"\S+", text))
        self.spans = [x.span() for x in found]
        self.known: dict[str, int] = {}
        words = (x[0].lower() for x in found)
        numbers = [self.known.setdefault(x, len(self.known)) for x in words]
        self.numbers = np.array(numbers, np.int32)


def _bounds(words: np.ndarray, answer: np.ndarray):
    """Returns possible starts of spans and an upper bound of ROUGE-L for each.

    A span must start with a word of the answer. The bound counts the answer's
    words in the longest span with this start.
    """
    is_shared = np.isin(words, answer)
    (starts,) = np.nonzero(is_shared)
    counts = np.concatenate([[0], np.cumsum(is_shared)])
    ends = np.minimum(starts + _max_length(answer), len(words))
    shared = np.minimum(counts[ends] - counts[starts], len(answer))
    return starts, metrics.f_score(1.0, shared / len(answer))


def _max_length(answer: np.ndarray) -> int:
    return 2 * len(answer) + 5


def _scores(words: np.ndarray, answer: np.ndarray, starts: np.ndarray):
    """Computes ROUGE-L of all spans with the given starts.

    Args:
        words: numbers of the text's words, `<int>[words]`.
        answer: numbers of the answer's words, `<int>[n]`; -1 for words that the
            text lacks.
        starts: first word of each span, `<int>[starts]`.

    Returns:
        `<float>[starts, 2 * n + 5]` for spans of 1, 2, 3, ... words; -1 beyond
        the end of the text.
    """
    max_length = _max_length(answer)
    # `[n + 1, starts]`: length of the longest common subsequence of each span
    # with the first 0, 1, ..., n words of the answer.
    common = np.zeros([len(answer) + 1, len(starts)], np.int16)
    scores = np.full([len(starts), max_length], -1.0, np.float32)
    for length in range(1, max_length + 1):
        is_inside = starts + length <= len(words)
        word = words[np.minimum(starts + length - 1, len(words) - 1)]
        # [n, starts]
        extended = common[:-1] + (word == answer[:, np.newaxis])
        for row in range(len(answer)):
            np.maximum(common[row + 1], extended[row], out=common[row + 1])
            np.maximum(common[row + 1], common[row], out=common[row + 1])
        shared = common[-1].astype(np.float32)
        precision, recall = shared / length, shared / len(answer)
        with np.errstate(invalid="ignore"):
            f = metrics.f_score(precision, recall)
        scores[:, length - 1] = np.where(is_inside, np.nan_to_num(f), -1.0)
    return scores


def find_approximate_answers(
    text: Words,
    answer: str,
    min_score: float = 0.35,
    top_percentile: float = 0.9,
    top_k: int = 100,
) -> list[Span]:
    """Finds the spans that are most similar to an answer, the best first.

    A span starts with a word of the answer, and has at most 2 n + 5 words for
    an answer of n words. White space separates words, and case is ignored.
    Among overlapping spans, only the best one is kept; among spans with the
    same words, only the last one.

    Example: the text is "aaa bbb aaa ccc", the answer is "aaa bbb" and
    `min_score` and `top_percentile` are 0. The result is "aaa bbb" (1.0) and
    "aaa". With a `top_percentile` of 1.0, it is only "aaa bbb".

    Args:
        text: the words of the text.
        answer: the answer.
        min_score: minimum ROUGE-L of a span, from 0 to 1.
        top_percentile: minimum ROUGE-L as a share of the best span's score.
        top_k: maximum number of spans.

    Raises:
        ValueError: a share is not from 0 to 1, or `top_k` is below 1.
    """
    if not (0 <= min_score <= 1 and 0 <= top_percentile <= 1 and top_k >= 1):
        raise ValueError(
            f"min_score is {min_score}, top_percentile {top_percentile} and "
            f"top_k {top_k}. Expected min_score and top_percentile from 0 to "
            "1, and top_k of at least 1."
        )
    numbers = [text.known.get(x, -1) for x in answer.lower().split()]
    if not any(x >= 0 for x in numbers):
        return []
    words, answer_ids = text.numbers, np.array(numbers, np.int32)
    starts, bounds = _bounds(words, answer_ids)
    # Scores the spans with the highest bounds first. Their best score rules out
    # all spans with a lower bound.
    few = starts[np.argsort(bounds)[-_NUM_PROMISING:]]
    best = _scores(words, answer_ids, few).max()
    starts = starts[bounds >= max(min_score, best * top_percentile) - 1e-4]
    scores = _scores(words, answer_ids, starts)
    min_score = max(min_score, scores.max(initial=0.0) * top_percentile, 1e-6)
    rows, columns = np.nonzero(scores >= min_score)
    # Sorts the best span first; among equal scores, the last in the text, then
    # the longest.
    order = np.lexsort((columns, starts[rows], scores[rows, columns]))[::-1]
    taken = np.zeros(len(text.numbers), bool)
    seen: set[tuple[int, ...]] = set()
    found: list[Span] = []
    for i in order:
        first = int(starts[rows[i]])
        last = first + int(columns[i])
        words = tuple(text.numbers[first : last + 1].tolist())
        if taken[first : last + 1].any() or words in seen:
            continue
        taken[first : last + 1] = True
        seen.add(words)
        score = float(scores[rows[i], columns[i]])
        found.append(Span(text.spans[first][0], text.spans[last][1], score))
        if len(found) == top_k:
            break
    return found
