import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.pretrain import sentence_masking

MASK, SENTENCE, TEXT, VOCAB = 13, 14, 50, 200


def make_case(batch, sentences, length):
    """Makes sentences of two-token words that end with a special token.

    Each row also has a global token without a sentence, and padding.
    """
    ids = np.repeat(np.arange(1, sentences + 1), length)
    ids = np.tile([*ids, -1, -1], [batch, 1]).astype(np.int32)
    position = np.arange(ids.shape[1])
    return {
        "token_ids": np.where(ids < 0, 0, TEXT + position % 3).astype(np.int32),
        "is_continuation": np.broadcast_to(position % 2, ids.shape),
        "is_text": (position % length != length - 1) & (ids >= 0),
        "sentence_ids": ids,
        "is_sentence": np.tile(
            np.arange(sentences + 2) % (sentences + 1) > 0, [batch, 1]
        ),
        "mask_token_id": MASK,
        "sentence_mask_token_id": SENTENCE,
        "vocab_size": VOCAB,
        "seed": [3, 4],
    }


class MaskSentencesTest(tf.test.TestCase, parameterized.TestCase):
    def mask(self, case, **options):
        return sentence_masking.MaskedSentences(
            *(
                x.numpy()
                for x in sentence_masking.mask_sentences(**case, **options)
            )
        )

    @parameterized.parameters(
        (20, 0.1, 2), (7, 0.1, 1), (4, 0.1, 0), (5, 0.3, 2), (20, 0.0, 0)
    )
    def test_sentences(self, sentences, fraction, expected):
        case = make_case(30, sentences, 6)
        masked = self.mask(case, cpc_fraction=fraction, mlm_fraction=0.0)
        self.assertAllEqual([expected] * 30, masked.is_masked.sum(axis=1))
        self.assertFalse(masked.is_masked[:, [0, -1]].any())
        chosen = np.take_along_axis(
            masked.is_masked, np.maximum(case["sentence_ids"], 0), axis=1
        )
        hidden = chosen & case["is_text"]
        self.assertAllEqual(
            np.where(hidden, SENTENCE, case["token_ids"]), masked.token_ids
        )
        self.assertFalse(masked.is_target.any())

    def test_sentences_are_equally_likely(self):
        masked = self.mask(make_case(600, 10, 2), cpc_fraction=0.3)
        # Four standard deviations of 600 draws are 0.075.
        self.assertAllClose(
            masked.is_masked.mean(axis=0)[1:11], np.full(10, 0.3), 0, 0.075
        )

    def test_words(self):
        case = make_case(200, 20, 6)
        masked = self.mask(case)
        sentence = np.take_along_axis(
            masked.is_masked, np.maximum(case["sentence_ids"], 0), axis=1
        )
        can_be = case["is_text"] & ~sentence
        self.assertFalse(masked.is_target[~can_be].any())
        # About 9,000 words of two tokens are left.
        self.assertNear(masked.is_target[can_be].mean(), 0.15, 0.015)
        pairs = masked.is_target[:, :120].reshape(200, 60, 2)
        both = can_be[:, :120].reshape(200, 60, 2).all(axis=2)
        self.assertAllEqual(pairs[both][:, 0], pairs[both][:, 1])
        given = case["token_ids"][masked.is_target]
        shown = masked.token_ids[masked.is_target]
        # Four standard deviations of 5,000 targets are 0.023 at most.
        self.assertNear(np.mean(shown == MASK), 0.8, 0.025)
        self.assertNear(np.mean(shown == given), 0.1, 0.025)
        others = shown[(shown != MASK) & (shown != given)]
        self.assertAllInRange(others, 0, VOCAB - 1)
        self.assertGreater(np.unique(others).size, VOCAB / 2)
        kept = ~masked.is_target & ~(sentence & case["is_text"])
        self.assertAllEqual(case["token_ids"][kept], masked.token_ids[kept])

    def test_seeds_and_compilation(self):
        case = make_case(5, 20, 6)
        first = self.mask(case)
        for x, y in zip(first, self.mask(case), strict=True):
            self.assertAllEqual(x, y)
        other = self.mask(case | {"seed": [3, 5]})
        for x, y in zip(first, other, strict=True):
            self.assertNotAllEqual(x, y)

        @tf.function(jit_compile=True)
        def compiled():
            return sentence_masking.mask_sentences(**case)

        for x, y in zip(first, compiled(), strict=True):
            self.assertAllEqual(x, y)

    @parameterized.parameters("cpc_fraction", "mlm_fraction")
    def test_errors(self, name):
        with self.assertRaisesRegex(ValueError, f"{name} is 1"):
            self.mask(make_case(1, 2, 2), **{name: 1})


class TakeSentencesTest(tf.test.TestCase):
    def test_positions(self):
        taken = sentence_masking.take_sentences(
            tf.constant([[3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 0]]),
            tf.constant([[0, 0, 1, 1, 1, 2], [0, 2, 2, 3, 4, -1]]),
            tf.constant([[0, 1, 1, 0, 0], [0, 1, 1, 1, 1]]),
            max_sentences=5,
            max_tokens=3,
        )
        # Sentence 2 of the first row and 4 of the second do not fit; sentence 1
        # of the second row has no tokens.
        self.assertAllEqual([[1, 2, 0, 0, 0], [1, 2, 3, 4, 0]], taken.sentences)
        self.assertAllEqual([[1, 0, 0, 0, 0], [0, 1, 1, 0, 0]], taken.weights)
        self.assertAllEqual([[5, 6, 7], [2, 3, 4]], taken.token_ids)
        self.assertAllEqual([[0, 0, 0], [1, 1, 2]], taken.owners)
        taken = sentence_masking.take_sentences(
            tf.constant([[3, 4, 5, 6, 7, 8]]),
            tf.constant([[0, 0, 1, 2, 2, -1]]),
            tf.constant([[True, True, True]]),
            max_sentences=2,
            max_tokens=6,
        )
        self.assertAllEqual([[0, 1]], taken.sentences)
        self.assertAllEqual([[3, 4, 5, 0, 0, 0]], taken.token_ids)
        self.assertAllEqual([[0, 0, 1, -1, -1, -1]], taken.owners)


if __name__ == "__main__":
    tf.test.main()
