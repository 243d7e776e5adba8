"""Tests stored windows, labels and sampling."""

import dataclasses
import tempfile
from unittest import mock

import msgspec
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.nq.records import Annotation
from etcmodel.datasets.nq.records import Candidate
from etcmodel.datasets.nq.records import NQRecord
from etcmodel.pipeline import example_maker
from etcmodel.pipeline.preprocessor import RecordView
from etcmodel.pipeline.preprocessor import on_host
from etcmodel.readers.records import Source
from etcmodel.tasks.nq.labels import WindowLabels
from etcmodel.tasks.nq.task import TASK
from testing import tasks
from testing.helpers import write_vocab
from testing.nq_pages import VOCAB
from testing.nq_pages import make_config
from testing.records import stored_values

_NO_ANSWER = Annotation(-1, -1, (), "none")
# 12 words, 11 of them in candidates. Windows of 7 tokens and a stride of 4 show
# the tokens 0-7 and 4-11.
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
# The answers of this annotation lie outside of all candidates.
_OUTSIDE = Annotation(5, 6, ((5, 6),), "none")


def _changed(**changes):
    """Returns a copy of the record with changed fields."""
    return msgspec.structs.replace(_RECORD, **changes)


def _labels(*values):
    """Returns the labels of a window."""
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
        # Runs eagerly: tracing would take longer than all of these tests.
        cls.enterClassContext(tasks.without_tracing())
        made = on_host(cls.writer.preprocess([_RECORD]))
        cls.view = RecordView(made, 0)

    def _label(self, record, split, rate=1.0, unanswerable=None):
        """Labels a record, with given sampling rates for null windows."""
        config = dataclasses.replace(
            self.preprocessor.config,
            include_unknown_rate=rate,
            include_unknown_rate_for_unanswerable=unanswerable,
        )
        with mock.patch.object(self.preprocessor, "config", config):
            return self.preprocessor.labels(record, self.view, split)

    def _stored(self, record, split):
        """Stores a record; returns the values of each window and the counts."""
        (written,) = tasks.encode_records(self.writer, [record], split)
        return [stored_values(x) for x in written.examples], written.counts

    def _check(self, stored, expected):
        """Compares some of the values of a stored example."""
        self.assertEqual({**stored, **expected}, stored)

    def test_stored_windows(self):
        windows, counts = self._stored(_RECORD, "dev")
        self.assertLen(windows, 2)
        # The page has the tokens 107 201 202 203 108 107 204 205 206 250 108.
        # Labels are those of the first annotation: its long answer has tokens 5
        # to 10, its short answer 7 to 9. The first window shows neither end of
        # the short answer.
        for window, labels, ids, words in (
            (
                0,
                (0, 0, 9, 0, 0),
                [107, 201, 202, 203, 108, 107, 204],
                [0, 1, 2, 3, 4, 6, 7],
            ),
            (
                1,
                (7, 9, 5, 10, 4),
                [108, 107, 204, 205, 206, 250, 108],
                [4, 6, 7, 8, 9, 9, 10],
            ),
        ):
            self._check(
                windows[window],
                {
                    "example_id": [b"-25"],
                    "question": [b"t11 t12"],
                    "window": [window],
                    # Nested candidates can also be answers.
                    "candidate_starts": [0, 1, 6],
                    "candidate_ends": [5, 3, 11],
                    "long_token_ids": [101, 11, 12, 102, *ids, 102],
                    "words": [-1] * 4 + words,
                    "global_token_ids": [101, 3, 3, 1, 1],
                    **{x: [y] for x, y in _labels(*labels).items()},
                },
            )
        self.assertEqual(
            {
                "tokens": 11,
                # Includes the question, once per window.
                "tokens_stored": 24,
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

    def test_unknown_answers_have_no_labels(self):
        windows, counts = self._stored(_changed(annotations=None), "dev")
        self.assertLen(windows, 2)
        for stored in windows:
            self.assertNoCommonElements(stored, [*WindowLabels._fields, "gold"])
        self.assertNotIn("answers", counts)

    # Arguments: the answer, rates for pages with and without an answer, and the
    # split; the kept windows, and counts of answers, answers in no window,
    # windows without an answer and windows left out.
    @parameterized.parameters(
        (None, (0.0, None), "dev", [0, 1], [1, 0, 1, 0]),
        (None, (0.0, None), "train", [1], [1, 0, 1, 1]),
        (None, (1.0, 0.0), "train", [0, 1], [1, 0, 1, 0]),
        (None, (0.0, 1.0), "train", [1], [1, 0, 1, 1]),
        # By default, the rate of pages without an answer is four times the rate
        # of pages with an answer.
        (_NO_ANSWER, (0.0, None), "dev", [0, 1], [0, 0, 2, 0]),
        (_NO_ANSWER, (0.0, None), "train", [], [0, 0, 2, 2]),
        (_NO_ANSWER, (0.25, None), "train", [0, 1], [0, 0, 2, 0]),
        (_NO_ANSWER, (1.0, 0.0), "train", [], [0, 0, 2, 2]),
        (_NO_ANSWER, (0.0, 1.0), "train", [0, 1], [0, 0, 2, 0]),
        # No window shows the answer.
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
        """Keeps windows at their rates, and the same windows in every run."""
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
        # Each window is kept independently; the tolerances are five standard
        # deviations.
        self.assertAllClose([0.25, 0.25], quarter.mean(0), atol=0.09)
        self.assertAllClose(0.0625, quarter.all(1).mean(), atol=0.05)
        # A higher rate keeps all windows that a lower rate keeps.
        self.assertTrue(np.all(quarter <= kept(0.35)))

    def test_page_without_candidates(self):
        record = _changed(candidates=(), annotations=(_NO_ANSWER,))
        (stored,), counts = self._stored(record, "train")
        self._check(stored, {"long_token_ids": [101, 11, 12, 102, 102]})
        self.assertNoCommonElements(["words", "candidate_starts"], stored)
        self._check(counts, {"tokens": 0, "windows": 1, "candidates": 0})


if __name__ == "__main__":
    tf.test.main()
