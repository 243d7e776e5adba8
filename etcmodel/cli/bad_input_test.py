"""Tests `preprocess` with invalid and extreme records and files."""

import gzip
import json
import os
import re
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.spec import load
from etcmodel.tasks import registry
from etcmodel.training import evaluation
from testing import reading
from testing import samples
from testing import tasks
from testing.tasks import REMOVE
from testing.tasks import changed
from testing.tasks import run_cli
from testing.tasks import write_test_vocab

_NOT_UTF8 = "\ue9e9"  # Replaced by a byte that is not valid UTF-8.


class _Task(NamedTuple):
    """A valid record of a task, and changes that make it invalid.

    `bad` has triples: path of a value, invalid value, reason in the statistics.
    """

    flags: tuple[str, ...]
    words: str
    id_field: str
    record: dict[str, Any]
    bad: tuple[tuple[str, Any, str], ...]


_TASKS = {
    "wikihop": _Task(
        ("--long_length=64", "--global_length=16"),
        "city jan rome oslo is here .",
        "id",
        {
            "query": "city jan",
            "candidates": ["rome", "oslo"],
            "supports": ["Jan is here.", "Here is Rome. Jan is."],
            "answer": "rome",
        },
        (
            ("answer", "bern", "answer is not a candidate"),
            ("candidates", [], "empty 'candidates'"),
            ("candidates", ["rome"] * 5000, "too many candidates"),
            ("supports", ["", " "], "no documents with text"),
            ("supports", [_NOT_UTF8], "invalid UTF-8"),
            ("query", REMOVE, "no field 'query'"),
            # Found only when features are made.
            ("query", "city " * 99, "query is too long"),
        ),
    ),
    "hotpotqa": _Task(
        ("--long_length=64", "--global_length=32"),
        "where is jan here he in brno x . ?",
        "_id",
        {
            "question": "Where is Jan?",
            "context": [
                ["Jan", ["Jan is here.", " He is in Brno."]],
                ["Brno", ["x"]],
            ],
            "answer": "Brno",
            "supporting_facts": [["Jan", 1]],
        },
        (
            ("_id", REMOVE, "no field '_id'"),
            ("supporting_facts", [], "no supporting facts"),
            ("answer", ["x"], "'answer' is not a string or null"),
            ("context[1][1][0]", None, "'context[][][]' is not a string"),
        ),
    ),
    "nq": _Task(
        ("--long_length=512", "--global_length=64", "--stride=448"),
        "[unused102] [unused103] what is brno a city moravia <",
        "example_id",
        samples.nq(),
        (
            ("example_id", REMOVE, "no field 'example_id'"),
            (
                "document_tokens[4].token",
                REMOVE,
                "no field 'document_tokens[].token'",
            ),
            ("annotations", REMOVE, "no annotations"),
            (
                "annotations[1].short_answers",
                [{"start_token": 17, "end_token": 18}],
                "a short answer is not a span of the page",
            ),
        ),
    ),
}
_TASKS["read_twice_hotpotqa"] = _TASKS["hotpotqa"]._replace(
    flags=reading.SIZES,
    bad=(
        ("_id", REMOVE, "no field '_id'"),
        ("context", [], "no sentences with text"),
        # Found only when features are made.
        ("context", [["Jan", ["\u200b"]]], "no tokens"),
    ),
)


def make_records(task, *changes):
    """Makes one record of a task per dict of changes (path -> value)."""
    records = []
    for number, places in enumerate(changes):
        record = _TASKS[task].record
        name = number if task == "nq" else str(number)
        for place, value in {_TASKS[task].id_field: name, **places}.items():
            record = changed(record, place, value)
        records.append(record)
    return records


def _ints(example, name):
    """Returns the ints of a stored example's feature."""
    return example[name].int64_list.value


@tasks.shared_writers()
class BadInputTest(tasks.CommandTestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(tasks.without_tracing())
        self.input = self.path("data")
        self.output = self.path("out", "records")
        os.mkdir(self.path("out"))

    def _run(self, task, content, *more):
        """Runs `preprocess` on records or on the bytes of a file."""
        if not isinstance(content, bytes):
            lines = [json.dumps(x, ensure_ascii=False) for x in content]
            text = "\n".join(lines) if task == "nq" else f"[{','.join(lines)}]"
            content = text.encode().replace(_NOT_UTF8.encode(), b"\xe9")
            content = gzip.compress(content) if task == "nq" else content
        with open(self.input, "wb") as stream:
            stream.write(content)
        vocab_file = write_test_vocab(self.directory, _TASKS[task].words)
        return run_cli(
            "preprocess",
            f"--task={task}",
            f"--input={self.input}",
            f"--vocab_file={vocab_file}",
            f"--output_dir={self.output}",
            "--num_shards=1",
            *_TASKS[task].flags,
            *more,
        )

    def _refuses(self, result, *messages):
        """Checks that the command failed and wrote nothing."""
        self.assert_fails(result, *messages)
        self.assertEmpty(os.listdir(self.path("out")))

    def _check_stats(self, **expected):
        stats = tasks.read_json(self.path("out/records/stats.json"))
        self.assertEqual(expected, {name: stats[name] for name in expected})

    def _examples(self):
        """Returns the id and the features of each example."""
        return [(x, y) for x, _, y in tfrecords.read_examples(self.output)]

    @parameterized.parameters(
        ("wikihop", "supports", [_NOT_UTF8], r"record 1 \(id '1'\).*not UTF-8"),
        ("wikihop", "query", "city " * 99, r"record 1 \(id '1'\).*'query'"),
        ("hotpotqa", "_id", REMOVE, "record 1, field '_id': it is missing"),
        ("nq", "annotations", REMOVE, r"id '1'\).*'annota.*--split=predict"),
        ("nq", "annotations[0].long_answer.end_token", 18, "tokens, here 17"),
    )
    def test_bad_record(self, task, place, value, message):
        result = self._run(task, make_records(task, {}, {place: value}, {}))
        where = self.input if task != "nq" else f"{self.input}, line 2"
        self._refuses(
            result, f"{where}, record 1", message, "--skip_bad_records"
        )

    @parameterized.parameters(
        ("hotpotqa", "context", []),
        ("hotpotqa", "context", [["Jan", ["", " "]]]),
        ("wikihop", "supports", []),
        ("wikihop", "supports", ["", " "]),
        ("read_twice_hotpotqa", "context", []),
        ("read_twice_hotpotqa", "context", [["Jan", ["", " "]]]),
    )
    def test_records_without_text_count_in_validation(self, task, place, value):
        """In HotpotQA's fullwiki setting, retrieval can find nothing."""
        records = make_records(task, {}, {place: value}, {})
        out = self.assert_succeeds(self._run(task, records, "--split=dev"))
        self.assertIn("Wrote 3 of 3 records", out)
        spec = registry.get(task)
        stored = evaluation.read_records(
            spec, load(spec.preprocessor).SCHEMA, self.output
        )
        self.assertEqual(["0", "1", "2"], [record.id for record in stored])
        self.assertEqual(stored[0].gold, stored[1].gold)

    @parameterized.parameters(*_TASKS)
    def test_skips_bad_records(self, task):
        bad = _TASKS[task].bad
        changes = [{place: value} for place, value, _ in bad]
        records = make_records(task, {}, *changes, {})
        out = self.assert_succeeds(
            self._run(task, records, "--skip_bad_records")
        )
        self.assertIn(f"Skipped {len(bad)} bad records", out)
        self.assertIn(f"Wrote 2 of {len(records)} records", out)
        self._check_stats(
            records_read=len(records),
            records_written=2,
            records_left_out=0,
            records_dropped=len(bad),
            records_dropped_why={why: 1 for _, _, why in bad},
        )
        names = [name for name, _ in self._examples()]
        self.assertEqual(["0", str(len(bad) + 1)], names)

    @parameterized.named_parameters(
        ("empty", b"", "is empty"),
        ("no_records", b"[]", "no usable record"),
        (
            "nothing_left",
            b'[{"_id": "x"}, {"_id": "y"}]',
            "(?s)no usable record.*Skipped 2 bad records",
            "--skip_bad_records",
        ),
    )
    def test_bad_file(self, content, message, *more):
        result = self._run("wikihop", content, *more)
        self._refuses(result, re.escape(self.input), message)

    def test_vocabulary_that_cannot_be_used(self):
        flag = f"--vocab_file={__file__}"
        result = self._run("wikihop", make_records("wikihop", {}), flag)
        self._refuses(result, "--vocab_file=.* cannot be used")

    def test_long_page(self):
        """A page has 30,000 tokens in 100 candidates."""
        words, size = ("what", "is", "brno", "a", "city"), 300
        long = {
            "document_tokens": [
                {"token": words[i % 5], "html_token": False}
                for i in range(30_000)
            ],
            "long_answer_candidates": [
                {"start_token": i, "end_token": i + size, "top_level": True}
                for i in range(0, 30_000, size)
            ],
            "annotations": [
                {
                    "long_answer": {"start_token": 29_700, "end_token": 30_000},
                    "short_answers": [
                        {"start_token": 29_999, "end_token": 30_000}
                    ],
                    "yes_no_answer": "NONE",
                }
            ],
        }
        self.assert_succeeds(self._run("nq", make_records("nq", {}, long)))
        # A window has 506 tokens of the page, because the question has 3. The
        # other page has 14 tokens in its candidates.
        num_windows = 1 + -(-(30_000 - 506) // 448)
        self._check_stats(
            examples_written=num_windows + 1,
            windows=num_windows + 1,
            tokens=30_000 + 14,
            candidates=100 + 3,
            answers=2,
            answers_in_no_window=0,
        )
        *others, last = [x for _, x in self._examples()][1:]
        self.assertEqual({0}, {_ints(x, "answer_type")[0] for x in others})
        # The answer is the last token before the separator.
        place = np.count_nonzero(_ints(last, "long_token_ids")) - 2
        self.assertEqual(
            (4, place, place),
            tuple(
                _ints(last, name)[0]
                for name in (
                    *("answer_type", "short_answer_start"),
                    "short_answer_end",
                )
            ),
        )

    def test_records_that_cannot_be_learned(self):
        """Records that cannot be learned are counted and left out."""
        records = make_records(
            "hotpotqa",
            {},
            # In this order: the answer is not in the text; the answer is not in
            # a supporting sentence; no supporting fact exists.
            {"answer": "Rome"},
            {"supporting_facts": [["Jan", 0]]},
            {"supporting_facts": [["Jan", 2], ["Rome", 0]]},
            # This record is kept, because one of its two supporting facts
            # exists.
            {"supporting_facts": [["Jan", 99], ["Jan", 1]]},
        )
        self.assert_succeeds(self._run("hotpotqa", records))
        self._check_stats(
            records_read=5,
            records_written=2,
            examples_written=2,
            records_left_out=3,
            records_dropped=0,
            answers_not_in_text=3,
            supporting_facts_not_in_context=3,
            supporting_facts=4,
        )
        self.assertEqual(["0", "4"], [name for name, _ in self._examples()])


if __name__ == "__main__":
    tf.test.main()
