from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.inspection import attention_map
from etcmodel.inspection.attention_map import GlobalToken
from etcmodel.inspection.surface_text import Token
from testing.attention_maps import make_map
from testing.attention_maps import make_segments_map


class Found(NamedTuple):
    answers: tuple[str, ...]
    score: float


class ShowAnswerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (None, "none"),
        ("", "none"),
        (b"Brno", "Brno"),
        ((), "none"),
        (["Brno", "Oslo"], "Brno, Oslo"),
        ({"answer": "Brno", "score": 0.51234}, "answer: Brno; score: 0.512"),
        (Found(("a", "b"), 1.0), "answers: a, b; score: 1"),
        (np.float32(0.25), "0.25"),
        ({"yes": True}, "yes: True"),
    )
    def test_formats(self, value, expected):
        self.assertEqual(expected, attention_map.show_answer(value))


class FindMarksTest(tf.test.TestCase):
    def test_words_of_answers(self):
        tokens = [
            Token(text, text, " ") for text in ("In", "New", "York", "or", "in")
        ]
        self.assertEqual(
            [(0, 1, "gold"), (1, 3, "both"), (4, 5, "gold")],
            attention_map.find_marks(
                tokens,
                {"answer": "new york", "score": 0.5},
                Found(("New York", "in"), 1.0),
            ),
        )
        self.assertEqual(
            [(2, 3, "predicted")],
            attention_map.find_marks(tokens, "york", None),
        )


class AttentionMapTest(tf.test.TestCase):
    """Tests a map that has one global token and two tokens of text."""

    def test_reads(self):
        found = make_map()
        self.assertEqual("Layer 1", found.layers[1].label)
        self.assertAllClose({0: 0.75, 2: 0.25}, found.reads(1, 1, "2"))
        self.assertAllClose({2: 0.5}, found.reads(1))
        self.assertEqual("<b>", found.label(1))

    def test_first_choice(self):
        found = make_map()
        self.assertEqual(0, found.default_layer)
        # The second token is the answer.
        self.assertEqual(2, found.default_node)
        self.assertEqual(1, make_map(rows=[1]).default_node)
        # A candidate that is the answer is chosen before tokens of the text.
        candidate = GlobalToken("Jan", "candidate")
        found = make_map(global_tokens=[candidate])
        self.assertEqual(0, found.default_node)
        # The first segment, which is node 2 after two tokens, and the layer
        # that attends to memories.
        found = make_segments_map()
        self.assertEqual((1, 2), (found.default_layer, found.default_node))

    def test_nodes_without_rows(self):
        with self.assertRaisesRegex(ValueError, "no row for the node 0"):
            make_map(rows=[1]).reads(0)
        with self.assertRaisesRegex(ValueError, "no head '3'. .*: average, 1"):
            make_map().reads(0, 1, "3")
        with self.assertRaisesRegex(IndexError, "no node 3"):
            make_map().label(3)


if __name__ == "__main__":
    tf.test.main()
