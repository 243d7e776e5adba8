"""A worked example and errors; `side_inputs_test.py` has the definitions."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import multihop_side_inputs


def _rows(text):
    """`"011 110"` -> `[[0, 1, 1], [1, 1, 0]]`."""
    return [[int(char) for char in row] for row in text.split()]


# A question of two tokens, a paragraph of two sentences, padding.
EXAMPLE = dict(
    long_paragraph_breakpoints=_rows("010010"),
    long_paragraph_ids=[[-1, -1, 2, 2, 2, -1]],
    long_sentence_ids=[[0, 1, 3, 4, 4, -1]],
    global_paragraph_breakpoints=_rows("01001"),
    local_radius=1,
    relative_pos_max_distance=1,
    use_hard_g2l_mask=True,
)


class MakeMultihopSideInputsTest(tf.test.TestCase, parameterized.TestCase):
    def test_example(self):
        side_inputs = multihop_side_inputs.make_multihop_side_inputs(
            **EXAMPLE, ignore_hard_g2l_mask=np.array(_rows("10000"), bool)
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
            self.assertAllEqual(getattr(side_inputs, name), [_rows(text)], name)

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
        as_specs=[False, True],
    )
    def test_bad_arguments(self, name, value, as_specs):
        arguments = EXAMPLE | {"use_hard_l2g_mask": True, name: value}
        message = name.removeprefix("relative_pos_")
        with self.assertRaisesRegex(ValueError, message):
            multihop_side_inputs.make_multihop_side_inputs(
                **arguments, as_specs=as_specs
            )


if __name__ == "__main__":
    tf.test.main()
