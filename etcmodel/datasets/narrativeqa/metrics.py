"""NarrativeQA's metrics: ROUGE-L, BLEU-1, BLEU-4 and METEOR.

Scores are in percent and equal those of nlg-eval (`Bleu_1`, `Bleu_4`,
`ROUGE_L`), which the ReadTwice paper uses. Answers are compared in lower case,
without a final period (ReadTwice paper, Appendix C.4).

METEOR differs. nlg-eval runs METEOR 1.5, a Java program with its own data. This
module uses nltk's METEOR (Banerjee and Lavie, 2005; weights of 2007) with exact
and stemmed matches. It ignores synonyms, which would need WordNet. Use it to
compare two models, but not with the METEOR scores in papers.
"""

import functools
import types
from collections.abc import Mapping
from collections.abc import Sequence

from etcmodel import extras

# Weight of recall relative to precision.
_BETA = 1.2


def f_score(precision, recall):
    """Computes ROUGE-L from precision and recall; NaN if both are 0."""
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def normalize_answer(text: str) -> str:
    """Normalizes an answer: `"A Mule  ."` becomes `"a mule"`."""
    return " ".join(text.lower().split()).rstrip(" .")


# Replaces WordNet, which users would have to download.
_NO_SYNONYMS = types.SimpleNamespace(synsets=lambda word: [])


@functools.cache
def _rouge_scorer():
    extras.require("rouge_score")
    # Imported only when needed, since the import is slow.
    from rouge_score import rouge_scorer

    # Only white space separates words, as in nlg-eval.
    tokenizer = types.SimpleNamespace(tokenize=str.split)
    return rouge_scorer.RougeScorer(["rougeL"], tokenizer=tokenizer)


def rouge_l(prediction: str, truths: Sequence[str]) -> float:
    """Computes ROUGE-L of one answer, from 0 to 1.

    Combines the best precision and the best recall over all truths. Recall is
    weighted 1.2 times as much as precision.
    """
    scores = [
        _rouge_scorer().score(truth, prediction)["rougeL"] for truth in truths
    ]
    precision = max(x.precision for x in scores)
    recall = max(x.recall for x in scores)
    return f_score(precision, recall) if precision and recall else 0.0


def _bleu(
    predictions: Sequence[str], truths: Sequence[Sequence[str]], order: int
) -> float:
    extras.require("sacrebleu")
    from sacrebleu.metrics import BLEU

    # BLEU needs the same number of truths for each prediction. Repeating the
    # last truth does not change the score.
    number = max(map(len, truths))
    columns = [[x[min(i, len(x) - 1)] for x in truths] for i in range(number)]
    # nlg-eval adds 1e-15 to the counts.
    metric = BLEU(
        max_ngram_order=order,
        tokenize="none",
        smooth_method="floor",
        smooth_value=1e-15,
    )
    return metric.corpus_score(list(predictions), columns).score


def _meteor(prediction: str, truths: Sequence[str]) -> float:
    """Computes METEOR of one answer, from 0 to 1, without synonyms."""
    extras.require("nltk")
    from nltk.translate import meteor_score

    return meteor_score.meteor_score(
        [x.split() for x in truths], prediction.split(), wordnet=_NO_SYNONYMS
    )


def score(
    predictions: Mapping[str, str], gold: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Computes `rouge_l`, `bleu_1`, `bleu_4` and `meteor`, from 0 to 100.

    A missing prediction counts as an empty one. All scores are 0 if there are
    no questions.
    """
    if not gold:
        return dict.fromkeys(("rouge_l", "bleu_1", "bleu_4", "meteor"), 0.0)
    answers = [normalize_answer(predictions.get(name, "")) for name in gold]
    truths = [[normalize_answer(x) for x in y] for y in gold.values()]
    pairs = list(zip(answers, truths, strict=True))
    number = len(pairs)
    return {
        "rouge_l": 100 * sum(rouge_l(*x) for x in pairs) / number,
        "bleu_1": _bleu(answers, truths, 1),
        "bleu_4": _bleu(answers, truths, 4),
        "meteor": 100 * sum(_meteor(*x) for x in pairs) / number,
    }
