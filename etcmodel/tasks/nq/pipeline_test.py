"""Tests of Natural Questions' `pipeline`."""

import copy
import dataclasses
import shutil
import tempfile
from unittest import mock

import msgspec
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.nq import predictions
from etcmodel.datasets.nq.metrics import NQPrediction
from etcmodel.datasets.nq.records import FORMAT
from etcmodel.datasets.nq.records import Annotation
from etcmodel.datasets.nq.records import Candidate
from etcmodel.datasets.nq.records import NQRecord
from etcmodel.datasets.records import Source
from etcmodel.errors import UserError
from etcmodel.feature_utils import etc_features
from etcmodel.models import EtcConfig
from etcmodel.tasks.nq import examples
from etcmodel.tasks.nq import pipeline as pipeline_lib
from etcmodel.tasks.nq.features import NQFeatureConfig
from etcmodel.tasks.nq.features_test import VOCAB
from etcmodel.tasks.nq.features_test import write_vocab
from etcmodel.tasks.nq.labels import WindowLabels
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
    source=Source("nq.jsonl", 3),
)
# In no candidate.
_OUTSIDE = Annotation(5, 6, ((5, 6),), "none")
_SIZES = {
    "long_length": 12,
    "global_length": 8,
    "stride": 4,
    "question_length": 2,
}


def changed(**changes):
    """The record with changes."""
    return msgspec.structs.replace(_RECORD, **changes)


def _labels(*values):
    """Labels of a window as they are stored."""
    return {
        name: [value]
        for name, value in zip(WindowLabels._fields, values, strict=True)
    }


def parse(serialized):
    """Stored examples, each as a dict of lists."""
    parsed = []
    for x in serialized:
        feature = tf.train.Example.FromString(x).features.feature
        parsed.append(
            {
                name: list(getattr(value, value.WhichOneof("kind")).value)
                for name, value in feature.items()
                if value.WhichOneof("kind")
            }
        )
    return parsed


def gold_of(serialized):
    """The annotations of a stored example."""
    return examples.parse_gold(
        tf.train.Example.FromString(serialized).features.feature
    )


class NQPipelineTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.vocab_file = write_vocab(folder)
        cls.pipeline = pipeline_lib.NQPipeline()
        cls.encoder = cls.pipeline.record_encoder(
            cls.pipeline.feature_config(_SIZES), cls.vocab_file
        )
        # Tracing takes longer than all of these tests; real pages are traced.
        cls.encoder._build = cls.encoder.builder.build

    def _encoder(self, **rates):
        """The same for all but the shares of windows."""
        encoder = copy.copy(self.encoder)
        encoder.config = dataclasses.replace(encoder.config, **rates)
        return encoder

    def _check(self, stored, **expected):
        """Compares some of what a stored example holds."""
        self.assertEqual({**stored, **expected}, stored)

    def test_raw_inputs_are_padded(self):
        other = NQRecord("8", "\u00e9", ("x", ""), (False, True), ())
        inputs = self.pipeline.serving_inputs([_RECORD, other])
        expected = {
            "question": [b"t11 t12", "\u00e9".encode()],
            "tokens": [
                [x.encode() for x in _RECORD.tokens],
                [b"x"] + [b""] * 10,
            ],
            "is_html": [list(_RECORD.is_html), [False, True] + [False] * 9],
            "candidate_starts": [[0, 1, 6], [-1] * 3],
            "candidate_ends": [[5, 3, 11], [-1] * 3],
        }
        self.assertEqual(
            expected, {name: x.tolist() for name, x in inputs.items()}
        )
        self.assertEqual(list(expected), list(inputs))
        self.assertEqual(
            [object, object, bool, np.int32, np.int32],
            [x.dtype for x in inputs.values()],
        )
        inputs = self.pipeline.serving_inputs([other])
        self.assertEqual((1, 0), inputs["candidate_starts"].shape)

    def test_feature_config(self):
        config = self.pipeline.feature_config(
            {"long_length": 512, "stride": 128, "global_length": None}
        )
        self.assertEqual(
            NQFeatureConfig(long_length=512, stride=128, global_length=230),
            config,
        )
        for values, message in (
            ({"long_length": 512}, "sizes do not fit: stride is 2048"),
            ({"max_num_sentences": 9}, "--max_num_sentences=9.*no such size"),
        ):
            with self.assertRaisesRegex(UserError, message):
                self.pipeline.feature_config(values)

    def test_wrong_vocabularies(self):
        no_tags = write_vocab(
            self.get_temp_dir(), [x for x in VOCAB if "unused102" not in x]
        )
        for file, message in (
            ("/no/such/file", "--vocab_file=/no/such/file"),
            (no_tags, "--noinclude_html_tokens"),
        ):
            with self.assertRaisesRegex(UserError, message):
                self.pipeline.record_encoder(NQFeatureConfig(), file)

    def test_encodes_for_training(self):
        ((serialized, counts),) = self._encoder().encode([_RECORD], "train")
        first, second = parse(serialized)
        for window, stored in enumerate((first, second)):
            self._check(
                stored,
                example_id=[b"-25"],
                question=[b"t11 t12"],
                window=[window],
                candidate_starts=[0, 1, 6],
                candidate_ends=[5, 3, 11],
            )
            self.assertEqual(
                predictions.make_gold(_RECORD.annotations),
                gold_of(serialized[window]),
            )
        # Pieces: 107 201 202 203 108 107 204 205 206 250 108; the first
        # annotation is learned: the tokens 5 to 10, and 7 to 9.
        self._check(
            first,
            long_token_ids=(
                [101, 11, 12, 102, 107, 201, 202, 203, 108, 107, 204, 102]
            ),
            words=[-1] * 4 + [0, 1, 2, 3, 4, 6, 7],
            long_sentence_ids=[0, 1, 2, -1, 3, 3, 3, 3, 3, 4, 4],
            global_token_ids=[101, 3, 3, 1, 1],
            # It shows no end of the short answer.
            **_labels(0, 0, 9, 0, 0),
        )
        self._check(
            second,
            long_token_ids=(
                [101, 11, 12, 102, 108, 107, 204, 205, 206, 250, 108, 102]
            ),
            words=[-1] * 4 + [4, 6, 7, 8, 9, 9, 10],
            long_sentence_ids=[0, 1, 2, -1, 3, 4, 4, 4, 4, 4, 4],
            **_labels(7, 9, 5, 10, 4),
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
            for example, stored in zip(
                serialized, parse(serialized), strict=True
            ):
                self.assertNoCommonElements(stored, WindowLabels._fields)
                self.assertNoCommonElements(
                    stored, examples.gold_values([_NO_ANSWER])
                )
                self.assertIsNone(gold_of(example))
            self.assertLen(serialized, 2)
            self.assertEqual(
                {"tokens": 11, "windows": 2, "candidates": 3}, counts
            )

    # An answer, the rates of pages with and without one, the split; the windows
    # that are left, and counts: answers, answers in no window, windows without
    # an answer, those of them that are left out.
    @parameterized.parameters(
        (None, (0.0, None), "dev", [0, 1], [1, 0, 1, 0]),
        (None, (0.0, None), "train", [1], [1, 0, 1, 1]),
        (None, (1.0, 0.0), "train", [0, 1], [1, 0, 1, 0]),
        (None, (0.0, 1.0), "train", [1], [1, 0, 1, 1]),
        # By default four times the rate of other pages.
        (_NO_ANSWER, (0.0, None), "dev", [0, 1], [0, 0, 2, 0]),
        (_NO_ANSWER, (0.0, None), "train", [], [0, 0, 2, 2]),
        (_NO_ANSWER, (0.25, None), "train", [0, 1], [0, 0, 2, 0]),
        (_NO_ANSWER, (1.0, 0.0), "train", [], [0, 0, 2, 2]),
        (_NO_ANSWER, (0.0, 1.0), "train", [0, 1], [0, 0, 2, 0]),
        # It cannot be learned; the page is as one without an answer shown.
        (_OUTSIDE, (1.0, None), "train", [0, 1], [1, 1, 2, 0]),
        (_OUTSIDE, (0.0, None), "train", [], [1, 1, 2, 2]),
    )
    def test_windows_without_answer(self, answer, rates, split, left, counts):
        record = changed(annotations=(answer,)) if answer else _RECORD
        encoder = self._encoder(
            include_unknown_rate=rates[0],
            include_unknown_rate_for_unanswerable=rates[1],
        )
        ((serialized, got),) = encoder.encode([record], split)
        self.assertEqual(counts, list(got.values())[:4])
        ((windows, _),) = encoder.encode([record], "predict")
        windows = parse(windows)
        stored = parse(serialized)
        self.assertEqual([[i] for i in left], [x["window"] for x in stored])
        for example, values in zip(serialized, stored, strict=True):
            self.assertEqual(
                predictions.make_gold(record.annotations), gold_of(example)
            )
            if answer:
                self._check(values, **_labels(0, 0, 0, 0, 0))
            # The window as it is stored for prediction.
            self._check(values, **windows[values["window"][0]])

    def test_sampling(self):
        """A share by chance, the same in every batch and every program."""
        encoder = self._encoder(include_unknown_rate_for_unanswerable=0.25)
        records = [
            changed(id=str(i), annotations=(_NO_ANSWER,)) for i in range(600)
        ]

        def kept(records, encoder=encoder):
            return [
                [x["window"][0] for x in parse(record.examples)]
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
        # A greater rate keeps what a lesser one keeps.
        encoder = self._encoder(include_unknown_rate_for_unanswerable=0.35)
        for more, less in zip(
            kept(records[:60], encoder), together[:60], strict=True
        ):
            self.assertContainsSubset(less, more)

    def test_page_without_candidates(self):
        record = changed(candidates=(), annotations=(_NO_ANSWER,))
        ((serialized, counts),) = self._encoder().encode([record], "train")
        (stored,) = parse(serialized)
        self._check(stored, long_token_ids=[101, 11, 12, 102, 102])
        self.assertNotIn("words", stored)
        self.assertNotIn("candidate_starts", stored)
        expected = {"tokens": 0, "windows": 1, "candidates": 0}
        self.assertEqual({**counts, **expected}, counts)

    def test_collects_predictions(self):
        """Answers, however low their scores are."""
        columns = {
            "best_long_answer_start": [0, 6, -1],
            "best_long_answer_end": [5, 11, -1],
            "long_answer_score": np.array([-2.5, 3.0, -2e9], np.float32),
            "best_short_answer_start": [1, -1, -1],
            "best_short_answer_end": [3, -1, -1],
            "short_answer_score": np.array([-4.0, 1.5, -2e9], np.float32),
            "best_yes_no": np.array([0, 2, 1], np.int32),
            # What is given only above a threshold is not what is scored.
            "long_answer_start": [-1, 6, -1],
            "long_answer_end": [-1, 11, -1],
            "yes_no": [0, 0, 0],
        }
        outputs = {name: np.array(x) for name, x in columns.items()}
        records = [_RECORD, changed(id="8"), changed(id="test")]
        predictions = {}
        self.pipeline.collect(records, outputs, predictions, {})
        self.assertEqual(
            {
                "-25": NQPrediction((0, 5), -2.5, ((1, 3),), -4.0),
                "8": NQPrediction((6, 11), 3.0, (), 1.5, "no"),
                "test": NQPrediction((-1, -1), -2e9, (), -2e9, "yes"),
            },
            predictions,
        )

    def test_gold_and_score(self):
        self.assertIsNone(self.pipeline.dataset.gold(changed(annotations=None)))
        self.assertIsNone(self.pipeline.dataset.gold(changed(annotations=())))
        gold = self.pipeline.dataset.gold(_RECORD)
        self.assertEqual(((6, 11), (-1, -1), (0, 5)), gold.long_answers)
        self.assertEqual((((8, 9), (9, 10)), (), ()), gold.short_answers)
        self.assertEqual(("none", "none", "yes"), gold.yes_no)
        predictions = {
            "-25": NQPrediction((0, 5), 1.0, (), 1.0, "yes"),
            "8": NQPrediction((6, 11), 0.5, ((8, 9),), 0.5),
        }
        # Two of three annotators have answers; one of them is enough to be
        # right.
        score = self.pipeline.dataset.score(predictions, {"-25": gold})
        self.assertEqual(1.0, score["long-best-threshold-f1"])
        self.assertEqual(1.0, score["short-best-threshold-f1"])
        # Training data have one annotator: then one answer is enough. The
        # second short answer is only half of the right one.
        single = self.pipeline.dataset.gold(
            changed(annotations=_RECORD.annotations[:1])
        )
        score = self.pipeline.dataset.score(
            {"8": predictions["8"]}, {"8": single}
        )
        self.assertEqual(1.0, score["long-best-threshold-f1"])
        self.assertEqual(0.0, score["short-best-threshold-f1"])
        self.assertEqual(0.5, score["average-best-threshold-f1"])

    def test_inspects_a_record(self):
        def inspect(record):
            with mock.patch.object(
                pipeline_lib, "NQEncoder", return_value=self.encoder
            ):
                return self.pipeline.inspect(
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
        for expected in (
            r"3 \(id -25\)",
            "t11 t12",
            r"\(6, 11\), short \[\(8, 9\), \(9, 10\)\], yes/no none",
            r"\(0, 5\), short \[\], yes/no yes",
            r"words: +11\n",
            r"tokens: +11\n",
            r"windows: +2 ",
        ):
            self.assertRegex(inspection.text(), expected)
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
            for record in FORMAT.read(
                real_data_path(f"nq/nq-train-{name}.jsonl.gz"), "dev"
            )
        ]
        encoder = pipeline.record_encoder(
            config, real_data_path("vocab/bert_uncased_vocab.txt")
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
        for batches in ([[0], [1], [2]], [[0, 1, 2]]):
            first = 0
            for batch in batches:
                inputs = pipeline.serving_inputs([records[i] for i in batch])
                made, windows = build(*map(tf.constant, inputs.values()))
                rows = slice(first, first + len(windows.record))
                first = rows.stop
                self.assertAllEqual(
                    owners[rows], np.array(batch)[windows.record]
                )
                self.assertCountEqual(etc_features.FEATURES, made.features)
                for name, value in made.features.items():
                    self.assertAllEqual(parsed[name][rows], value, name)
                words = parsed["words"].to_tensor(
                    -1, shape=[len(stored), config.long_length]
                )
                self.assertAllEqual(words[rows], windows.words)
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
