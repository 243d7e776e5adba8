"""Tests of `hotpotqa_python_reference`: a worked example, and the package."""

import dataclasses
import unicodedata

from absl.testing import absltest
from absl.testing import parameterized

from benchmarks import hotpotqa_python_reference as reference
from benchmarks import python_tokenizer
from benchmarks.wikihop_python_reference import from_example
from etcmodel.feature_utils import tokenizers
from etcmodel.tasks import errors
from etcmodel.tasks import registry
from etcmodel.tasks.hotpotqa.records import HotpotQARecord
from etcmodel.tasks.hotpotqa.records import Paragraph
from etcmodel.testing import real_data_path

VOCAB = [*tokenizers.WORDPIECE_RESERVED_TOKENS, "q", "t", "a", "##b"]
PADDING = {**reference.PADDING, "l2g_linked_ids": -1}


def _record(answer, facts=(("T", 1),)):
    return HotpotQARecord(
        id="x",
        question="q q",
        context=(
            Paragraph("T", ("ab t", " Ab a", "")),
            Paragraph("a", ("t " * 9, "ab")),
        ),
        answer=answer,
        supporting_facts=facts,
    )


def spelled_out(text: str) -> str:
    """A text without the characters that tokenizers differ in."""
    if python_tokenizer.is_compatible(text):
        return text
    text = unicodedata.normalize("NFKC", text)
    return "".join(x for x in text if python_tokenizer.is_compatible(x))


def _comparable(record: HotpotQARecord) -> HotpotQARecord:
    """A record that all tokenizers agree on; most are left as they are."""
    return dataclasses.replace(
        record,
        question=spelled_out(record.question),
        answer=spelled_out(record.answer),
        context=tuple(
            Paragraph(
                spelled_out(x.title), tuple(map(spelled_out, x.sentences))
            )
            for x in record.context
        ),
        supporting_facts=tuple(
            (spelled_out(title), i) for title, i in record.supporting_facts
        ),
    )


class HotpotQAPythonReferenceTest(parameterized.TestCase):
    def setUp(self):
        self.tokenizer = python_tokenizer.BertTokenizer(VOCAB)
        self.config = registry.get_pipeline("hotpotqa").feature_config(
            {"long_length": 14, "global_length": 12}
        )

    def _encode(self, record):
        examples = reference.encode(record, self.tokenizer, self.config)
        return [from_example(example, PADDING) for example in examples]

    def test_worked_example(self):
        (made,) = self._encode(_record("Ab"))
        table = """
            long_token_ids 7 10 10 11 12 13 11 12 13 12 12 12 13
            long_token_type_ids 1 3 3 2 1 1 1 1 1 1 2 1 1
            long_sentence_ids -1 1 2 4 5 5 5 6 6 6 8 9 9
            long_paragraph_ids -1 -1 -1 3 3 3 3 3 3 3 7 7 7
            long_paragraph_breakpoints 1 0 1 0 0 0 0 0 0 1 0 0 1
            long_starts -1 -1 -1 0 0 1 3 1 2 4 0 0 1
            long_ends -1 -1 -1 1 1 2 4 2 3 5 1 1 2
            global_token_ids 7 3 3 5 1 1 1 5 1 1
            global_token_type_ids 8 5 5 7 0 0 0 7
            global_paragraph_breakpoints 1 0 1 0 0 0 1 0 0 1
            global_segments -1 -1 -1 -1 0 1 2 -1 3 5
            supporting_facts -1 -1 -1 1 1 0 1 0 0 0
            answer_type 0
            answer_begins 7
            answer_ends 8
            paragraph_sizes 3 3
            fact_sentences 1
        """
        for line in table.strip().split("\n"):
            name, *values = line.split()
            self.assertEqual(made.pop(name), [int(x) for x in values], name)
        texts = {
            "example_id": ["x"],
            "question": ["q q"],
            "answer": ["Ab"],
            "fact_titles": ["T"],
            "segments": ["T", "ab t", " Ab a", "a", "t " * 9, "ab"],
        }
        self.assertEqual(
            made, {k: [x.encode() for x in v] for k, v in texts.items()}
        )

    def test_what_can_be_learned(self):
        self.assertEqual(self._encode(_record("q")), [])
        self.assertEqual(self._encode(_record("a", facts=(("T", 9),))), [])
        # A sentence that is skipped has no answer.
        self.assertEqual(self._encode(_record("t t", facts=(("a", 0),))), [])
        (made,) = self._encode(_record("no"))
        self.assertEqual(made["answer_type"], [2])
        self.assertNotIn("answer_begins", made)

    def test_find_answer(self):
        found = reference.find_answer(["arty Art", "art, part art"], " art ")
        self.assertEqual(found, [(1, 0, 3), (1, 10, 13)])
        found = reference.find_answer(["arty Art", "part"], "art")
        self.assertEqual(found, [(0, 0, 3), (1, 1, 4)])
        self.assertEqual(reference.find_answer(["a"], " "), [])

    def test_byte_offsets(self):
        self.assertEqual(reference.byte_offsets("aé中"), [0, 1, 3, 6])

    @parameterized.parameters(
        ("train_200", 200, {}),
        ("dev_95", 95, {}),
        ("2wiki_train_500", 500, {}),
        ("train_200", 60, {"long_length": 700, "global_length": 60}),
    )
    def test_package_on_real_records(self, name, number, sizes):
        vocab = real_data_path("vocab/bert_uncased_vocab.txt")
        path = real_data_path(f"hotpotqa/{name}.json")
        pipeline = registry.get_pipeline("hotpotqa")
        config = pipeline.feature_config(sizes)
        encoder = pipeline.record_encoder(path, config, vocab)
        tokenizer = python_tokenizer.BertTokenizer(tokenizers.load_vocab(vocab))
        bad_records = errors.BadRecords(True)
        records = pipeline.read_records(path, "train", bad_records)
        records = [_comparable(x) for x in records][:number]
        self.assertLen(records, number)
        encoded = []
        for start in range(0, len(records), 50):
            encoded += encoder.encode(records[start : start + 50], "train")
        self.assertGreater(sum(bool(x.examples) for x in encoded), number // 3)
        for record, made in zip(records, encoded, strict=True):
            expected = reference.encode(record, tokenizer, config)
            self.assertEqual(len(made.examples), len(expected), record.id)
            for mine, theirs in zip(made.examples, expected, strict=True):
                self.assertEqual(
                    from_example(mine, PADDING),
                    from_example(theirs, PADDING),
                    record.id,
                )


if __name__ == "__main__":
    absltest.main()
