"""Tests of OpenKP; `readers/records_test.py` tests errors in records."""

import io
import json

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import openkp
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from testing import samples
from testing.helpers import real_data_path
from testing.helpers import write_file
from testing.samples import OPENKP_HEADING as _HEADING
from testing.samples import openkp_node as _node


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
    def _read(self, records, *args):
        return [*openkp.FORMAT.read(write_file(self, iter(records)), *args)]

    def test_reads_a_record(self):
        (record,) = self._read([samples.openkp()])
        self.assertEqual("http://a.com", record.id)
        self.assertEqual(
            ("Jan", "Novak", "", "Brno", "is", "in", "Moravia"), record.words
        )
        self.assertEqual([(0, 2), (2, 7)], [x[:2] for x in record.nodes])
        self.assertEqual(
            (*_HEADING, *_HEADING),
            record.nodes[1].features,
        )
        # An empty keyphrase is dropped.
        self.assertEqual((("Jan Novak", "moravia"),), record.annotations)
        self.assertEqual(record.annotations, openkp.gold(record))

    @parameterized.parameters(
        ([5], "node 0 is 5: Expected `object`, got `int`"),
        ([{"text": "a"}], "missing required field `feature`"),
        ([_node(0, 2, None, [1.0, "a"])], r"Expected `float`, got `str`"),
        (
            [_node(0, 2), _node(1, 7)],
            "node 1: got start_idx 1 and end_idx 7, e",
        ),
        (
            [_node(2, 7), _node(0, 2)],
            "node 1: .* expected 7 .the end of the nod",
        ),
        ([_node(2, 1)], "start_idx 2 and end_idx 1"),
        ([_node(-1, 1)], "start_idx -1"),
        ([_node(0, 8)], "end_idx 8, .* number of words, here 7"),
        ([_node(0, 2, "Jan")], "text is 'Jan', expected .* 'Jan Novak'"),
        ([_node(0, 2, None, _HEADING)], "node 0: it has 10 features, exp.*20"),
        (
            [_node(0, 2, None, [float("nan"), *_HEADING[1:], *_HEADING])],
            r"feature\[0\] \(x\) is nan, expected a finite number",
        ),
        (
            [_node(0, 2, None, [*_HEADING, *_HEADING[:-1], 0.5])],
            r"feature\[19\] \(parent_is_bold\) is 0.5, expected 0 or 1",
        ),
    )
    def test_bad_nodes(self, nodes, message):
        with self.assertRaisesRegex(
            RecordError, rf"\(id 'http://a.com'\), field 'VDOM': .*{message}"
        ):
            self._read([samples.openkp(nodes)])

    def test_a_page_without_text(self):
        for record in (
            samples.openkp([_node(2, 3)]),
            samples.openkp([_node(0, 1, "")], text=""),
        ):
            with self.assertRaisesRegex(RecordError, "none of its . nodes has"):
                self._read([record])
            self.assertLen(self._read([record], "predict"), 1)

    def test_pages_of_a_url_are_merged(self):
        """The page with the most keyphrases is kept, with all annotations."""
        (other, record) = self._read(
            [
                samples.openkp(KeyPhrases=[["elsewhere"], ["Jan"]]),
                samples.openkp(url="http://b.com"),
                samples.openkp(KeyPhrases=[["Jan"], ["IN", "Moravia"]]),
                samples.openkp(KeyPhrases=[["Brno"], ["an novak"], ["Jan"]]),
            ]
        )
        self.assertEqual(("http://b.com", 1), (other.id, other.num_pages))
        self.assertEqual(("http://a.com", 3), (record.id, record.num_pages))
        self.assertEqual(2, record.index)
        self.assertEqual(
            (
                ("elsewhere", "Jan"),
                ("Jan", "IN Moravia"),
                ("Brno", "an novak", "Jan"),
            ),
            record.annotations,
        )

    def test_one_of_several_pages_is_bad(self):
        bad_records = BadRecords(skip=True)
        (record,) = self._read(
            [samples.openkp(), samples.openkp([5])], "train", bad_records
        )
        self.assertEqual(
            (1, 1, 1),
            (record.num_pages, bad_records.total, len(record.nodes) - 1),
        )

    def test_real_records(self):
        path = real_data_path("openkp/records_2.jsonl")
        with open(path, encoding="utf-8") as stream:
            values = [json.loads(line) for line in stream]
        for record, value in zip(openkp.FORMAT.read(path), values, strict=True):
            nodes = json.loads(value["VDOM"])
            self.assertEqual(
                [x["text"] for x in nodes],
                [" ".join(record.words[x.start : x.end]) for x in record.nodes],
            )
            self.assertEqual(
                [" ".join(x) for x in value["KeyPhrases"] if x],
                [*record.annotations[0]],
            )


class MetricsTest(tf.test.TestCase):
    def test_by_hand(self):
        # The worked example from the description of the original code.
        score = openkp.score(
            {"a": ["Star Trek", "Something"]},
            {"a": [("star trek", "discovery season")]},
        )
        for name, expected in (
            ("precision", (1, 1 / 3, 1 / 5)),
            ("recall", (1 / 2, 1 / 2, 1 / 2)),
            ("f1", (2 / 3, 0.4, 2 / 7)),
        ):
            got = [score[f"{name}_at_{depth}"] for depth in (1, 3, 5)]
            self.assertAllClose(expected, got)
        nothing = openkp.score({}, {})
        self.assertEqual(dict.fromkeys(score, 0.0), nothing)

    def test_the_best_annotation_of_each_page_counts(self):
        score = openkp.score(
            {"a": ["x", "y", "y "], "b": ["no"], "c": ["no"]},
            {
                # F1 at 1 is better for the second annotation, F1 at 3 for the
                # first.
                "a": [("x", "Y", "z"), ("X",)],
                "b": [("no",)],
                "d": [("x",)],
            },
        )
        self.assertAllClose(2 / 3, score["f1_at_1"])
        self.assertAllClose((2 / 3 + 1 / 3 + 0) / 3, score["precision_at_3"])
        self.assertAllClose((2 / 3 + 1 + 0) / 3, score["recall_at_3"])
        self.assertAllClose((2 / 3 + 1 / 2 + 0) / 3, score["f1_at_3"])

    def test_repeated_and_empty_predictions_take_no_rank(self):
        gold = {"a": [("star trek", "discovery season")]}
        score = openkp.score(
            {"a": ["", " ", "x", "X ", "Star  Trek", "y", "discovery season"]},
            gold,
        )
        # Scored as "x", "star trek", "y", "discovery season".
        self.assertEqual(0, score["precision_at_1"])
        self.assertAllClose(1 / 3, score["precision_at_3"])
        self.assertAllClose(2 / 5, score["precision_at_5"])
        self.assertAllClose(1, score["recall_at_5"])

    def test_predictions(self):
        stream = io.StringIO()
        openkp.write_predictions({"u": ["Jan Novák", "x"], "v": []}, stream)
        first, second = map(json.loads, stream.getvalue().splitlines())
        self.assertEqual(
            {"url": "u", "KeyPhrases": [["Jan Novák"], ["x"]]}, first
        )
        self.assertEqual({"url": "v", "KeyPhrases": []}, second)


if __name__ == "__main__":
    tf.test.main()
