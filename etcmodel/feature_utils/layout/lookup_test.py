import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import layout
from etcmodel.feature_utils.layout import GlobalToken
from etcmodel.feature_utils.layout import LayoutEngine
from etcmodel.feature_utils.layout import LayoutSpec
from etcmodel.feature_utils.layout import Link
from etcmodel.feature_utils.layout import Section
from etcmodel.feature_utils.layout import Value


def ragged(values, rank):
    return tf.ragged.constant(values, ragged_rank=rank, dtype=tf.int32)


class LayoutLookupTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (tf.float32, [0.5, 1.5, 2.5], [0.5, 1.5], 0.0),
        (tf.string, ["a", "b", "c"], [b"a", b"b"], b""),
        (tf.bool, [True, True, False], [True, True], False),
        (tf.int64, [7, 8, 9], [7, 8], 0),
    )
    def test_values(self, dtype, given, kept, pad):
        """Lays out values of any dtype; the values of cut units are dropped."""
        spec = LayoutSpec(
            [
                Section("a", unit_global=GlobalToken(1), cut="keep"),
                Section("b", group_global=GlobalToken(5)),
            ],
            values=[
                # Two sections have values of one feature.
                Value("a", "a", "unit", "global", "x", dtype),
                Value("b", "b", "group", "global", "x", dtype),
                Value("all", "a", "unit", dtype=dtype),
                Value("place", "b", dtype=tf.float32, shape=(2,), pad=-1.0),
            ],
        )
        made = LayoutEngine(spec, 4, 4)(
            {
                "a": layout.one_group(ragged([[[11, 12], [13], []]], 2)),
                "b": ragged([[[[14]], [[15, 16]]]], 3),
            },
            values={
                "a": tf.RaggedTensor.from_nested_row_lengths(
                    tf.constant(given, dtype), [[1], [3]]
                ),
                "all": tf.RaggedTensor.from_nested_row_lengths(
                    tf.constant(given, dtype), [[1], [3]]
                ),
                "b": tf.RaggedTensor.from_row_lengths(
                    tf.constant(given[:2], dtype), [2]
                ),
                "place": tf.RaggedTensor.from_nested_row_lengths(
                    tf.constant([[1.0, 2], [3, 4], [5, 6]]),
                    [[2], [1, 1], [1, 2]],
                ),
            },
        )
        x = made.values["x"]
        self.assertEqual(x.dtype, dtype)
        third = tf.constant(given, dtype).numpy()[2]
        self.assertAllEqual(x, [[*kept, third, kept[0]]])
        self.assertAllEqual(
            made.values["all"], [[kept[0], kept[0], kept[1], pad]]
        )
        # The second group of "b" does not fit.
        self.assertAllEqual(made.values["place"], [[[-1, -1]] * 3 + [[1, 2]]])

    def test_two_links_of_a_feature(self):
        """The later link wins where both have a target."""
        spec = LayoutSpec(
            [Section("a", unit_global=GlobalToken(1))],
            [Link(x, "a", "a", feature="links") for x in ("first", "second")],
        )
        content = ragged([[[[7, 8], [7, 8]]]], 3)
        made = LayoutEngine(spec, 4, 2)(
            {"a": content},
            {
                "first": content.with_flat_values([0, -1, 1, 0]),
                "second": content.with_flat_values([-1, 1, -1, 1]),
            },
        )
        self.assertAllEqual(made.features["links"], [[0, 1, 1, 1]])


class PickUnitsTest(tf.test.TestCase, parameterized.TestCase):
    """Uses the vector `[position, 10 * position]` for each token."""

    SPEC = LayoutSpec(
        [
            Section("title", token_global=GlobalToken(3), cut="keep"),
            Section(
                "text",
                group_global=GlobalToken(5),
                unit_global=GlobalToken(1),
                cut="fit",
            ),
        ]
    )

    def _made(self):
        """Lays out two records; one unit of the first record does not fit."""
        return LayoutEngine(self.SPEC, 6, 7)(
            {
                "title": layout.one_unit(ragged([[31, 32], [33]], 1)),
                "text": ragged(
                    [[[[1, 2], [3, 4, 5]], [[6]]], [[[7], [8]], []]], 3
                ),
            }
        )

    def _pick(self, sources, *args):
        rows, length = sources.shape[:2]
        # [rows, length]
        numbers = tf.reshape(tf.range(1.0, 1 + rows * length), [rows, length])
        pick = tf.function(
            lambda *x: layout.pick_units(self.SPEC, *x, *args),
            input_signature=[
                tf.TensorSpec([None, None, 4], tf.int32),
                tf.TensorSpec([None, None, None]),
            ],
            autograph=False,
        )
        vectors, is_there = pick(
            sources, tf.stack([numbers, 10 * numbers], axis=-1)
        )
        self.assertAllEqual(10 * vectors[..., 0], vectors[..., 1])
        self.assertAllEqual(is_there, vectors[..., 0] > 0)
        return vectors[..., 0].numpy().tolist()

    def test_global_tokens(self):
        made = self._made()
        self.assertAllEqual(
            [[3, 3, 5, 1, 5, 1, 0], [3, 5, 1, 1, 5, 0, 0]],
            made.features["global_token_ids"],
        )
        for args, expected in (
            (("text", "group"), [[3, 5], [9, 12]]),
            (
                ("text", "unit"),
                [[[4, 0], [6, 0]], [[10, 11], [0, 0]]],
            ),
            (("title", "token"), [[[[1, 2]]], [[[8, 0]]]]),
            # Sizes above and below the numbers of elements.
            (("text", "group", [3]), [[3, 5, 0], [9, 12, 0]]),
            (("text", "unit", [1, 1]), [[[4]], [[10]]]),
        ):
            self.assertEqual(expected, self._pick(made.global_sources, *args))

    def test_tokens_of_the_text(self):
        made = self._made()
        self.assertAllEqual(
            [[31, 32, 1, 2, 6, 0], [33, 7, 8, 0, 0, 0]],
            made.features["long_token_ids"],
        )
        self.assertEqual(
            [[[[3, 4], [0, 0]], [[5, 0], [0, 0]]]]
            + [[[[8, 0], [9, 0]], [[0, 0], [0, 0]]]],
            self._pick(made.long_sources, "text", "token"),
        )

    def test_no_elements(self):
        self.assertEqual(
            [[], []], self._pick(tf.fill([2, 5, 4], -1), "text", "group")
        )

    def test_no_such_section_level_or_sizes(self):
        for args, message in (
            (("texts", "group"), "section 'texts' does not exist"),
            (("text", "word"), "level is 'word'"),
            (("text", "unit", [3]), "sizes has 1 values .*group, unit"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                self._pick(tf.fill([2, 5, 4], -1), *args)


if __name__ == "__main__":
    tf.test.main()
