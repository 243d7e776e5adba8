import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.pipeline.raw_inputs import RawInput
from etcmodel.pipeline.raw_inputs import assert_same_sizes
from etcmodel.pipeline.raw_inputs import pad
from etcmodel.pipeline.raw_inputs import pad_batch
from etcmodel.pipeline.raw_inputs import texts_batch


class PadTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # NumPy's own strings would lose the trailing zero byte. UTF-8 cannot
        # encode a lone surrogate.
        (
            ["a\u00e9", "", "x\x00", "a\ud83d b\ude00"],
            tf.string,
            [b"a\xc3\xa9", b"", b"x\x00", b"a? b?"],
        ),
        (
            [["a", "bb"], (), ["\u00e9"]],
            tf.string,
            [[b"a", b"bb"], [b"", b""], [b"\xc3\xa9", b""]],
        ),
        (
            [[["a"], ["b", "c"]], [["d"]]],
            tf.string,
            [[[b"a", b""], [b"b", b"c"]], [[b"d", b""], [b"", b""]]],
        ),
        ([[1, 2], [3]], tf.int32, [[1, 2], [3, -1]]),
        ([[True], [False, True]], tf.bool, [[True, False], [False, True]]),
    )
    def test_pads(self, values, dtype, expected):
        spec = tf.TensorSpec([None] * np.ndim(expected), dtype)
        actual = pad(values, spec)
        self.assertEqual(dtype, tf.constant(actual).dtype)
        self.assertEqual(expected, tf.constant(actual).numpy().tolist())

    @parameterized.parameters(tf.string, tf.int32, tf.bool)
    def test_empty_lists(self, dtype):
        for values, shape in (([], [0, 0]), ([[], []], [2, 0])):
            spec = tf.TensorSpec([None, None], dtype)
            actual = tf.constant(pad(values, spec), dtype)
            self.assertEqual(shape, actual.shape)

    def test_empty_list_with_a_fixed_size(self):
        """Pads a page without nodes; each node would have 20 numbers."""
        spec = tf.TensorSpec([None, None, 20], tf.float32)
        self.assertEqual((1, 0, 20), pad([[]], spec).shape)


class TextsTest(tf.test.TestCase):
    def test_one_array_for_each_input(self):
        raw = [{"query": "a", "text": "\u00e9\x00"}, {"query": "", "text": "b"}]
        actual = {name: x.tolist() for name, x in texts_batch(raw).items()}
        self.assertEqual(
            {"query": [b"a", b""], "text": [b"\xc3\xa9\x00", b"b"]}, actual
        )


class NestingTest(tf.test.TestCase, parameterized.TestCase):
    INPUTS = {  # noqa: RUF012
        "query": RawInput(tf.string, ("records",)),
        "texts": RawInput(tf.string, ("records", "paragraphs", "texts")),
    }

    @parameterized.parameters(
        ("query", ["a"], r"Record 1 .*query is \['a'\]. Expected text."),
        ("texts", "ab", "texts is 'ab'. Expected list .paragraphs. of list"),
        ("texts", ["ab"], r"texts is \['ab'\]. Expected list"),
        ("texts", [["a"], "b"], "texts is .*. Expected list"),
        ("texts", np.array(["a"]), "texts is array.*. Expected list"),
    )
    def test_wrong_nesting(self, name, value, message):
        """Without an error, a string would become a list of letters."""
        good = {"query": "a", "texts": [["b"]]}
        with self.assertRaisesRegex(UserError, message):
            pad_batch([good, {**good, name: value}], self.INPUTS)

    def test_right_nesting(self):
        for texts in ([["b"]], np.array([["b"]]), [], [[]], (("b", "c"),)):
            padded = pad_batch([{"query": "a", "texts": texts}], self.INPUTS)
            self.assertEqual(3, padded["texts"].ndim)


class SameSizesTest(tf.test.TestCase, parameterized.TestCase):
    AXES = {
        "titles": ("records", "paragraphs"),
        "sentences": ("records", "paragraphs", "sentences"),
        "looks": ("records", 20),
    }

    @parameterized.parameters(True, False)
    def test_axes_of_one_name(self, eager):
        spec = [RawInput(tf.float32, x).spec for x in self.AXES.values()]
        self.assertEqual([None, 20], spec[-1].shape.as_list())

        def check(*inputs):
            inputs = dict(zip(self.AXES, inputs, strict=True))
            with tf.control_dependencies(assert_same_sizes(inputs, self.AXES)):
                return tf.constant(1)

        if not eager:
            check = tf.function(check, input_signature=spec, autograph=False)
        self.assertEqual(
            1, check(tf.zeros([2, 3]), tf.zeros([2, 3, 7]), tf.zeros([2, 20]))
        )
        for shapes, message in (
            (([1, 1], [1, 2, 3], [1, 20]), "titles and sentences.*paragraphs"),
            (([2, 3], [2, 3, 4], [5, 20]), "titles and looks.*records"),
        ):
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, message
            ):
                check(*map(tf.zeros, shapes))

    def test_ragged_inputs(self):
        titles = tf.ragged.constant([["a", "b"], ["c"]])
        sentences = tf.ragged.constant([[["d"], ["e", "f"]], [["g"]]])
        both = {"titles": titles, "sentences": sentences}
        self.assertEmpty(assert_same_sizes(both, self.AXES))
        both["titles"] = titles[:, :1]
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, "number of paragraphs"
        ):
            assert_same_sizes(both, self.AXES)


if __name__ == "__main__":
    tf.test.main()
