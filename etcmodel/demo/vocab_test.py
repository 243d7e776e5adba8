import os

import tensorflow as tf

from etcmodel.demo import corpus
from etcmodel.demo import vocab
from etcmodel.demo.world import QUESTION
from etcmodel.feature_utils.text import tokenizers


class VocabTest(tf.test.TestCase):
    def build(self, texts, **kwargs):
        vocab_file = os.path.join(self.get_temp_dir(), "vocab.txt")
        size = vocab.build_vocab(texts, vocab_file, **kwargs)
        with open(vocab_file, encoding="utf-8") as file:
            tokens = file.read().splitlines()
        self.assertLen(tokens, size)
        self.assertLen(set(tokens), size)
        self.assertEqual(os.listdir(self.get_temp_dir()), ["vocab.txt"])
        return vocab_file, tokens

    def test_frequent_words_and_all_letters(self):
        _, tokens = self.build(["The bees of Ness, the bees."] * 50)
        reserved = list(tokenizers.WORDPIECE_RESERVED_TOKENS)
        self.assertEqual(tokens[: len(reserved)], reserved)
        self.assertContainsSubset(["the", "bees", "ness", ",", "."], tokens)
        self.assertContainsSubset(["b", "##b", "h", "##h"], tokens)
        self.assertNotIn("The", tokens)

    def test_no_unknown_words_in_held_out_records(self):
        records = corpus.make_records(500)
        vocab_file, tokens = self.build(
            text for r in records for text in (*r["supports"], r["query"])
        )
        tokenizer = tokenizers.make_tokenizer(vocab_file)
        heldout = corpus.make_records(200, split="heldout")
        for record in (*heldout, QUESTION):
            texts = [record["query"], *record["candidates"]]
            texts += record["supports"]
            ids = tokenizer.tokenize(tf.constant(texts)).flat_values.numpy()
            pieces = [tokens[i] for i in ids]
            self.assertNotIn("[UNK]", pieces)
            self.assertFalse([p for p in pieces if p.startswith("##")])


if __name__ == "__main__":
    tf.test.main()
