"""Computes HotpotQA's official metrics of answers and supporting facts.

Answers and facts are scored separately and jointly. Scores are from 0 to 1 and
equal those of the official script, `hotpot_evaluate_v1.py`. Its less obvious
rules:

*   Scores are means over all gold records. A missing answer scores 0, but the
    record's supporting facts still count, and vice versa. The joint metrics
    need both.
*   An empty prediction is not a missing one. Without gold facts, an empty list
    of facts has EM 1, while precision, recall and F1 are 0. The same holds if
    the predicted and the gold answer have only articles and punctuation.
*   Only ASCII punctuation is removed, which can join words: "Quick-brown"
    becomes "quickbrown", while "«a»" keeps its quotation marks.
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

# Suffixes of the official metric names, in the order of the fields of `Scores`.
_METRICS = ("em", "f1", "prec", "recall")


def answer_scores(prediction: str, gold: str) -> Scores:
    """Compares two answers word by word, after normalization.

    A repeated word counts each time: "Paris Paris Texas" has an F1 of 0.8 for
    "the Paris, Texas". If one answer is "yes", "no" or "noanswer" and the other
    differs, all scores are 0, so that "no" does not match "no man".
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
        answers: record id -> predicted answer; "answer" in the official file.
        supporting_facts: record id -> predicted facts; "sp" in the file.
        gold: record id -> gold answer and facts.

    Returns:
        Means over all records in `gold`: `em`, `f1`, `prec` and `recall` of the
        answers. The prefix `sp_` marks these metrics for supporting facts, and
        `joint_` for answers and facts together.
    """
    rows: dict[str, list[Scores]] = {"": [], "sp_": [], "joint_": []}
    for record_id, (gold_answer, gold_facts) in gold.items():
        # Missing predictions score 0, even in the joint metrics.
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
