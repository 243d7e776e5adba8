"""Tests of Natural Questions' `pipeline`."""

import copy
import dataclasses
import io
import json
import shutil
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import etc_features
from etcmodel.models import EtcConfig
from etcmodel.tasks.errors import UserError
from etcmodel.tasks.nq import examples
from etcmodel.tasks.nq import pipeline as pipeline_lib
from etcmodel.tasks.nq.features import NQFeatureConfig
from etcmodel.tasks.nq.features_test import VOCAB
from etcmodel.tasks.nq.features_test import write_vocab
from etcmodel.tasks.nq.labels import WindowLabels
from etcmodel.tasks.nq.metrics import NQPrediction
from etcmodel.tasks.nq.predictions import parse_predictions
from etcmodel.tasks.nq.records import Annotation
from etcmodel.tasks.nq.records import Candidate
from etcmodel.tasks.nq.records import NQRecord
from etcmodel.tasks.nq.records import read_records
from etcmodel.testing import real_data_path

_NO_ANSWER = Annotation(-1, -1, (), "none")
# 12 tokens, 11 of them in candidates. Windows of 7 tokens and a stride of 4
# show 0-7 and 4-11.
_RECORD = NQRecord(
    id="-25",
    question="t11 t12",
    tokens=(
        *("<P>", "t201", "t202", "t203", "</P>", "t99"),
        *("<P>", "t204", "t205", "t206x", "</P>"),
    ),
    is_html=(True,)
    + (False,) * 3
    + (True, False, True)
    + (False,) * 3
    + (True,),
    candidates=(
        Candidate(0, 5, True),
        Candidate(1, 3, False),
        Candidate(6, 11, True),
    ),
    annotations=(
        Annotation(6, 11, ((8, 9), (9, 10)), "none"),
        Annotation(-1, -1, (), "none"),
        Annotation(0, 5, (), "yes"),
    ),
    index=3,
)
_SIZES = {
    "long_length": 12,
    "global_length": 8,
    "stride": 4,
    "question_length": 2,
}


def changed(**changes):
    """The record with changes."""
    return dataclasses.replace(_RECORD, **changes)


def parse(serialized):
    """Stored examples as their features."""
    return [tf.train.Example.FromString(x).features.feature for x in serialized]


def integers(stored, *names):
    """The stored integers, as a list for each name."""
    return [list(stored[name].int64_list.value) for name in names]


class NQPipelineTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.vocab_file = write_vocab(folder)
        cls.pipeline = pipeline_lib.NQPipeline()
        cls.encoder = cls.pipeline.record_encoder(
            "nq.jsonl", cls.pipeline.feature_config(_SIZES), cls.vocab_file
        )
        # Tracing takes longer than all of these tests; real pages are traced.
        cls.encoder._build = cls.encoder.builder.build

    def _encoder(self, **rates):
        """The same for all but the shares of windows."""
        encoder = copy.copy(self.encoder)
        encoder.config = dataclasses.replace(encoder.config, **rates)
        return encoder

    def test_raw_inputs_are_padded(self):
        other = NQRecord("8", "\u00e9", ("x", ""), (False, True), ())
        inputs = self.pipeline.serving_inputs([_RECORD, other])
        self.assertEqual(
            list(inputs),
            [
                "question",
                "tokens",
                "is_html",
                "candidate_starts",
                "candidate_ends",
            ],
        )
        self.assertEqual(
            [b"t11 t12", "\u00e9".encode()], inputs["question"].tolist()
        )
        self.assertEqual((2, 11), inputs["tokens"].shape)
        self.assertEqual([b"x"] + [b""] * 10, inputs["tokens"].tolist()[1])
        self.assertEqual(
            [False, True] + [False] * 9, inputs["is_html"].tolist()[1]
        )
        self.assertEqual(bool, inputs["is_html"].dtype)
        self.assertEqual(
            [[0, 1, 6], [-1] * 3], inputs["candidate_starts"].tolist()
        )
        self.assertEqual(
            [[5, 3, 11], [-1] * 3], inputs["candidate_ends"].tolist()
        )
        self.assertEqual(np.int32, inputs["candidate_starts"].dtype)
        inputs = self.pipeline.serving_inputs([other])
        self.assertEqual((1, 0), inputs["candidate_starts"].shape)

    def test_feature_config(self):
        self.assertEqual(NQFeatureConfig(), self.pipeline.feature_config({}))
        config = self.pipeline.feature_config(
            {"long_length": 512, "stride": 128, "global_length": None}
        )
        self.assertEqual(
            NQFeatureConfig(long_length=512, stride=128, global_length=230),
            config,
        )

    @parameterized.parameters(
        ({"long_length": 512}, "stride is 2048.* 1 to 477"),
        ({"long_length": 30}, "leaves no room"),
        ({"global_length": 20}, "at least 34"),
        ({"stride": 0}, "stride is 0"),
        ({"fixed_block_size": 8}, "at least 512"),
        ({"max_num_sentences": 9}, "--max_num_sentences=9.*no such size"),
    )
    def test_sizes_that_do_not_fit(self, values, message):
        with self.assertRaisesRegex(UserError, message):
            self.pipeline.feature_config(values)

    def test_wrong_vocabularies(self):
        config = self.pipeline.feature_config({})
        for file in ("/no/such/file", self.get_temp_dir()):
            with self.assertRaisesRegex(UserError, f"--vocab_file={file}"):
                self.pipeline.record_encoder("x", config, file)
        no_tags = write_vocab(
            self.get_temp_dir(), [x for x in VOCAB if "unused102" not in x]
        )
        with self.assertRaisesRegex(UserError, "--noinclude_html_tokens"):
            self.pipeline.record_encoder("x", config, no_tags)

    def test_encodes_for_training(self):
        ((serialized, counts),) = self._encoder().encode([_RECORD], "train")
        first, second = parse(serialized)
        for window, stored in enumerate((first, second)):
            self.assertEqual([b"-25"], stored["example_id"].bytes_list.value)
            self.assertEqual([b"t11 t12"], stored["question"].bytes_list.value)
            self.assertEqual([[window]], integers(stored, "window"))
            self.assertEqual(
                [[0, 1, 6], [5, 3, 11]],
                integers(stored, "candidate_starts", "candidate_ends"),
            )
            self.assertEqual(
                examples.make_gold(_RECORD.annotations),
                examples.parse_gold(stored),
            )
        # Pieces: 107 201 202 203 108 107 204 205 206 250 108; the first
        # annotation is learned: the tokens 5 to 10, and 7 to 9.
        self.assertEqual(
            [
                [101, 11, 12, 102, 107, 201, 202, 203, 108, 107, 204, 102],
                [-1] * 4 + [0, 1, 2, 3, 4, 6, 7],
                [0, 1, 2, -1, 3, 3, 3, 3, 3, 4, 4],
                [101, 3, 3, 1, 1],
            ],
            integers(
                first,
                "long_token_ids",
                "words",
                "long_sentence_ids",
                "global_token_ids",
            ),
        )
        self.assertEqual(
            [
                [101, 11, 12, 102, 108, 107, 204, 205, 206, 250, 108, 102],
                [-1] * 4 + [4, 6, 7, 8, 9, 9, 10],
                [0, 1, 2, -1, 3, 4, 4, 4, 4, 4, 4],
            ],
            integers(second, "long_token_ids", "words", "long_sentence_ids"),
        )
        # The first window shows no end of the short answer.
        self.assertEqual(
            [[0], [0], [9], [0], [0]], integers(first, *WindowLabels._fields)
        )
        self.assertEqual(
            [[7], [9], [5], [10], [4]], integers(second, *WindowLabels._fields)
        )
        self.assertEqual(
            {
                "tokens": 11,
                "windows": 2,
                "candidates": 3,
                "answers": 1,
                "answers_in_no_window": 0,
                "windows_without_answer": 1,
                "windows_without_answer_left_out": 0,
            },
            counts,
        )

    def test_encodes_for_prediction(self):
        encoder = self._encoder()
        for record in (_RECORD, changed(annotations=None)):
            ((serialized, counts),) = encoder.encode([record], "predict")
            for stored in parse(serialized):
                self.assertNoCommonElements(stored, WindowLabels._fields)
                self.assertNoCommonElements(
                    stored, examples.gold_values([_NO_ANSWER])
                )
                self.assertIsNone(examples.parse_gold(stored))
            self.assertLen(serialized, 2)
            self.assertEqual(
                {"tokens": 11, "windows": 2, "candidates": 3}, counts
            )

    def test_development_data_are_never_left_out(self):
        encoder = self._encoder(include_unknown_rate=0.0)
        unanswerable = changed(annotations=(_NO_ANSWER,) * 5)
        for record, null in ((_RECORD, 1), (unanswerable, 2)):
            ((serialized, counts),) = encoder.encode([record], "dev")
            self.assertLen(serialized, 2)
            self.assertEqual(null, counts["windows_without_answer"])
            self.assertEqual(0, counts["windows_without_answer_left_out"])
            for stored in parse(serialized):
                self.assertEqual(
                    examples.make_gold(record.annotations),
                    examples.parse_gold(stored),
                )

    def test_no_windows_without_answer(self):
        encoder = self._encoder(include_unknown_rate=0.0)
        ((serialized, counts),) = encoder.encode([_RECORD], "train")
        (stored,) = parse(serialized)
        self.assertEqual([[1], [4]], integers(stored, "window", "answer_type"))
        self.assertEqual(1, counts["windows_without_answer"])
        self.assertEqual(1, counts["windows_without_answer_left_out"])
        # 4 times 0 for a page without an answer: nothing is left of it.
        ((serialized, counts),) = encoder.encode(
            [changed(annotations=(_NO_ANSWER,))], "train"
        )
        self.assertEmpty(serialized)
        self.assertEqual(0, counts["answers"])
        self.assertEqual(0, counts["answers_in_no_window"])
        self.assertEqual(2, counts["windows_without_answer_left_out"])

    def test_rates_of_answerable_and_unanswerable_pages(self):
        unanswerable = changed(annotations=(_NO_ANSWER,))
        for rates, answerable_left, unanswerable_left in (
            ({"include_unknown_rate": 1.0}, 2, 2),
            ({"include_unknown_rate": 0.25}, None, 2),
            (
                {
                    "include_unknown_rate": 1.0,
                    "include_unknown_rate_for_unanswerable": 0.0,
                },
                2,
                0,
            ),
            (
                {
                    "include_unknown_rate": 0.0,
                    "include_unknown_rate_for_unanswerable": 1.0,
                },
                1,
                2,
            ),
        ):
            one, other = self._encoder(**rates).encode(
                [_RECORD, unanswerable], "train"
            )
            if answerable_left is not None:
                self.assertLen(one.examples, answerable_left)
            self.assertLen(other.examples, unanswerable_left)

    def test_sampling(self):
        """A share by chance, the same in every batch and every program."""
        encoder = self._encoder(include_unknown_rate_for_unanswerable=0.25)
        records = [
            changed(id=str(i), annotations=(_NO_ANSWER,)) for i in range(600)
        ]

        def kept(records):
            return [
                [integers(x, "window")[0][0] for x in parse(record.examples)]
                for record in encoder.encode(records, "train")
            ]

        together = kept(records)
        alone = [kept([record])[0] for record in records[:5]]
        self.assertEqual(alone, together[:5])
        self.assertEqual(kept(records[::-1][:50]), together[::-1][:50])
        # Each window a quarter of the time, and one apart from the other: more
        # than five standard deviations are not by chance.
        for window in (0, 1):
            share = np.mean([window in x for x in together])
            self.assertBetween(share, 0.25 - 0.09, 0.25 + 0.09)
        both = np.mean([len(x) == 2 for x in together])
        self.assertBetween(both, 0.0625 - 0.05, 0.0625 + 0.05)
        # The windows of pages with an answer are another matter.
        ((serialized, _),) = encoder.encode([_RECORD], "train")
        self.assertLen(serialized, 2)

    def test_greater_rates_keep_what_lesser_ones_keep(self):
        records = [
            changed(id=str(i), annotations=(_NO_ANSWER,)) for i in range(60)
        ]
        kept = []
        for rate in (0.1, 0.3):
            encoder = self._encoder(include_unknown_rate_for_unanswerable=rate)
            kept.append(
                {
                    example
                    for record in encoder.encode(records, "train")
                    for example in record.examples
                }
            )
        self.assertNotEmpty(kept[0])
        self.assertContainsSubset(kept[0], kept[1])

    def test_answer_outside_all_candidates(self):
        """It cannot be learned; the page is as one without an answer shown."""
        record = changed(annotations=(Annotation(5, 6, ((5, 6),), "none"),))
        ((serialized, counts),) = self._encoder().encode([record], "train")
        self.assertLen(serialized, 2)
        for stored in parse(serialized):
            self.assertEqual([[0]] * 5, integers(stored, *WindowLabels._fields))
            self.assertEqual(
                [[5], [6]],
                integers(stored, "gold_short_starts", "gold_short_ends"),
            )
        self.assertEqual(1, counts["answers"])
        self.assertEqual(1, counts["answers_in_no_window"])
        self.assertEqual(2, counts["windows_without_answer"])
        encoder = self._encoder(include_unknown_rate=0.0)
        ((serialized, _),) = encoder.encode([record], "train")
        self.assertEmpty(serialized)

    def test_page_without_candidates(self):
        record = changed(candidates=(), annotations=(_NO_ANSWER,))
        ((serialized, counts),) = self._encoder().encode([record], "train")
        (stored,) = parse(serialized)
        self.assertEqual(
            [[101, 11, 12, 102, 102], [], []],
            integers(stored, "long_token_ids", "words", "candidate_starts"),
        )
        self.assertEqual(
            {"tokens": 0, "windows": 1, "candidates": 0},
            {
                name: counts[name]
                for name in ("tokens", "windows", "candidates")
            },
        )

    def _decoded(self, **columns):
        return {name: np.array(x) for name, x in columns.items()}

    def test_predictions_in_the_official_format(self):
        """Answers are written however low their scores are."""
        outputs = self._decoded(
            best_long_answer_start=[0, 6, -1],
            best_long_answer_end=[5, 11, -1],
            long_answer_score=np.array([-2.5, 3.0, -2e9], np.float32),
            best_short_answer_start=[1, -1, -1],
            best_short_answer_end=[3, -1, -1],
            short_answer_score=np.array([-4.0, 1.5, -2e9], np.float32),
            best_yes_no=np.array([0, 2, 0], np.int32),
            # What is given only above a threshold is not what is scored.
            long_answer_start=[-1, 6, -1],
            long_answer_end=[-1, 11, -1],
            yes_no=[0, 0, 0],
        )
        records = [_RECORD, changed(id="8"), changed(id="test")]
        predictions = {}
        self.pipeline.collect(records, outputs, predictions, {})
        stream = io.StringIO()
        self.pipeline.write_predictions(predictions, stream)
        self.assertEndsWith(stream.getvalue(), "}\n")
        written = json.loads(stream.getvalue())
        self.assertEqual(["predictions"], list(written))

        def span(start, end):
            return {
                "start_token": start,
                "end_token": end,
                "start_byte": -1,
                "end_byte": -1,
            }

        self.assertEqual(
            [
                {
                    "example_id": -25,
                    "long_answer": span(0, 5),
                    "long_answer_score": -2.5,
                    "short_answers": [span(1, 3)],
                    "short_answers_score": -4.0,
                    "yes_no_answer": "NONE",
                },
                {
                    "example_id": 8,
                    "long_answer": span(6, 11),
                    "long_answer_score": 3.0,
                    "short_answers": [],
                    "short_answers_score": 1.5,
                    "yes_no_answer": "NO",
                },
                {
                    "example_id": "test",
                    "long_answer": span(-1, -1),
                    "long_answer_score": -2e9,
                    "short_answers": [],
                    "short_answers_score": -2e9,
                    "yes_no_answer": "NONE",
                },
            ],
            written["predictions"],
        )
        self.assertEqual(predictions, parse_predictions(written))

    def test_gold_and_score(self):
        self.assertIsNone(self.pipeline.gold(changed(annotations=None)))
        self.assertIsNone(self.pipeline.gold(changed(annotations=())))
        gold = self.pipeline.gold(_RECORD)
        self.assertEqual(((6, 11), (-1, -1), (0, 5)), gold.long_answers)
        self.assertEqual((((8, 9), (9, 10)), (), ()), gold.short_answers)
        self.assertEqual(("none", "none", "yes"), gold.yes_no)
        predictions = {
            "-25": NQPrediction((0, 5), 1.0, (), 1.0, "yes"),
            "8": NQPrediction((6, 11), 0.5, ((8, 9),), 0.5),
        }
        # Two of three annotators have answers; one of them is enough to be
        # right.
        score = self.pipeline.score(predictions, {"-25": gold})
        self.assertEqual(1.0, score["long-best-threshold-f1"])
        self.assertEqual(1.0, score["short-best-threshold-f1"])
        # Training data have one annotator: then one answer is enough. The
        # second short answer is only half of the right one.
        single = self.pipeline.gold(
            changed(annotations=_RECORD.annotations[:1])
        )
        score = self.pipeline.score({"8": predictions["8"]}, {"8": single})
        self.assertEqual(1.0, score["long-best-threshold-f1"])
        self.assertEqual(0.0, score["short-best-threshold-f1"])
        self.assertEqual(0.5, score["average-best-threshold-f1"])

    def test_inspects_a_record(self):
        def inspect(record):
            with mock.patch.object(
                pipeline_lib, "NQEncoder", return_value=self.encoder
            ):
                return self.pipeline.inspect(
                    "nq.jsonl",
                    record,
                    self.encoder.config,
                    EtcConfig.from_preset("tiny"),
                    self.vocab_file,
                )

        inspection = inspect(_RECORD)
        self.assertEqual(
            "[CLS] t11 t12 [SEP] [unused102] t201 t202 t203 [unused103] "
            "[unused102] t204 [SEP]".split(),
            list(inspection.long_labels),
        )
        self.assertEqual(
            ["cls 0", "question 1", "question 2", "sentence 3", "sentence 4"],
            list(inspection.global_labels),
        )
        text = inspection.text()
        self.assertIn("3 (id -25)", text)
        self.assertIn("t11 t12", text)
        self.assertIn("(6, 11), short [(8, 9), (9, 10)], yes/no none", text)
        self.assertIn("(0, 5), short [], yes/no yes", text)
        self.assertRegex(text, r"words: +11\n")
        self.assertRegex(text, r"tokens: +11\n")
        self.assertRegex(text, r"windows: +2 ")
        self.assertEqual([1, 12, 8], inspection.side_inputs.l2g_att_mask.shape)
        unknown = inspect(changed(annotations=None))
        self.assertIn("not told", unknown.text())


class NQRealPagesTest(tf.test.TestCase, parameterized.TestCase):
    def test_raw_text_and_records_give_the_same_features(self):
        pipeline = pipeline_lib.NQPipeline()
        config = pipeline.feature_config(
            {
                "long_length": 512,
                "global_length": 128,
                "stride": 128,
                "include_unknown_rate": 0.0,
            }
        )
        records = [
            record
            for name in ("00", "01")
            for record in read_records(
                real_data_path(f"nq/nq-train-{name}.jsonl.gz"), "dev"
            )
        ]
        encoder = pipeline.record_encoder(
            "x", config, real_data_path("vocab/bert_uncased_vocab.txt")
        )
        stored, owners = [], []
        for i, record in enumerate(encoder.encode(records, "dev")):
            stored += record.examples
            owners += [i] * len(record.examples)
        parsed = etc_features.parse(
            tf.constant(stored),
            config.long_length,
            config.global_length,
            extra={
                **examples.CONTEXT_SPEC,
                "window": tf.io.FixedLenFeature([], tf.int64),
                "example_id": tf.io.FixedLenFeature([], tf.string),
            },
        )
        ids = [record.id.encode() for record in records]
        self.assertEqual(
            [ids[i] for i in owners], parsed["example_id"].numpy().tolist()
        )
        # Not traced: what a request of raw text goes through.
        build = encoder.builder.build
        for batches in ([[i] for i in range(3)], [[0, 1, 2]]):
            first = 0
            for batch in batches:
                made, windows = build(
                    *map(
                        tf.constant,
                        pipeline.serving_inputs(
                            [records[i] for i in batch]
                        ).values(),
                    )
                )
                rows = slice(first, first + len(windows.record))
                first = rows.stop
                self.assertAllEqual(
                    owners[rows], np.array(batch)[windows.record]
                )
                self.assertCountEqual(etc_features.FEATURES, made.features)
                for name, value in made.features.items():
                    self.assertAllEqual(parsed[name][rows], value, name)
                self.assertAllEqual(
                    parsed["words"].to_tensor(
                        -1, shape=[len(stored), config.long_length]
                    )[rows],
                    windows.words,
                )
            self.assertLen(stored, first)
        for i, record in enumerate(records):
            row = owners.index(i)
            self.assertAllEqual(
                parsed["candidate_starts"][row],
                [x.start for x in record.candidates],
            )
            windows_of = parsed["window"].numpy()[np.array(owners) == i]
            self.assertAllEqual(windows_of, range(len(windows_of)))


if __name__ == "__main__":
    tf.test.main()
