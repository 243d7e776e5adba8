"""Computes SQuAD's metrics: exact match and F1 of answers.

Scores are from 0 to 1, and equal those of SQuAD's official scripts (1.1 and
2.0).
"""

from collections.abc import Sequence

from etcmodel.datasets import answer_metrics
from etcmodel.datasets.answer_metrics import normalize_answer


def answer_scores(
    prediction: str, answers: Sequence[str]
) -> tuple[float, float]:
    """Returns exact match and F1, each the maximum over all answers.

    Answers are compared as by HotpotQA's and SQuAD's scripts (see
    `answer_metrics`). The right answer is empty if `answers` is empty, or if
    all of them have only articles and punctuation. If both the prediction and
    the answer have no words, F1 is 1; if only one of them has none, F1 is 0.

    Example: "the York Minster" scores (0, 2/3) with `["York", "Eboracum"]`.
    """
    prediction = normalize_answer(prediction)
    truths = [x for x in map(normalize_answer, answers) if x] or [""]
    scores = [answer_metrics.word_scores(prediction, x) for x in truths]
    exact = max(x.em for x in scores)
    if not prediction:
        return exact, exact
    return exact, max(x.f1 for x in scores)
