"""From records of Natural Questions to what is stored of them."""

import dataclasses
import tempfile
from unittest import mock

import msgspec
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.nq.metrics import NQGold
from etcmodel.datasets.nq.records import Annotation
from etcmodel.datasets.nq.records import Candidate
from etcmodel.datasets.nq.records import NQRecord
from etcmodel.inspection import pictures
from etcmodel.models import EtcConfig
from etcmodel.pipeline import example_maker
from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.preprocessor import RecordView
from etcmodel.pipeline.preprocessor import on_host
from etcmodel.readers.records import Source
from etcmodel.tasks.nq.labels import WindowLabels
from etcmodel.tasks.nq.task import TASK
from etcmodel.training import evaluation
from testing import tasks
from testing.helpers import write_vocab
from testing.nq_pages import VOCAB
from testing.nq_pages import make_config
from testing.tasks import encode_records

_NO_ANSWER = Annotation(-1, -1, (), "none")
# 12 words, 11 of them in candidates. Windows of 7 tokens and a stride of 4
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
        _NO_ANSWER,
        Annotation(0, 5, (), "yes"),
    ),
    source=Source("nq.jsonl", 3),
)
# In no candidate.
_OUTSIDE = Annotation(5, 6, ((5, 6),), "none")


def _changed(**changes):
    """The record with changes."""
    return msgspec.structs.replace(_RECORD, **changes)


def _labels(*values):
    """Labels of a window."""
    return dict(zip(WindowLabels._fields, values, strict=True))


class NQRecordsTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with tempfile.TemporaryDirectory() as folder:
            cls.writer = example_maker.of_task(
                TASK, make_config(12, 4, 2), write_vocab(folder, VOCAB)
            )
        cls.preprocessor = cls.writer.preprocessor
        # Tracing takes longer than all of these tests.
        cls.enterClassContext(tasks.without_tracing())
        made = on_host(cls.writer.preprocess([_RECORD]))
        cls.view = RecordView(made, 0)

    def _label(self, record, split, rate=1.0, unanswerable=None):
        """What is learned of a record, with shares of windows."""
        config = dataclasses.replace(
            self.preprocessor.config,
            include_unknown_rate=rate,
            include_unknown_rate_for_unanswerable=unanswerable,
        )
        with mock.patch.object(self.preprocessor, "config", config):
            return self.preprocessor.labels(record, self.view, split)

    def _stored(self, record, split):
        """The stored windows, each as a dict of lists, and the counts."""
        (written,) = encode_records(self.writer, [record], split)
        windows = []
        for example in written.examples:
            stored = tf.train.Example.FromString(example).features.feature
            kinds = {x: y.WhichOneof("kind") for x, y in stored.items()}
            windows.append(
                {
                    name: list(getattr(stored[name], kind).value)
                    for name, kind in kinds.items()
                    if kind
                }
            )
        return windows, written.counts

    def _check(self, stored, expected):
        """Compares some of what a stored example holds."""
        self.assertEqual({**stored, **expected}, stored)

    def test_stored_windows(self):
        windows, counts = self._stored(_RECORD, "dev")
        # Pieces: 107 201 202 203 108 107 204 205 206 250 108; the first
        # annotation is learned: the tokens 5 to 10, and 7 to 9.
        for window, (stored, labels, expected) in enumerate(
            zip(
                windows,
                # The first shows no end of the short answer.
                [(0, 0, 9, 0, 0), (7, 9, 5, 10, 4)],
                [
                    {
                        "long_token_ids": [101, 11, 12, 102, 107, 201, 202]
                        + [203, 108, 107, 204, 102],
                        "words": [-1] * 4 + [0, 1, 2, 3, 4, 6, 7],
                        "long_sentence_ids": [0, 1, 2, -1] + [3] * 5 + [4] * 2,
                        "global_token_ids": [101, 3, 3, 1, 1],
                    },
                    {
                        "long_token_ids": [101, 11, 12, 102, 108, 107, 204]
                        + [205, 206, 250, 108, 102],
                        "words": [-1] * 4 + [4, 6, 7, 8, 9, 9, 10],
                        "long_sentence_ids": [0, 1, 2, -1, 3] + [4] * 6,
                    },
                ],
                strict=True,
            )
        ):
            self._check(
                stored,
                {
                    "example_id": [b"-25"],
                    "question": [b"t11 t12"],
                    "window": [window],
                    # Nested candidates as well: they can be answers.
                    "candidate_starts": [0, 1, 6],
                    "candidate_ends": [5, 3, 11],
                    **{x: [y] for x, y in _labels(*labels).items()},
                    **expected,
                },
            )
        self.assertEqual(
            {
                "tokens": 11,
                # Both windows, with the question.
                "tokens_stored": sum(len(x["long_token_ids"]) for x in windows),
                "tokens_unknown": 0,
                "words": 11,
                "words_in_no_candidate": 1,
                "windows": 2,
                "candidates": 3,
                "answers": 1,
                "answers_in_no_window": 0,
                "windows_without_answer": 1,
                "windows_without_answer_left_out": 0,
            },
            counts,
        )

    def test_answers_of_all_annotators_are_read_again(self):
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        records = [
            _RECORD,
            _changed(id="7", annotations=(_NO_ANSWER,) * 5, candidates=()),
        ]
        with tfrecords.ShardedWriter(directory, "dev", 2) as writer:
            for written in encode_records(self.writer, records, "dev"):
                for example in written.examples:
                    writer.write(example)
        read = evaluation.read_records(
            TASK, self.preprocessor.SCHEMA, directory
        )
        expected = {
            "-25": NQGold(
                long_answers=((6, 11), (-1, -1), (0, 5)),
                short_answers=(((8, 9), (9, 10)), (), ()),
                yes_no=("none", "none", "yes"),
            ),
            "7": NQGold(((-1, -1),) * 5, ((),) * 5, ("none",) * 5),
        }
        for record in read:
            # Any collection does for the spans of an annotator.
            short_answers = tuple(map(tuple, record.gold.short_answers))
            gold = dataclasses.replace(record.gold, short_answers=short_answers)
            self.assertEqual(expected.pop(record.id), gold)
        self.assertEmpty(expected)
        texts = {record.id: record.text for record in read}
        self.assertEqual(
            {"candidate_starts": [0, 1, 6], "candidate_ends": [5, 3, 11]},
            texts["-25"],
        )

    @parameterized.parameters(
        (_RECORD, "predict"), (_changed(annotations=None), "dev")
    )
    def test_answers_that_are_not_known(self, record, split):
        windows, counts = self._stored(record, split)
        self.assertLen(windows, 2)
        for stored in windows:
            self.assertNoCommonElements(stored, [*WindowLabels._fields, "gold"])
        self.assertEqual(
            {
                "tokens": 11,
                # Both windows, with the question.
                "tokens_stored": sum(len(x["long_token_ids"]) for x in windows),
                "tokens_unknown": 0,
                "words": 11,
                "words_in_no_candidate": 1,
                "windows": 2,
                "candidates": 3,
            },
            counts,
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
        record = _changed(annotations=(answer,)) if answer else _RECORD
        labelled = self._label(record, split, *rates)
        self.assertEqual(
            left, [i for i, row in enumerate(labelled.rows) if row is not None]
        )
        names = ("answers", "answers_in_no_window", "windows_without_answer")
        names += ("windows_without_answer_left_out",)
        self.assertEqual(counts, [labelled.counts[name] for name in names])
        if answer:
            for i in left:
                self.assertEqual(_labels(0, 0, 0, 0, 0), labelled.rows[i])

    def test_sampling(self):
        """A share by chance, the same every time."""
        records = [
            _changed(id=str(i), annotations=(_NO_ANSWER,)) for i in range(600)
        ]

        def kept(rate):
            return np.array(
                [
                    [row is not None for row in labelled.rows]
                    for labelled in (
                        self._label(record, "train", unanswerable=rate)
                        for record in records
                    )
                ]
            )

        quarter = kept(0.25)
        self.assertAllEqual(quarter, kept(0.25))
        # Each window a quarter of the time, and one apart from the other: more
        # than five standard deviations are not by chance.
        self.assertAllClose([0.25, 0.25], quarter.mean(0), atol=0.09)
        self.assertAllClose(0.0625, quarter.all(1).mean(), atol=0.05)
        # A greater rate keeps what a lesser one keeps.
        self.assertTrue(np.all(quarter <= kept(0.35)))

    def test_page_without_candidates(self):
        record = _changed(candidates=(), annotations=(_NO_ANSWER,))
        (stored,), counts = self._stored(record, "train")
        self._check(stored, {"long_token_ids": [101, 11, 12, 102, 102]})
        self.assertNotIn("words", stored)
        self.assertNotIn("candidate_starts", stored)
        self._check(counts, {"tokens": 0, "windows": 1, "candidates": 0})

    def test_inspects_a_record(self):
        tiny = EtcConfig.from_preset("tiny")
        shown = pictures.inspect(self.writer, _RECORD, tiny)
        self.assertEqual(
            "[CLS] t11 t12 [SEP] [unused102] t201 t202 t203 [unused103] "
            "[unused102] t204 [SEP]".split(),
            list(shown.long_labels),
        )
        self.assertEqual(
            ["[CLS]", "t11", "t12", "page 0.0", "page 0.1"],
            list(shown.global_labels),
        )
        for expected in (
            r"3 \(id -25\)",
            "t11 t12",
            r"\(6, 11\), short \[\(8, 9\), \(9, 10\)\], yes/no none",
            r"\(0, 5\), short \[\], yes/no yes",
            r"words: +11\n",
            r"tokens: +11\n",
            r"windows: +2\n",
        ):
            self.assertRegex(shown.text(), expected)
        self.assertEqual([1, 12, 8], shown.side_inputs.l2g_att_mask.shape)
        unknown = pictures.inspect(
            self.writer, _changed(annotations=None), tiny
        )
        self.assertIn("not told", unknown.text())


if __name__ == "__main__":
    tf.test.main()
