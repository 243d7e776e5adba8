"""WikiHop's official metric: accuracy of the chosen candidates."""

import dataclasses
from collections.abc import Mapping

from etcmodel.tasks.wikihop.records import normalize_answer


@dataclasses.dataclass(frozen=True)
class WikiHopScore:
    """How many questions were answered right.

    Attributes:
        correct: number of right answers.
        total: number of questions that have an answer.
        missing: number of questions among them that were not answered; they
            count as wrong.
    """

    correct: int
    total: int
    missing: int

    @property
    def accuracy(self) -> float:
        """Share of right answers, from 0 to 1; 0 if there are no questions."""
        return self.correct / self.total if self.total else 0.0


def score_predictions(
    predictions: Mapping[str, str], answers: Mapping[str, str]
) -> WikiHopScore:
    """Compares predictions with the right answers, as the official script does.

    An answer is right if it equals the true one in lower case, without
    surrounding space:

        score_predictions({"a": "Oslo ", "b": "Rome"},
                          {"a": "oslo", "b": "paris", "c": "bonn"})
        -> WikiHopScore(correct=1, total=3, missing=1)

    Args:
        predictions: record id -> answer, as in a submission.
        answers: record id -> the true answer.

    Returns:
        The counts.
    """
    correct = missing = 0
    for record_id, answer in answers.items():
        if record_id not in predictions:
            missing += 1
        elif normalize_answer(predictions[record_id]) == normalize_answer(
            answer
        ):
            correct += 1
    return WikiHopScore(correct=correct, total=len(answers), missing=missing)
