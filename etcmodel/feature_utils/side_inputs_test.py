import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import attention_specs
from etcmodel import feature_utils
from etcmodel.feature_utils import global_local_side_inputs
from etcmodel.feature_utils import multihop_side_inputs
from etcmodel.feature_utils import side_inputs


def bits(text):
    """`"0110"` -> `[[0, 1, 1, 0]]`."""
    return tf.constant([[int(digit) for digit in text]])


def random_features():
    """Ids, links and breakpoints of 11 long and 5 global tokens."""
    rng = np.random.default_rng(3)
    features = {
        name: tf.constant(rng.integers(-1, 6, [2, 11]), tf.int32)
        for name in ("sentences", "paragraphs", "links")
    }
    for name, length in (("long", 11), ("global", 5)):
        features[name] = tf.constant(rng.integers(0, 2, [2, length]))
        features[f"exempt_{name}"] = tf.constant(
            rng.integers(0, 2, [2, length]), tf.int32
        )
    return features


def make_sentences(features, **kwargs):
    return side_inputs.make_global_local_transformer_side_inputs(
        features["long"],
        features["global"],
        features["sentences"],
        local_radius=3,
        **kwargs,
    )


def make_blocks(features, **kwargs):
    made, global_token_ids = side_inputs.make_fixed_block_side_inputs(
        features["long"], 4, local_radius=3, **kwargs
    )
    assert global_token_ids.shape == [2, 3]
    return made


def make_multihop(features, **kwargs):
    return side_inputs.make_multihop_side_inputs(
        features["long"],
        features["paragraphs"],
        features["sentences"],
        features["global"],
        local_radius=3,
        ignore_hard_g2l_mask=features["exempt_global"],
        ignore_hard_l2g_mask=features["exempt_long"],
        l2g_linked_ids=features["links"],
        **kwargs,
    )


def make_flat(features, **kwargs):
    return make_multihop(features, flat_sequence=True, **kwargs)


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


class SpecsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        make=[make_sentences, make_blocks, make_multihop, make_flat],
        hard_l2g=[False, True],
        hard_g2l=[False, True],
    )
    def test_same_as_tensors(self, make, hard_l2g, hard_g2l):
        options = dict(
            relative_pos_max_distance=2,
            use_hard_l2g_mask=hard_l2g,
            use_hard_g2l_mask=hard_g2l,
        )
        features = random_features()
        expected = make(features, **options)
        fields = make(features, as_specs=True, **options).to_dict(
            exclude_none_values=True
        )
        self.assertEqual(list(expected.to_dict()), list(fields))
        mask = attention_specs.LongGlobalMask
        labels = attention_specs.LongGlobalLabels
        for name, kind in (
            ("l2l_att_mask", attention_specs.SegmentMask),
            ("l2g_att_mask", mask),
            ("g2l_att_mask", mask),
            ("l2l_relative_att_ids", attention_specs.DistanceLabels),
            ("l2g_relative_att_ids", labels),
            ("g2l_relative_att_ids", labels),
        ):
            self.assertIsInstance(fields[name], kind)
        spelled_out = {
            "l2l_att_mask": fields["l2l_att_mask"].to_band(3),
            "g2g_att_mask": fields["g2g_att_mask"],
            "l2l_relative_att_ids": fields["l2l_relative_att_ids"].to_band(
                2, 11
            ),
            "g2g_relative_att_ids": fields["g2g_relative_att_ids"],
        }
        global_len = expected.g2g_att_mask.shape[1]
        for name in ("l2g", "g2l"):
            from_global = name == "g2l"
            spelled_out[f"{name}_att_mask"] = attention_specs.side_mask_tensor(
                fields[f"{name}_att_mask"], from_global
            )
            spelled_out[f"{name}_relative_att_ids"] = (
                attention_specs.side_label_tensor(
                    fields[f"{name}_relative_att_ids"], global_len, from_global
                )
            )
        for name, value in expected.to_dict().items():
            self.assertEqual(value.dtype, tf.int32)
            self.assertAllEqual(
                value, tf.cast(spelled_out[name], tf.int32), msg=name
            )

    @parameterized.parameters(make_sentences, make_blocks, make_multihop)
    def test_without_labels(self, make):
        made = make(
            random_features(), relative_pos_max_distance=0, as_specs=True
        )
        fields = made.to_dict(exclude_none_values=True)
        self.assertLen(fields, 4)
        self.assertIs(made.l2g_att_mask, fields["l2g_att_mask"])

    @parameterized.parameters(make_sentences, make_multihop)
    def test_nothing_is_made_of_pairs_with_long_tokens(self, make):
        @tf.function
        def count(features):
            made = make(
                features,
                relative_pos_max_distance=2,
                use_hard_l2g_mask=True,
                use_hard_g2l_mask=True,
                as_specs=True,
            )
            return made.g2g_relative_att_ids

        graph = count.get_concrete_function(random_features()).graph
        shapes = [
            output.shape.as_list()
            for operation in graph.get_operations()
            for output in operation.outputs
        ]
        self.assertIn([2, 5, 5], shapes)
        self.assertNotIn([2, 11, 7], shapes)
        self.assertNotIn([2, 11, 5], shapes)

    @parameterized.parameters(make_sentences, make_multihop)
    def test_checks_are_the_same(self, make):
        features = random_features()
        for as_specs in (False, True):
            with self.assertRaisesRegex(ValueError, "sentence_ids.*same"):
                make(
                    features | {"sentences": bits("11")},
                    relative_pos_max_distance=2,
                    as_specs=as_specs,
                )
        for max_distance in (0, 2):
            with self.assertRaisesRegex(ValueError, "local_radius"):
                side_inputs.make_global_local_transformer_side_inputs(
                    features["long"],
                    features["global"],
                    features["sentences"],
                    local_radius=0,
                    relative_pos_max_distance=max_distance,
                    as_specs=True,
                )

    def test_known_sizes_stay_static(self):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 8], tf.int64),
                tf.TensorSpec([None, 3], tf.int64),
                tf.TensorSpec([None, None], tf.int64),
            ]
        )
        def make(long_breakpoints, global_breakpoints, sentence_ids):
            fields = side_inputs.make_global_local_transformer_side_inputs(
                long_breakpoints,
                global_breakpoints,
                sentence_ids,
                local_radius=2,
                relative_pos_max_distance=2,
                use_hard_g2l_mask=True,
            ).to_dict()
            self.assertEqual(
                [value.shape.as_list() for value in fields.values()],
                2 * [[None, 8, 5], [None, 3, 3], [None, 8, 3], [None, 3, 8]],
            )
            return fields["g2l_relative_att_ids"]

        zeros = tf.zeros([1, 8], tf.int64)
        self.assertAllEqual(
            make(zeros, zeros[:, :3], zeros), [[[6] * 8, [5] * 8, [5] * 8]]
        )


if __name__ == "__main__":
    tf.test.main()
