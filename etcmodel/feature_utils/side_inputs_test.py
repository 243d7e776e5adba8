import tensorflow as tf

from etcmodel import feature_utils
from etcmodel.feature_utils import global_local_side_inputs
from etcmodel.feature_utils import multihop_side_inputs
from etcmodel.feature_utils import side_inputs


def bits(text):
    """`"0110"` -> `[[0, 1, 1, 0]]`."""
    return tf.constant([[int(digit) for digit in text]])


class SideInputsTest(tf.test.TestCase):
    def test_all_names_are_here_and_in_the_package(self):
        self.assertCountEqual(
            [
                "GlobalLocalTransformerSideInputs",
                "add_side_input_features",
                "make_fixed_block_side_inputs",
                "make_global_local_transformer_side_inputs",
                "make_global_local_transformer_side_inputs_from_example_ids",
                "make_multihop_side_inputs",
            ],
            side_inputs.__all__,
        )
        for name in side_inputs.__all__:
            source = global_local_side_inputs
            if name == "make_multihop_side_inputs":
                source = multihop_side_inputs
            self.assertIs(getattr(source, name), getattr(side_inputs, name))
            self.assertIs(
                getattr(feature_utils, name), getattr(side_inputs, name)
            )
            self.assertIn(name, feature_utils.__all__)

    def test_fields_in_order(self):
        names = [
            "l2l_att_mask",
            "g2g_att_mask",
            "l2g_att_mask",
            "g2l_att_mask",
            "l2l_relative_att_ids",
            "g2g_relative_att_ids",
            "l2g_relative_att_ids",
            "g2l_relative_att_ids",
        ]
        made = side_inputs.GlobalLocalTransformerSideInputs(*range(7), None)
        self.assertEqual(
            dict(zip(names, [*range(7), None], strict=True)), made.to_dict()
        )
        self.assertEqual(names, list(made.to_dict()))
        self.assertEqual(
            names[:7], list(made.to_dict(exclude_none_values=True))
        )
        with self.assertRaises(TypeError):
            side_inputs.GlobalLocalTransformerSideInputs(*range(7))

    def test_worked_example(self):
        """Sentences of 3, 1 and 2 tokens, padded by two."""
        made = side_inputs.make_global_local_transformer_side_inputs(
            bits("00000100"),
            bits("0010"),
            bits("00012200"),
            local_radius=2,
            relative_pos_max_distance=2,
            use_hard_g2l_mask=True,
        )
        self.assertAllEqual(
            tf.concat([bits("1110")] * 3 + [bits("0001")], 0),
            made.g2g_att_mask[0],
        )
        self.assertAllEqual(
            tf.concat(
                [
                    bits("11100000"),
                    bits("00010000"),
                    bits("00001100"),
                    bits("00000000"),
                ],
                0,
            ),
            made.g2l_att_mask[0],
        )
        self.assertAllEqual(
            [[0, 1, 2, 2], [3, 0, 1, 2], [4, 3, 0, 1], [4, 4, 3, 0]],
            made.g2g_relative_att_ids[0],
        )

    def test_multihop_links_are_labels_only(self):
        """A question and a text of one token each; the text is linked to it."""
        minus = tf.constant([[-1, -1]])
        arguments = [
            bits("11"),
            minus,
            tf.constant([[0, 1]]),
            bits("11"),
        ]
        linked = side_inputs.make_multihop_side_inputs(
            *arguments,
            local_radius=1,
            relative_pos_max_distance=1,
            l2g_linked_ids=tf.constant([[-1, 0]]),
        )
        # With a vocabulary of 3 for distances: 3 is "not linked", 4 "linked".
        self.assertAllEqual([[[4, 3], [4, 4]]], linked.l2g_relative_att_ids)
        self.assertAllEqual([[[1, 1], [1, 1]]], linked.l2g_att_mask)


if __name__ == "__main__":
    tf.test.main()
