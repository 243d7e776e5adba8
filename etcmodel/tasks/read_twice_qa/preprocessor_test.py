"""Tests of the preprocessor: segments by hand, and answers of real records."""

import dataclasses
import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.hotpotqa import answer_only
from etcmodel.datasets.hotpotqa.records import Paragraph
from etcmodel.datasets.narrativeqa import records as narrativeqa
from etcmodel.errors import UserError
from etcmodel.feature_utils.text import tokenizers
from etcmodel.tasks import registry
from etcmodel.tasks.read_twice_qa import preprocessor
from testing.helpers import real_data_path

_WORDS = "who is in a big ##ger city jan lives brno here . ? it rains".split()


def make_config(**changes):
    return preprocessor.QuestionPreprocessingConfig(
        **{
            "block_length": 10,
            "max_num_annotations": 2,
            "block_overlap": 2,
            "max_question_length": 3,
            "num_blocks_per_example": 2,
            **changes,
        }
    )


class PreprocessorTest(tf.test.TestCase, parameterized.TestCase):
    def _make(self, processor=preprocessor.QuestionPreprocessor, **changes):
        path = os.path.join(self.get_temp_dir(), "vocab.txt")
        with open(path, "w") as stream:
            for token in (*tokenizers.WORDPIECE_RESERVED_TOKENS, *_WORDS):
                stream.write(f"{token}\n")
        return processor(
            make_config(**changes), tokenizers.make_tokenizer(path)
        )

    def _tokens(self, processor, made):
        """Returns the tokens of each segment, without padding."""
        return [
            b" ".join(
                processor.tokenizer.id_to_token(row[row > 0]).numpy()
            ).decode()
            for row in made.token_ids.numpy()
        ]

    def test_by_hand(self):
        """Segments overlap in whole words."""
        processor = self._make()
        document = "It rains in  a bigger city. Jan lives here."
        made = processor(
            tf.constant(["Who lives?", "who"]), tf.constant([document, ""])
        )
        self.assertEqual(
            [
                "[CLS] who lives ? [SEP] it rains in a big",
                "[CLS] who lives ? [SEP] a big ##ger city .",
                "[CLS] who lives ? [SEP] city . jan lives here",
                "[CLS] who lives ? [SEP] lives here .",
            ],
            self._tokens(processor, made),
        )
        self.assertAllEqual([5] * 4, made.prefix_length)
        self.assertAllEqual([0] * 4, made.documents)
        self.assertAllEqual([1, 2, 3, 4], made.block_pos)
        for ids, starts, ends in zip(
            *map(
                np.array, (made.token_ids, made.token_starts, made.token_ends)
            ),
            strict=True,
        ):
            self.assertAllEqual([-1] * 5, starts[:5])
            for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
                if i < 5 or not ids[i]:
                    self.assertEqual((-1, -1), (start, end))
                    continue
                (token,) = processor.tokenizer.id_to_token([ids[i]]).numpy()
                self.assertEqual(
                    token.decode().removeprefix("##"),
                    document[start:end].lower(),
                )
        # "Jan" is a mention in the third segment. Capitalized common words at
        # the start of a sentence are not mentions.
        self.assertAllEqual([0, 0, 7, 0], made.annotation_begins[:, 0])
        self.assertAllEqual([0, 0, 7, 0], made.annotation_ends[:, 0])
        self.assertAllEqual(
            [0, 0, 1, 0], tf.minimum(made.annotation_labels[:, 0], 1)
        )
        self.assertAllEqual([0, 0], made.tokens_cut)

    def test_long_question(self):
        processor = self._make()
        made = processor(
            tf.constant(["who is in brno?", "who"]), tf.constant(["it", "it"])
        )
        self.assertEqual(
            ["[CLS] who is in [SEP] it", "[CLS] who [SEP] it"],
            self._tokens(processor, made),
        )
        self.assertAllEqual([2, 0], made.tokens_cut)

    def test_parts_have_separate_segments(self):
        """Offsets are bytes of the whole document; parts may be empty."""
        processor = self._make(preprocessor.HotpotQAPreprocessor)
        documents = ["é it rains.\n\n\n\nJan", "Jan\n\nin Brno"]
        made = processor(tf.constant(["a", "a"]), tf.constant(documents))
        self.assertEqual(
            [
                "[CLS] a [SEP] [UNK] it rains .",
                "[CLS] a [SEP] jan",
                "[CLS] a [SEP] jan",
                "[CLS] a [SEP] in brno",
            ],
            self._tokens(processor, made),
        )
        self.assertAllEqual([0, 0, 1, 1], made.documents)
        self.assertAllEqual([0, 2, 0, 1], made.parts)
        self.assertAllEqual([1, 2, 1, 2], made.block_pos)
        for row, text in ((1, b"Jan"), (3, b"Brno")):
            last = int(tf.reduce_max(made.token_ends[row]))
            document = documents[int(made.documents[row])].encode()
            self.assertEqual(text, document[last - len(text) : last])

    def test_space_is_no_part_of_an_answer(self):
        """SentencePiece's tokens include the space before a word."""
        processor = preprocessor.QuestionPreprocessor(
            make_config(block_length=30, max_question_length=5),
            tokenizers.make_tokenizer(real_data_path("vocab/gpt2.model")),
        )
        documents = ["\u00e9t\u00e9.", "He left \nParis (Paris), \u00d6tzi."]
        made = processor(tf.constant(["a", "a"]), tf.constant(documents))
        found = {
            documents[document].encode()[start:end].decode(errors="ignore")
            for document, starts, ends in zip(
                made.documents.numpy(),
                made.token_starts.numpy(),
                made.token_ends.numpy(),
                strict=True,
            )
            for start, end in zip(starts, ends, strict=True)
        }
        self.assertContainsSubset(["He", "left", "Paris", "("], found)
        # Tokens of only white space become empty.
        self.assertNotRegex("".join(found), r"\s")

    def test_equal_documents_are_tokenized_once(self):
        """Every question gets the segments that it gets in a separate batch."""
        processor = self._make()
        documents = ["It rains. Jan lives in Brno.", "Jan lives here."]
        questions = ["Who lives in a?", "who", "is it"]
        order = [0, 1, 0]
        with mock.patch.object(
            processor, "_tokenize", wraps=processor._tokenize
        ) as tokenize:
            made = processor(
                tf.constant(questions),
                tf.constant([documents[i] for i in order]),
            )
        self.assertAllEqual(documents, tokenize.call_args.args[0])
        for row, (question, index) in enumerate(
            zip(questions, order, strict=True)
        ):
            alone = processor(
                tf.constant([question]), tf.constant([documents[index]])
            )
            part = made.of_document(row)
            for name in set(alone._fields) - {"documents"}:
                self.assertAllEqual(
                    getattr(alone, name), getattr(part, name), name
                )

    def test_documents_are_not_divided(self):
        """A batch stops after the last segment of each document."""
        long = "It rains in a bigger city. Jan lives here."
        batch = self._make(num_blocks_per_example=4).batch_of_raw(
            question=tf.constant(["Who lives?"] * 3),
            document=tf.constant([long, "it", long]),
        )
        self.assertAllEqual([4, 5, 9], batch.stops)

    def test_invalid_utf8(self):
        """Offsets are bytes of the sanitized text."""
        processor = self._make()
        document = tf.constant([b"\xff jan"])
        made = processor(tf.constant(["a"]), document)
        batch = processor.batch_of_raw(
            question=tf.constant(["a"]), document=document
        )
        (text,) = batch.text["document"].numpy()
        start, end = (
            int(tf.reduce_max(x)) for x in (made.token_starts, made.token_ends)
        )
        self.assertEqual(b"jan", text[start:end])

    @parameterized.parameters(
        (dict(block_overlap=-1), "block_overlap is -1"),
        (dict(max_question_length=0), "max_question_length is 0"),
        (dict(num_blocks_per_example=0), "num_blocks_per_example is 0"),
        (dict(block_length=7), "block_length is 7.*need 8"),
        (dict(max_num_annotations=0), "max_num_annotations is 0"),
    )
    def test_sizes(self, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            make_config(**changes)

    def test_answers_of_narrativeqa(self):
        """The final period of an answer is ignored.

        In the files, the period is a separate word, and answers are compared
        without it (Appendix C.4). If it counted, any period would be as similar
        as "Dain".
        """
        record = narrativeqa.NarrativeQARecord(
            id="1",
            question="Who was it ?",
            text="They ran away . It was a poor slave , not Dain .",
            answers=("a slave .", "Dain .", "."),
        )
        spec = registry.get("read_twice_narrativeqa")
        # The minimum ROUGE-L may be an integer.
        config = spec.make_preprocessing_config({"min_rouge_l_oracle_score": 0})
        config = dataclasses.replace(config, min_rouge_l_oracle_score=0.5)
        processor = preprocessor.NarrativeQAPreprocessor(config, None)
        self.assertEqual(
            {"Dain", "a poor slave"},
            {record.text[x.start : x.end] for x in processor.find(record)},
        )

    def test_answers_of_narrativeqa_in_any_case(self):
        """ROUGE-L finds answers that differ in case."""
        text = "The old mill stood. By the old mill he sat. OLD MILL RUINS."
        record = narrativeqa.NarrativeQARecord(
            id="1", question="Where?", text=text, answers=("Old Mill", "")
        )
        spec = registry.get("read_twice_narrativeqa")
        processor = preprocessor.NarrativeQAPreprocessor(
            spec.make_preprocessing_config({}), None
        )
        self.assertContainsSubset(
            [(x, x + 8) for x in (4, 27, 44)],
            [(x.start, x.end) for x in processor.find(record)],
        )

    @parameterized.parameters(
        (
            preprocessor.NarrativeQAPreprocessor,
            "read_twice_narrativeqa",
            [0, 14],
        ),
        (preprocessor.QuestionPreprocessor, "read_twice_triviaqa", [0, 14]),
        # HotpotQA's answers are copied from the text.
        (preprocessor.HotpotQAPreprocessor, "read_twice_hotpotqa", [0]),
    )
    def test_first_letter_of_answers(self, processor, task, expected):
        """Free-text answers may begin with a capital letter."""
        record = answer_only.ReadingRecord(
            id="1",
            question="Who?",
            context=(Paragraph("", ("The king . So the king .",)),),
            answer="The king",
            supporting_facts=(),
        )
        config = registry.get(task).make_preprocessing_config({})
        found = processor(config, None).find(record)
        self.assertEqual(expected, sorted({x.start for x in found}))

    def test_sizes_of_narrativeqa(self):
        for values, message in (
            (
                {"data_split": "dev"},
                "data_split is 'dev', expected one of",
            ),
            ({"min_rouge_l_oracle_score": 1.5}, "is 1.5, expected 0 to 1"),
        ):
            with self.assertRaisesRegex(UserError, message):
                registry.get(
                    "read_twice_narrativeqa"
                ).make_preprocessing_config(values)


if __name__ == "__main__":
    tf.test.main()
