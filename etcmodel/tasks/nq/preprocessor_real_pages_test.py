"""Real pages as they are stored."""

import dataclasses

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.pipeline import example_maker
from etcmodel.pipeline import example_schema
from etcmodel.tasks.nq.preprocessor import NQPreprocessor
from etcmodel.tasks.nq.task import TASK
from testing import nq_pages
from testing.helpers import real_data_path
from testing.tasks import encode_records
from testing.tasks import without_tracing


class NQRealPagesTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.records = nq_pages.read_real_pages()

    @parameterized.parameters(
        ("bert_uncased_vocab.txt", (4096, 230, 2048)),
        ("gpt2.model", (512, 128, 128)),
    )
    def test_stored_windows_map_back_to_words(self, vocab, sizes):
        long_length, global_length, stride = sizes
        config = nq_pages.make_config(
            long_length, stride, 32, global_length=global_length
        )
        writer = example_maker.of_task(
            TASK, config, real_data_path(f"vocab/{vocab}")
        )
        tokenizer = writer.preprocessor.tokenizer
        with without_tracing():
            written = encode_records(writer, self.records, "dev")
        got = self._read(
            [example for x in written for example in x.examples], config
        )
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
            windows = nq_pages.plain_windows(question, pieces, special, config)
            for i, window in enumerate(windows):
                window.update(
                    example_id=record.id.encode(),
                    window=i,
                    is_real_example=1,
                    candidate_starts=[x.start for x in record.candidates],
                    candidate_ends=[x.end for x in record.candidates],
                )
            expected += windows
            self._check_texts(record, pieces, texts, html, is_bert)
        self.assertLen(got, len(expected))
        for i, window in enumerate(expected):
            self.assertEqual(got[i], window, f"window {i}")

    def _read(self, examples, config):
        """Stored windows, each as a dict of lists and of values."""
        parsed, fields = NQPreprocessor.SCHEMA.parse(
            tf.constant(examples),
            dataclasses.asdict(config),
            (
                example_schema.CONTEXT,
                example_schema.DECODING,
                example_schema.TEXT,
            ),
        )
        columns = {
            name: x.to_list()
            if isinstance(x, tf.RaggedTensor)
            else x.numpy().tolist()
            for name, x in {**parsed, **fields}.items()
        }
        return [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]

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
