"""Tests of `preprocess`: it runs, and both ways treat every record."""

import io
import os
import tempfile
from contextlib import redirect_stdout

import tensorflow as tf

from benchmarks import preprocess
from benchmarks import wikihop_python_reference
from etcmodel.feature_utils import tokenizers
from etcmodel.tasks.wikihop import features

RECORDS = [
    {"query": "a b", "candidates": ["a"], "supports": ["A b. B a.", "b"]},
    {"query": "b", "candidates": ["b", "a b"], "supports": []},
]


class PreprocessTest(tf.test.TestCase):
    def test_table(self):
        vocab = [*tokenizers.WORDPIECE_RESERVED_TOKENS, "a", "b", "."]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "vocab.txt")
            with open(path, "w") as file:
                file.write("\n".join(vocab))
            builder = features.WikiHopFeatureBuilder(
                features.WikiHopFeatureConfig(30, 20),
                tokenizers.make_tokenizer(path),
            )
        costs = preprocess.measure_python(
            RECORDS, wikihop_python_reference.BertTokenizer(vocab), 1
        )
        costs |= preprocess.measure_graph(RECORDS, builder, 2, 1)
        for cost in costs.values():
            self.assertGreater(cost.wall, 0)
        out = io.StringIO()
        with redirect_stdout(out):
            preprocess.print_table(costs)
        lines = out.getvalue().splitlines()
        self.assertLen(lines, 5)
        self.assertRegex(lines[2], r"plain Python, serialized .* 1\.0x")


if __name__ == "__main__":
    tf.test.main()
