import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import side_inputs as side_inputs_lib
from etcmodel.tasks import attention_labels


def _matrix(text):
    """One character a label, `.` is masked, `|` and dashes are decoration."""
    rows = [row.replace(" ", "").replace("|", "") for row in text.split("\n")]
    return [
        [attention_labels.MASKED if char == "." else int(char) for char in row]
        for row in rows
        if row and "-" not in row
    ]


def _two_contexts(**kwargs):
    """A question of two tokens; a paragraph of two sentences; padding."""
    return side_inputs_lib.make_multihop_side_inputs(
        long_paragraph_breakpoints=[[0, 1, 0, 0, 1, 0]],
        long_paragraph_ids=[[-1, -1, 2, 2, 2, -1]],
        long_sentence_ids=[[0, 1, 3, 4, 4, -1]],
        global_paragraph_breakpoints=[[0, 1, 0, 0, 1, 0]],
        **(
            dict(
                local_radius=1,
                relative_pos_max_distance=1,
                use_hard_g2l_mask=True,
            )
            | kwargs
        ),
    )


class LabelSchemeTest(tf.test.TestCase, parameterized.TestCase):
    def test_words(self):
        scheme = attention_labels.LabelScheme(max_distance=2)
        self.assertEqual(
            [scheme.describe(label) for label in range(-1, 8)],
            [
                "masked",
                "the token itself",
                "1 to the right",
                "2 or more to the right",
                "1 to the left",
                "2 or more to the left",
                "not linked",
                "linked",
                "other context",
            ],
        )
        self.assertEqual(scheme.not_linked, 5)
        self.assertEqual(scheme.linked, 6)
        self.assertEqual(scheme.other_context, 7)

    def test_words_without_labels(self):
        scheme = attention_labels.LabelScheme(max_distance=0)
        self.assertEqual(scheme.describe(0), "may attend")
        self.assertEqual(scheme.describe(-1), "masked")
        for label in (1, 2, 3):
            with self.assertRaisesRegex(ValueError, "No label"):
                scheme.describe(label)

    def test_no_such_label(self):
        with self.assertRaisesRegex(ValueError, "No label 8"):
            attention_labels.LabelScheme(2).describe(8)

    @parameterized.parameters(0, 1, 2, 12, 25)
    def test_found_in_side_inputs(self, max_distance):
        side_inputs = _two_contexts(relative_pos_max_distance=max_distance)
        scheme = attention_labels.find_label_scheme(side_inputs)
        self.assertEqual(scheme.max_distance, max_distance)

    def test_found_if_all_is_linked(self):
        side_inputs = side_inputs_lib.make_global_local_transformer_side_inputs(
            [[0, 1]], [[1]], [[0, 0]], 1, relative_pos_max_distance=4
        )
        scheme = attention_labels.find_label_scheme(side_inputs)
        self.assertEqual(scheme.max_distance, 4)


class ComposeAttentionLabelsTest(tf.test.TestCase):
    def test_worked_example(self):
        side_inputs = side_inputs_lib.make_global_local_transformer_side_inputs(
            long_breakpoints=[[0, 0, 1]],
            global_breakpoints=[[1]],
            sentence_ids=[[0, 0, -1]],
            local_radius=1,
            relative_pos_max_distance=1,
            use_hard_g2l_mask=True,
        )
        labels = attention_labels.compose_attention_labels(
            side_inputs, range(1), range(3)
        )
        self.assertEqual(labels.dtype, np.int32)
        self.assertAllEqual(
            labels,
            _matrix(
                """
                0 | 4 4 .
                - - - - -
                4 | 0 1 .
                4 | 2 0 1
                3 | . 2 0
                """
            ),
        )

    def test_two_contexts(self):
        # Labels: 0 self, 1 right, 2 left, 3 not linked, 4 linked, 5 other
        # context.
        self.assertAllEqual(
            attention_labels.compose_attention_labels(
                _two_contexts(), range(5), range(5)
            ),
            _matrix(
                """
                0 1 5 5 5 | 4 . . . .
                2 0 5 5 5 | . 4 . . .
                5 5 0 1 1 | . . 4 4 4
                5 5 2 0 1 | . . 4 . .
                5 5 2 2 0 | . . . 4 4
                - - - - - - - - - - -
                4 3 3 3 3 | 0 1 . . .
                3 4 3 3 3 | 2 0 . . .
                3 3 4 4 3 | . . 0 1 .
                3 3 4 3 4 | . . 2 0 1
                3 3 4 3 4 | . . . 2 0
                """
            ),
        )

    def test_part_of_the_tokens(self):
        self.assertAllEqual(
            attention_labels.compose_attention_labels(
                _two_contexts(), [0, 2, 4], [3, 4, 5]
            ),
            _matrix(
                """
                0 5 5 | . . .
                5 0 1 | 4 4 .
                5 2 0 | 4 4 .
                - - - - - - -
                3 4 4 | 0 1 .
                3 4 4 | 2 0 .
                . . . | . . 0
                """
            ),
        )

    def test_wide_radius(self):
        side_inputs = _two_contexts(
            local_radius=7, relative_pos_max_distance=2, flat_sequence=True
        )
        self.assertAllEqual(
            attention_labels.compose_attention_labels(
                side_inputs, [0], range(4)
            ),
            _matrix(
                """
                0 | 6 . . .
                - - - - - -
                6 | 0 1 2 2
                5 | 3 0 1 2
                5 | 4 3 0 1
                5 | 4 4 3 0
                """
            ),
        )

    def test_without_labels(self):
        self.assertAllEqual(
            attention_labels.compose_attention_labels(
                _two_contexts(relative_pos_max_distance=0), [0, 2], [1, 2, 3]
            ),
            _matrix(
                """
                0 0 | . . .
                0 0 | . 0 0
                - - - - - -
                0 0 | 0 . .
                0 0 | . 0 0
                0 0 | . 0 0
                """
            ),
        )

    def test_without_masks(self):
        fields = _two_contexts().to_dict()
        fields |= {name: None for name in fields if name.endswith("mask")}
        side_inputs = side_inputs_lib.GlobalLocalTransformerSideInputs(**fields)
        self.assertAllEqual(
            attention_labels.compose_attention_labels(
                side_inputs, [0], [0, 1, 2]
            ),
            _matrix(
                """
                0 | 4 3 3
                - - - - -
                4 | 0 1 .
                3 | 2 0 1
                3 | . 2 0
                """
            ),
        )

    def test_nothing_known_of_the_band(self):
        fields = _two_contexts().to_dict()
        fields |= {"l2l_att_mask": None, "l2l_relative_att_ids": None}
        side_inputs = side_inputs_lib.GlobalLocalTransformerSideInputs(**fields)
        with self.assertRaisesRegex(ValueError, "radius is unknown"):
            attention_labels.compose_attention_labels(side_inputs, [0], [0])

    def test_example_of_a_batch(self):
        fields = _two_contexts().to_dict()
        fields = {
            name: np.concatenate([0 * value.numpy(), value.numpy()])
            for name, value in fields.items()
        }
        side_inputs = side_inputs_lib.GlobalLocalTransformerSideInputs(**fields)
        self.assertAllEqual(
            attention_labels.compose_attention_labels(
                side_inputs, [0], [0, 1], example=0
            ),
            np.full([3, 3], attention_labels.MASKED),
        )
        self.assertAllEqual(
            attention_labels.compose_attention_labels(
                side_inputs, [0], [0, 1], example=1
            ),
            [[0, 4, -1], [4, 0, 1], [3, 2, 0]],
        )


class ChooseGlobalTokensTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (range(5), 9, [0, 1, 2, 3, 4]),
        (range(5), 5, [0, 1, 2, 3, 4]),
        # Long tokens 3 and 4 are linked with 2 and 4.
        ([3, 4], 3, [0, 2, 4]),
        ([3, 4], 2, [2, 4]),
        ([3, 4], 1, [2]),
        ([5], 2, [0, 1]),
    )
    def test_linked_ones_first(self, long_tokens, count, expected):
        self.assertEqual(
            attention_labels.choose_global_tokens(
                _two_contexts(), 5, long_tokens, count
            ),
            expected,
        )

    def test_without_labels(self):
        self.assertEqual(
            attention_labels.choose_global_tokens(
                _two_contexts(relative_pos_max_distance=0), 5, [3, 4], 2
            ),
            [0, 1],
        )


if __name__ == "__main__":
    tf.test.main()
