import numpy as np
import tensorflow as tf

from etcmodel.tasks.openkp import ngrams


class NumberWordsTest(tf.test.TestCase):
    def test_worked_example(self):
        """Adjacent words of two pages may share an index, but are distinct."""
        words = tf.ragged.constant(
            [[[0, 0, 2], [3]], [], [[], [3, 3], [5]]],
            ragged_rank=2,
            dtype=tf.int32,
        )
        numbers, visible, nodes = ngrams.number_words(words)
        self.assertAllEqual(
            [[[1, 1, 2], [3]], [], [[], [1, 1], [2]]], numbers.to_list()
        )
        self.assertAllEqual([[0, 2, 3], [], [3, 5]], visible.to_list())
        self.assertAllEqual([[0, 0, 1], [], [1, 2]], nodes.to_list())

    def test_empty_pages(self):
        for rows in ([], [[]], [[[], []], []]):
            words = tf.ragged.constant(rows, tf.int32, ragged_rank=2)
            made = ngrams.number_words(words)
            self.assertEqual([[] for _ in rows], made.words.to_list())


class FirstOccurrencesTest(tf.test.TestCase):
    def test_by_plain_python(self):
        """Compares with a search for the first equal phrase inside a node."""
        rng = np.random.default_rng(0)
        rows = [rng.choice(["a", "A", "b", "É", "é"], n) for n in (40, 0, 7)]
        nodes = [np.sort(rng.integers(0, 6, len(row))) for row in rows]
        got = ngrams.first_occurrences(
            tf.ragged.constant([x.tolist() for x in rows], dtype=tf.string),
            tf.ragged.constant([x.tolist() for x in nodes], dtype=tf.int32),
        )
        self.assertEqual([3, None, 5], got.shape.as_list())
        back = 0
        for row, node, offsets in zip(rows, nodes, got, strict=True):
            words = [word.lower() for word in row]
            for i in range(len(words)):
                for size in range(1, 6):
                    end = i + size
                    first = i
                    if end <= len(words) and node[end - 1] == node[i]:
                        first = next(
                            j
                            for j in range(i + 1)
                            if words[j : j + size] == words[i:end]
                            and node[j] == node[j + size - 1]
                        )
                    self.assertEqual(i - first, offsets[i, size - 1])
                    back += first < i
        self.assertGreater(back, 40)


class FindPhrasesTest(tf.test.TestCase):
    def _find(self, *phrases, words="star star trek season star trek"):
        return ngrams.find_phrases(phrases, words.split(), [0, 1, 1, 1, 2, 3])

    def test_within_a_node(self):
        self.assertEqual([(1, 2)], self._find(" Star  TREK"))
        self.assertEqual([(0, 1)], self._find("star"))
        # Finds neither a part of a word nor phrases across nodes.
        self.assertEqual([], self._find("sta", "star star", "season star"))

    def test_unicode_forms_and_html_entities_are_equal(self):
        words = ["cafe\u0301", "AT&amp;T"]
        self.assertEqual(
            [(0, 1), (1, 1)],
            ngrams.find_phrases(
                ["caf\u00e9", "at&t"],
                [ngrams.normalize_word(x) for x in words],
                [0, 0],
            ),
        )

    def test_three_different_phrases(self):
        self.assertEqual(
            [(0, 1), (2, 1), (3, 1)],
            self._find("star", "no", "Star", "trek", "season", "star trek"),
        )

    def test_long_phrases_are_left_out(self):
        text = "a b c d e f"
        nodes = [0] * 6
        self.assertEqual(
            [(0, 5)],
            ngrams.find_phrases([text, "a b c d e"], text.split(), nodes),
        )


if __name__ == "__main__":
    tf.test.main()
