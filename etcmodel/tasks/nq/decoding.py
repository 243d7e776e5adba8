"""Decodes the logits of windows to the answers of a page; graph code.

Source: ETC paper, Appendix C (NQ, Inference). The best start is chosen first,
then the best end after it. A score is a logit minus the logit of the CLS, which
stands for no answer. The window with the best score gives the answer of a page.
"""

from typing import NamedTuple

import tensorflow as tf

from etcmodel.datasets.nq.metrics import YES_NO_ANSWERS
from etcmodel.datasets.nq.metrics import NQPrediction
from etcmodel.tasks.nq import labels

_NEVER = -1e9


class WindowAnswers(NamedTuple):
    """The best answers of each window, in words of its page.

    Starts are first words, -1 for none; ends are exclusive. Positions are
    `<int32>[windows]`, scores `<float32>[windows]`. A score of 0 means that an
    answer is as probable as none.

    Attributes:
        yes_no: 0 neither, 1 yes, 2 no, `<int32>[windows]`.
        yes_no_score: the higher of the scores of yes and no.
    """

    long_start: tf.Tensor
    long_end: tf.Tensor
    long_score: tf.Tensor
    short_start: tf.Tensor
    short_end: tf.Tensor
    short_score: tf.Tensor
    yes_no: tf.Tensor
    yes_no_score: tf.Tensor


def _best_span(start_logits, end_logits, words, max_words):
    """Returns the best span: start word, exclusive end word and score."""
    is_page = words >= 0
    # [windows, long]
    start = tf.where(is_page, start_logits - start_logits[:, :1], _NEVER)
    end = tf.where(is_page, end_logits - end_logits[:, :1], _NEVER)
    position = tf.range(tf.shape(words)[1])
    # [windows, 1]
    best = tf.argmax(start, axis=1, output_type=tf.int32)[:, tf.newaxis]
    first_word = tf.gather(words, best, batch_dims=1)
    allowed = position >= best
    if max_words is not None:
        allowed &= words < first_word + max_words
    end = tf.where(allowed, end, _NEVER)
    last = tf.argmax(end, axis=1, output_type=tf.int32)[:, tf.newaxis]
    score = tf.gather(start, best, batch_dims=1) + tf.gather(
        end, last, batch_dims=1
    )
    last_word = tf.gather(words, last, batch_dims=1)
    # A window without text has no span.
    is_there = tf.reduce_any(is_page, axis=1)
    return (
        tf.where(is_there, first_word[:, 0], -1),
        tf.where(is_there, last_word[:, 0] + 1, -1),
        tf.where(is_there, score[:, 0], 2 * _NEVER),
    )


def answer_windows(
    logits,
    words: tf.Tensor,
    max_short_answer_words: int,
) -> WindowAnswers:
    """Finds the best answers of each window.

    `logits` are the model's outputs. `words`, `<int32>[windows, long]`, holds
    the index of each token's word in the page, or -1.
    """
    long = _best_span(
        logits["long_answer_start_logits"],
        logits["long_answer_end_logits"],
        words,
        None,
    )
    short = _best_span(
        logits["short_answer_start_logits"],
        logits["short_answer_end_logits"],
        words,
        max_short_answer_words,
    )
    types = logits["answer_type_logits"]
    # [windows, 2]
    yes_no = types[:, labels.YES : labels.NO + 1]
    others = tf.reduce_max(
        tf.gather(types, [labels.NULL, labels.LONG, labels.SHORT], axis=1),
        axis=1,
    )
    best = tf.reduce_max(yes_no, axis=1)
    return WindowAnswers(
        *long,
        *short,
        yes_no=tf.where(
            best > others,
            1 + tf.argmax(yes_no, axis=1, output_type=tf.int32),
            0,
        ),
        yes_no_score=best - types[:, labels.NULL],
    )


def nearest_candidate(
    start: tf.Tensor,
    end: tf.Tensor,
    candidate_starts: tf.Tensor,
    candidate_ends: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the start and end of each span's nearest candidate, `<int32>[n]`.

    Without candidates, the spans are returned; a start of -1 stays -1.
    Example: 4-8 and the candidates 0-9, 3-8 and 9-12 give 3-8. Candidates are
    `<int32>[n, candidates]`; -1 is padding.
    """
    # [n, candidates]
    distance = tf.abs(candidate_starts - start[:, tf.newaxis]) + tf.abs(
        candidate_ends - end[:, tf.newaxis]
    )
    far = distance.dtype.max
    distance = tf.where(candidate_starts >= 0, distance, far)
    # One more column, since `argmin` needs at least one.
    distance = tf.pad(distance, [[0, 0], [0, 1]], constant_values=far)
    best = tf.argmin(distance, axis=1)
    is_there = (tf.reduce_min(distance, axis=1) < far) & (start >= 0)

    def of(candidates, own):
        padded = tf.pad(candidates, [[0, 0], [0, 1]])
        return tf.where(is_there, tf.gather(padded, best, batch_dims=1), own)

    return of(candidate_starts, start), of(candidate_ends, end)


def _best_window(scores, record, batch):
    """Returns each record's window with the best score, [batch]."""
    best = tf.math.unsorted_segment_max(scores, record, batch)
    window = tf.range(tf.size(record))
    first = tf.math.unsorted_segment_min(
        tf.where(
            tf.equal(scores, tf.gather(best, record)), window, window.dtype.max
        ),
        record,
        batch,
    )
    # Without windows, the index would be out of range.
    return tf.minimum(first, tf.maximum(tf.size(record) - 1, 0))


def decode_pages(
    answers: WindowAnswers,
    record: tf.Tensor,
    candidate_starts: tf.Tensor,
    candidate_ends: tf.Tensor,
    null_threshold: float = 0.0,
) -> dict[str, tf.Tensor]:
    """Combines the answers of windows into the answers of each page.

    The window with the best long answer gives the long answer, and yes or no;
    the window with the best short answer gives the short answer. A long answer
    is the candidate nearest to the predicted span.

    Args:
        answers: the answers of all windows.
        record: the page of each window, `<int32>[windows]`.
        candidate_starts: `<int32>[batch, candidates]`; -1 is padding.
        candidate_ends: exclusive ends, in the same shape.
        null_threshold: only answers with a higher score are returned.

    Returns:
        `long_answer_start`, `long_answer_end`, `short_answer_start`,
        `short_answer_end` (words, end exclusive, -1 for none) and `yes_no` (0
        neither, 1 yes, 2 no), all `<int32>[batch]`; `long_answer_score` and
        `short_answer_score` `<float32>[batch]`, above 0 if an answer is more
        probable than none; and the answers regardless of their score as
        `best_long_answer_start`, ..., `best_yes_no`.
    """
    batch = tf.shape(candidate_starts)[0]
    of_long = _best_window(answers.long_score, record, batch)
    of_short = _best_window(answers.short_score, record, batch)
    long_start, long_end = nearest_candidate(
        tf.gather(answers.long_start, of_long),
        tf.gather(answers.long_end, of_long),
        candidate_starts,
        candidate_ends,
    )
    long_score = tf.gather(answers.long_score, of_long)
    yes_no = tf.gather(answers.yes_no, of_long)
    is_yes_no = yes_no > 0
    short_start, short_end = (
        tf.where(is_yes_no, -1, tf.gather(x, of_short))
        for x in (answers.short_start, answers.short_end)
    )
    short_score = tf.where(
        is_yes_no,
        tf.gather(answers.yes_no_score, of_long),
        tf.gather(answers.short_score, of_short),
    )
    # Each output's value, its score, and its value for no answer.
    found = {
        "long_answer_start": (long_start, long_score, -1),
        "long_answer_end": (long_end, long_score, -1),
        "short_answer_start": (short_start, short_score, -1),
        "short_answer_end": (short_end, short_score, -1),
        "yes_no": (yes_no, short_score, 0),
    }
    return {
        **{
            name: tf.where(score > null_threshold, value, none)
            for name, (value, score, none) in found.items()
        },
        **{f"best_{name}": value for name, (value, _, _) in found.items()},
        "long_answer_score": long_score,
        "short_answer_score": short_score,
    }


# The outputs of `decode_pages` that `make_prediction` takes, in order.
DECODED = (
    "best_long_answer_start",
    "best_long_answer_end",
    "long_answer_score",
    "best_short_answer_start",
    "best_short_answer_end",
    "short_answer_score",
    "best_yes_no",
)


def make_prediction(
    long_start: int,
    long_end: int,
    long_score: float,
    short_start: int,
    short_end: int,
    short_score: float,
    yes_no: int,
) -> NQPrediction:
    """Converts one page's outputs of `decode_pages` to a prediction."""
    short = ((short_start, short_end),) if short_start >= 0 else ()
    return NQPrediction(
        long_answer=(long_start, long_end),
        long_score=long_score,
        short_answers=short,
        short_score=short_score,
        yes_no=YES_NO_ANSWERS[yes_no],
    )
