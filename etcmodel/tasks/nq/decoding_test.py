import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.nq import decoding
from testing import nq_answers


def _padded(candidates) -> np.ndarray:
    """Returns candidates as `[pages, candidates, 2]`."""
    width = max(map(len, candidates))
    rows = [[*page, *[(-1, -1)] * (width - len(page))] for page in candidates]
    return np.array(rows, np.int32).reshape(len(candidates), width, 2)


def decode(
    logits, words, record, candidates, null_threshold=0.0, max_words=38
) -> dict[str, list]:
    """Decodes pages; has the same arguments as `reference_pages`."""
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


class ReferenceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(seed=tuple(range(8)), null_threshold=(0.0, None))
    def test_random_batches(self, seed, null_threshold):
        rng = np.random.default_rng(seed)
        logits, words, record, candidates = nq_answers.random_batch(rng)
        # The order of windows is random.
        order = rng.permutation(len(record))
        logits = {name: value[order] for name, value in logits.items()}
        words, record = words[order], record[order]
        if null_threshold is None:
            # An answer whose score equals the threshold is not returned.
            decoded = decode(logits, words, record, candidates, max_words=7)
            kind = "long" if seed % 2 else "short"
            null_threshold = decoded[f"{kind}_answer_score"][0]
        # The limit of 7 words is low enough to exclude some spans.
        decoded = decode(
            logits, words, record, candidates, null_threshold, max_words=7
        )
        expected = nq_answers.reference_pages(
            logits, words, record, candidates, null_threshold, max_words=7
        )
        for page, answers in enumerate(expected):
            self.assertEqual(
                answers, {name: value[page] for name, value in decoded.items()}
            )


class HandMadeTest(tf.test.TestCase):
    # Words of a CLS, a question token, a separator, seven page tokens (two of
    # word 11, none of word 14), a separator and padding.
    WORDS = [-1, -1, -1, 11, 11, 12, 13, 15, 16, 17, -1, -1]

    def test_example(self):
        logits = nq_answers.zero_logits(1, len(self.WORDS))
        for name, values in {
            # Tokens outside of the page are never answers.
            "short_answer_start": {1: 9.0, 2: 9.0, 4: 2.0, 10: 9.0},
            # The most probable end is before the start, so it is not chosen.
            "short_answer_end": {3: 8.0, 5: 1.0, 11: 9.0},
            # Scores are differences from the CLS, not ratios.
            "long_answer_start": {0: -2.0, 5: 4.0, 6: -4.0},
            "long_answer_end": {0: -2.0, 8: 4.0, 9: -8.0},
            "answer_type": {0: 0.0, 1: 3.0, 2: 3.5, 3: 1.0, 4: 4.0},
        }.items():
            for position, value in values.items():
                logits[f"{name}_logits"][0, position] = value
        # The predicted span is 12-17; two candidates are equally near.
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
        # "No" replaces the short answer.
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

    def test_page_without_text_has_no_answers(self):
        nothing = [-1] * len(self.WORDS)
        logits = nq_answers.zero_logits(1, len(self.WORDS))
        for candidates in ([], [(3, 5)]):
            decoded = decode(logits, [nothing], [0], [candidates])
            for name, (value,) in decoded.items():
                if name.endswith("score"):
                    self.assertLess(value, -1e6)
                else:
                    self.assertEqual(0 if "yes_no" in name else -1, value)


class GraphTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.batch = nq_answers.random_batch(np.random.default_rng(3))
        logits, words, *_ = self.batch
        self.logits = {key: tf.constant(x) for key, x in logits.items()}
        self.words = tf.constant(words, tf.int32)

    def test_windows_compile(self):
        inputs = self.logits, self.words, 38
        expected = decoding.answer_windows(*inputs)
        compiled = tf.function(decoding.answer_windows, jit_compile=True)
        actual = compiled(*inputs)
        for name, value in expected._asdict().items():
            self.assertAllEqual(value, getattr(actual, name), msg=name)


if __name__ == "__main__":
    tf.test.main()
