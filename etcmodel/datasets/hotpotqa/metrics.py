"""HotpotQA's official metrics: answers, supporting facts, and both jointly.

The numbers equal those of the official script, `hotpot_evaluate_v1.py`, from 0
to 1. Its less obvious rules:

*   The sums are divided by the number of all gold records. An answer that is
    missing counts 0, but the record's supporting facts still count; and the
    other way round. Both are needed for the joint metrics.
*   An empty prediction is not a missing one: without any gold facts, an empty
    list of facts has EM 1, though precision, recall and F1 are 0; and so has an
    answer of articles and punctuation alone against another such one.
*   Only ASCII punctuation is stripped, and words are joined across it:
    "Quick-brown" becomes "quickbrown", while "«a»" keeps its quotation marks.
"""

import collections
import re
import string
from collections.abc import Iterable
from collections.abc import Mapping
from typing import NamedTuple

Fact = tuple[str, int]
"""A supporting fact: title of the paragraph, index of the sentence."""

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ALL_OR_NOTHING = frozenset({"yes", "no", "noanswer"})

# Ends of the official names, in the order of the fields of `Scores`.
_METRICS = ("em", "f1", "prec", "recall")


class Scores(NamedTuple):
    """How good one prediction is, from 0 to 1; EM is for an exact match."""

    em: float = 0.0
    f1: float = 0.0
    precision: float = 0.0
    recall: float = 0.0


def _harmonic_mean(precision: float, recall: float) -> float:
    total = precision + recall
    return 2 * precision * recall / total if total > 0 else 0.0


def _overlap_scores(
    exact: bool, common: int, predicted: int, gold: int
) -> Scores:
    """Scores of a (multi)set, from the sizes of the sets and their overlap."""
    precision = common / predicted if predicted else 0.0
    recall = common / gold if gold else 0.0
    f1 = _harmonic_mean(precision, recall)
    return Scores(float(exact), f1, precision, recall)


def normalize_answer(text: str) -> str:
    """Normalizes an answer for comparison.

    Lower case, without ASCII punctuation (nothing replaces it), without the
    words "a", "an", "the", with single spaces: "The  Quick-brown, an Apple!"
    becomes "quickbrown apple".
    """
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def answer_scores(prediction: str, gold: str) -> Scores:
    """Compares two answers word by word, after normalization.

    Words are counted as often as they occur: "Paris Paris Texas" has an F1 of
    0.8 for "the Paris, Texas". If one is "yes", "no" or "noanswer" and the
    other differs, all scores are 0, so that "no" gets nothing from "no man".
    """
    prediction = normalize_answer(prediction)
    gold = normalize_answer(gold)
    exact = prediction == gold
    if not exact and not _ALL_OR_NOTHING.isdisjoint((prediction, gold)):
        return Scores()
    predicted_words = collections.Counter(prediction.split())
    gold_words = collections.Counter(gold.split())
    return _overlap_scores(
        exact,
        common=(predicted_words & gold_words).total(),
        predicted=predicted_words.total(),
        gold=gold_words.total(),
    )


def supporting_fact_scores(
    predicted: Iterable[Fact], gold: Iterable[Fact]
) -> Scores:
    """Compares two sets of supporting facts; repeated facts count once."""
    predicted_set = {tuple(fact) for fact in predicted}
    gold_set = {tuple(fact) for fact in gold}
    return _overlap_scores(
        predicted_set == gold_set,
        common=len(predicted_set & gold_set),
        predicted=len(predicted_set),
        gold=len(gold_set),
    )


def joint_scores(answer: Scores, facts: Scores) -> Scores:
    """Scores of an answer and its supporting facts taken together.

    Precision, recall and EM are products; F1 is computed from the products.
    """
    precision = answer.precision * facts.precision
    recall = answer.recall * facts.recall
    f1 = _harmonic_mean(precision, recall)
    return Scores(answer.em * facts.em, f1, precision, recall)


def evaluate(
    answers: Mapping[str, str],
    supporting_facts: Mapping[str, Iterable[Fact]],
    gold: Mapping[str, tuple[str, Iterable[Fact]]],
) -> dict[str, float]:
    """The official metrics of a data set, from 0 to 1; 0 without records.

    Args:
        answers: record id -> predicted answer; the official file's "answer".
        supporting_facts: record id -> predicted facts; the file's "sp".
        gold: record id -> true answer and facts.

    Returns:
        Means over all of `gold`: `em`, `f1`, `prec` and `recall` of the
        answers; the same after `sp_` and `joint_`.
    """
    rows: dict[str, list[Scores]] = {"": [], "sp_": [], "joint_": []}
    for record_id, (gold_answer, gold_facts) in gold.items():
        # What is missing keeps scores of 0, and so makes the joint ones 0.
        answer = facts = Scores()
        if record_id in answers:
            answer = answer_scores(answers[record_id], gold_answer)
        if record_id in supporting_facts:
            facts = supporting_fact_scores(
                supporting_facts[record_id], gold_facts
            )
        rows[""].append(answer)
        rows["sp_"].append(facts)
        rows["joint_"].append(joint_scores(answer, facts))
    return {
        prefix + name: sum(x[i] for x in scores) / max(1, len(gold))
        for prefix, scores in rows.items()
        for i, name in enumerate(_METRICS)
    }
