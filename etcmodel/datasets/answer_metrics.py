"""Scores answers and sets; several datasets use these functions.

`normalize_answer` follows the official scripts of SQuAD, HotpotQA and TriviaQA:
only ASCII punctuation is removed, so that "«a»" keeps its quotation marks.
"""

import collections
import re
import string
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import NamedTuple

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Scores(NamedTuple):
    """Metrics of one prediction, from 0 to 1; `em` is exact match."""

    em: float = 0.0
    f1: float = 0.0
    precision: float = 0.0
    recall: float = 0.0


def normalize_answer(
    text: str, replacements: Mapping[int, int | str | None] = _NO_PUNCTUATION
) -> str:
    """Normalizes an answer for comparison.

    The result is in lower case, has single spaces, and lacks the words "a",
    "an" and "the". ASCII punctuation is removed, unless other `replacements`
    are given (see `str.translate`). Example: "The Quick-brown, an Apple!"
    becomes "quickbrown apple".
    """
    text = text.lower().translate(replacements)
    return " ".join(_ARTICLES.sub(" ", text).split())


def harmonic_mean(precision: float, recall: float) -> float:
    """Returns F1; 0 if both precision and recall are 0."""
    total = precision + recall
    return 2 * precision * recall / total if total > 0 else 0.0


def _overlap_scores(
    exact: bool, common: int, predicted: int, gold: int
) -> Scores:
    """Computes the scores of two (multi)sets from their sizes and overlap."""
    precision = common / predicted if predicted else 0.0
    recall = common / gold if gold else 0.0
    f1 = harmonic_mean(precision, recall)
    return Scores(float(exact), f1, precision, recall)


def word_scores(prediction: str, gold: str) -> Scores:
    """Compares the words of two normalized answers, ignoring their order.

    A repeated word counts each time: "paris paris texas" has an F1 of 0.8 for
    "paris texas". For two answers without words, EM is 1 and the other scores
    are 0.
    """
    predicted_words = collections.Counter(prediction.split())
    gold_words = collections.Counter(gold.split())
    return _overlap_scores(
        prediction == gold,
        common=(predicted_words & gold_words).total(),
        predicted=predicted_words.total(),
        gold=gold_words.total(),
    )


def set_scores(
    predicted: Iterable[Hashable], gold: Iterable[Hashable]
) -> Scores:
    """Compares two sets; repeated elements count once.

    For two empty sets, EM is 1 and the other scores are 0.
    """
    predicted, gold = set(predicted), set(gold)
    return _overlap_scores(
        predicted == gold,
        common=len(predicted & gold),
        predicted=len(predicted),
        gold=len(gold),
    )
