"""Worked examples and errors; `side_inputs_test.py` tests the definitions."""

import types

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import global_local_side_inputs
from testing.helpers import digits

# Six tokens of three sentences, and padding, which has a sentence id, too.
BREAKPOINTS = dict(
    long_breakpoints=digits("00000100"), global_breakpoints=digits("0010")
)
OPTIONS = dict(
    local_radius=2,
    relative_pos_max_distance=2,
    use_hard_g2l_mask=True,
    use_hard_l2g_mask=False,
)
SENTENCES = dict(sentence_ids=digits("00012200"))


class MakeSideInputsTest(tf.test.TestCase, parameterized.TestCase):
    def test_one_example(self):
        """Uses breakpoints, and then ids that separate examples."""
        lib = global_local_side_inputs
        arguments = SENTENCES | OPTIONS
        make = lib.make_global_local_transformer_side_inputs_from_example_ids
        for side_inputs in (
            lib.make_global_local_transformer_side_inputs(
                **BREAKPOINTS, **arguments
            ),
            make([[-1] * 6 + [7] * 2], [[-1] * 3 + [7]], **arguments),
        ):
            for name, text in dict(
                l2l_att_mask="00111 01111 11111 11111 11110 11100 00110 01100",
                g2g_att_mask="1110 1110 1110 0001",
                l2g_att_mask="1110 " * 6 + "0001 0001",
                g2l_att_mask="11100000 00010000 00001100 00000000",
                l2l_relative_att_ids="43012 " * 8,
                g2g_relative_att_ids="0122 3012 4301 4430",
                g2l_relative_att_ids="66655566 55565555 55556655 55555555",
            ).items():
                self.assertAllEqual(
                    getattr(side_inputs, name), [digits(text)], name
                )

    @parameterized.parameters(bool, np.uint8)
    def test_breakpoints_of_small_types(self, dtype):
        # A uint8 can only count to 255.
        ids = global_local_side_inputs.example_ids_from_breakpoints(
            "x", np.ones([1, 300], dtype)
        )
        self.assertAllEqual(ids, [range(300, 0, -1)])

    @parameterized.product(
        (
            dict(wrong=dict(sentence_ids=[[0]]), message="sentence_ids.*same"),
            dict(wrong=dict(sentence_ids=[0]), message="sentence_ids.*2 dim"),
            dict(wrong=dict(long_breakpoints=[0]), message="long_break.*2 dim"),
            dict(wrong=dict(global_breakpoints=[0]), message="global_b.*2 dim"),
            dict(wrong=dict(local_radius=0), message="local_radius"),
            dict(
                wrong=dict(local_radius=0, relative_pos_max_distance=0),
                message="local_radius",
            ),
            dict(
                wrong=dict(relative_pos_max_distance=-1), message="max_distance"
            ),
        ),
        materialize=[False, True],
    )
    def test_bad_arguments(self, wrong, message, materialize):
        arguments = BREAKPOINTS | SENTENCES | OPTIONS | wrong
        with self.assertRaisesRegex(ValueError, message):
            global_local_side_inputs.make_global_local_transformer_side_inputs(
                **arguments, materialize=materialize
            )

    def test_fixed_blocks(self):
        make = global_local_side_inputs.make_fixed_block_side_inputs
        mask = np.array(digits("1111100000 1111111111"), bool)
        side_inputs, ids = make(mask, 3, 2, 2, global_token_id=8)
        self.assertEqual(ids.dtype, tf.int32)
        self.assertAllEqual(ids, digits("8800 8888"))
        labels = digits("6665555555 5556665555 5555556665 5555555556")
        self.assertAllEqual(side_inputs.g2l_relative_att_ids, [labels] * 2)
        with self.assertRaisesRegex(ValueError, "num_tokens_per_block"):
            make(mask, 0, 2, 2)
        with self.assertRaisesRegex(ValueError, "input_mask"):
            make(mask[0], 3, 2, 2)

    @parameterized.parameters((2, True, 8), (0, False, 4))
    def test_features_of_a_dataset(self, max_distance, hard_g2l, num_added):
        options = OPTIONS | dict(
            relative_pos_max_distance=max_distance,
            use_hard_g2l_mask=hard_g2l,
            use_hard_l2g_mask=not hard_g2l,
        )
        make = global_local_side_inputs
        expected = make.make_global_local_transformer_side_inputs(
            **BREAKPOINTS, **SENTENCES, **options
        ).to_dict(exclude_none_values=True)
        self.assertLen(expected, num_added)
        features = BREAKPOINTS | SENTENCES | dict(label=[7])
        # Takes a batch of one example apart, and batches it again.
        dataset = tf.data.Dataset.from_tensor_slices(features).repeat(3)
        config = types.SimpleNamespace(**options)
        first, last = dataset.batch(2).map(
            lambda x: make.add_side_input_features(config, x)
        )
        for name, value in (features | expected).items():
            self.assertAllEqual(first[name], [*value, *value], name)
            self.assertAllEqual(last[name], value, name)
        self.assertLen(first, 4 + num_added)
        # The given dict stays unchanged.
        make.add_side_input_features(config, features)
        self.assertLen(features, 4)
        with self.assertRaisesRegex(ValueError, "sentence_ids.*got"):
            make.add_side_input_features(config, BREAKPOINTS)


if __name__ == "__main__":
    tf.test.main()
