import tempfile

import tensorflow as tf

from etcmodel.feature_utils.text import tokenizers
from etcmodel.inspection import surface_text
from testing.tasks import write_test_vocab


class SurfaceTextsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        words = "jan live ##s in brno , cities"
        self.tokenizer = tokenizers.WordpieceTokenizer(
            write_test_vocab(tempfile.mkdtemp(), words)
        )

    def ids(self, text):
        return self.tokenizer.tokenize(text).numpy()

    def test_original_text(self):
        texts = surface_text.SurfaceTexts(
            self.tokenizer, {"text": [["Jan  lives in\nOslo, Brno"]]}
        )
        ids = self.ids("jan lives in oslo,")
        found = texts.tokens(ids, texts.find(ids))
        self.assertEqual(
            [
                ("Jan", "jan", ""),
                ("live", "live", " "),
                ("s", "##s", ""),
                ("in", "in", " "),
                # Unknown words keep their text.
                ("Oslo", "[UNK]", "\n"),
                (",", ",", ""),
            ],
            [tuple(x) for x in found],
        )
        self.assertEqual([("text", "Brno", 1)], texts.cut())

    def test_tokens_without_text(self):
        texts = surface_text.SurfaceTexts(self.tokenizer, {"text": "jan"})
        ids = self.ids("brno lives")
        self.assertEqual(-1, texts.find(ids))
        self.assertEqual(
            [("brno", "brno", ""), ("live", "live", " "), ("s", "##s", "")],
            [tuple(x) for x in texts.tokens(ids, -1)],
        )
        nothing = surface_text.SurfaceTexts(self.tokenizer, {"text": []})
        self.assertEqual((-1, []), (nothing.find(ids), nothing.cut()))

    def test_order_of_places(self):
        """Prefers whole texts, then the next place, then any place."""
        texts = surface_text.SurfaceTexts(
            self.tokenizer, {"a": "in brno in", "b": "in", "c": "brno in"}
        )
        brno = self.ids("in")
        self.assertEqual(3, texts.find(brno))
        self.assertEqual(2, texts.find(brno, after=1))
        self.assertEqual(0, texts.find(self.ids("in brno"), after=1))
        # Tokens that span two texts do not match.
        self.assertEqual(-1, texts.find(self.ids("in brno in in")))
        self.assertEqual([("c", "brno in", 2)], texts.cut())


if __name__ == "__main__":
    tf.test.main()
