import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import feature_utils as side_inputs_lib
from etcmodel.inspection import attention_labels


def _matrix(text):
    """Parses one character per label: `.` is masked; ignores `|` and `-`."""
    rows = [row.replace(" ", "").replace("|", "") for row in text.split("\n")]
    return [
        [attention_labels.MASKED if char == "." else int(char) for char in row]
        for row in rows
        if row and "-" not in row
    ]


def _two_contexts(**kwargs):
    """Returns inputs: a question, a paragraph of two sentences, padding."""
    return side_inputs_lib.make_multihop_side_inputs(
        long_paragraph_breakpoints=[[0, 1, 0, 0, 1, 0]],
        long_paragraph_ids=[[-1, -1, 2, 2, 2, -1]],
        long_sentence_ids=[[0, 1, 3, 4, 4, -1]],
        global_paragraph_breakpoints=[[0, 1, 0, 0, 1, 0]],
        use_hard_g2l_mask=True,
        **{"local_radius": 1, "relative_pos_max_distance": 1, **kwargs},
    )


class LabelSchemeTest(tf.test.TestCase, parameterized.TestCase):
    def test_describe(self):
        scheme = attention_labels.LabelScheme(max_distance=2)
        self.assertEqual(
            [scheme.describe(label) for label in range(-1, 10)],
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
                "link 1",
                "link 2",
            ],
        )
        names = (scheme.not_linked, scheme.other_context)
        self.assertEqual(names, (5, 7))
        unlabelled = attention_labels.LabelScheme(max_distance=0)
        self.assertEqual(unlabelled.describe(0), "may attend")
        self.assertEqual(unlabelled.describe(-1), "masked")
        for a_scheme, label in ((scheme, -2), (unlabelled, 1), (unlabelled, 4)):
            with self.assertRaisesRegex(ValueError, f"No label {label}"):
                a_scheme.describe(label)

    @parameterized.parameters(0, 1, 2, 25)
    def test_found_in_side_inputs(self, max_distance):
        side_inputs = _two_contexts(relative_pos_max_distance=max_distance)
        scheme = attention_labels.find_label_scheme(side_inputs)
        self.assertEqual(scheme.max_distance, max_distance)

    def test_found_if_all_pairs_are_linked(self):
        side_inputs = side_inputs_lib.make_global_local_transformer_side_inputs(
            [[0, 1]], [[1]], [[0, 0]], 1, relative_pos_max_distance=4
        )
        scheme = attention_labels.find_label_scheme(side_inputs)
        self.assertEqual(scheme.max_distance, 4)


# Labels with a maximum distance of 1: 0 is the token itself, 1 right, 2 left, 3
# not linked, 4 linked, 5 other context.
_TWO_CONTEXTS = """
    0 1 5 5 5 | 4 . . . . .
    2 0 5 5 5 | . 4 . . . .
    5 5 0 1 1 | . . 4 4 4 .
    5 5 2 0 1 | . . 4 . . .
    5 5 2 2 0 | . . . 4 4 .
    - - - - - - - - - - - -
    4 3 3 3 3 | 0 1 . . . .
    3 4 3 3 3 | 2 0 . . . .
    3 3 4 4 3 | . . 0 1 . .
    3 3 4 3 4 | . . 2 0 1 .
    3 3 4 3 4 | . . . 2 0 .
    . . . . . | . . . . . 0
"""
_WIDE_RADIUS = """
    0 | 6 . . .
    - - - - - -
    6 | 0 1 2 2
    5 | 3 0 1 2
    5 | 4 3 0 1
    5 | 4 4 3 0
"""
_WITHOUT_LABELS = """
    0 0 | . . .
    0 0 | . 0 0
    - - - - - -
    0 0 | 0 . .
    0 0 | . 0 0
    0 0 | . 0 0
"""
_WITHOUT_MASKS = """
    0 | 4 3 3
    - - - - -
    4 | 0 1 .
    3 | 2 0 1
    3 | . 2 0
"""


class ComposeAttentionLabelsTest(tf.test.TestCase, parameterized.TestCase):
    def _changed(self, **changes):
        fields = _two_contexts().to_dict() | changes
        return side_inputs_lib.GlobalLocalTransformerSideInputs(**fields)

    @parameterized.named_parameters(
        ("two_contexts", {}, range(5), range(6), _TWO_CONTEXTS),
        (
            "wide_radius",
            dict(
                local_radius=7, relative_pos_max_distance=2, flat_sequence=True
            ),
            [0],
            range(4),
            _WIDE_RADIUS,
        ),
        (
            "without_labels",
            dict(relative_pos_max_distance=0),
            [0, 2],
            [1, 2, 3],
            _WITHOUT_LABELS,
        ),
    )
    def test_worked_example(self, kwargs, global_tokens, long_tokens, expected):
        labels = attention_labels.compose_attention_labels(
            _two_contexts(**kwargs), global_tokens, long_tokens
        )
        self.assertAllEqual(labels, _matrix(expected))
        self.assertEqual(labels.dtype, np.int32)

    def test_part_of_the_tokens(self):
        part = [0, 2, 4, 5 + 3, 5 + 4, 5 + 5]
        self.assertAllEqual(
            attention_labels.compose_attention_labels(
                _two_contexts(), [0, 2, 4], [3, 4, 5]
            ),
            np.array(_matrix(_TWO_CONTEXTS))[np.ix_(part, part)],
        )

    def test_without_masks(self):
        names = [f"{piece}_att_mask" for piece in ("g2g", "g2l", "l2g", "l2l")]
        self.assertAllEqual(
            attention_labels.compose_attention_labels(
                self._changed(**dict.fromkeys(names)), [0], [0, 1, 2]
            ),
            _matrix(_WITHOUT_MASKS),
        )

    def test_unknown_radius(self):
        side_inputs = self._changed(
            l2l_att_mask=None, l2l_relative_att_ids=None
        )
        with self.assertRaisesRegex(ValueError, "radius is unknown"):
            attention_labels.compose_attention_labels(side_inputs, [0], [0])


class ChooseGlobalTokensTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (range(5), 9, [0, 1, 2, 3, 4]),
        # Long tokens 3 and 4 are linked with the global tokens 2 and 4.
        ([3, 4], 3, [0, 2, 4]),
        ([3, 4], 2, [2, 4]),
        ([3, 4], 1, [2]),
        ([5], 2, [0, 1]),
        # Without labels, nothing is linked.
        ([3, 4], 2, [0, 1], 0),
        # Global token 1 also has a link with its own label to long token 3.
        ([3, 4], 3, [1, 2, 4], 1, [[-1, -1, -1, 1, -1, -1]]),
    )
    def test_linked_tokens_first(
        self, long_tokens, count, expected, distance=1, link=None
    ):
        links = []
        if link:
            links = [side_inputs_lib.TypedLink(link, label=1)]
        side_inputs = _two_contexts(
            relative_pos_max_distance=distance, links=links
        )
        self.assertEqual(
            attention_labels.choose_global_tokens(
                side_inputs, 5, long_tokens, count
            ),
            expected,
        )


if __name__ == "__main__":
    tf.test.main()
