"""Tests of `pipeline_lib`."""

import dataclasses
import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.records import Record
from etcmodel.datasets.records import Source
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.feature_utils import tokenizers
from etcmodel.tasks import pipeline_lib
from etcmodel.tasks.task_testing import write_test_vocab


@dataclasses.dataclass(frozen=True)
class _Config:
    length: int = 8
    width: int | None = 3


class _Record(Record, frozen=True):
    id: str


class _Builder(tf.Module):
    """Counts tokens and adds numbers; does not take more than `length`."""

    def __init__(self, config, tokenizer):
        super().__init__()
        if config.length < 0:
            raise ValueError(f"length is {config.length}")
        self.config = config
        self.tokenizer = tokenizer
        self.num_traces = 0

    def build(self, texts, numbers, flags):
        self.num_traces += 1
        lengths = self.tokenizer.tokenize(texts).row_lengths()
        tf.debugging.assert_less_equal(
            lengths, tf.constant(self.config.length, tf.int64), "Too many."
        )
        return lengths, tf.where(flags, tf.reduce_sum(numbers, axis=1), -1)


class _Encoder(pipeline_lib.BuilderEncoder):
    def encode(self, records, split):
        raise NotImplementedError


_SPECS = (
    tf.TensorSpec([None], tf.string),
    tf.TensorSpec([None, None], tf.int32),
    tf.TensorSpec([None], tf.bool),
)


class StringsTest(tf.test.TestCase):
    def test_string_vector(self):
        # NumPy's own strings would lose the zero; of the halves of a character
        # there is no UTF-8.
        texts = ["a\u00e9", "", "\U0001f600", "x\x00", "a\ud83d b\ude00"]
        vector = pipeline_lib.string_vector(texts)
        self.assertEqual((vector.dtype, vector.shape), (object, (5,)))
        self.assertEqual(
            tf.constant(vector).numpy().tolist(),
            [b"a\xc3\xa9", b"", b"\xf0\x9f\x98\x80", b"x\x00", b"a? b?"],
        )
        empty = pipeline_lib.string_vector([])
        self.assertEqual(tf.constant(empty, tf.string).shape, [0])

    def test_string_matrix(self):
        for rows, expected in (
            (
                [["a", "bb"], [], ["\u00e9\ud800", "", "c"]],
                [[b"a", b"bb", b""], [b""] * 3, [b"\xc3\xa9?", b"", b"c"]],
            ),
            # Tuples as well, and rows of one length.
            ((("a",), ("b",)), [[b"a"], [b"b"]]),
            ([[], []], [[], []]),
        ):
            matrix = pipeline_lib.string_matrix(rows)
            self.assertEqual(matrix.shape, np.shape(expected))
            matrix = tf.constant(matrix, tf.string).numpy()
            self.assertEqual(matrix.tolist(), expected)


class BuilderTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vocab_file = write_test_vocab(cls().get_temp_dir(), "a b c")

    def _encoder(self, **sizes):
        builder = pipeline_lib.make_builder(
            _Builder, _Config(**sizes), self.vocab_file
        )
        return _Encoder(builder, _SPECS)

    def test_builder_that_cannot_be_made(self):
        blank = os.path.join(self.get_temp_dir(), "blank.txt")
        with open(blank, "w") as stream:
            stream.write("a\nb\n")
        for length, file, message in (
            (1, blank, ""),
            (1, "/no/such/file", ""),
            (1, self.get_temp_dir(), ""),
            (-1, self.vocab_file, "length is -1"),
        ):
            with self.assertRaisesRegex(
                UserError, f"--vocab_file={file} cannot be used: {message}"
            ):
                pipeline_lib.make_builder(_Builder, _Config(length), file)

    def test_encoder_knows_its_vocabulary(self):
        encoder = self._encoder(width=7)
        self.assertEqual(
            encoder.vocab_size, len(tokenizers.WORDPIECE_RESERVED_TOKENS) + 3
        )
        self.assertEqual(encoder.tokenizer_kind, "wordpiece")
        self.assertEqual(encoder.config, _Config(width=7))
        ids = encoder.builder.tokenizer.tokenize(["b zebra A"])[0]
        self.assertEqual(encoder.token_texts(ids), ["b", "[UNK]", "a"])
        self.assertEqual(encoder.token_texts(ids[:0]), [])

    def test_runs_the_builder(self):
        """With types as specified, traced once for all sizes."""
        encoder = self._encoder()
        records = [_Record("x")]
        for texts, numbers, flags, expected in (
            (["a b", ""], [[1, 2, 3], [4, 5, 6]], [True, False], [6, -1]),
            (["c"], [[1]], [True], [1]),
            ([], np.zeros([0, 2]), [], []),
        ):
            lengths, sums = encoder.run_builder(
                records,
                [
                    pipeline_lib.string_vector(texts),
                    # NumPy's own types are others.
                    np.array(numbers, np.int64),
                    np.array(flags, object) if flags else np.zeros([0]),
                ],
            )
            self.assertAllEqual(lengths, [len(x.split()) for x in texts])
            self.assertEqual(sums.dtype, tf.int32)
            self.assertAllEqual(sums, expected)
        self.assertEqual(encoder.builder.num_traces, 1)

    @parameterized.parameters(False, True)
    def test_builder_that_fails(self, eagerly):
        tf.config.run_functions_eagerly(eagerly)
        self.addCleanup(tf.config.run_functions_eagerly, False)
        encoder = self._encoder(length=2)
        inputs = [np.array([b"a b c"], object), np.ones([1, 1]), np.ones([1])]
        records = [
            _Record(name, source=Source("data.json", index))
            for name, index in (("x", 7), ("y", 8))
        ]
        with self.assertRaisesRegex(
            RecordError, r"data.json, record 7 \(id 'x'\): .*Too many"
        ) as caught:
            encoder.run_builder(records, inputs)
        self.assertEqual(caught.exception.reason, "cannot be encoded")
        # No stack of TensorFlow's.
        self.assertNotIn("File", str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_as_many_inputs_as_specified(self):
        with self.assertRaises(ValueError):
            self._encoder().run_builder(
                [_Record("x")], [np.array([b"a"], object)]
            )


class UsedLengthTest(tf.test.TestCase):
    def test_used_length(self):
        for is_used, expected in (([1, 0, 1, 0], 3), ([0, 0], 0), ([], 0)):
            length = pipeline_lib.used_length(tf.cast(is_used, tf.bool))
            self.assertEqual(length, expected)


if __name__ == "__main__":
    tf.test.main()
