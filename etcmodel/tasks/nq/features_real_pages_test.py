"""Tests of Natural Questions' `features` on real pages."""

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.nq.records import FORMAT
from etcmodel.feature_utils import tokenizers
from etcmodel.tasks.nq import features
from etcmodel.tasks.nq.features_test import inputs_of
from etcmodel.tasks.nq.features_test import make_config
from etcmodel.tasks.nq.features_test import plain
from etcmodel.tasks.nq.features_test import plain_windows
from etcmodel.testing import real_data_path


class NQRealPagesTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.records = [
            record
            for name in ("00", "01")
            for record in FORMAT.read(
                real_data_path(f"nq/nq-train-{name}.jsonl.gz")
            )
        ]
        cls.pages = [
            (x.question, x.tokens, [(c.start, c.end) for c in x.candidates])
            for x in cls.records
        ]
        cls.inputs = inputs_of(cls.pages)

    @parameterized.parameters(
        ("bert_uncased_vocab.txt", (4096, 230, 2048)),
        ("gpt2.model", (512, 128, 128)),
    )
    def test_windows_map_back_to_words(self, vocab, sizes):
        long_length, global_length, stride = sizes
        config = make_config(
            long_length, stride, 32, global_length=global_length
        )
        tokenizer = tokenizers.make_tokenizer(real_data_path(f"vocab/{vocab}"))
        builder = features.NQFeatureBuilder(config, tokenizer)
        got = plain(*builder.build(*self.inputs))
        texts = tokenizer.id_to_token(range(tokenizer.vocab_size)).numpy()
        is_bert = vocab.startswith("bert")
        # The separator is the piece <sep_0>.
        special = dict(
            zip(
                ("cls", "separator", "sentence", "question"),
                (101, 102, 1, 3) if is_bert else (40, 3, 1, 41),
                strict=True,
            )
        )
        self.assertEqual(
            special, {name: tokenizer.special_ids[name] for name in special}
        )
        html = [
            texts[tokenizer.special_ids[f"html_{x}"]].decode()
            for x in ("open", "close")
        ]
        self.assertEqual(
            html,
            ["[unused102]", "[unused103]"]
            if is_bert
            else ["<unused_35>", "<unused_36>"],
        )
        expected = []
        for record in self.records:
            pieces = self._pieces(record, tokenizer)
            question = tokenizer.tokenize([record.question]).to_list()[0]
            expected += plain_windows(question, pieces, special, config)
            self._check_texts(record, pieces, texts, html, is_bert)
        self.assertLen(got, len(expected))
        for i, window in enumerate(expected):
            self.assertEqual(got[i], window, f"window {i}")

    def _pieces(self, record, tokenizer):
        """The tokens of every word, each word on its own."""
        tokens = tokenizer.tokenize(record.tokens).to_list()
        html = [tokenizer.special_ids[f"html_{x}"] for x in ("open", "close")]
        return [
            (token, word, number)
            for number, candidate in enumerate(record.top_level_candidates)
            for word in range(candidate.start, candidate.end)
            for token in (
                [html[record.tokens[word].startswith("</")]]
                if record.is_html[word]
                else tokens[word]
            )
        ]

    def _check_texts(self, record, pieces, texts, html, is_bert):
        """The texts of the tokens make up the words."""
        of_word = {}
        for token, word, _ in pieces:
            of_word.setdefault(word, []).append(texts[token].decode())
        checked = 0
        for word, parts in of_word.items():
            text = record.tokens[word]
            if record.is_html[word]:
                self.assertEqual(parts, [html["/" in text[:2]]])
            elif text.isascii() and text.isalnum():
                if is_bert:
                    text = text.lower()
                    joined = "".join(x.removeprefix("##") for x in parts)
                else:
                    joined = "".join(parts).replace("\u2581", "")
                self.assertEqual(joined, text)
                checked += 1
        self.assertGreater(checked, 500)


if __name__ == "__main__":
    tf.test.main()
