"""Tests of finding mentions of candidates."""

import json
import random
import re

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.text import tokenizers
from etcmodel.tasks.wikihop import mentions
from testing.helpers import real_data_path

_SPEC = tf.RaggedTensorSpec([None] * 3, tf.int32, ragged_rank=2)


def ragged(values, rank=2):
    return tf.ragged.constant(values, ragged_rank=rank, dtype=tf.int32)


def find(texts, candidates, most=1):
    """Finds the mentions in one record in plain Python."""
    result = []
    for text in texts:
        linked = [set() for _ in text]
        for i, sought in enumerate(candidates):
            for start in range(len(text) - len(sought) + 1):
                if sought and text[start : start + len(sought)] == sought:
                    for found in linked[start : start + len(sought)]:
                        found.add(i)
        rows = [
            [*sorted(found, reverse=True), *[-1] * most][:most]
            for found in linked
        ]
        result.append([row[0] for row in rows] if most == 1 else rows)
    return result


class MentionsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ([[7, 8, 9], [8]], [[8], [7, 8], [9, 8]], [[1, 1, -1], [0]]),
        # Mentions of one candidate may overlap.
        ([[5, 6, 5, 6, 5]], [[5, 6, 5]], [[0, 0, 0, 0, 0]]),
        # The candidate with the greater index is kept, even if it is shorter.
        ([[1, 2, 3]], [[1, 2, 3], [2]], [[0, 1, 0]]),
        ([[1, 2, 3]], [[2], [1, 2, 3]], [[1, 1, 1]]),
        # Mentions do not cross texts.
        ([[1], [2]], [[1, 2]], [[-1], [-1]]),
        # First, one candidate has no tokens and two are equal. Then, there are
        # no candidates.
        ([[1, 2]], [[], [1], [1]], [[2, -1]]),
        ([[1, 2]], [], [[-1, -1]]),
        ([[], [3]], [[3, 3]], [[], [-1]]),
        ([], [[3]], []),
    )
    def test_examples(self, texts, candidates, expected):
        linked = mentions.link_mentions(ragged([texts]), ragged([candidates]))
        self.assertEqual(linked.to_list(), [expected])
        self.assertEqual(linked.dtype, tf.int32)
        self.assertEqual(find(texts, candidates), expected)

    @parameterized.parameters(1, 2, 3)
    def test_random_against_python(self, number):
        rng = random.Random(number)
        link = tf.function(
            lambda keys, candidates: mentions.link_mentions(
                keys, candidates, number
            ),
            input_signature=[_SPEC, _SPEC],
            autograph=False,
        )

        def tokens(kinds, most):
            return [rng.randrange(kinds) for _ in range(rng.randint(0, most))]

        for _ in range(40):
            kinds, batch = rng.randint(1, 4), rng.randint(0, 4)
            texts = [
                [tokens(kinds, 12) for _ in range(rng.randint(0, 4))]
                for _ in range(batch)
            ]
            # Short candidates, and candidates long enough for runs to be
            # halved.
            most = rng.choice([4, 13])
            candidates = [
                [tokens(kinds, most) for _ in range(rng.randint(0, 6))]
                for _ in range(batch)
            ]
            self.assertEqual(
                link(ragged(texts), ragged(candidates)).to_list(),
                [find(*x, number) for x in zip(texts, candidates, strict=True)],
            )

    def test_largest_keys(self):
        key = 2**31 - 2
        linked = mentions.link_mentions(
            ragged([[[key, 0, key]]]), ragged([[[key, 0]]])
        )
        self.assertEqual(linked.to_list(), [[[0, 0, -1]]])

    def test_many_candidates_with_the_same_beginning(self):
        """Matches 5,000 candidates in 50,000 tokens, all of the same word."""
        linked = mentions.link_mentions(
            ragged([[[1] * 50_000]]), ragged([[[1] * 3 + [2]] * 5000])
        )
        self.assertAllEqual(linked.flat_values, [-1] * 50_000)

    def test_long_overlapping_mentions(self):
        numbers = [*range(1, 60, 2), 130, *range(2, 60, 2)]
        text = [1] * 300 + [2] + [1] * 2_000
        linked = mentions.link_mentions(
            ragged([[text, [1] * 57]]), ragged([[[1] * n for n in numbers]])
        )
        last = len(numbers) - 1
        self.assertEqual(
            linked.to_list(),
            [
                [
                    [last] * 300 + [-1] + [last] * 2_000,
                    [last - 1] + [last - 1] * 56,
                ]
            ],
        )

    def test_words(self):
        words = mentions.split_words(
            tf.constant(["Dr. Ünal ", "", " a_b-c\u00a0d\x1f"])
        )
        self.assertEqual(words.starts.to_list(), [[0, 2, 4], [], [1, 4, 5, 8]])
        self.assertEqual(words.ends.to_list(), [[2, 3, 9], [], [4, 5, 6, 9]])
        chinese = mentions.split_words(tf.constant(["a中文b か"]))
        self.assertEqual(chinese.starts.to_list(), [[0, 1, 4, 7, 9]])
        same = mentions.split_words(tf.constant(["DR . ünal", "dr.u\u0308nal"]))
        self.assertAllEqual(words.keys[0], same.keys[0])
        # The word "ünal" is in another Unicode normal form.
        self.assertAllEqual(words.keys[0], same.keys[1])

    def test_word_mentions(self):
        texts = tf.ragged.constant([["in New York", ""], ["York!"], []])
        # The tokens are _in _New _York in "in New York", and _Yo rk ! in
        # "York!".
        ends = tf.ragged.constant(
            [[[2, 6, 11], []], [[2, 4, 5]], []], ragged_rank=2, dtype=tf.int32
        )
        linked = mentions.link_word_mentions(
            texts,
            ends,
            tf.ragged.constant([["york", "new york"], ["york"], []]),
        )
        self.assertEqual(linked.to_list(), [[[-1, 1, 1], []], [[0, 0, -1]], []])


class RealRecordsTest(tf.test.TestCase):
    def test_words(self):
        """Links exactly the tokens that belong to the words of a mention."""
        with open(real_data_path("wikihop/train_22.json")) as file:
            records = json.load(file)[:8]
        tokenizer = tokenizers.make_tokenizer(
            real_data_path("vocab/gpt2.model")
        )
        texts = tf.ragged.constant([x["supports"] for x in records])
        candidates = [x["candidates"] for x in records]
        _, _, ends = tokenizer.tokenize_with_offsets(texts)
        linked = mentions.link_word_mentions(
            texts, ends, tf.ragged.constant(candidates)
        )
        self.assertGreater(np.count_nonzero(linked.flat_values >= 0), 300)
        pattern = re.compile(r"[^\W]+|[^\w\s]")
        for record, *columns in zip(
            records, ends.to_list(), linked.to_list(), strict=True
        ):
            sought = [pattern.findall(x.lower()) for x in record["candidates"]]
            for text, places, links in zip(
                record["supports"], *columns, strict=True
            ):
                found = list(pattern.finditer(text))
                words = [match.group().lower() for match in found]
                by_byte = {}
                (word_links,) = find([words], sought)
                for match, link in zip(found, word_links, strict=True):
                    start = len(text[: match.start()].encode())
                    size = len(match.group().encode())
                    by_byte.update({start + i: link for i in range(size)})
                self.assertEqual(
                    links, [by_byte.get(end - 1, -1) for end in places]
                )


if __name__ == "__main__":
    tf.test.main()
