import json
import os

import numpy as np
import tensorflow as tf

from etcmodel.checkpoints import bert_vocabularies
from etcmodel.checkpoints import vocabularies
from etcmodel.feature_utils.text import tokenizers
from testing import helpers


def in_disguise(piece):
    """Encodes a piece as in RoBERTa's vocab.json; None for control pieces."""
    return piece.replace("\u2581", "\u0120")


class VocabulariesTest(tf.test.TestCase):
    def write(self, name, content):
        path = os.path.join(self.get_temp_dir(), name)
        with open(path, "w", encoding="utf-8") as stream:
            if isinstance(content, list):
                stream.write("\n".join(content) + "\n")
            else:
                json.dump(content, stream)
        return path

    def test_wordpieces_in_another_order(self):
        reserved = list(tokenizers.WORDPIECE_RESERVED_TOKENS)
        source = vocabularies.read_vocabulary(
            self.write("a.txt", [*reserved, "one", "two"])
        )
        target = vocabularies.read_vocabulary(
            self.write("b.txt", [*reserved, "two", "three", "one"])
        )
        self.assertEqual("[CLS]", source.pieces[source.special_ids["cls"]])
        self.assertAllEqual(
            [*range(10), 11, -1, 10], vocabularies.match_pieces(source, target)
        )

    def test_pieces_of_bytes(self):
        pieces = ["<s>", "<pad>", "</s>", "\u0120the", "\u00c3\u00a9", "\u00c3"]
        path = self.write(
            "vocab.json", {piece: i for i, piece in enumerate(pieces)}
        )
        source = bert_vocabularies.read_source(path)
        self.assertEqual(pieces, source.pieces)
        target = vocabularies.Vocabulary(
            "model",
            ["<pad>", "<s>", "\u2581the", "\u00e9", "cls", "dog", "sep"],
            {"cls": 4, "separator": 6, "sentence": 1},
        )
        # The source's half of a character matches no piece. <s> does not match
        # by its name, since it is the source's [CLS].
        self.assertAllEqual(
            [1, -1, 3, 4, 0, -1, 2], vocabularies.match_pieces(source, target)
        )

    def test_all_pieces_of_the_equivalent_model(self):
        model = helpers.real_data_path("vocab/gpt2.model")
        target = vocabularies.read_vocabulary(model)
        # The model's first 101 pieces are not from RoBERTa.
        words = [x.replace("\u2581", "\u0120") for x in target.pieces[101:]]
        shuffled = ["<s>", "<pad>", "</s>", "<unk>", *words[::-1], "<mask>"]
        source = bert_vocabularies.read_source(
            self.write("vocab.json", {x: i for i, x in enumerate(shuffled)})
        )
        rows = vocabularies.match_pieces(source, target)
        expected = np.arange(4, 4 + len(words))[::-1]
        is_ascii = np.array([x.isascii() for x in target.pieces[101:]])
        is_ascii |= [
            x[0] == "\u2581" and x[1:].isascii() for x in target.pieces[101:]
        ]
        self.assertAllEqual(expected[is_ascii], rows[101:][is_ascii])
        self.assertAllGreater(rows[101:], 3)
        # RoBERTa writes "\u00e9" as two bytes, which form one piece.
        self.assertEqual(
            shuffled.index("\u00c3\u00a9"),
            rows[target.pieces.index("\u00e9")],
        )
        self.assertEqual(0, rows[target.special_ids["cls"]])
        self.assertEqual(2, rows[target.special_ids["separator"]])
        self.assertEqual(len(shuffled) - 1, rows[target.special_ids["mask"]])
        self.assertEqual(1, rows[0])
        self.assertEqual(-1, rows[target.special_ids["sentence"]])

    def test_kinship(self):
        # Twenty words, and their plurals with nearly equal rows.
        words = ["house" + x for x in "abcdefghijklmnopqrst"]
        rng = np.random.default_rng(0)
        rows = rng.normal(size=[20, 8])
        pieces = [*words, *(f"\u2581{x}s" for x in words), "##ab", "12345"]
        table = np.concatenate([rows, rows + 0.1, rows[:2]])
        kinship = vocabularies.measure_kinship(pieces, table)
        self.assertEqual((20, 1.0), kinship)
        others = [pieces[i] for i in rng.permutation(len(pieces))]
        kinship = vocabularies.measure_kinship(others, table)
        self.assertLess(kinship.share, 0.8)
        self.assertEqual(0, vocabularies.measure_kinship(["a"], rows).pairs)

    def test_no_tokenizer_can_be_made(self):
        path = self.write("vocab.json", {"<s>": 0})
        with self.assertRaisesRegex(ValueError, "equivalent SentencePiece"):
            vocabularies.read_vocabulary(path)


if __name__ == "__main__":
    tf.test.main()
