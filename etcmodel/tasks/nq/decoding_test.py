import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.nq import decoding
from etcmodel.tasks.nq import model as model_lib

_SPANS = ("short", "long")


def zero_logits(windows: int, length: int) -> dict[str, np.ndarray]:
    """Logits that prefer nothing."""
    logits = {
        f"{name}_logits": np.zeros([windows, length], np.float32)
        for name in model_lib.POSITIONS
    }
    logits["answer_type_logits"] = np.zeros([windows, 5], np.float32)
    return logits


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
    width = max(map(len, candidates))
    padded = np.array(
        [
            [*page, *[(-1, -1)] * (width - len(page))] if width else []
            for page in candidates
        ],
        np.int32,
    ).reshape(len(candidates), width, 2)
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


def random_batch(rng, pages=4, length=24):
    """Pages of 1 to 4 windows with logits that often tie and sum exactly."""
    windows = rng.integers(1, 5, pages)
    record = np.repeat(np.arange(pages), windows)
    logits = {
        name: rng.integers(-40, 41, value.shape).astype(np.float32) / 8
        for name, value in zero_logits(len(record), length).items()
    }
    words = np.full([len(record), length], -1)
    for row in words:
        first, last = rng.integers(2, 5), rng.integers(8, length)
        steps = rng.integers(0, 4, last - first)
        row[first:last] = rng.integers(0, 50) + np.cumsum(steps)
    candidates = []
    for _ in range(pages):
        starts = rng.integers(0, 80, rng.integers(1, 6))
        ends = starts + rng.integers(1, 30, len(starts))
        candidates.append(
            list(zip(starts.tolist(), ends.tolist(), strict=True))
        )
    return logits, words, record, candidates


class ReferenceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(seed=tuple(range(8)), null_threshold=(0.0, 6.5))
    def test_random_batches(self, seed, null_threshold):
        rng = np.random.default_rng(seed)
        logits, words, record, candidates = random_batch(rng)
        # Few words, so that the limit matters.
        decoded = decode(
            logits, words, record, candidates, null_threshold, max_words=7
        )
        for page, page_candidates in enumerate(candidates):
            windows = [
                (
                    {name: x[i].tolist() for name, x in logits.items()},
                    words[i].tolist(),
                )
                for i in np.flatnonzero(record == page)
            ]
            self.assertEqual(
                _reference_page(windows, page_candidates, null_threshold, 7),
                {name: value[page] for name, value in decoded.items()},
            )

    def test_order_of_windows_does_not_matter(self):
        rng = np.random.default_rng(9)
        logits, words, record, candidates = random_batch(rng)
        # No ties.
        logits = {
            name: value + rng.normal(size=value.shape).astype(np.float32) / 99
            for name, value in logits.items()
        }
        order = rng.permutation(len(record))
        self.assertNotAllEqual(record, record[order])
        self.assertEqual(
            decode(logits, words, record, candidates),
            decode(
                {name: value[order] for name, value in logits.items()},
                words[order],
                record[order],
                candidates,
            ),
        )

    def test_pages_do_not_touch_each_other(self):
        rng = np.random.default_rng(10)
        logits, words, record, candidates = random_batch(rng)
        together = decode(logits, words, record, candidates)
        for page in range(len(candidates)):
            rows = record == page
            alone = decode(
                {name: value[rows] for name, value in logits.items()},
                words[rows],
                record[rows] * 0,
                candidates[page : page + 1],
            )
            self.assertEqual(
                {name: [value[page]] for name, value in together.items()},
                alone,
            )


# A CLS, one token of the question, a separator, seven of the page, of which
# 3 and 4 are of one word, a separator, padding. There is no word 14.
_WORDS = [-1, -1, -1, 11, 11, 12, 13, 15, 16, 17, -1, -1]


class HandMadeTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.logits = zero_logits(1, len(_WORDS))

    def _set(self, name, values, window=0):
        """Sets logits at some tokens."""
        for position, value in values.items():
            self.logits[f"{name}_logits"][window, position] = value

    def _decode(self, candidates=((11, 18),), words=(_WORDS,), **options):
        """The answers to one page."""
        decoded = decode(
            self.logits,
            words,
            [0] * len(words),
            [list(candidates)],
            **options,
        )
        return {name: value[0] for name, value in decoded.items()}

    def _check(self, decoded, **expected):
        for name, value in expected.items():
            if isinstance(value, tuple):
                actual = decoded[f"{name}_start"], decoded[f"{name}_end"]
            else:
                actual = decoded[name]
            self.assertEqual(value, actual, msg=name)

    def test_words_of_several_tokens(self):
        self._set("short_answer_start", {4: 2.0})
        self._set("short_answer_end", {5: 1.0})
        self._check(
            self._decode(), short_answer=(11, 13), short_answer_score=3.0
        )
        # The first token of a word may be its last one here.
        self._set("short_answer_start", {4: 0.0, 3: 2.0})
        self._set("short_answer_end", {5: 0.0, 3: 1.0})
        self._check(self._decode(), short_answer=(11, 12))

    def test_end_is_the_best_behind_the_start(self):
        """Not the best of all, and not before the best start."""
        for kind in _SPANS:
            self._set(f"{kind}_answer_start", {6: 3.0, 3: 2.9})
            self._set(f"{kind}_answer_end", {4: 9.0, 8: 1.0})
        # From 11 to 11 the sum would be greater.
        self._check(
            self._decode([(11, 12), (13, 17)]),
            long_answer=(13, 17),
            long_answer_score=4.0,
            short_answer=(13, 17),
            short_answer_score=4.0,
        )

    def test_negative_logits_of_the_cls(self):
        """A ratio to them would turn the order around."""
        for kind in _SPANS:
            self._set(f"{kind}_answer_start", {0: -2.0, 5: 4.0, 6: -4.0})
            self._set(f"{kind}_answer_end", {0: -2.0, 8: 4.0, 9: -8.0})
        self._check(
            self._decode(),
            short_answer=(12, 17),
            short_answer_score=12.0,
            long_answer=(11, 18),
            long_answer_score=12.0,
        )
        # All of the page is less probable than no answer.
        for name in model_lib.POSITIONS:
            self.logits[f"{name}_logits"][:] = -6.0
            self._set(name, {0: -2.0})
        self._check(
            self._decode(),
            short_answer=(-1, -1),
            short_answer_score=-8.0,
            long_answer=(-1, -1),
            long_answer_score=-8.0,
        )

    def test_question_separators_and_padding_are_no_answers(self):
        for name in model_lib.POSITIONS:
            self._set(name, {1: 9.0, 2: 9.0, 10: 9.0, 11: 9.0, 7: 1.0})
        self._check(
            self._decode(), short_answer=(15, 16), short_answer_score=2.0
        )

    def test_ties_go_to_the_first(self):
        self._set("short_answer_start", {5: 1.0, 7: 1.0})
        self._set("short_answer_end", {6: 1.0, 8: 1.0})
        self._check(self._decode(), short_answer=(12, 14))
        self._set("answer_type", {1: 1.0, 2: 1.0})
        self._check(self._decode(), yes_no=1)

    def test_short_answers_of_at_most_38_words(self):
        # Words 0 to 59, every third one without a token.
        words = [-1, *[word for word in range(60) if word % 3 != 1]]
        self.logits = zero_logits(1, len(words))
        start = words.index(3)
        # 38 words from 3: up to 40, which has no token, so up to 39.
        self.logits["short_answer_end_logits"][0] = np.arange(len(words))
        self.logits["long_answer_end_logits"][0] = np.arange(len(words))
        for name in _SPANS:
            self._set(f"{name}_answer_start", {start: 100.0})
        decoded = self._decode([(0, 60)], [words])
        self._check(decoded, short_answer=(3, 40), long_answer=(0, 60))
        # 39 words are there: from 3 to 41.
        self._check(
            self._decode([(0, 60)], [words], max_words=39),
            short_answer=(3, 42),
        )
        self._check(
            self._decode([(0, 60)], [words], max_words=1), short_answer=(3, 4)
        )

    def test_best_window_decides(self):
        """Each kind of answer may come from a window of its own."""
        words = [
            _WORDS,
            [-1, -1, -1, *range(30, 37), -1, -1],
            [-1, -1, -1, *range(50, 57), -1, -1],
        ]
        self.logits = zero_logits(3, len(_WORDS))
        for window, score in enumerate((1.0, 5.0, 3.0)):
            self._set("long_answer_start", {3: score}, window)
        self.logits["short_answer_start_logits"][:, 3:10] = -9.0
        for window, score in enumerate((-1.0, -5.0, -3.0)):
            self._set("short_answer_start", {4: score}, window)
        # The last window is sure of yes, which does not matter.
        self._set("answer_type", {1: 50.0}, 2)
        candidates = [(11, 18), (30, 37), (50, 57)]
        decoded = self._decode(candidates, words, null_threshold=-3.0)
        self._check(
            decoded,
            long_answer=(30, 37),
            long_answer_score=5.0,
            short_answer=(11, 12),
            short_answer_score=-1.0,
            yes_no=0,
        )
        # That of the window with the long answer does.
        self._set("answer_type", {2: 1.0}, 1)
        self._check(
            self._decode(candidates, words),
            yes_no=2,
            short_answer=(-1, -1),
            best_short_answer=(-1, -1),
            short_answer_score=1.0,
            long_answer=(30, 37),
        )

    def test_windows_compare_by_their_own_cls(self):
        self.logits = zero_logits(2, len(_WORDS))
        self._set("short_answer_start", {0: 8.0, 4: 9.0}, 0)
        self._set("short_answer_start", {0: -3.0, 6: 0.5}, 1)
        self._check(
            self._decode(words=[_WORDS] * 2),
            short_answer=(13, 14),
            short_answer_score=3.5,
        )

    def test_yes_and_no(self):
        for name in model_lib.POSITIONS:
            self._set(name, {5: 1.0})
        for types, yes_no, score in (
            # Null, yes, no, long, short.
            ([0.0, 3.0, 2.0, 1.0, 2.5], 1, 3.0),
            ([-1.0, 2.0, 4.0, 1.0, 3.5], 2, 5.0),
            ([0.0, 3.0, 3.5, 1.0, 4.0], 0, 2.0),
            ([0.0, 3.0, 2.0, 3.5, 1.0], 0, 2.0),
            ([3.5, 3.0, 2.0, 0.0, 1.0], 0, 2.0),
            # Not higher than that of null.
            ([3.0, 3.0, 2.0, 0.0, 1.0], 0, 2.0),
            ([-9.0, -2.0, -3.0, -9.0, -9.0], 1, 7.0),
        ):
            self._set("answer_type", dict(enumerate(types)))
            decoded = self._decode()
            self._check(
                decoded,
                yes_no=yes_no,
                best_yes_no=yes_no,
                short_answer_score=score,
                short_answer=(-1, -1) if yes_no else (12, 13),
                # It replaces the short answer only.
                long_answer=(11, 18),
                long_answer_score=2.0,
            )

    def test_null_threshold(self):
        for kind, value in zip(_SPANS, (3.0, 4.0), strict=True):
            self._set(f"{kind}_answer_start", {5: value})
        best = {"best_short_answer": (12, 13), "best_long_answer": (11, 18)}
        for threshold, short, long in (
            (0.0, True, True),
            (2.9, True, True),
            (3.0, False, True),
            (4.0, False, False),
        ):
            self._check(
                self._decode(null_threshold=threshold),
                short_answer=(12, 13) if short else (-1, -1),
                long_answer=(11, 18) if long else (-1, -1),
                short_answer_score=3.0,
                long_answer_score=4.0,
                **best,
            )

    def test_null_threshold_of_yes_and_no(self):
        self._set("answer_type", {1: 2.0})
        self._check(self._decode(null_threshold=1.9), yes_no=1, best_yes_no=1)
        self._check(
            self._decode(null_threshold=2.0),
            yes_no=0,
            best_yes_no=1,
            short_answer=(-1, -1),
            best_short_answer=(-1, -1),
            short_answer_score=2.0,
        )

    def test_window_without_text(self):
        nothing = [-1] * len(_WORDS)
        self.logits = zero_logits(2, len(_WORDS))
        for name in model_lib.POSITIONS:
            self._set(name, {5: -50.0}, 1)
            # The window with text is the better one all the same.
            self._set(name, {5: 90.0}, 0)
        self.logits["short_answer_start_logits"][1] -= 1.0
        self._check(
            self._decode(words=[nothing, _WORDS], null_threshold=-99.0),
            short_answer=(11, 12),
            short_answer_score=0.0,
            long_answer=(11, 18),
        )
        # The only window has none.
        self.logits = zero_logits(1, len(_WORDS))
        decoded = self._decode([], words=[nothing])
        self._check(
            decoded,
            short_answer=(-1, -1),
            long_answer=(-1, -1),
            best_short_answer=(-1, -1),
            best_long_answer=(-1, -1),
        )
        self.assertLess(decoded["short_answer_score"], -1e6)
        self.assertLess(decoded["long_answer_score"], -1e6)
        # Without text there is nothing to choose a candidate for.
        decoded = self._decode([(3, 5)], words=[nothing])
        self._check(decoded, best_long_answer=(-1, -1))

    def test_page_without_candidates(self):
        """Its long answer is the span itself."""
        self._set("long_answer_start", {5: 1.0})
        self._set("long_answer_end", {8: 1.0})
        self._check(self._decode([]), long_answer=(12, 17))
        self._check(self._decode([(-1, -1)]), long_answer=(12, 17))

    def test_nearest_candidate(self):
        self._set("long_answer_start", {5: 1.0})
        self._set("long_answer_end", {8: 1.0})
        for candidates, expected in (
            # 12 to 17; distances 2 and 3.
            ([(11, 18), (12, 20)], (11, 18)),
            # Neither overlap nor order count.
            ([(0, 9), (17, 20), (11, 40)], (17, 20)),
            # The first one of equals.
            ([(10, 17), (12, 19), (14, 17)], (10, 17)),
            ([(-1, -1), (100, 200)], (100, 200)),
        ):
            self._check(self._decode(candidates), long_answer=expected)

    def test_no_pages(self):
        decoded = decoding.decode_pages(
            decoding.answer_windows(
                zero_logits(0, 5), tf.zeros([0, 5], tf.int32)
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
        rng = np.random.default_rng(3)
        self.batch = random_batch(rng)
        logits, words, _, _ = self.batch
        self.logits = {key: tf.constant(x) for key, x in logits.items()}
        self.words = tf.constant(words, tf.int32)

    def test_unknown_shapes(self):
        def everything(logits, words, record, candidates):
            return decoding.decode_pages(
                decoding.answer_windows(logits, words),
                record,
                candidates[..., 0],
                candidates[..., 1],
            )

        function = tf.function(
            everything,
            input_signature=[
                {
                    name: tf.TensorSpec([None, None], tf.float32)
                    for name in self.logits
                },
                tf.TensorSpec([None, None], tf.int32),
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None, None, 2], tf.int32),
            ],
        )
        logits, words, record, candidates = self.batch
        candidates = [[page[0]] for page in candidates]
        decoded = function(
            self.logits,
            self.words,
            tf.constant(record, tf.int32),
            tf.constant(candidates, tf.int32),
        )
        expected = decode(logits, words, record, candidates)
        self.assertEqual(
            expected,
            {name: value.numpy().tolist() for name, value in decoded.items()},
        )
        for name, value in decoded.items():
            self.assertEqual(
                tf.float32 if "score" in name else tf.int32, value.dtype
            )

    def test_windows_compile(self):
        expected = decoding.answer_windows(self.logits, self.words)
        compiled = tf.function(decoding.answer_windows, jit_compile=True)
        actual = compiled(self.logits, self.words)
        for name, value in expected._asdict().items():
            self.assertAllEqual(value, getattr(actual, name), msg=name)


if __name__ == "__main__":
    tf.test.main()
