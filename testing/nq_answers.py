"""Random logits for Natural Questions, and a reference for their answers."""

import numpy as np

from etcmodel.tasks.nq import model as model_lib


def zero_logits(windows: int, length: int) -> dict[str, np.ndarray]:
    """Returns logits that are all zero."""
    logits = {
        f"{name}_logits": np.zeros([windows, length], np.float32)
        for name in model_lib.POSITIONS
    }
    logits["answer_type_logits"] = np.zeros([windows, 5], np.float32)
    return logits


def _reference_span(start_logits, end_logits, words, max_words):
    """Returns the score, first and last word of a window's best span."""
    best_start = None
    for i, word in enumerate(words):
        if word >= 0 and (
            best_start is None or start_logits[i] > start_logits[best_start]
        ):
            best_start = i
    if best_start is None:
        return None
    best_end = None
    for i in range(best_start, len(words)):
        if words[i] < 0 or words[i] - words[best_start] + 1 > max_words:
            continue
        if best_end is None or end_logits[i] > end_logits[best_end]:
            best_end = i
    return (
        float(start_logits[best_start])
        - float(start_logits[0])
        # Relative to [CLS], for both the start and the end.
        + float(end_logits[best_end])
        - float(end_logits[0]),
        words[best_start],
        words[best_end],
    )


def _reference_page(windows, candidates, null_threshold, max_short):
    """Returns the answers of one page, in plain Python.

    Source: ETC paper, Appendix C (NQ, Inference).

    Args:
        windows: for each window, its logits (name -> list) and words.
        candidates: the start word and the end word of each candidate.
        null_threshold: as for `decode_pages`.
        max_short: maximum number of words of a short answer.
    """
    best = {"long": None, "short": None}
    for logits, words in windows:
        for kind, most in (("long", float("inf")), ("short", max_short)):
            span = _reference_span(
                logits[f"{kind}_answer_start_logits"],
                logits[f"{kind}_answer_end_logits"],
                words,
                most,
            )
            if span and (best[kind] is None or span[0] > best[kind][0][0]):
                best[kind] = (span, logits["answer_type_logits"])
    (long_score, first, last), types = best["long"]
    start, end = first, last + 1
    if candidates:
        start, end = min(
            candidates, key=lambda c: abs(c[0] - start) + abs(c[1] - end)
        )
    null, yes, no, long, short = map(float, types)
    (short_score, short_first, short_last), _ = best["short"]
    short_start, short_end = short_first, short_last + 1
    yes_no = 0
    if max(yes, no) > max(null, long, short):
        yes_no = 1 if yes >= no else 2
        short_start = short_end = -1
        short_score = max(yes, no) - null
    has_long = long_score > null_threshold
    has_short = short_score > null_threshold
    return {
        "long_answer_start": start if has_long else -1,
        "long_answer_end": end if has_long else -1,
        "short_answer_start": short_start if has_short else -1,
        "short_answer_end": short_end if has_short else -1,
        "yes_no": yes_no if has_short else 0,
        "best_long_answer_start": start,
        "best_long_answer_end": end,
        "best_short_answer_start": short_start,
        "best_short_answer_end": short_end,
        "best_yes_no": yes_no,
        "long_answer_score": long_score,
        "short_answer_score": short_score,
    }


def reference_pages(
    logits, words, record, candidates, null_threshold=0.0, max_words=38
) -> list[dict]:
    """Returns the answers of every page.

    Args:
        logits: output of the model.
        words: for each window, a list: the index in the page of each token's
            word.
        record: for each window, the index of its page.
        candidates: for each page, a list of pairs as in `_reference_page`.
        null_threshold: as for `decode_pages`.
        max_words: as for `answer_windows`.
    """
    return [
        _reference_page(
            [
                (
                    {name: x[i].tolist() for name, x in logits.items()},
                    list(words[i]),
                )
                for i in np.flatnonzero(np.equal(record, page))
            ],
            page_candidates,
            null_threshold,
            max_words,
        )
        for page, page_candidates in enumerate(candidates)
    ]


def random_batch(rng, pages=4, length=24):
    """Returns pages of 1 to 4 windows with logits that often tie.

    Some windows have no text, and some pages have no candidates.
    """
    windows = rng.integers(1, 5, pages)
    record = np.repeat(np.arange(pages), windows)
    logits = {
        name: rng.integers(-10, 11, value.shape).astype(np.float32) / 2
        for name, value in zero_logits(len(record), length).items()
    }
    words = np.full([len(record), length], -1)
    for i, row in enumerate(words):
        # The first window of a page always has text.
        if rng.random() < 0.2 and i and record[i] == record[i - 1]:
            continue
        first, last = rng.integers(2, 5), rng.integers(8, length)
        steps = rng.integers(0, 4, last - first)
        row[first:last] = rng.integers(0, 50) + np.cumsum(steps)
    candidates = []
    for _ in range(pages):
        starts = rng.integers(0, 80, rng.integers(0, 6))
        ends = starts + rng.integers(1, 30, len(starts))
        candidates.append(
            list(zip(starts.tolist(), ends.tolist(), strict=True))
        )
    return logits, words, record, candidates
