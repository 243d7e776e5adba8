import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.nq import decoding
from etcmodel.tasks.nq import model as model_lib


def zero_logits(windows: int, length: int) -> dict[str, np.ndarray]:
    """Logits that prefer nothing."""
    logits = {
        f"{name}_logits": np.zeros([windows, length], np.float32)
        for name in model_lib.POSITIONS
    }
    logits["answer_type_logits"] = np.zeros([windows, 5], np.float32)
    return logits


def _padded(candidates) -> np.ndarray:
    """Candidates as [pages, candidates, 2]."""
    width = max(map(len, candidates))
    rows = [[*page, *[(-1, -1)] * (width - len(page))] for page in candidates]
    return np.array(rows, np.int32).reshape(len(candidates), width, 2)


def decode(
    logits, words, record, candidates, null_threshold=0.0, max_words=38
) -> dict[str, list]:
    """The code under test, with lists in and out.

    Args:
        logits: as from the model.
        words: word of the page of each token, a list for each window.
        record: page of each window.
        candidates: for each page a list of pairs.
        null_threshold: as for `decode_pages`.
        max_words: as for `answer_windows`.
    """
    padded = _padded(candidates)
    answers = decoding.answer_windows(
        {name: tf.constant(value) for name, value in logits.items()},
        tf.constant(words, tf.int32),
        max_words,
    )
    decoded = decoding.decode_pages(
        answers,
        tf.constant(record, tf.int32),
        tf.constant(padded[..., 0]),
        tf.constant(padded[..., 1]),
        null_threshold,
    )
    return {name: value.numpy().tolist() for name, value in decoded.items()}


def _reference_span(start_logits, end_logits, words, max_words):
    """Score, first word and last word of the best span of a window."""
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
        # The same for the end.
        + float(end_logits[best_end])
        - float(end_logits[0]),
        words[best_start],
        words[best_end],
    )


def _reference_page(windows, candidates, null_threshold, max_short):
    """The answers of one page, in plain Python.

    Source: ETC paper, Appendix C (NQ, Inference).

    Args:
        windows: pairs of logits (name -> list) and words.
        candidates: pairs.
        null_threshold: as for `decode_pages`.
        max_short: the most words of a short answer.
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
    """The answers of every page; arguments as for `decode`."""
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
    """Pages of 1 to 4 windows with logits that often tie and sum exactly.

    Some windows have no text, and some pages no candidates.
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


class ReferenceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(seed=tuple(range(8)), null_threshold=(0.0, None))
    def test_random_batches(self, seed, null_threshold):
        rng = np.random.default_rng(seed)
        logits, words, record, candidates = random_batch(rng)
        # The windows of a page come in any order, beside those of others.
        order = rng.permutation(len(record))
        logits = {name: value[order] for name, value in logits.items()}
        words, record = words[order], record[order]
        if null_threshold is None:
            # Exactly the score of an answer, which is not given then.
            decoded = decode(logits, words, record, candidates, max_words=7)
            kind = "long" if seed % 2 else "short"
            null_threshold = decoded[f"{kind}_answer_score"][0]
        # Few words, so that the limit matters.
        decoded = decode(
            logits, words, record, candidates, null_threshold, max_words=7
        )
        expected = reference_pages(
            logits, words, record, candidates, null_threshold, max_words=7
        )
        for page, answers in enumerate(expected):
            self.assertEqual(
                answers, {name: value[page] for name, value in decoded.items()}
            )


class HandMadeTest(tf.test.TestCase):
    # A CLS, one token of the question, a separator, seven of the page, of
    # which 3 and 4 are of one word, a separator, padding; there is no word 14.
    WORDS = [-1, -1, -1, 11, 11, 12, 13, 15, 16, 17, -1, -1]

    def test_example(self):
        logits = zero_logits(1, len(self.WORDS))
        for name, values in {
            # What is no text is no answer, however probable.
            "short_answer_start": {1: 9.0, 2: 9.0, 4: 2.0, 10: 9.0},
            # The best end is before the start.
            "short_answer_end": {3: 8.0, 5: 1.0, 11: 9.0},
            # Ratios to the negative ones of the CLS would be another order.
            "long_answer_start": {0: -2.0, 5: 4.0, 6: -4.0},
            "long_answer_end": {0: -2.0, 8: 4.0, 9: -8.0},
            "answer_type": {0: 0.0, 1: 3.0, 2: 3.5, 3: 1.0, 4: 4.0},
        }.items():
            for position, value in values.items():
                logits[f"{name}_logits"][0, position] = value
        # The long answer is 12-17; the first of the nearest is taken.
        candidates = [[(0, 9), (10, 17), (12, 19), (9, 40)]]
        arguments = logits, [self.WORDS], [0], candidates
        expected = {
            "long_answer_start": 10,
            "long_answer_end": 17,
            "long_answer_score": 12.0,
            "short_answer_start": 11,
            "short_answer_end": 13,
            "short_answer_score": 3.0,
            "yes_no": 0,
        }
        decoded = decode(*arguments)
        for name, value in expected.items():
            self.assertEqual([value], decoded[name], name)
        # "No" instead of a short answer.
        logits["answer_type_logits"][0, 0] = -1.0
        logits["answer_type_logits"][0, 2] = 4.5
        expected.update(
            short_answer_start=-1,
            short_answer_end=-1,
            short_answer_score=5.5,
            yes_no=2,
        )
        decoded = decode(*arguments)
        for name, value in expected.items():
            self.assertEqual([value], decoded[name], name)

    def test_page_without_text(self):
        """There is nothing to choose a candidate for either."""
        nothing = [-1] * len(self.WORDS)
        logits = zero_logits(1, len(self.WORDS))
        for candidates in ([], [(3, 5)]):
            decoded = decode(logits, [nothing], [0], [candidates])
            for name, (value,) in decoded.items():
                if name.endswith("score"):
                    self.assertLess(value, -1e6)
                else:
                    self.assertEqual(0 if "yes_no" in name else -1, value)

    def test_no_pages(self):
        decoded = decoding.decode_pages(
            decoding.answer_windows(
                zero_logits(0, 5), tf.zeros([0, 5], tf.int32), 38
            ),
            tf.zeros([0], tf.int32),
            tf.zeros([0, 3], tf.int32),
            tf.zeros([0, 3], tf.int32),
        )
        for value in decoded.values():
            self.assertEqual([0], value.shape)


class GraphTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.batch = random_batch(np.random.default_rng(3))
        logits, words, *_ = self.batch
        self.logits = {key: tf.constant(x) for key, x in logits.items()}
        self.words = tf.constant(words, tf.int32)

    def test_unknown_shapes(self):
        _, _, record, candidates = self.batch
        inputs = (
            self.logits,
            self.words,
            tf.constant(record, tf.int32),
            tf.constant(_padded(candidates)),
        )

        @tf.function(
            input_signature=tf.nest.map_structure(
                lambda x: tf.TensorSpec([None] * x.shape.rank, x.dtype), inputs
            )
        )
        def everything(logits, words, record, candidates):
            return decoding.decode_pages(
                decoding.answer_windows(logits, words, 38),
                record,
                candidates[..., 0],
                candidates[..., 1],
            )

        decoded = everything(*inputs)
        self.assertEqual(
            decode(*self.batch),
            {name: value.numpy().tolist() for name, value in decoded.items()},
        )
        for name, value in decoded.items():
            self.assertEqual(
                tf.float32 if "score" in name else tf.int32, value.dtype
            )

    def test_windows_compile(self):
        inputs = self.logits, self.words, 38
        expected = decoding.answer_windows(*inputs)
        compiled = tf.function(decoding.answer_windows, jit_compile=True)
        actual = compiled(*inputs)
        for name, value in expected._asdict().items():
            self.assertAllEqual(value, getattr(actual, name), msg=name)


if __name__ == "__main__":
    tf.test.main()
