"""SQuAD's metrics of answers, and scores of evidence.

The numbers equal those of SQuAD's official scripts (1.1 and 2.0), from 0 to 1,
except that a missing prediction counts 0.
"""

from collections.abc import Sequence

from etcmodel.datasets import answer_metrics
from etcmodel.datasets.answer_metrics import normalize_answer


def answer_scores(
    prediction: str, answers: Sequence[str]
) -> tuple[float, float]:
    """Returns exact match and F1 with the most similar answer.

    Answers are compared as by HotpotQA's and SQuAD's scripts (see
    `answer_metrics`). An empty list means one empty answer, and so do answers
    of only articles and punctuation. If only one side has no words, F1 is 0; if
    both have none, 1.

    Example: "the York Minster" has (0, 2/3) for `["York", "Eboracum"]`.
    """
    prediction = normalize_answer(prediction)
    truths = [x for x in map(normalize_answer, answers) if x] or [""]
    scores = [answer_metrics.word_scores(prediction, x) for x in truths]
    exact = max(x.em for x in scores)
    if not prediction:
        return exact, exact
    return exact, max(x.f1 for x in scores)
