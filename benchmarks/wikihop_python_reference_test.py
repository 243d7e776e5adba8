"""Tests of `wikihop_python_reference`: the description's worked examples."""

import tensorflow as tf

from benchmarks import wikihop_python_reference as reference


class WikiHopPythonReferenceTest(tf.test.TestCase):
    def test_truncate(self):
        one = [[1] * 4, [1] * 2, [1] * 4]
        self.assertEqual(reference.truncate(one, 7, 99), [2, 2, 3])
        self.assertEqual(reference.truncate(one, 99, 3), [1, 1, 1])
        self.assertEqual(reference.truncate(one, 99, 99), [4, 2, 4])
        self.assertEqual(reference.truncate([[5], [1, 1]], 9, 6), [1, 1])

    def test_find_mentions(self):
        tokens = {"a b a b a": [1, 2, 1, 2, 1], "a b a": [1, 2, 1]}
        self.assertEqual(
            reference.find_mentions("a b a b a", "A b a", tokens.get),
            [(0, 2), (2, 4)],
        )
        self.assertEqual(reference.find_mentions("a b", "c", tokens.get), [])

    def test_convert(self):
        def tokenize(text):
            return [int(x) for x in text.split()]

        features = reference.convert(
            "31 32",
            ["21", "22 23"],
            ["41 21. 42", "22 23 43"],
            tokenize,
            split=lambda text: text.split(". "),
            long_length=14,
            global_length=12,
        )
        table = """
            long_token_ids 21 22 23 31 32 41 21 42 22 23 43 0 0 0
            long_token_type_ids 4 4 4 3 3 1 1 1 1 1 1 0 0 0
            long_sentence_ids 0 1 1 2 3 5 5 6 8 8 8 -1 -1 -1
            long_paragraph_ids -1 -1 -1 -1 -1 4 4 4 7 7 7 -1 -1 -1
            long_paragraph_breakpoints 1 0 1 0 1 0 0 1 0 0 1 0 0 0
            l2g_linked_ids 0 1 1 -1 -1 -1 0 -1 1 1 -1 -1 -1 -1
            global_token_ids 4 4 3 3 5 1 1 5 1 0 0 0
            global_token_type_ids 6 6 5 5 7 0 0 7 0 0 0 0
            global_paragraph_breakpoints 1 1 0 1 0 0 1 0 1 0 0 0
        """
        lines = [line.split() for line in table.strip().split("\n")]
        self.assertLen(features, len(lines))
        for name, *values in lines:
            self.assertAllEqual(features[name], [int(x) for x in values], name)
        example = tf.train.Example.FromString(reference.to_example(features))
        self.assertLen(example.features.feature, len(lines))


if __name__ == "__main__":
    tf.test.main()
