"""A worked example and errors; `side_inputs_test.py` tests the definitions."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import multihop_side_inputs
from etcmodel.feature_utils.typed_links import TypedLink
from testing.helpers import digits

# A question of two tokens, a paragraph of two sentences, padding.
EXAMPLE = dict(
    long_paragraph_breakpoints=digits("010010"),
    long_paragraph_ids=[[-1, -1, 2, 2, 2, -1]],
    long_sentence_ids=[[0, 1, 3, 4, 4, -1]],
    global_paragraph_breakpoints=digits("01001"),
    local_radius=1,
    relative_pos_max_distance=1,
    use_hard_g2l_mask=True,
)


class MakeMultihopSideInputsTest(tf.test.TestCase, parameterized.TestCase):
    def test_example(self):
        side_inputs = multihop_side_inputs.make_multihop_side_inputs(
            **EXAMPLE, ignore_hard_g2l_mask=np.array(digits("10000"), bool)
        )
        for name, text in dict(
            l2l_att_mask="011 110 011 111 110 010",
            g2g_att_mask="11111 " * 5,
            l2g_att_mask="11111 " * 5 + "00000",
            g2l_att_mask="111110 010000 001110 001000 000110",
            l2l_relative_att_ids="201 " * 6,
            g2g_relative_att_ids="01555 20555 55011 55201 55220",
            g2l_relative_att_ids="433333 343333 334443 334333 333443",
        ).items():
            self.assertAllEqual(
                getattr(side_inputs, name), [digits(text)], name
            )

    def test_links(self):
        """Uses the example of `TypedLink`, and opens hard masks."""
        arguments = dict(
            long_paragraph_breakpoints=digits("001"),
            long_paragraph_ids=[[-1, -1, -1]],
            long_sentence_ids=[[0, 1, 2]],
            global_paragraph_breakpoints=digits("001"),
            local_radius=1,
            use_hard_g2l_mask=True,
            use_hard_l2g_mask=True,
        )
        link = TypedLink([[-1, 0, -1]], label=0)
        way = TypedLink([[2, -1, -1]], source="global", label=1, back_label=2)
        plain = dict(l2g_att_mask="100 010 001", g2l_att_mask="100 010 001")
        opened = dict(l2g_att_mask="100 110 001", g2l_att_mask="110 010 001")
        labels = dict(
            l2g_relative_att_ids="433 643 334",
            g2l_relative_att_ids="463 343 334",
            g2g_relative_att_ids="017 201 820",
        )
        for links, distance, expected in (
            ([link, way], 1, plain | labels),
            ([link._replace(opens_hard_masks=True), way], 1, opened | labels),
            # If two links apply to a pair, the last link's label counts.
            (
                [link, link._replace(label=2), way._replace(back_label=None)],
                1,
                dict(
                    l2g_relative_att_ids="433 843 334",
                    g2g_relative_att_ids="017 201 720",
                ),
            ),
            # A forward link's label wins over a back label, even a later one.
            (
                [way, TypedLink([[-1, -1, 0]], source="global")],
                1,
                dict(g2g_relative_att_ids="017 201 420"),
            ),
            # Links open hard masks even if there are no labels.
            ([link._replace(opens_hard_masks=True), way], 0, opened),
        ):
            side_inputs = multihop_side_inputs.make_multihop_side_inputs(
                **arguments, links=links, relative_pos_max_distance=distance
            )
            for name, text in expected.items():
                self.assertAllEqual(
                    getattr(side_inputs, name), [digits(text)], name
                )

    @parameterized.parameters(
        (TypedLink([[1, 1]]), r"`links\[1\]`.*shape"),
        (TypedLink([[1] * 6], source="global"), r"`links\[1\]`.*shape"),
        (TypedLink([[1] * 6], source="g"), r"`links\[1\]`.*source.*'g'"),
        (
            TypedLink([[1] * 5], source="global", opens_hard_masks=True),
            "hard masks never separate",
        ),
    )
    def test_bad_links(self, link, message):
        links = [TypedLink([[-1] * 6]), link]
        with self.assertRaisesRegex(ValueError, message):
            multihop_side_inputs.make_multihop_side_inputs(
                **EXAMPLE, links=links
            )

    @parameterized.product(
        (
            dict(name="long_paragraph_breakpoints", value=[[1, 1]]),
            dict(name="long_paragraph_breakpoints", value=[1]),
            dict(name="long_paragraph_ids", value=[[1, 1]]),
            dict(name="long_sentence_ids", value=[[1, 1]]),
            dict(name="global_paragraph_breakpoints", value=[1]),
            dict(name="l2g_linked_ids", value=[[1, 1]]),
            dict(name="ignore_hard_g2l_mask", value=[[1, 1]]),
            dict(name="ignore_hard_l2g_mask", value=[[1, 1]]),
            dict(name="local_radius", value=0),
            dict(name="relative_pos_max_distance", value=-1),
        ),
        materialize=[False, True],
    )
    def test_bad_arguments(self, name, value, materialize):
        arguments = EXAMPLE | {"use_hard_l2g_mask": True, name: value}
        message = name.removeprefix("relative_pos_")
        with self.assertRaisesRegex(ValueError, message):
            multihop_side_inputs.make_multihop_side_inputs(
                **arguments, materialize=materialize
            )


if __name__ == "__main__":
    tf.test.main()
