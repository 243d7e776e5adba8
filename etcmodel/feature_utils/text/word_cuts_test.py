import re

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.text import tokenizers
from etcmodel.feature_utils.text import word_cuts
from testing.helpers import real_data_path
from testing.helpers import write_file

_WORDS = (
    "bel ##fort , 5 ##° ##c \u65e5 \u672c \u0e01 ##\u0e02 "
    "\u0928 ##\u092e ##\u0947"
).split()


class WordCutsTest(tf.test.TestCase, parameterized.TestCase):
    def _tokenizer(self):
        tokens = [*tokenizers.WORDPIECE_RESERVED_TOKENS, *_WORDS]
        return tokenizers.make_tokenizer(write_file(self, "\n".join(tokens)))

    def test_by_hand(self):
        """Words consist of letters, digits and marks, and end with the text."""
        tokenizer = self._tokenizer()
        first = len(tokenizers.WORDPIECE_RESERVED_TOKENS)
        rows = [
            ("bel ##fort , 5 ##°", [2, 1, 0, 0, 0]),
            ("bel", [0]),
            ("##fort ##c 5 ##° ##c", [2, 1, 0, 0, 0]),
            # Chinese and Thai have no spaces between words; Hindi has.
            ("\u65e5 \u672c \u0e01 ##\u0e02", [0, 0, 0, 0]),
            ("\u0928 ##\u092e ##\u0947", [2, 3, 1]),
            ("[UNK] ##c", [0, 0]),
            ("", []),
        ]
        ids = [
            [
                first + _WORDS.index(x) if x in _WORDS else tokenizer.unknown_id
                for x in text.split()
            ]
            for text, _ in rows
        ]
        find = tf.function(
            lambda x: word_cuts.find_word_cuts(tokenizer, x),
            input_signature=[tf.RaggedTensorSpec([None, None, None], tf.int32)],
        )
        nested = tf.ragged.constant([ids[:3], [], ids[3:]], tf.int32, 2)
        cuts = find(nested).to_list()
        self.assertEqual([x for _, x in rows], cuts[0] + cuts[2])
        self.assertEqual([], find(nested[:0]).to_list())

    def test_whole_words(self):
        cuts = np.array([0, 2, 3, 1, 0, 2])
        for first, last, expected in (
            (0, 0, (0, 0)),
            (2, 2, (1, 3)),
            (3, 4, (1, 4)),
            # The text was truncated inside the last word.
            (5, 5, (5, 5)),
        ):
            self.assertEqual(expected, word_cuts.whole_words(cuts, first, last))

    @parameterized.parameters(
        # A pattern of characters to replace: those of scripts without spaces,
        # or those without pieces in the vocabulary.
        ("bert_uncased_vocab.txt", r"[^\x00-\u024f\u0370-\u04ff\u2010-\u2026]"),
        ("gpt2.model", r"[^\x00-\x7f]"),
    )
    def test_real_text(self, vocab, others):
        """Finds tokens that begin or end between letters or digits."""
        path = real_data_path("wikitext/wiki.valid.raw")
        with open(path, encoding="utf-8") as stream:
            text = re.sub(others, "?", stream.read()[:40_000])
        tokenizer = tokenizers.make_tokenizer(real_data_path(f"vocab/{vocab}"))
        ids, starts, ends = tokenizer.tokenize_with_offsets([text])
        cuts = word_cuts.find_word_cuts(tokenizer, ids)[0].numpy()
        data = text.encode()
        between = {
            len(text[: x.start()].encode())
            for x in re.finditer(r"(?<=[^\W_])(?=[^\W_])", text)
        }
        self.assertGreater(np.count_nonzero(cuts), 200)
        for start, end, cut in zip(
            starts[0].numpy(), ends[0].numpy(), cuts, strict=True
        ):
            self.assertEqual(
                ((start in between), (end in between)),
                (
                    bool(word_cuts.begins_inside(cut)),
                    bool(word_cuts.ends_inside(cut)),
                ),
                data[start - 9 : end + 9],
            )


if __name__ == "__main__":
    tf.test.main()
