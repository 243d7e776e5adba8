"""Labels of the windows of a page (ETC paper, Appendix C; original code)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from etcmodel.datasets.nq.records import Annotation

# Answer types, as numbered in records and in `answer_type_logits`.
NULL, YES, NO, LONG, SHORT = 0, 1, 2, 3, 4


class WindowLabels(NamedTuple):
    """The labels of one window.

    Starts and ends are the first and last long tokens of the answers, or 0 (the
    CLS) if the window does not show them. A short answer of several spans is
    labelled from the start of the first span to the end of the last.
    """

    short_answer_start: int
    short_answer_end: int
    long_answer_start: int
    long_answer_end: int
    answer_type: int


def answer_type(annotation: Annotation) -> int:
    """Returns an answer's type: yes or no first, then short, then long."""
    if annotation.yes_no != "none":
        return {"yes": YES, "no": NO}[annotation.yes_no]
    if annotation.short_answers:
        return SHORT
    return LONG if annotation.long_start >= 0 else NULL


def choose_annotation(annotations: Sequence[Annotation]) -> Annotation:
    """Chooses the annotation to train on.

    As in the official metrics, a page has an answer if at least two of five
    annotators found one. In this case, the first answer is chosen, otherwise
    the first annotation without an answer.
    """
    answered = [x for x in annotations if answer_type(x) != NULL]
    nothing = [x for x in annotations if answer_type(x) == NULL]
    if len(answered) >= min(len(annotations), 2):
        return answered[0]
    return nothing[0]


def _find(words: np.ndarray, start: int, end: int) -> tuple[int, int]:
    """Returns first and last token of a span of words; (-1, -1) for none."""
    if start < 0:
        return -1, -1
    first = int(np.searchsorted(words, start, side="left"))
    last = int(np.searchsorted(words, end, side="left")) - 1
    return (first, last) if first <= last else (-1, -1)


def make_window_labels(
    annotation: Annotation,
    piece_words: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    page_start: int,
) -> list[WindowLabels]:
    """Makes the labels of all windows of a page.

    A window that shows one end of a span is labelled with that end. The type is
    null if the window shows neither end of the deciding span: the short answer
    for the type short, the long answer for other types.

    Example: the words are `[5, 5, 6, 7]`, windows of 3 and 2 tokens start at 0
    and 2, the short answer is the word 6, and the page starts at position 4 of
    the long input. The short answers are (6, 6) and (4, 4).

    Args:
        annotation: the answer to label.
        piece_words: the word of every token of the page, `<int>[tokens]`.
        starts: first token of each window, `<int>[windows]`.
        sizes: number of tokens of each window, `<int>[windows]`.
        page_start: position of the page in the long input.
    """
    short = (-1, -1)
    if annotation.short_answers:
        short = _find(
            piece_words,
            min(start for start, _ in annotation.short_answers),
            max(end for _, end in annotation.short_answers),
        )
    long = _find(piece_words, annotation.long_start, annotation.long_end)
    kind = answer_type(annotation)
    made = []
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        places = [
            page_start + token - start if 0 <= token - start < size else 0
            for token in (*short, *long)
        ]
        seen = places[:2] if kind == SHORT else places[2:]
        made.append(WindowLabels(*places, kind if any(seen) else NULL))
    return made
