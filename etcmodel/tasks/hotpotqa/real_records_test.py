"""HotpotQA's features and labels of all real records, preprocessed once."""

import collections
import functools
import json
import re
import unicodedata
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import BadRecords
from etcmodel.pipeline import example_maker
from etcmodel.pipeline import example_schema
from etcmodel.tasks.hotpotqa import labels
from etcmodel.tasks.hotpotqa.preprocessor import HotpotQAPreprocessor
from etcmodel.tasks.hotpotqa.task import TASK
from testing.helpers import real_data_path
from testing.tasks import encode_records

_BERT, _GPT2 = "bert_uncased_vocab.txt", "gpt2.model"
_FILES = ("dev_95", "train_200", "2wiki_train_500")


@functools.cache
def _records(name):
    path = real_data_path(f"hotpotqa/{name}.json")
    return list(TASK.dataset.FORMAT.read(path, "train", BadRecords()))


@functools.cache
def _writer(vocab, long_length=4096, global_length=256):
    return example_maker.of_task(
        TASK,
        TASK.preprocessing_config_class(long_length, global_length),
        real_data_path(f"vocab/{vocab}"),
    )


class _Built(NamedTuple):
    """What is known about a record."""

    record: object
    ids: np.ndarray
    sources: np.ndarray
    global_ids: np.ndarray
    global_types: np.ndarray
    global_sources: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    word_cuts: np.ndarray
    units: list
    paragraph_sizes: list


@functools.cache
def _built(vocab):
    """All records of the files, as the layout engine places them."""
    built = []
    records = [record for name in _FILES for record in _records(name)]
    for first in range(0, len(records), 32):
        batch = records[first : first + 32]
        encoded = _writer(vocab).preprocess(batch)
        made, context, text = encoded.layout, encoded.context, encoded.text
        columns = (
            made.features["long_token_ids"],
            made.long_sources,
            made.features["global_token_ids"],
            made.features["global_token_type_ids"],
            made.global_sources,
            context["long_starts"],
            context["long_ends"],
            context["long_word_cuts"],
        )
        built += map(
            _Built,
            batch,
            *(value.numpy() for value in columns),
            text["units"].to_list(),
            text["paragraph_sizes"].to_list(),
        )
    return built


def _without_accents(text):
    """Lower-cased text without accents, all characters spelled out."""
    text = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in text if unicodedata.category(c) != "Mn")


class OffsetsTest(tf.test.TestCase):
    """All tokens of all real records."""

    def _pieces(self, vocab):
        """Different (text by the offsets, token) pairs, and what none covers.

        Also checks that tokens follow each other.
        """
        pairs, between, count = set(), set(), 0
        for built in _built(vocab):
            is_own = built.sources[:, 0] == 2
            _, groups, units, _ = built.sources[is_own].T
            sizes = built.paragraph_sizes
            before = np.cumsum(sizes) - sizes
            last, reached = b"", 0
            for place, start, end, token in zip(
                before[groups] + units,
                built.starts[is_own].tolist(),
                built.ends[is_own].tolist(),
                built.ids[is_own].tolist(),
                strict=True,
            ):
                text = built.units[place]
                count += 1
                if text is not last:
                    between.add(last[reached:])
                    last, reached = text, 0
                if start < reached:
                    # Both have a part of one character, such as a ligature.
                    self.assertLen(text[start:reached].decode(), 1)
                between.add(text[reached:start])
                pairs.add((text[start:end], token))
                reached = end
            between.add(last[reached:])
        self.assertGreater(count, 700_000)
        pairs = sorted(pairs)
        self.assertGreater(len(pairs), 20_000)
        tokenizer = _writer(vocab).preprocessor.tokenizer
        texts = tokenizer.id_to_token([token for _, token in pairs]).numpy()
        return [
            (piece.decode(), text.decode())
            for (piece, _), text in zip(pairs, texts, strict=True)
        ], set("".join(text.decode() for text in between))

    def test_wordpiece(self):
        pairs, between = self._pieces(_BERT)
        # No word is lost: spaces, a mark of the direction of writing and a
        # private character.
        self.assertEqual(between, set(" \n\u00a0\u2009\u200e\uf8ff"))
        for piece, token in pairs:
            if token == "[UNK]":
                self.assertFalse(piece.isascii(), piece)
            elif piece.isascii():
                self.assertEqual(piece.lower(), token.removeprefix("##"))
            else:
                # One character can make several tokens.
                self.assertIn(
                    _without_accents(token.removeprefix("##")),
                    _without_accents(piece),
                )

    def test_sentencepiece(self):
        pairs, between = self._pieces(_GPT2)
        # A space in front of all is no part of the first token.
        self.assertEqual(between, {" "})
        for piece, token in pairs:
            if token == "<unk>":
                # What no piece has.
                self.assertFalse(piece.isascii(), piece)
            else:
                # A line feed is read as a space.
                piece = re.sub("[ \n]+", "\u2581", piece)
                self.assertIn(token, (piece, "\u2581" + piece))

    def test_sentencepiece_special_ids(self):
        built = _built(_GPT2)[:3]
        types = np.stack([x.global_types for x in built])
        tokens = np.stack([x.global_ids for x in built])
        for kind, expected in ((8, [40]), (5, [41]), (7, [43]), (0, [0, 1])):
            self.assertAllEqual(np.unique(tokens[types == kind]), expected)
        self.assertEqual([x.ids[0] for x in built], [40] * 3)


class AnswersTest(tf.test.TestCase, parameterized.TestCase):
    """The tokens of every real answer spell the answer."""

    @parameterized.named_parameters(
        ("wordpiece", _BERT, []),
        (
            "sentencepiece",
            _GPT2,
            # Marks are pieces together.
            [
                ('"Pistol Pete".', '"Pistol Pete"'),
                ("International Watch Co.,", "International Watch Co."),
                ("Waylon J. Smithers Jr.,", "Waylon J. Smithers Jr."),
            ],
        ),
    )
    def test_answers(self, vocab, others):
        different = collections.Counter()
        without, spans, in_other_case = [], 0, 0
        for built in _built(vocab):
            record, sources = built.record, built.sources
            got = labels.make_labels(
                record,
                2,
                sources,
                built.global_sources,
                {
                    "long_starts": built.starts,
                    "long_ends": built.ends,
                    "long_word_cuts": built.word_cuts,
                },
            )
            self.assertEqual(
                got.answer_type, {"yes": 1, "no": 2}.get(record.answer, 0)
            )
            # The paper's lengths cut none of these records.
            self.assertEqual(got.kept_facts, len(record.fact_positions))
            self.assertLen(got.begins, got.found)
            if not got.can_be_learned:
                without.append(record)
            for begin, end in zip(got.begins, got.ends, strict=True):
                spans += 1
                _, group, segment, _ = sources[begin]
                self.assertAllEqual(sources[begin, :3], sources[end, :3])
                paragraph = record.context[group]
                text = (paragraph.title, *paragraph.sentences)[segment]
                if segment:
                    self.assertIn((group, segment - 1), record.fact_positions)
                text = text.encode()[built.starts[begin] : built.ends[end]]
                # SentencePiece: with the space in front.
                text = text.decode().removeprefix(" ")
                if text.lower() == record.answer.lower():
                    in_other_case += text != record.answer
                else:
                    different[text, record.answer] += 1
        self.assertEqual((spans, in_other_case), (816, 55))
        # One title has HTML entities, which its answer has not.
        name = "Eddie {0}The Eagle{0} Edwards"
        pair = (name.format("&quot;"), name.format('"'))
        self.assertEqual(different.pop(pair), 1)
        # Of one record: no fact has the word itself.
        self.assertEqual(different.pop(("Indian", "India")), 5)
        self.assertEqual(dict(different), {pair: 1 for pair in others})
        # HotpotQA's answers are all there, those of 2WikiMultihopQA are not.
        self.assertLen(without, 8)
        for record in without:
            self.assertIn(record, _records("2wiki_train_500"))

    def test_counts(self):
        """As counted in the file itself."""
        path = real_data_path("hotpotqa/dev_95.json")
        with open(path, encoding="utf-8") as stream:
            values = json.load(stream)
        totals, stored = collections.Counter(), 0
        for first in range(0, 95, 32):
            batch = _records("dev_95")[first : first + 32]
            for item in encode_records(_writer(_BERT), batch, "train"):
                stored += len(item.examples)
                totals.update(item.counts)
        self.assertEqual(stored, 95)
        paragraphs = [p for value in values for p in value["context"]]
        facts = [x for value in values for x in value["supporting_facts"]]
        for expected, names in (
            (len(paragraphs), ["paragraphs"]),
            (sum(1 + len(x) for _, x in paragraphs), ["titles_and_sentences"]),
            (
                len(facts),
                ["supporting_facts", "supporting_facts_not_in_context"],
            ),
            (
                sum(value["answer"] in ("yes", "no") for value in values),
                ["answers_yes_or_no"],
            ),
            (0, ["tokens_cut", "answers_not_in_text", "records_cut"]),
        ):
            self.assertEqual(expected, sum(totals[x] for x in names), names)


def _rows(tensors):
    """Every tensor's rows, as NumPy arrays."""
    return {
        name: np.split(x.values.numpy(), x.row_splits.numpy()[1:-1])
        if isinstance(x, tf.RaggedTensor)
        else x.numpy()
        for name, x in tensors.items()
    }


class StoredAndServedTest(tf.test.TestCase, parameterized.TestCase):
    """What is stored for training is what raw text becomes when served."""

    @parameterized.parameters((_BERT, 6), (_GPT2, 60))
    def test_features_are_the_same(self, vocab, step):
        """Stored in batches of 8, served one by one, without padding."""
        writer = _writer(vocab, 768, 64)
        records = [x for name in _FILES for x in _records(name)][::step]
        num_cut = 0
        for first in range(0, len(records), 8):
            batch = records[first : first + 8]
            written = encode_records(writer, batch, "dev")
            num_cut += sum(item.counts["records_cut"] for item in written)
            features, values = HotpotQAPreprocessor.SCHEMA.parse(
                tf.constant([item.examples[0] for item in written]),
                {"long_length": 768, "global_length": 64},
                (example_schema.DECODING, example_schema.TEXT),
            )
            stored = _rows({**features, **values})
            for i, record in enumerate(batch):
                made = writer.preprocess([record])
                served = _rows(
                    {**made.layout.features, **made.context, **made.text}
                )
                self.assertLen(served, 9 + 4 + 2)
                for name, (value,) in served.items():
                    self.assertTrue(
                        np.array_equal(value, stored[name][i]),
                        f"{record.id} {name}",
                    )
        # Some are cut at these lengths, some are not.
        self.assertBetween(num_cut, 1, len(records) - 1)


if __name__ == "__main__":
    tf.test.main()
