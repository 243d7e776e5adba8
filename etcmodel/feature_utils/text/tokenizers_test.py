import json
import os
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.text import tokenizers
from etcmodel.feature_utils.text import vocabulary_files
from etcmodel.feature_utils.text.tokenizer_settings import TokenizerSettings
from testing.helpers import real_data_path
from testing.helpers import write_file

# A small vocabulary; "unaffable" is the example of BERT's own code.
VOCAB = [
    *tokenizers.WORDPIECE_RESERVED_TOKENS,
    *["un", "##aff", "##able", "runn", "##ing", "star", "trek", ",", "."],
    *["[", "]", "cl", "##s", "中", "e", "high", "##er"],
]


class _Exported(tf.Module):
    def __init__(self, tokenizer):
        super().__init__()
        self.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
    def serve(self, texts):
        ids, starts, _ = self.tokenizer.tokenize_with_offsets(texts)
        same_ids, keys = self.tokenizer.tokenize_with_keys(texts)
        return {
            "ids": ids.to_tensor(),
            "starts": starts.to_tensor(),
            "tokens": self.tokenizer.id_to_token(same_ids.to_tensor()),
            "keys": keys.to_tensor(),
        }


class _TestCase(tf.test.TestCase, parameterized.TestCase):
    def _folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def _serve(self, tokenizer, *texts):
        """Exports a tokenizer and runs it as servers do; checks its ops."""
        module = _Exported(tokenizer)
        path = os.path.join(self._folder(), "model")
        tf.saved_model.save(
            module, path, signatures={"serving_default": module.serve}
        )
        with tf.compat.v1.Session(graph=tf.Graph()) as session:
            meta = tf.compat.v1.saved_model.loader.load(
                session, ["serve"], path
            )
            ops = {node.op for node in meta.graph_def.node}
            for function in meta.graph_def.library.function:
                ops |= {node.op for node in function.node_def}
            self.assertNoCommonElements(
                ops, {"PyFunc", "EagerPyFunc", "RegexSplitWithOffsets"}
            )
            signature = meta.signature_def["serving_default"]
            return session.run(
                {name: x.name for name, x in signature.outputs.items()},
                {signature.inputs["texts"].name: texts},
            )

    def _parts(self, raw, starts, ends):
        """Returns the parts of a text between byte offsets."""
        return [
            raw[start:end].decode()
            for start, end in zip(starts.numpy(), ends.numpy(), strict=True)
        ]


class TokenizersTest(_TestCase):
    def _file(self, content):
        return write_file(self, content, "vocab.txt")

    def _tokenizer(self, **kwargs):
        path = self._file("\n".join(VOCAB).encode() + b"\n")
        return tokenizers.WordpieceTokenizer(path, **kwargs)

    def _tokens(self, tokenizer, text):
        ids = tokenizer.tokenize([text])[0]
        return [x.decode() for x in tokenizer.id_to_token(ids).numpy()]

    def test_wordpiece(self):
        tokenizer = self._tokenizer()
        for text, expected in (
            ("UNaffable  running,\n", "un ##aff ##able runn ##ing ,"),
            ("[CLS]", "[ cl ##s ]"),
            ("é中É", "e 中 e"),
            ("", ""),
            (" \t", ""),
            ("star wars.", "star [UNK] ."),
            # A word with an unknown part is unknown.
            ("starx", "[UNK]"),
            ("un" + "x" * 300, "[UNK]"),
            ("star\x00 trek\x07", "star trek"),
            (b"star \xff trek \xe4\xb8", "star trek"),
            # Dropped characters do not separate words; other white space does.
            (b"st\x00\xc2\xada\xffr", "star"),
            ("star\u3000trek\u2028star", "star trek star"),
        ):
            self.assertEqual(
                self._tokens(tokenizer, text), expected.split(), text
            )

    def test_cased(self):
        tokenizer = self._tokenizer(lower_case=False)
        self.assertFalse(tokenizer.lower_case)
        self.assertEqual(
            self._tokens(tokenizer, "star Star"), ["star", "[UNK]"]
        )

    def test_vocabulary_tells_whether_it_is_cased(self):
        words = [f"word{i}" for i in range(200)]
        reserved = tokenizers.WORDPIECE_RESERVED_TOKENS
        for more, is_cased in ((["A"], False), (["A", "B", "C", "D"], True)):
            path = self._file("\n".join([*reserved, *words, *more]))
            tokenizer = tokenizers.make_tokenizer(path)
            self.assertEqual(not is_cased, tokenizer.lower_case)
            tokenizer = tokenizers.make_tokenizer(
                path, TokenizerSettings(lower_case=is_cased)
            )
            self.assertEqual(is_cased, tokenizer.lower_case)

    def test_files_beside_the_vocabulary_decide(self):
        """The files set defaults; given settings override them."""
        vocab = [*VOCAB, "für", "fur", "Für", "中国"]
        path = self._file("\n".join(vocab).encode())
        text = "Für 中国"

        def tokens(settings=None):
            tokenizer = tokenizers.make_tokenizer(path, settings)
            return tokenizer.settings, self._tokens(tokenizer, text)

        settings, found = tokens()
        # The vocabulary is so small that one token with a capital exceeds 1 %.
        self.assertEqual(settings, (False, False, True, True, 200))
        self.assertEqual(found, ["Für", "中", "[UNK]"])
        config = os.path.join(os.path.dirname(path), "tokenizer_config.json")
        with open(config, "w", encoding="utf-8") as stream:
            names = ("strip_accents", "tokenize_chinese_chars")
            json.dump(
                {"do_lower_case": True} | dict.fromkeys(names, False), stream
            )
        settings, found = tokens()
        self.assertEqual(settings, (True, False, False, True, 100))
        self.assertEqual(found, ["für", "中国"])
        settings, found = tokens(TokenizerSettings(lower_case=False))
        self.assertEqual(settings, (False, False, False, True, 100))
        self.assertEqual(found, ["Für", "中国"])

    def test_long_words_are_unknown(self):
        """The limit counts characters, not bytes; a long word is one token."""
        vocab = [*VOCAB, "é", "##é"]
        path = self._file("\n".join(vocab).encode())
        tokenizer = tokenizers.WordpieceTokenizer(
            path, strip_accents=False, max_chars_per_word=3
        )
        ids, starts, ends = tokenizer.tokenize_with_offsets(
            ["ééé " + 100 * "é" + " trek éééé"]
        )
        e, more, unknown = (vocab.index(x) for x in ("é", "##é", "[UNK]"))
        self.assertAllEqual(ids[0], [e, more, more, *3 * [unknown]])
        self.assertAllEqual(starts[0], [0, 2, 4, 7, 208, 213])
        self.assertAllEqual(ends[0], [2, 4, 6, 207, 212, 221])
        for wrong in (0, -1):
            with self.assertRaisesRegex(ValueError, "max_chars_per_word"):
                tokenizers.WordpieceTokenizer(path, max_chars_per_word=wrong)

    def test_invalid_utf8(self):
        """Invalid bytes count as U+FFFD, even in offsets."""
        tokenizer = self._tokenizer()
        for raw in (b"st\xffar \xe4\xb8 trek", b"\xc3(star\xf0\x9f \xe4 ["):
            clean = tokenizers.sanitize(raw)
            self.assertNotEqual(clean.numpy(), raw)
            for found, expected in zip(
                tokenizer.tokenize_with_offsets(raw),
                tokenizer.tokenize_with_offsets(clean),
                strict=True,
            ):
                self.assertAllEqual(found, expected)
            self.assertAllEqual(
                tokenizer.tokenize(raw), tokenizer.tokenize(clean)
            )

    def test_any_shape(self):
        tokenizer = self._tokenizer()
        star, trek = VOCAB.index("star"), VOCAB.index("trek")
        self.assertAllEqual(tokenizer.tokenize("star trek"), [star, trek])
        self.assertAllEqual(
            tokenizer.tokenize([["star", ""], ["trek star", "trek"]]),
            tf.ragged.constant([[[star], []], [[trek, star], [trek]]]),
        )
        ragged = tf.ragged.constant([[["star"], []], [[], ["", "trek"]]])
        ids, keys = tokenizer.tokenize_with_keys(ragged)
        self.assertEqual(ids.to_list(), [[[[star]], []], [[], [[], [trek]]]])
        self.assertAllEqual(ids, keys)
        self.assertEqual(ids.dtype, tf.int32)
        none = tokenizer.tokenize(tf.ragged.constant([[], []], dtype=tf.string))
        self.assertEqual(none.to_list(), [[], []])

    def test_offsets_are_those_of_the_original(self):
        text = "Unaffable é中 HIGHER."
        ids, starts, ends = self._tokenizer().tokenize_with_offsets([text])
        self.assertEqual(
            self._parts(text.encode(), starts[0], ends[0]),
            ["Un", "aff", "able", "é", "中", "HIGH", "ER", "."],
        )
        self.assertAllEqual(starts[0][:5], [0, 2, 5, 10, 12])
        self.assertEqual(starts.dtype, tf.int32)
        self.assertLen(ids[0], 8)

    def test_offsets_of_characters_that_become_several_tokens(self):
        """Each such token has the offsets of the whole character."""
        raw = "한e\u0301 \u0301\u0301e\u0301\n한 \xad각.".encode()
        vocab = [*VOCAB, "ᄒ", "##ᅡ", "##ᆫ", "##e", "ᄀ", "##ᆨ"]
        path = self._file("\n".join(vocab).encode())
        tokenizer = tokenizers.WordpieceTokenizer(path)
        ids, starts, ends = tokenizer.tokenize_with_offsets([raw, "", "한"])
        self.assertEqual(
            [vocab[i] for i in ids[0].numpy()],
            ["ᄒ", "##ᅡ", "##ᆫ", "##e", "e", "ᄒ", "##ᅡ", "##ᆫ"]
            + ["ᄀ", "##ᅡ", "##ᆨ", "."],
        )
        self.assertEqual(
            self._parts(raw, starts[0], ends[0]),
            [*3 * ["한"], "e\u0301", "e\u0301", *3 * ["한"], *3 * ["각"], "."],
        )
        self.assertAllEqual(starts[2], [0, 0, 0])
        self.assertAllEqual(ends[2], [3, 3, 3])

    def test_keys_of_many_unknown_words_in_one_text(self):
        """The time is not proportional to text length times unknown words."""
        words = [f"x{i % 50_000}" for i in range(100_000)]
        keys = self._tokenizer().tokenize_with_keys([" ".join(words)])[1]
        keys = keys.flat_values.numpy()
        self.assertAllEqual(keys[:50_000], keys[50_000:])
        self.assertLen(set(keys), 50_000)
        self.assertAllGreaterEqual(keys, len(VOCAB))

    def test_keys_tell_unknown_words_apart(self):
        words = ["foo", "x" * 1000 + "y", "y" + "x" * 1000, "x" * 1001]
        ids, keys = self._tokenizer().tokenize_with_keys(
            [" ".join(words), "", "Foo star", words[1]]
        )
        unknown, star = VOCAB.index("[UNK]"), VOCAB.index("star")
        self.assertEqual(
            ids.to_list(), [[unknown] * 4, [], [unknown, star], [unknown]]
        )
        first, *others = keys.to_list()
        self.assertLen(set(first), 4)
        self.assertAllGreaterEqual(first, len(VOCAB))
        self.assertEqual(others, [[], [first[0], star], [first[1]]])

    def test_special_ids(self):
        tokenizer = self._tokenizer()
        self.assertEqual(tokenizer.vocab_size, len(VOCAB))
        self.assertEqual(
            {k: VOCAB[v] for k, v in tokenizer.special_ids.items()},
            {**tokenizers.WORDPIECE_SPECIAL_TOKENS, "mask": "[MASK]"},
        )
        self.assertEqual(VOCAB[tokenizer.unknown_id], "[UNK]")

    def test_text_gets_the_last_of_equal_tokens(self):
        """If a token is repeated, its last line counts, as in BERT's code."""
        path = self._file("\n".join([*VOCAB, "star", "new"]).encode())
        tokenizer = tokenizers.make_tokenizer(path)
        self.assertAllEqual(
            tokenizer.tokenize("star new"), [len(VOCAB), len(VOCAB) + 1]
        )
        self.assertEqual(tokenizer.vocab_size, len(VOCAB) + 2)
        self.assertAllEqual(
            tokenizer.id_to_token([VOCAB.index("star"), len(VOCAB)]),
            [b"star", b"star"],
        )

    @parameterized.named_parameters(
        ("empty", b"", "is empty"),
        ("binary", b"[PAD]\n\x00\x01", "binary, or not UTF-8"),
        ("not_utf8", b"[PAD]\n\xff\xfe", "binary, or not UTF-8"),
        ("blank_line", b"[PAD]\n\n[UNK]\n", "Line 2 .* blank"),
        ("other_text", b"some text\nof two lines\n", "lacks .*'\\[CLS\\]'"),
        ("no_unknown", "\n".join({*VOCAB} - {"[UNK]"}), r"lacks .'\[UNK\]'.:"),
        ("padding", "\n".join(["a", *VOCAB]), r"first token .* 'a'.*'\[PAD\]'"),
    )
    def test_wrong_vocabularies(self, content, message):
        path = self._file(content)
        with self.assertRaisesRegex(ValueError, message) as caught:
            tokenizers.WordpieceTokenizer(path)
        self.assertIn(path, str(caught.exception))

    @parameterized.parameters(
        tokenizers.WordpieceTokenizer,
        tokenizers.SentencepieceTokenizer,
        tokenizers.make_tokenizer,
    )
    def test_wrong_files(self, make):
        folder = self._folder()
        missing = os.path.join(folder, "missing.txt")
        with self.assertRaisesRegex(FileNotFoundError, missing):
            make(missing)
        with self.assertRaisesRegex(ValueError, f"{folder} is a folder"):
            make(folder)
        if make != tokenizers.WordpieceTokenizer:
            path = self._file(b"\x00\xffgarbage")
            message = f"{path} is damaged, or not a SentencePiece model"
            with self.assertRaisesRegex(ValueError, message):
                make(path)

    def test_sanitize(self):
        self.assertAllEqual(
            tokenizers.sanitize([b"caf\xe9 a\x00b\x1f", "ü\t\n".encode()]),
            [b"caf\xef\xbf\xbd a b ", "ü\t\n".encode()],
        )

    def test_wordpiece_served(self):
        tokenizer = self._tokenizer()
        served = self._serve(tokenizer, "é Star wars", "trek")
        names = ["e", "star", "[UNK]", "trek", "[PAD]"]
        e, star, unknown, trek, pad = (VOCAB.index(name) for name in names)
        self.assertAllEqual(
            served["ids"], [[e, star, unknown], [trek, pad, pad]]
        )
        self.assertAllEqual(served["starts"], [[0, 3, 8], [0, 0, 0]])


class RealVocabularyTest(_TestCase):
    def _check_ids(self, tokenizer, *ids):
        names = "cls separator sentence cpc_mask question candidate paragraph"
        names += " html_open html_close mask"
        expected = dict(zip(names.split(), ids, strict=True))
        self.assertEqual(tokenizer.special_ids, expected)

    def test_wordpiece(self):
        """Checks BERT's ids; `tokenizers_languages_test` checks real text."""
        vocab = real_data_path("vocab/bert_uncased_vocab.txt")
        tokenizer = tokenizers.make_tokenizer(vocab)
        self.assertEqual(tokenizer.kind, "wordpiece")
        self._check_ids(tokenizer, 101, 102, 1, 2, 3, 4, 5, 107, 108, 103)
        # Each word of the vocabulary is one token, except punctuation.
        tokens = vocabulary_files.load_vocab(vocab)
        words = [x for x in tokens if not x.startswith(("##", "[unused"))]
        words = [
            x for x in words if x not in ("...", *tokens[100:104], "[PAD]")
        ]
        self.assertGreater(len(words), 23_000)
        number = {token: i for i, token in enumerate(tokens)}
        self.assertEqual(
            [[number[x]] for x in words],
            tokenizer.tokenize(words).to_list(),
        )
        ids = tokenizer.tokenize(["unaffable, no un-affable"])
        pieces = b"una ##ffa ##ble , no un - af ##fa ##ble".split()
        self.assertAllEqual([pieces], tokenizer.id_to_token(ids))
        self.assertAllEqual(
            [[0, 1, 1, 0, 0, 0, 0, 0, 1, 1]], tokenizer.is_continuation(ids)
        )

    def test_sentencepiece(self):
        path = real_data_path("vocab/gpt2.model")
        tokenizer = tokenizers.make_tokenizer(path)
        ids = tokenizer.tokenize(["unaffable no"])
        pieces = ["▁unaff", "able", "▁no"]
        self.assertAllEqual(
            [[piece.encode() for piece in pieces]], tokenizer.id_to_token(ids)
        )
        self.assertAllEqual([[0, 1, 0]], tokenizer.is_continuation(ids))
        self.assertEqual(tokenizer.kind, "sentencepiece")
        self._check_ids(tokenizer, 40, 3, 1, 2, 41, 42, 43, 36, 37, 4)
        self.assertEqual(tokenizer.vocab_size, 50358)
        # Each white-space character counts as a space.
        text = "Hello \n\tWorld,\r\nthe end.\ncafé"
        self.assertAllEqual(
            tokenizer.tokenize([" ".join(text.split())]).to_list(),
            tokenizer.tokenize_with_keys([text])[0].to_list(),
        )
        ids, starts, ends = tokenizer.tokenize_with_offsets([text])
        pieces = [x.decode() for x in tokenizer.id_to_token(ids)[0].numpy()]
        self.assertEqual(
            pieces,
            ["▁Hello", "▁World", ",", "▁the", "▁end", ".", "▁caf", "é"],
        )
        self.assertEqual((starts.dtype, ends.dtype), (tf.int32, tf.int32))
        self.assertEqual(
            [
                part.strip()
                for part in self._parts(text.encode(), starts[0], ends[0])
            ],
            [piece.replace("▁", "") for piece in pieces],
        )
        # Different unknown pieces have the same id, but different keys.
        ids, keys = tokenizer.tokenize_with_keys(["ཀ ཁ ཀ"])
        unknown = ids[0].numpy() == tokenizer.unknown_id
        first, second, third = keys[0].numpy()[unknown]
        self.assertEqual(first, third)
        self.assertNotEqual(first, second)
        self.assertLen(tokenizer.tokenize([b"a\xff\x00b", ""]).to_list()[1], 0)

        with open(path, "rb") as file:
            damaged = write_file(self, file.read(5000), "damaged.model")
        with self.assertRaisesRegex(ValueError, damaged):
            tokenizers.make_tokenizer(damaged)
        with self.assertRaisesRegex(ValueError, f"{path}.*WordPiece"):
            tokenizers.WordpieceTokenizer(path)

    def test_sentencepiece_served(self):
        tokenizer = tokenizers.make_tokenizer(
            real_data_path("vocab/gpt2.model")
        )
        served = self._serve(tokenizer, "Hello World")
        self.assertAllEqual(served["ids"], [[18536, 2260]])


if __name__ == "__main__":
    tf.test.main()
