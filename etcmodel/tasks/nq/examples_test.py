"""Tests of Natural Questions' `examples`."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.nq import predictions
from etcmodel.datasets.nq.metrics import NQGold
from etcmodel.datasets.nq.records import Annotation
from etcmodel.datasets.nq.records import Candidate
from etcmodel.datasets.nq.records import NQRecord
from etcmodel.datasets.records import Source
from etcmodel.feature_utils import etc_features
from etcmodel.tasks.nq import examples
from etcmodel.tasks.nq.labels import WindowLabels

_NONE = Annotation(-1, -1, (), "none")
_LONG = Annotation(3, 9, (), "none")
_SHORT = Annotation(3, 9, ((4, 5), (7, 9)), "none")
_YES = Annotation(30, 90, (), "yes")
_NO = Annotation(0, 1, ((0, 1),), "no")

_RECORD = NQRecord(
    id="-2543388002166163252",
    question="wo liegt K\u00f6ln",
    tokens=("<P>", "K\u00f6ln", "</P>"),
    is_html=(True, False, True),
    candidates=(Candidate(0, 3, True), Candidate(1, 2, False)),
    annotations=(_LONG,),
    source=Source("nq.jsonl", 4),
)


def stored(extra):
    """Features of a stored example that holds these values."""
    serialized = etc_features.serialize({"long_token_ids": [101]}, extra)
    return tf.train.Example.FromString(serialized).features.feature


class ExamplesTest(tf.test.TestCase, parameterized.TestCase):
    def test_gold_by_hand(self):
        self.assertEqual(
            predictions.make_gold([_SHORT, _NONE, _YES]),
            NQGold(
                long_answers=((3, 9), (-1, -1), (30, 90)),
                short_answers=(((4, 5), (7, 9)), (), ()),
                yes_no=("none", "none", "yes"),
            ),
        )

    def test_gold_values_by_hand(self):
        self.assertEqual(
            examples.gold_values([_LONG, _SHORT, _NONE, _NO, _YES]),
            {
                "gold_long_starts": [3, 3, -1, 0, 30],
                "gold_long_ends": [9, 9, -1, 1, 90],
                # none, yes, no.
                "gold_yes_no": [0, 0, 0, 2, 1],
                "gold_short_starts": [4, 7, 0],
                "gold_short_ends": [5, 9, 1],
                "gold_short_annotations": [1, 1, 3],
            },
        )

    @parameterized.parameters(
        ([_LONG],),
        ([_NONE],),
        ([_SHORT],),
        ([_YES],),
        ([_NO],),
        ([_NONE] * 5,),
        ([_SHORT, _NONE, _NO, _SHORT, _YES],),
        ([_NONE, _NONE, _LONG, _NONE, _SHORT],),
    )
    def test_gold_round_trip(self, annotations):
        got = examples.parse_gold(stored(examples.gold_values(annotations)))
        self.assertEqual(got, predictions.make_gold(annotations))
        self.assertLen(got.yes_no, len(annotations))
        # Of the types that the metrics compare.
        for spans in (got.long_answers, *got.short_answers):
            self.assertIsInstance(spans, tuple)
            for span in spans:
                self.assertIsInstance(span, tuple)

    def test_answers_that_are_not_known(self):
        self.assertIsNone(
            examples.parse_gold(stored(examples.record_values(_RECORD)))
        )

    def test_record_values(self):
        got = stored(examples.record_values(_RECORD))
        self.assertEqual(
            got["example_id"].bytes_list.value, [b"-2543388002166163252"]
        )
        self.assertEqual(
            got["question"].bytes_list.value, ["wo liegt K\u00f6ln".encode()]
        )
        # Nested candidates as well: they can be answers.
        self.assertEqual(got["candidate_starts"].int64_list.value, [0, 1])
        self.assertEqual(got["candidate_ends"].int64_list.value, [3, 2])

    def test_window_values(self):
        """Only padding at the end is left out, and put back by reading."""
        words = np.array([-1, -1, 0, 0, -1, 5, -1, -1], np.int32)
        labels = WindowLabels(2, 3, 0, 5, 4)
        got = stored(examples.window_values(words, 3, labels))
        self.assertEqual(got["window"].int64_list.value, [3])
        self.assertEqual(got["words"].int64_list.value, [-1, -1, 0, 0, -1, 5])
        for name, value in labels._asdict().items():
            self.assertEqual(got[name].int64_list.value, [value], name)

    def test_window_values_without_labels(self):
        words = np.array([-1, -1, -1], np.int32)
        got = stored(examples.window_values(words, 0, None))
        self.assertEqual(got["window"].int64_list.value, [0])
        self.assertEmpty(got["words"].int64_list.value)
        self.assertNoCommonElements(got, WindowLabels._fields)

    def test_specs(self):
        """They read what is stored, in a batch of different lengths."""
        labels = WindowLabels(2, 3, 0, 5, 4)
        alone = NQRecord("7", "q", ("x",), (False,), ())
        serialized = [
            etc_features.serialize(
                {"long_token_ids": [101]},
                {
                    **examples.record_values(record),
                    **examples.window_values(np.array(words), 0, labels),
                },
            )
            for record, words in ((_RECORD, [-1, 4, 5, -1]), (alone, [-1]))
        ]
        got = etc_features.parse(
            tf.constant(serialized),
            8,
            4,
            extra={**examples.CONTEXT_SPEC, **examples.LABEL_SPEC},
        )
        self.assertAllEqual(got["words"].to_list(), [[-1, 4, 5], []])
        self.assertAllEqual(got["candidate_starts"].to_list(), [[0, 1], []])
        self.assertAllEqual(got["candidate_ends"].to_list(), [[3, 2], []])
        for name, value in labels._asdict().items():
            self.assertAllEqual(got[name], [value, value], name)


if __name__ == "__main__":
    tf.test.main()
