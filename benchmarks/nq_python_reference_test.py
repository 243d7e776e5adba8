"""Tests of `nq_python_reference`: a worked example, and the package."""

import dataclasses
import unicodedata

from absl.testing import absltest
from absl.testing import parameterized

from benchmarks import nq_python_reference as reference
from benchmarks import python_tokenizer
from benchmarks.wikihop_python_reference import from_example
from etcmodel.feature_utils import tokenizers
from etcmodel.tasks import errors
from etcmodel.tasks import registry
from etcmodel.tasks.nq.records import Annotation
from etcmodel.tasks.nq.records import Candidate
from etcmodel.tasks.nq.records import NQRecord
from etcmodel.testing import real_data_path

VOCAB = [*tokenizers.WORDPIECE_RESERVED_TOKENS, "q", "a", "##b"]
VOCAB += ["[unused102]", "[unused103]"]
PADDING = {
    **reference.PADDING,
    "long_paragraph_ids": -1,
    "l2g_linked_ids": -1,
}
NO_ANSWER = Annotation(-1, -1, (), "none")


def _record(annotation) -> NQRecord:
    tokens = "a <P> ab a ab </P> a <Ul> <Li> a </Li> </Ul>".split()
    return NQRecord(
        id="7",
        question="q q q",
        tokens=tuple(tokens),
        is_html=tuple("<" in token for token in tokens),
        candidates=(
            Candidate(1, 6, True),
            Candidate(7, 12, True),
            Candidate(8, 11, False),
        ),
        annotations=(annotation, NO_ANSWER),
    )


def _comparable(record: NQRecord) -> NQRecord:
    """A record without the characters that tokenizers differ in."""

    def spelled_out(word):
        if python_tokenizer.is_compatible(word):
            return word
        word = unicodedata.normalize("NFKC", word)
        return "".join(x for x in word if python_tokenizer.is_compatible(x))

    return dataclasses.replace(
        record,
        question=spelled_out(record.question),
        tokens=tuple(map(spelled_out, record.tokens)),
    )


class NQPythonReferenceTest(parameterized.TestCase):
    def setUp(self):
        self.tokenizer = python_tokenizer.BertTokenizer(VOCAB)
        self.config = registry.get_pipeline("nq").feature_config(
            {
                "long_length": 10,
                "global_length": 4,
                "stride": 5,
                "question_length": 2,
            }
        )

    def _encode(self, annotation):
        examples = reference.encode(
            _record(annotation), self.tokenizer, self.config
        )
        return [from_example(example, PADDING) for example in examples]

    def test_worked_example(self):
        windows = self._encode(Annotation(1, 6, ((2, 3), (4, 5)), "none"))
        # Tokens 13 12 12 11 12 12 14 of words 1 2 2 3 4 4 5, and of the second
        # candidate 13 13 11 14 14 of words 7 to 11; five of them a window.
        first, second, last = windows
        table = """
            long_token_ids 7 10 10 8 13 11 12 11 11 8
            long_token_type_ids 1 3 3 3 1 1 1 1 1 3
            long_sentence_ids 0 1 2 -1 3 3 3 3 3
            long_paragraph_breakpoints 0 0 0 0 0 0 0 0 0 1
            words -1 -1 -1 -1 1 2 2 3 4
            global_token_ids 7 3 3 1
            global_token_type_ids 8 5 5
            global_paragraph_breakpoints 0 0 0 1
            short_answer_start 5
            short_answer_end 0
            long_answer_start 4
            long_answer_end 0
            answer_type 4
            window 0
            candidate_starts 1 7 8
            candidate_ends 6 12 11
            gold_long_starts 1 -1
            gold_long_ends 6 -1
            gold_yes_no 0 0
            gold_short_starts 2 4
            gold_short_ends 3 5
            gold_short_annotations 0 0
        """
        for line in table.strip().split("\n"):
            name, *values = line.split()
            self.assertEqual(first.pop(name), [int(x) for x in values], name)
        self.assertEqual(first, {"example_id": [b"7"], "question": [b"q q q"]})
        # The last global token is shared by both candidates.
        self.assertEqual(second["words"], [-1] * 4 + [4, 5, 7, 8, 9])
        self.assertEqual(
            second["long_sentence_ids"], [0, 1, 2, -1, 3, 3, 3, 3, 3]
        )
        self.assertEqual(second["short_answer_start"], [0])
        self.assertEqual(second["short_answer_end"], [4])
        self.assertEqual(second["long_answer_end"], [5])
        self.assertEqual(second["answer_type"], [reference.SHORT])
        self.assertEqual(last["long_token_ids"], [7, 10, 10, 8, 14, 14, 8])
        self.assertEqual(last["answer_type"], [reference.NULL])

    def test_answer_types(self):
        for annotation, expected in (
            (Annotation(7, 12, (), "none"), [0, 3, 3]),
            (Annotation(7, 12, ((9, 10),), "yes"), [0, 1, 1]),
            (Annotation(1, 6, ((2, 3),), "no"), [2, 2, 0]),
            (Annotation(1, 6, ((2, 3),), "none"), [4, 0, 0]),
            (NO_ANSWER, [0, 0, 0]),
        ):
            made = self._encode(annotation)
            self.assertEqual([x["answer_type"][0] for x in made], expected)

    def test_without_html(self):
        pieces = reference.make_pieces(
            _record(NO_ANSWER), self.tokenizer, html=False
        )
        self.assertEqual(
            pieces,
            [(11, 2, 0), (12, 2, 0), (11, 3, 0), (11, 4, 0), (12, 4, 0)]
            + [(11, 9, 1)],
        )

    @parameterized.parameters(
        ({},),
        ({"include_html_tokens": False, "question_length": 5},),
        ({"long_length": 512, "stride": 128},),
        ({"long_length": 512, "stride": 128, "global_length": 40},),
    )
    def test_package_on_real_pages(self, sizes):
        vocab = real_data_path("vocab/bert_uncased_vocab.txt")
        pipeline = registry.get_pipeline("nq")
        config = pipeline.feature_config(sizes)
        tokenizer = python_tokenizer.BertTokenizer(tokenizers.load_vocab(vocab))
        records = []
        for name in ("nq-train-00", "nq-train-01"):
            path = real_data_path(f"nq/{name}.jsonl.gz")
            records += pipeline.read_records(
                path, "train", errors.BadRecords(True)
            )
        records = [_comparable(record) for record in records]
        self.assertLen(records, 3)
        encoder = pipeline.record_encoder(path, config, vocab)
        encoded = encoder.encode(records, "train")
        for record, made in zip(records, encoded, strict=True):
            expected = reference.encode(record, tokenizer, config)
            self.assertEqual(len(made.examples), len(expected), record.id)
            for mine, theirs in zip(made.examples, expected, strict=True):
                self.assertEqual(
                    from_example(mine, PADDING), from_example(theirs, PADDING)
                )


if __name__ == "__main__":
    absltest.main()
