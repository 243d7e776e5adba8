"""Tests of `preprocess`: it runs, and both ways treat every record."""

import io
import json
import pathlib
import tempfile
import unittest
from contextlib import redirect_stdout

from absl.testing import flagsaver
from absl.testing import parameterized

from benchmarks import preprocess
from etcmodel.feature_utils import tokenizers

VOCAB = [*tokenizers.WORDPIECE_RESERVED_TOKENS, "a", "b", "."]
VOCAB += tokenizers.WORDPIECE_OPTIONAL_TOKENS.values()
RECORDS = {
    "wikihop": [
        {
            "id": str(i),
            "query": "a b",
            "candidates": ["a", "b"],
            "supports": ["A b. B a.", "b"],
            "answer": "a",
        }
        for i in range(3)
    ],
    "hotpotqa": [
        {
            "_id": str(i),
            "question": "a b",
            "context": [["a", ["A b. B a.", "b"]]],
            "supporting_facts": [["a", 0]],
            "answer": "b",
        }
        for i in range(3)
    ],
    "nq": [
        {
            "example_id": i,
            "question_text": "a b",
            "document_tokens": [
                {"token": x, "html_token": "<" in x}
                for x in ("<P>", "a", "b", "</P>")
            ],
            "long_answer_candidates": [
                {"start_token": 0, "end_token": 4, "top_level": True}
            ],
            "annotations": [
                {
                    "long_answer": {"start_token": 0, "end_token": 4},
                    "short_answers": [{"start_token": 1, "end_token": 2}],
                    "yes_no_answer": "NONE",
                }
            ],
        }
        for i in range(3)
    ],
}


class PreprocessTest(parameterized.TestCase):
    @parameterized.parameters(*sorted(RECORDS))
    def test_table(self, task):
        out = io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder) / "data.json"
            if task == "nq":
                lines = [json.dumps(record) for record in RECORDS[task]]
                data.write_text("\n".join(lines))
            else:
                data.write_text(json.dumps(RECORDS[task]))
            vocab = pathlib.Path(folder) / "vocab.txt"
            vocab.write_text("\n".join(VOCAB))
            with (
                flagsaver.as_parsed(
                    task=task,
                    input=str(data),
                    vocab_file=str(vocab),
                    batch_size="2",
                    seconds="0",
                ),
                redirect_stdout(out),
            ):
                preprocess.main([""])
        first, _, *lines = out.getvalue().splitlines()
        self.assertRegex(first, rf"{task}: 3 records, .* wordpiece")
        self.assertLen(lines, 4)
        self.assertRegex(lines[0], r"plain Python, features .* 1\.0x")
        self.assertRegex(lines[1], r"plain Python, serialized .* 1\.0x")
        self.assertRegex(lines[2], r"graph code, features .*x")
        self.assertRegex(lines[3], r"package, serialized .*x")

    def test_repeated(self):
        self.assertEqual(list(preprocess.repeated([1, 2], 0)), [1, 2])
        self.assertEqual(set(preprocess.repeated([1, 2], 0.01)), {1, 2})
        self.assertGreater(len(list(preprocess.repeated([1, 2], 0.01))), 2)

    def test_every_record_is_treated(self):
        seen = []

        class Encoder:
            def build(self, records):
                seen.extend(records)

            def encode(self, records, split):
                seen.extend(records)
                return records

        costs = preprocess.measure_package(Encoder(), [1, 2, 3], 2, 0)
        self.assertEqual({1, 2, 3}, set(seen))
        for cost in costs.values():
            self.assertGreater(cost.wall, 0)


if __name__ == "__main__":
    unittest.main()
