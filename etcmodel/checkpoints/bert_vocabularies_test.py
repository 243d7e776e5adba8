import io
import json
import os
import tempfile

import sentencepiece
import tensorflow as tf
import tokenizers as hugging_face
from absl.testing import parameterized

from etcmodel.checkpoints import bert_vocabularies
from etcmodel.feature_utils.text import tokenizers
from testing import helpers

_LINES = [*tokenizers.WORDPIECE_RESERVED_TOKENS, "one", "##s"]


class BertVocabulariesTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.get_temp_dir()

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8", newline="") as stream:
            if isinstance(content, str):
                stream.write(content)
            else:
                json.dump(content, stream)
        return path

    def lift(self, path):
        return bert_vocabularies.lift_vocabulary(
            bert_vocabularies.read_source(path)
        )

    @parameterized.parameters("\n", "\r\n")
    def test_complete_vocabulary_is_unchanged(self, end):
        path = self.write("words.txt", "".join(x + end for x in _LINES))
        lifted = self.lift(path)
        self.assertEqual("words.txt", lifted.name)
        self.assertEqual("".join(f"{x}\n" for x in _LINES), lifted.content.decode())  # noqa: E501  # fmt: skip
        self.assertEqual(list(range(12)), lifted.rows)
        self.assertEmpty(lifted.notes)
        tokenizer = tokenizers.make_tokenizer(path)
        self.assertEqual(tokenizer.special_ids, lifted.special_ids)

    def test_only_line_feeds_end_lines(self):
        odd = ["\u2028", "a\u00a0b", "\x85", "", "\u3000", "word"]
        path = self.write("vocab.txt", "\n".join([*_LINES, *odd]))
        lifted = self.lift(path)
        expected = ["[U+2028]", "a[U+00A0]b", "[U+0085]", "[line-16]"]
        self.assertEqual([*_LINES, *expected, "[U+3000]", "word"], lifted.pieces)  # noqa: E501  # fmt: skip
        self.assertRegex(lifted.notes[0], "5 tokens contain white space")

    def test_chinese(self):
        path = helpers.real_data_path("vocab/bert_chinese_vocab.txt")
        folder = self.folder
        written = bert_vocabularies.write_vocabulary(path, folder)
        tokenizer = tokenizers.make_tokenizer(written)
        text = "\u4e2d\u56fd\u7684\u9996\u90fd Beijing 2008"
        reference = hugging_face.BertWordPieceTokenizer(path)
        self.assertAllEqual(
            reference.encode(text, add_special_tokens=False).ids,
            tokenizer.tokenize(text),
        )
        # [unused0] is new; [unused1] to [unused4] are on lines 2 to 5.
        self.assertEqual(21128, tokenizer.special_ids["sentence"])
        self.assertEqual(1, tokenizer.special_ids["cpc_mask"])
        self.assertEqual(21129, tokenizer.vocab_size)

    def test_added_tokens(self):
        path = self.write("vocab.txt", "\n".join(_LINES))
        self.write("added_tokens.json", {"<a>": 14, "[unused9]": 3})
        lifted = self.lift(path)
        # Row 3 belongs to a trained token; [unused2] is new.
        self.assertEqual(
            [*_LINES[:3], "[unused9]", *_LINES[4:], "[no-token-12]"],
            lifted.pieces[:13],
        )
        self.assertEqual(
            ["[no-token-13]", "<a>", "[unused2]"], lifted.pieces[13:]
        )
        self.assertEqual([14, -1], lifted.rows[14:])
        self.write("added_tokens.json", {"<a>": 10**9})
        with self.assertRaisesRegex(ValueError, "12 tokens.* id 1000000000"):
            bert_vocabularies.read_source(path)

    @parameterized.parameters(
        ("added_tokens.json", {"<a>": None}),
        ("added_tokens.json", {"<a>": -1}),
        ("tokenizer_config.json", {"added_tokens_decoder": None}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"9": {}}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {}}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"9": "<a>"}}),
        ("tokenizer_config.json", {"unk_token": {"special": True}}),
        ("tokenizer_config.json", {"unk_token": 3}),
        ("special_tokens_map.json", {"mask_token": ["<mask>"]}),
        ("special_tokens_map.json", {"mask_token": {"content": 3}}),
        ("tokenizer.json", {"added_tokens": [{"id": 9}]}),
        ("tokenizer.json", {"added_tokens": [{"content": "<a>"}]}),
        ("tokenizer.json", {"added_tokens": [{"id": 9, "content": 3}]}),
        ("tokenizer.json", {"added_tokens": ["<a>"]}),
        ("tokenizer.json", {"added_tokens": 3}),
    )
    def test_damaged_files_beside(self, name, content):
        self.folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        path = self.write("vocab.txt", "\n".join(_LINES))
        damaged = self.write(name, content)
        with self.assertRaisesRegex(ValueError, f"^{damaged}.*expected"):
            bert_vocabularies.read_source(path)

    def test_null_token_is_ignored(self):
        path = self.write("vocab.txt", "\n".join([*_LINES, "<unk>"]))
        self.write("tokenizer_config.json", {"unk_token": "<unk>"})
        self.write("special_tokens_map.json", {"unk_token": None})
        self.write("tokenizer.json", {"added_tokens": None})
        source = bert_vocabularies.read_source(path)
        self.assertEqual([*_LINES, "<unk>"], list(source.pieces))

    def test_settings_are_written(self):
        path = self.write("vocab.txt", "\n".join(_LINES))
        normalizer = {"lowercase": True, "strip_accents": False}
        content = {
            "normalizer": {"type": "BertNormalizer", **normalizer},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
        }
        self.write("tokenizer.json", content)
        config = {"do_lower_case": False, "strip_accents": None, "x": 1}
        self.write("tokenizer_config.json", config)
        folder = os.path.join(self.folder, "lifted")
        os.mkdir(folder)
        bert_vocabularies.write_vocabulary(path, folder)
        with open(os.path.join(folder, "tokenizer_config.json")) as stream:
            written = json.load(stream)
        self.assertFalse(written["do_lower_case"])
        self.assertFalse(written["strip_accents"])
        self.assertNotIn("x", written)

    def train(self, name):
        stream = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["one two three ones"] * 9),
            model_writer=stream,
            vocab_size=30,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(stream.getvalue())
        return path, sentencepiece.SentencePieceProcessor(path)

    def test_tokens_added_to_a_sentencepiece_model(self):
        path, model = self.train("sentencepiece.bpe.model")
        self.write("config.json", {"tokenizer_class": "XLMRobertaTokenizer"})
        number = len(model)
        self.write("added_tokens.json", {"<e>": number + 2})
        written = bert_vocabularies.write_vocabulary(path, self.folder)
        tokenizer = tokenizers.make_tokenizer(written)
        lifted = self.lift(path)
        pieces = tokenizer.id_to_token(tokenizer.tokenize("one <e> two"))
        self.assertIn(b"<e>", pieces.numpy())
        # Row 0 is <s>, row 2 is </s>, and <mask> comes after all pieces.
        special = lifted.special_ids
        self.assertEqual(0, lifted.rows[special["cls"]])
        self.assertEqual(2, lifted.rows[special["separator"]])
        self.assertEqual(number + 1, lifted.rows[special["mask"]])
        self.assertEqual(-1, lifted.rows[special["question"]])
        self.assertEqual(1, lifted.rows[0])
        self.assertEqual(number + 2, lifted.rows[lifted.pieces.index("<e>")])
        self.write(
            "tokenizer_config.json",
            {
                "mask_token": "<mask>",
                "added_tokens_decoder": {"9": {"content": "<mask>"}},
            },  # noqa: E501  # fmt: skip
        )
        with self.assertRaisesRegex(ValueError, "'<mask>' has the id 9"):
            bert_vocabularies.read_source(path)

    def test_errors(self):
        path, _ = self.train("spiece.model")
        with self.assertRaisesRegex(
            ValueError, "ids of its pieces are unknown"
        ):
            bert_vocabularies.read_source(path)
        with open(path, "wb") as file:
            file.write(b"\x00\x01nothing")
        with self.assertRaisesRegex(ValueError, "neither a WordPiece"):
            bert_vocabularies.read_source(path)
        path = os.path.join(self.folder, "none.txt")
        with self.assertRaisesRegex(
            FileNotFoundError, "none.txt does not exist"
        ):
            bert_vocabularies.read_source(path)
        for content, message in (
            ({"a": 0, "b": 2}, "ids from 0"),
            ({"a": "b"}, "ids from 0"),
            ([1, 2], "a list, not an object"),
            ("no JSON", "not JSON"),
            ({"model": {"type": "Unigram", "vocab": []}}, "Unigram, expected"),
            (
                {"model": {"type": "WordPiece"}},
                f"^{self.folder}.*ids from 0",
            ),
            ({"model": {"vocab": ["a"]}}, f"^{self.folder}.*ids from 0"),
            (
                {
                    "model": {
                        "type": "WordPiece",
                        "vocab": {},
                        "continuing_subword_prefix": "@",
                    }
                },
                "'@', expected '##'",
            ),  # noqa: E501  # fmt: skip
        ):
            path = self.write("vocab.json", content)
            with self.assertRaisesRegex(ValueError, message):
                bert_vocabularies.read_source(path)


if __name__ == "__main__":
    tf.test.main()
