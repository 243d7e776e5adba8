"""HotpotQA's official metrics: answers, supporting facts, and both jointly.

The numbers equal those of the official script, `hotpot_evaluate_v1.py`, from 0
to 1. Its less obvious rules:

*   The sums are divided by the number of all gold records. A missing answer
    counts 0, but the record's supporting facts still count, and vice versa.
    Both are needed for the joint metrics.
*   An empty prediction is not a missing one: without gold facts, an empty list
    of facts has EM 1, though precision, recall and F1 are 0; and so has an
    answer of only articles and punctuation compared with another such one.
*   Only ASCII punctuation is stripped, and words are joined across it:
    "Quick-brown" becomes "quickbrown", while "«a»" keeps its quotation marks.
"""

from collections.abc import Iterable
from collections.abc import Mapping

from etcmodel.datasets.answer_metrics import Scores as Scores
from etcmodel.datasets.answer_metrics import harmonic_mean
from etcmodel.datasets.answer_metrics import normalize_answer
from etcmodel.datasets.answer_metrics import set_scores
from etcmodel.datasets.answer_metrics import word_scores

Fact = tuple[str, int]
"""A supporting fact: title of the paragraph, index of the sentence."""

_ALL_OR_NOTHING = frozenset({"yes", "no", "noanswer"})

# Endings of the official names, in the order of the fields of `Scores`.
_METRICS = ("em", "f1", "prec", "recall")


def answer_scores(prediction: str, gold: str) -> Scores:
    """Compares two answers word by word, after normalization.

    Words are counted as often as they occur: "Paris Paris Texas" has an F1 of
    0.8 for "the Paris, Texas". If one is "yes", "no" or "noanswer" and the
    other differs, all scores are 0, so that "no" does not match "no man".
    """
    prediction = normalize_answer(prediction)
    gold = normalize_answer(gold)
    if prediction != gold and not _ALL_OR_NOTHING.isdisjoint(
        (prediction, gold)
    ):
        return Scores()
    return word_scores(prediction, gold)


def supporting_fact_scores(
    predicted: Iterable[Fact], gold: Iterable[Fact]
) -> Scores:
    """Compares two sets of supporting facts; repeated facts count once."""
    return set_scores(map(tuple, predicted), map(tuple, gold))


def joint_scores(answer: Scores, facts: Scores) -> Scores:
    """Combines the scores of an answer and its supporting facts.

    Precision, recall and EM are products; F1 is computed from the products.
    """
    precision = answer.precision * facts.precision
    recall = answer.recall * facts.recall
    f1 = harmonic_mean(precision, recall)
    return Scores(answer.em * facts.em, f1, precision, recall)


def evaluate(
    answers: Mapping[str, str],
    supporting_facts: Mapping[str, Iterable[Fact]],
    gold: Mapping[str, tuple[str, Iterable[Fact]]],
) -> dict[str, float]:
    """Computes the official metrics, from 0 to 1; 0 without records.

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
        # Missing predictions keep scores of 0, also in the joint metrics.
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
