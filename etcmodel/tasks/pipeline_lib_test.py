"""Tests of `pipeline_lib`."""

import dataclasses
import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import tokenizers
from etcmodel.tasks import pipeline_lib
from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.errors import UserError
from etcmodel.tasks.task_testing import write_test_vocab


@dataclasses.dataclass(frozen=True)
class _Config:
    length: int = 8
    width: int | None = 3


class _Record(NamedTuple):
    id: str
    index: int


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
    def test_to_bytes(self):
        for text, expected in (
            ("", b""),
            ("a\u00e9", b"a\xc3\xa9"),
            ("\U0001f600", b"\xf0\x9f\x98\x80"),
            # Halves of such characters.
            ("a\ud83d b\ude00", b"a? b?"),
        ):
            self.assertEqual(pipeline_lib.to_bytes(text), expected)

    def test_string_vector(self):
        vector = pipeline_lib.string_vector(
            ["a", "", "\u00e9", "x\x00", "\ud800"]
        )
        self.assertEqual(vector.dtype, object)
        self.assertEqual(vector.shape, (5,))
        # NumPy's own strings would lose the zero.
        self.assertEqual(
            tf.constant(vector).numpy().tolist(),
            [b"a", b"", b"\xc3\xa9", b"x\x00", b"?"],
        )
        empty = pipeline_lib.string_vector([])
        self.assertEqual(tf.constant(empty, tf.string).shape, [0])

    def test_string_matrix(self):
        matrix = pipeline_lib.string_matrix(
            [["a", "bb"], [], ["\u00e9\ud800", "", "c"]]
        )
        self.assertEqual(matrix.dtype, object)
        self.assertEqual(
            tf.constant(matrix).numpy().tolist(),
            [[b"a", b"bb", b""], [b""] * 3, [b"\xc3\xa9?", b"", b"c"]],
        )
        # Tuples as well, and rows of one length.
        self.assertEqual(
            pipeline_lib.string_matrix((("a",), ("b",))).tolist(),
            [[b"a"], [b"b"]],
        )

    def test_string_matrix_of_nothing(self):
        for rows in ([[]], [[], []]):
            matrix = pipeline_lib.string_matrix(rows)
            self.assertEqual(
                tf.constant(matrix, tf.string).shape, [len(rows), 0]
            )


class ConfigTest(tf.test.TestCase):
    def test_given_values_replace_defaults(self):
        make = pipeline_lib.make_config
        default = _Config()
        self.assertEqual(make("t", default, {}), default)
        self.assertEqual(
            make("t", default, {"length": 2, "width": None}), _Config(2, 3)
        )
        self.assertEqual(make("t", default, {"width": 0}), _Config(8, 0))
        self.assertEqual(default, _Config(8, 3))

    def test_unknown_sizes(self):
        with self.assertRaisesRegex(
            UserError, "--depth=4: some_task has no such size.*length, width"
        ):
            pipeline_lib.make_config(
                "some_task", _Config(), {"depth": 4, "length": 1}
            )
        # One that is not given is no mistake.
        self.assertEqual(
            pipeline_lib.make_config("t", _Config(), {"depth": None}),
            _Config(),
        )


class BuilderTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vocab_file = write_test_vocab(cls().get_temp_dir(), "a b c")

    def _encoder(self, **sizes):
        return _Encoder(
            "data.json",
            pipeline_lib.make_builder(
                _Builder, _Config(**sizes), self.vocab_file
            ),
            _SPECS,
        )

    def test_makes_a_builder(self):
        builder = pipeline_lib.make_builder(
            _Builder, _Config(5), self.vocab_file
        )
        self.assertEqual(builder.config, _Config(5))
        self.assertIsInstance(builder.tokenizer, tokenizers.WordpieceTokenizer)

    def test_builder_that_cannot_be_made(self):
        blank = os.path.join(self.get_temp_dir(), "blank.txt")
        with open(blank, "w") as stream:
            stream.write("a\nb\n")
        for file in (blank, "/no/such/file", self.get_temp_dir()):
            with self.assertRaisesRegex(
                UserError, f"--vocab_file={file} cannot be used: "
            ):
                pipeline_lib.make_builder(_Builder, _Config(), file)
        with self.assertRaisesRegex(UserError, "length is -1"):
            pipeline_lib.make_builder(_Builder, _Config(-1), self.vocab_file)

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
        records = [_Record("x", 0)]
        for texts, numbers, flags in (
            (["a b", ""], [[1, 2, 3], [4, 5, 6]], [True, False]),
            (["c"], [[1]], [True]),
            ([], np.zeros([0, 2]), []),
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
            self.assertAllEqual(
                sums,
                [
                    sum(row) if flag else -1
                    for row, flag in zip(numbers, flags, strict=True)
                ],
            )
        self.assertEqual(encoder.builder.num_traces, 1)

    @parameterized.parameters(False, True)
    def test_builder_that_fails(self, eagerly):
        tf.config.run_functions_eagerly(eagerly)
        self.addCleanup(tf.config.run_functions_eagerly, False)
        encoder = self._encoder(length=2)
        inputs = [np.array([b"a b c"], object), np.ones([1, 1]), np.ones([1])]
        with self.assertRaisesRegex(
            RecordError, r"data.json, record 7 \(id 'x'\): .*Too many"
        ) as caught:
            encoder.run_builder([_Record("x", 7), _Record("y", 8)], inputs)
        self.assertEqual(caught.exception.reason, "cannot be encoded")
        # No stack of TensorFlow's.
        self.assertNotIn("File", str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_as_many_inputs_as_specified(self):
        with self.assertRaises(ValueError):
            self._encoder().run_builder(
                [_Record("x", 7)], [np.array([b"a"], object)]
            )

    def test_errors_name_the_record(self):
        error = self._encoder().error(
            _Record("x", 7), "odd", field="name", problem="it is odd"
        )
        self.assertIsInstance(error, RecordError)
        self.assertRegex(
            str(error), r"data.json, record 7 \(id 'x'\).*name.*it is odd"
        )


class UsedLengthTest(tf.test.TestCase):
    def test_used_length(self):
        for is_used, expected in (
            ([True, False, True, False], 3),
            ([False, False], 0),
            ([True, True], 2),
            ([], 0),
        ):
            self.assertEqual(
                pipeline_lib.used_length(tf.constant(is_used, tf.bool)),
                expected,
            )


if __name__ == "__main__":
    tf.test.main()
