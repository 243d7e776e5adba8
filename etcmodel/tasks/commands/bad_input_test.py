"""Files that cannot be used, and what is hard to use, through `preprocess`."""

import copy
import gzip
import json
import os
import re
import shutil
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import etc_features
from etcmodel.tasks import tfrecords
from etcmodel.tasks.nq.records_test import original_record
from etcmodel.tasks.task_testing import run_cli
from etcmodel.tasks.task_testing import write_test_vocab

_REMOVE = object()


def change(record, place, value):
    """A copy of a record with another value at a place such as `a[0].b`."""
    record = copy.deepcopy(record)
    *keys, last = [
        int(key) if key.isdigit() else key for key in re.findall(r"\w+", place)
    ]
    parent = record
    for key in keys:
        parent = parent[key]
    if value is _REMOVE:
        del parent[last]
    else:
        parent[last] = value
    return record


class _TestCase(tf.test.TestCase, parameterized.TestCase):
    """Runs `preprocess`; `flags` are those of the task."""

    flags = ()
    words = ""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.vocab_file = write_test_vocab(cls.folder, cls.words)

    def setUp(self):
        super().setUp()
        self.root = tempfile.mkdtemp(dir=self.folder)
        self.input = os.path.join(self.root, "data")
        self.output = os.path.join(self.root, "out", "records")

    def run_preprocess(self, *more):
        return run_cli(
            "preprocess",
            f"--input={self.input}",
            f"--vocab_file={self.vocab_file}",
            f"--output_dir={self.output}",
            "--num_shards=1",
            *self.flags,
            *more,
        )

    def assert_refused(self, *messages):
        """It ends with an error, and without anything half-written."""
        code, out, err = self.run_preprocess()
        self.assertEqual((1, ""), (code, out))
        self.assertStartsWith(err, "Error: ")
        self.assertNotIn("Traceback", err)
        for message in (self.input, *messages):
            self.assertIn(message, err)
        # Not under another name either.
        self.assertEmpty(os.listdir(os.path.dirname(self.output)))

    def stats(self):
        with open(os.path.join(self.output, "stats.json")) as stream:
            return json.load(stream)


# Place, value there, what is told, how such errors are grouped.
_BAD_NQ = [
    ("example_id", _REMOVE, "it is missing", "no field 'example_id'"),
    ("question_text", _REMOVE, "it is missing", "no field 'question_text'"),
    ("document_tokens", _REMOVE, "it is missing", "no field 'document_tokens'"),
    (
        "document_tokens[4].token",
        _REMOVE,
        "it is missing",
        "no field 'document_tokens[].token'",
    ),
    (
        "long_answer_candidates",
        _REMOVE,
        "it is missing",
        "no field 'long_answer_candidates'",
    ),
    ("annotations", _REMOVE, "--split=predict", "no annotations"),
    (
        "annotations[0].yes_no_answer",
        _REMOVE,
        "it is missing",
        "no field 'annotations[].yes_no_answer'",
    ),
    (
        "annotations[0].long_answer",
        {"start_token": 3, "end_token": 18},
        "number of tokens, here 17",
        "a long answer that is no span of the page",
    ),
    (
        "annotations[1].short_answers",
        [{"start_token": 17, "end_token": 18}],
        "number of tokens, here 17",
        "a short answer that is no span of the page",
    ),
    (
        "long_answer_candidates[2].end_token",
        99,
        "number of tokens, here 17",
        "a candidate that is no span of the page",
    ),
]


class NQTest(_TestCase):
    flags = (
        "--task=nq",
        "--long_length=512",
        "--global_length=64",
        "--stride=448",
    )
    words = "[unused102] [unused103] what is brno a city moravia <"

    def write(self, records):
        with gzip.open(self.input, "wt", encoding="utf-8") as stream:
            for record in records:
                stream.write(json.dumps(record) + "\n")

    def test_truncated_gzip(self):
        self.write([original_record(example_id=number) for number in range(6)])
        with open(self.input, "rb") as stream:
            content = stream.read()
        for size in (len(content) - 9, 60, 11):
            with open(self.input, "wb") as stream:
                stream.write(content[:size])
            self.assert_refused("cut off or damaged", "Get the file again")

    @parameterized.parameters(*[case[:3] for case in _BAD_NQ])
    def test_bad_record(self, place, value, message):
        bad = change(original_record(example_id=7), place, value)
        self.write([original_record(), bad, original_record(example_id=8)])
        told = ["record 1", f"field '{place.split('[')[0]}", message]
        if place != "example_id":
            told.append("(id '7')")
        self.assert_refused(*told, "--skip_bad_records")

    def test_no_page_is_too_long(self):
        """150,000 tokens in 500 candidates, among records that are skipped."""
        num_tokens, num_candidates = 150_000, 500
        words = ("what", "is", "brno", "a", "city")
        size = num_tokens // num_candidates
        spans = [
            {"start_token": i, "end_token": i + size, "top_level": True}
            for i in range(0, num_tokens, size)
        ]
        answer = {
            "long_answer": {"start_token": 149_700, "end_token": 150_000},
            "short_answers": [{"start_token": 149_999, "end_token": 150_000}],
            "yes_no_answer": "NONE",
        }
        long = original_record(
            example_id=1,
            document_tokens=[
                {"token": words[i % 5], "html_token": False}
                for i in range(num_tokens)
            ],
            long_answer_candidates=spans,
            annotations=[answer],
        )
        bad = [
            change(original_record(example_id=100 + i), place, value)
            for i, (place, value, _, _) in enumerate(_BAD_NQ)
        ]
        self.write([original_record(), *bad, long])
        code, out, err = self.run_preprocess("--skip_bad_records")
        self.assertEqual((0, ""), (code, err))
        self.assertIn(f"Skipped {len(bad)} bad records", out)
        stats = self.stats()
        self.assertEqual(len(bad) + 2, stats["records_read"])
        self.assertEqual(2, stats["records_written"])
        self.assertEqual(0, stats["records_left_out"])
        self.assertEqual(len(bad), stats["records_dropped"])
        self.assertEqual(
            {why: 1 for _, _, _, why in _BAD_NQ}, stats["records_dropped_why"]
        )
        # 506 tokens of the page are in a window: the question has 3. The other
        # page has 14 in its candidates.
        num_windows = 1 + -(-(num_tokens - 506) // 448)
        self.assertEqual(num_windows + 1, stats["examples_written"])
        self.assertEqual(num_windows + 1, stats["windows"])
        self.assertEqual(num_tokens + 14, stats["tokens"])
        self.assertEqual(num_candidates + 3, stats["candidates"])
        self.assertEqual(2, stats["answers"])
        self.assertEqual(0, stats["answers_in_no_window"])
        (serialized,) = tf.data.TFRecordDataset(
            tfrecords.find_files(self.output), "GZIP"
        ).batch(999)
        labels = ("answer_type", "short_answer_start", "short_answer_end")
        parsed = etc_features.parse(
            serialized,
            512,
            64,
            extra={
                name: tf.io.FixedLenFeature([], tf.int64) for name in labels
            },
        )
        # The answer is the last token but for the separator.
        last = int(tf.math.count_nonzero(parsed["long_token_ids"][-1])) - 2
        self.assertEqual(
            [4, last, last], [int(parsed[name][-1]) for name in labels]
        )
        self.assertAllEqual(
            [0] * (num_windows - 1), parsed["answer_type"][1:-1]
        )


_HOTPOTQA = {
    "_id": "a",
    "question": "Where is Jan?",
    "context": [["Jan", ["Jan is here.", " He is in Brno."]], ["Brno", ["x"]]],
    "answer": "Brno",
    "supporting_facts": [["Jan", 1]],
}
_BAD_HOTPOTQA = [
    ("_id", _REMOVE, "it is missing", "no field '_id'"),
    ("question", _REMOVE, "it is missing", "no field 'question'"),
    ("context", _REMOVE, "it is missing", "no field 'context'"),
    ("answer", _REMOVE, "--split=predict", "no answer"),
    ("supporting_facts", [], "--split=predict", "no supporting facts"),
    ("question", 5, "got 5, expected a string", "'question' is not a string"),
    ("answer", ["x"], "expected a string", "'answer' is not a string"),
    ("context", {"Jan": []}, "expected a list", "'context' is not a list"),
    (
        "context[1][1][0]",
        None,
        "got None, expected a string",
        "'context[][]' holds other things than strings",
    ),
    (
        "supporting_facts[0][1]",
        "1",
        "got '1', expected a whole number",
        "'supporting_facts[][]' is not a whole number",
    ),
    (
        "supporting_facts[0][1]",
        -1,
        "got -1",
        "negative sentence number",
    ),
]


class HotpotQATest(_TestCase):
    flags = ("--task=hotpotqa", "--long_length=64", "--global_length=32")
    words = "where is jan here he in brno x . ?"

    def write(self, records):
        with open(self.input, "w", encoding="utf-8") as stream:
            json.dump(records, stream)

    @parameterized.parameters(*[case[:3] for case in _BAD_HOTPOTQA])
    def test_bad_record(self, place, value, message):
        bad = change({**_HOTPOTQA, "_id": "b"}, place, value)
        self.write([_HOTPOTQA, bad])
        told = ["record 1", f"field '{place.split('[')[0]}", message]
        if place != "_id":
            told.append("(id 'b')")
        self.assert_refused(*told, "--skip_bad_records")

    def test_truncated(self):
        with gzip.open(self.input, "wt", encoding="utf-8") as stream:
            json.dump([{**_HOTPOTQA, "_id": str(i)} for i in range(7)], stream)
        with open(self.input, "rb") as stream:
            content = stream.read()
        with open(self.input, "wb") as stream:
            stream.write(content[:-20])
        self.assert_refused("cut off or damaged")

    def test_what_cannot_be_learned_is_counted(self):
        """Left out of the training data alone; bad records are skipped."""
        cannot = [
            {**_HOTPOTQA, "_id": "answer not in the text", "answer": "Rome"},
            {
                **_HOTPOTQA,
                "_id": "answer in no supporting sentence",
                "supporting_facts": [["Jan", 0]],
            },
            {
                **_HOTPOTQA,
                "_id": "no fact is there",
                "supporting_facts": [["Jan", 2], ["Rome", 0]],
            },
        ]
        one_fact = {
            **_HOTPOTQA,
            "_id": "one fact is there",
            "supporting_facts": [["Jan", 99], ["Jan", 1]],
        }
        bad = [
            change({**_HOTPOTQA, "_id": f"bad {i}"}, place, value)
            for i, (place, value, _, _) in enumerate(_BAD_HOTPOTQA)
        ]
        self.write([_HOTPOTQA, *cannot, *bad, one_fact])
        code, out, err = self.run_preprocess("--skip_bad_records")
        self.assertEqual((0, ""), (code, err))
        self.assertIn(f"Skipped {len(bad)} bad records", out)
        stats = self.stats()
        self.assertEqual(5 + len(bad), stats["records_read"])
        self.assertEqual(2, stats["records_written"])
        self.assertEqual(2, stats["examples_written"])
        self.assertEqual(3, stats["records_left_out"])
        self.assertEqual(len(bad), stats["records_dropped"])
        self.assertEqual(
            {why: 1 for _, _, _, why in _BAD_HOTPOTQA},
            stats["records_dropped_why"],
        )
        self.assertEqual(3, stats["answers_not_in_text"])
        self.assertEqual(3, stats["supporting_facts_not_in_context"])
        self.assertEqual(4, stats["supporting_facts"])
        names = [name for name, _ in tfrecords.read_examples(self.output)]
        self.assertEqual(["a", "one fact is there"], names)


if __name__ == "__main__":
    tf.test.main()
