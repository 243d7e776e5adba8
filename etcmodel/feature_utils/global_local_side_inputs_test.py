import types

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import side_inputs as side_inputs_lib
from etcmodel.feature_utils.side_inputs import (
    make_global_local_transformer_side_inputs_from_example_ids,
)

_FIELDS = (
    "l2l_att_mask",
    "g2g_att_mask",
    "l2g_att_mask",
    "g2l_att_mask",
    "l2l_relative_att_ids",
    "g2g_relative_att_ids",
    "l2g_relative_att_ids",
    "g2l_relative_att_ids",
)


def _rows(text):
    """`"011 110"` -> `[[0, 1, 1], [1, 1, 0]]`."""
    return [[int(char) for char in row] for row in text.split()]


def _reference_label(distance, max_distance):
    label = min(abs(distance), max_distance)
    return label if distance >= 0 else max_distance + label


def _reference_example_ids(breakpoints):
    """Numbers the examples of one row from the last to the first."""
    length = len(breakpoints)
    return [sum(breakpoints[i:]) for i in range(length)]


def _reference_row(
    long_ids, global_ids, sentence_ids, radius, max_distance, g2l, l2g
):
    """The eight fields of one row, pair by pair from their definitions."""
    long_len, global_len = len(long_ids), len(global_ids)
    fields = {
        name: np.zeros(shape, np.int32)
        for name, shape in zip(
            _FIELDS,
            2
            * [
                (long_len, 2 * radius + 1),
                (global_len, global_len),
                (long_len, global_len),
                (global_len, long_len),
            ],
            strict=True,
        )
    }
    not_linked = 2 * max_distance + 1
    for i in range(long_len):
        for k in range(2 * radius + 1):
            j = i + k - radius
            fields["l2l_relative_att_ids"][i, k] = _reference_label(
                k - radius, max_distance
            )
            if 0 <= j < long_len and long_ids[i] == long_ids[j]:
                fields["l2l_att_mask"][i, k] = 1
        for j in range(global_len):
            same_example = long_ids[i] == global_ids[j]
            linked = sentence_ids[i] == j
            fields["l2g_att_mask"][i, j] = same_example and (linked or not l2g)
            fields["g2l_att_mask"][j, i] = same_example and (linked or not g2l)
            fields["l2g_relative_att_ids"][i, j] = not_linked + linked
            fields["g2l_relative_att_ids"][j, i] = not_linked + linked
    for i in range(global_len):
        for j in range(global_len):
            fields["g2g_att_mask"][i, j] = global_ids[i] == global_ids[j]
            fields["g2g_relative_att_ids"][i, j] = _reference_label(
                j - i, max_distance
            )
    return fields


class GlobalLocalTransformerSideInputsTest(tf.test.TestCase):
    def test_to_dict(self):
        values = {name: f"tensor {name}" for name in _FIELDS}
        side_inputs = side_inputs_lib.GlobalLocalTransformerSideInputs(**values)
        self.assertEqual(side_inputs.to_dict(), values)
        self.assertEqual(tuple(side_inputs.to_dict()), _FIELDS)
        self.assertEqual(side_inputs.l2g_att_mask, "tensor l2g_att_mask")

    def test_to_dict_without_nones(self):
        values = dict.fromkeys(_FIELDS) | {"g2l_att_mask": 1}
        side_inputs = side_inputs_lib.GlobalLocalTransformerSideInputs(**values)
        self.assertEqual(side_inputs.to_dict(), values)
        self.assertEqual(
            side_inputs.to_dict(exclude_none_values=True), {"g2l_att_mask": 1}
        )

    def test_every_field_is_required(self):
        with self.assertRaises(TypeError):
            side_inputs_lib.GlobalLocalTransformerSideInputs(l2l_att_mask=None)


class SideInputsTestCase(tf.test.TestCase, parameterized.TestCase):
    def assert_side_inputs(self, side_inputs, expected_rows):
        for name in _FIELDS:
            value = getattr(side_inputs, name)
            self.assertEqual(value.dtype, tf.int32, name)
            self.assertAllEqual(
                value, [row[name] for row in expected_rows], msg=name
            )


class MakeSideInputsTest(SideInputsTestCase):
    def _make_one_example(self, **kwargs):
        return side_inputs_lib.make_global_local_transformer_side_inputs(
            long_breakpoints=_rows("00000100"),
            global_breakpoints=_rows("0010"),
            sentence_ids=_rows("00012200"),
            local_radius=2,
            relative_pos_max_distance=2,
            **kwargs,
        )

    @parameterized.product(hard_g2l=[False, True], hard_l2g=[False, True])
    def test_one_example(self, hard_g2l, hard_l2g):
        side_inputs = self._make_one_example(
            use_hard_g2l_mask=hard_g2l, use_hard_l2g_mask=hard_l2g
        )
        self.assertAllEqual(
            side_inputs.l2l_att_mask,
            [_rows("00111 01111 11111 11111 11110 11100 00110 01100")],
        )
        self.assertAllEqual(
            side_inputs.g2g_att_mask, [_rows("1110 1110 1110 0001")]
        )
        self.assertAllEqual(
            side_inputs.l2g_att_mask,
            [
                _rows("1000 1000 1000 0100 0010 0010 0000 0000")
                if hard_l2g
                else _rows("1110 1110 1110 1110 1110 1110 0001 0001")
            ],
        )
        self.assertAllEqual(
            side_inputs.g2l_att_mask,
            [
                _rows("11100000 00010000 00001100 00000000")
                if hard_g2l
                else _rows("11111100 11111100 11111100 00000011")
            ],
        )
        self.assertAllEqual(
            side_inputs.l2l_relative_att_ids, [[[4, 3, 0, 1, 2]] * 8]
        )
        self.assertAllEqual(
            side_inputs.g2g_relative_att_ids, [_rows("0122 3012 4301 4430")]
        )
        g2l_ids = np.array(_rows("66655566 55565555 55556655 55555555"))
        self.assertAllEqual(side_inputs.g2l_relative_att_ids, [g2l_ids])
        self.assertAllEqual(side_inputs.l2g_relative_att_ids, [g2l_ids.T])

    def test_two_packed_examples(self):
        side_inputs = side_inputs_lib.make_global_local_transformer_side_inputs(
            long_breakpoints=_rows("0001001000"),
            global_breakpoints=_rows("0011"),
            sentence_ids=_rows("0112333000"),
            local_radius=2,
            relative_pos_max_distance=1,
            use_hard_g2l_mask=True,
        )
        self.assertAllEqual(
            side_inputs.g2g_att_mask, [_rows("1110 1110 1110 0001")]
        )
        self.assertAllEqual(
            side_inputs.g2l_att_mask,
            [_rows("1000000000 0110000000 0001000000 0000111000")],
        )
        self.assertAllEqual(
            side_inputs.l2g_att_mask,
            [_rows("1110 " * 4 + "0001 " * 3 + "0000 " * 3)],
        )
        self.assertAllEqual(
            side_inputs.l2l_att_mask,
            [
                _rows(
                    "00111 01111 11110 11100 00111 01110 11100"
                    " 00111 01110 11100"
                )
            ],
        )
        self.assertAllEqual(
            side_inputs.g2l_relative_att_ids,
            [_rows("4333333444 3443333333 3334333333 3333444333")],
        )

    def test_breakpoints_equal_reversed_example_ids(self):
        by_breakpoints = self._make_one_example(use_hard_g2l_mask=True)
        from_ids = make_global_local_transformer_side_inputs_from_example_ids
        by_ids = from_ids(
            long_example_ids=_rows("11111100"),
            global_example_ids=_rows("1110"),
            sentence_ids=_rows("00012200"),
            local_radius=2,
            relative_pos_max_distance=2,
            use_hard_g2l_mask=True,
        )
        for name in _FIELDS:
            self.assertAllEqual(
                getattr(by_breakpoints, name), getattr(by_ids, name)
            )

    @parameterized.product(
        hard_g2l=[False, True],
        hard_l2g=[False, True],
        dtype=[np.int32, np.int64],
    )
    def test_matches_definition(self, hard_g2l, hard_l2g, dtype):
        rng = np.random.default_rng(5)
        batch, long_len, global_len, radius, max_distance = 3, 17, 6, 4, 3
        # Two or three packed examples a row, some padding behind them.
        long_breakpoints = np.zeros([batch, long_len], dtype)
        global_breakpoints = np.zeros([batch, global_len], dtype)
        for b, count in enumerate([2, 3, 1]):
            ends = rng.choice(long_len - 2, count, replace=False)
            long_breakpoints[b, ends] = 1
            ends = rng.choice(global_len - 1, count, replace=False)
            global_breakpoints[b, ends] = 1
        sentence_ids = rng.integers(-1, global_len, [batch, long_len])
        sentence_ids = sentence_ids.astype(dtype)
        side_inputs = side_inputs_lib.make_global_local_transformer_side_inputs(
            long_breakpoints,
            global_breakpoints,
            sentence_ids,
            radius,
            max_distance,
            use_hard_g2l_mask=hard_g2l,
            use_hard_l2g_mask=hard_l2g,
        )
        self.assert_side_inputs(
            side_inputs,
            [
                _reference_row(
                    _reference_example_ids(long_breakpoints[b]),
                    _reference_example_ids(global_breakpoints[b]),
                    sentence_ids[b],
                    radius,
                    max_distance,
                    hard_g2l,
                    hard_l2g,
                )
                for b in range(batch)
            ],
        )

    def test_boolean_breakpoints(self):
        by_ints = self._make_one_example()
        by_bools = side_inputs_lib.make_global_local_transformer_side_inputs(
            long_breakpoints=np.array(_rows("00000100"), bool),
            global_breakpoints=np.array(_rows("0010"), bool),
            sentence_ids=_rows("00012200"),
            local_radius=2,
            relative_pos_max_distance=2,
        )
        for name in _FIELDS:
            self.assertAllEqual(getattr(by_ints, name), getattr(by_bools, name))

    def test_any_example_ids(self):
        long_ids, global_ids = [7, 7, -1, 7, 0, 0], [7, -1, 0]
        sentence_ids = [0, 2, 1, -1, 2, 9]
        from_ids = make_global_local_transformer_side_inputs_from_example_ids
        for hard in (False, True):
            self.assert_side_inputs(
                from_ids(
                    [long_ids],
                    [global_ids],
                    [sentence_ids],
                    local_radius=2,
                    relative_pos_max_distance=1,
                    use_hard_g2l_mask=hard,
                    use_hard_l2g_mask=hard,
                ),
                [
                    _reference_row(
                        long_ids, global_ids, sentence_ids, 2, 1, hard, hard
                    )
                ],
            )

    def test_no_labels(self):
        side_inputs = side_inputs_lib.make_global_local_transformer_side_inputs(
            long_breakpoints=_rows("001"),
            global_breakpoints=_rows("1"),
            sentence_ids=_rows("000"),
            local_radius=2,
            relative_pos_max_distance=0,
        )
        self.assertLen(side_inputs.to_dict(exclude_none_values=True), 4)
        for name in _FIELDS[4:]:
            self.assertIsNone(getattr(side_inputs, name))

    def test_lengths_known_in_the_graph_only(self):
        unknown = tf.TensorSpec([None, None], tf.int32)

        @tf.function(input_signature=[unknown, unknown, unknown])
        def make(long_breakpoints, global_breakpoints, sentence_ids):
            make = side_inputs_lib.make_global_local_transformer_side_inputs
            return make(
                long_breakpoints,
                global_breakpoints,
                sentence_ids,
                local_radius=3,
                relative_pos_max_distance=2,
                use_hard_g2l_mask=True,
            ).to_dict()

        for long_len, global_len in [(5, 2), (9, 4)]:
            long_breakpoints = np.eye(1, long_len, 2, dtype=np.int32)
            global_breakpoints = np.eye(1, global_len, 1, dtype=np.int32)
            sentence_ids = np.arange(long_len, dtype=np.int32)[None] % 3
            fields = make(long_breakpoints, global_breakpoints, sentence_ids)
            expected = _reference_row(
                _reference_example_ids(long_breakpoints[0]),
                _reference_example_ids(global_breakpoints[0]),
                sentence_ids[0],
                radius=3,
                max_distance=2,
                g2l=True,
                l2g=False,
            )
            for name in _FIELDS:
                self.assertAllEqual(fields[name], [expected[name]], msg=name)

    def test_known_sizes_stay_static(self):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 8], tf.int32),
                tf.TensorSpec([None, 3], tf.int32),
            ]
        )
        def make(long_breakpoints, global_breakpoints):
            fields = side_inputs_lib.make_global_local_transformer_side_inputs(
                long_breakpoints,
                global_breakpoints,
                sentence_ids=tf.zeros_like(long_breakpoints),
                local_radius=2,
                relative_pos_max_distance=2,
                use_hard_g2l_mask=True,
                use_hard_l2g_mask=True,
            ).to_dict()
            shapes = [fields[name].shape.as_list() for name in _FIELDS]
            self.assertEqual(
                shapes,
                2 * [[None, 8, 5], [None, 3, 3], [None, 8, 3], [None, 3, 8]],
            )
            return fields

        # An empty batch is a batch as well.
        fields = make(tf.zeros([0, 8], tf.int32), tf.zeros([0, 3], tf.int32))
        self.assertEqual(fields["l2l_relative_att_ids"].shape, [0, 8, 5])

    @parameterized.parameters(
        (dict(sentence_ids=[[0, 0]]), "sentence_ids.*same shape"),
        (dict(sentence_ids=[0, 0, 0]), "sentence_ids.*2 dimensions"),
        (dict(long_breakpoints=[0, 0, 1]), "long_breakpoints.*2 dimensions"),
        (dict(global_breakpoints=[1]), "global_breakpoints.*2 dimensions"),
        (dict(local_radius=0), "local_radius"),
        (dict(relative_pos_max_distance=-1), "max_distance"),
    )
    def test_bad_arguments(self, arguments, message):
        good = dict(
            long_breakpoints=[[0, 0, 1]],
            global_breakpoints=[[1]],
            sentence_ids=[[0, 0, 0]],
            local_radius=1,
            relative_pos_max_distance=1,
        )
        with self.assertRaisesRegex(ValueError, message):
            side_inputs_lib.make_global_local_transformer_side_inputs(
                **(good | arguments)
            )


class MakeFixedBlockSideInputsTest(SideInputsTestCase):
    @parameterized.parameters(bool, np.int32, np.int64)
    def test_table(self, dtype):
        make = side_inputs_lib.make_fixed_block_side_inputs
        side_inputs, global_token_ids = make(
            input_mask=np.array(_rows("1111100000 1111111111"), dtype),
            num_tokens_per_block=3,
            local_radius=2,
            relative_pos_max_distance=2,
        )
        self.assertEqual(global_token_ids.dtype, tf.int32)
        self.assertAllEqual(global_token_ids, _rows("1100 1111"))
        ids = _rows("6665555555 5556665555 5555556665 5555555556")
        self.assertAllEqual(side_inputs.g2l_relative_att_ids, [ids, ids])
        self.assertAllEqual(
            side_inputs.g2l_att_mask[0],
            _rows("1111100000 1111100000 0000011111 0000011111"),
        )
        self.assertAllEqual(side_inputs.g2l_att_mask[1], np.ones([4, 10]))

    @parameterized.product(
        num_tokens=[1, 4, 20], hard_g2l=[False, True], hard_l2g=[False, True]
    )
    def test_matches_definition(self, num_tokens, hard_g2l, hard_l2g):
        input_mask = np.array(_rows("1111111111111 1111100000000"))
        sentence_ids = [i // num_tokens for i in range(13)]
        global_ids = [
            [
                max(row[start : start + num_tokens])
                for start in range(0, 13, num_tokens)
            ]
            for row in input_mask
        ]
        make = side_inputs_lib.make_fixed_block_side_inputs
        side_inputs, global_token_ids = make(
            input_mask,
            num_tokens,
            local_radius=3,
            relative_pos_max_distance=2,
            use_hard_g2l_mask=hard_g2l,
            use_hard_l2g_mask=hard_l2g,
            global_token_id=8,
        )
        self.assertAllEqual(global_token_ids, 8 * np.array(global_ids))
        self.assert_side_inputs(
            side_inputs,
            [
                _reference_row(
                    input_mask[b],
                    global_ids[b],
                    sentence_ids,
                    3,
                    2,
                    hard_g2l,
                    hard_l2g,
                )
                for b in range(2)
            ],
        )

    def test_lengths_known_in_the_graph_only(self):
        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64)])
        def make(input_mask):
            make = side_inputs_lib.make_fixed_block_side_inputs
            side_inputs, global_token_ids = make(input_mask, 3, 2, 2)
            return side_inputs.g2l_relative_att_ids, global_token_ids

        g2l_ids, global_token_ids = make(_rows("1111100000"))
        self.assertAllEqual(global_token_ids, _rows("1100"))
        self.assertAllEqual(
            g2l_ids,
            [_rows("6665555555 5556665555 5555556665 5555555556")],
        )

    @parameterized.parameters(
        (0, [[1, 1]], "num_tokens_per_block"),
        (-1, [[1, 1]], "num_tokens_per_block"),
        (2, [1, 1], "input_mask"),
    )
    def test_bad_arguments(self, num_tokens, input_mask, message):
        with self.assertRaisesRegex(ValueError, message):
            side_inputs_lib.make_fixed_block_side_inputs(
                input_mask, num_tokens, 2, 2
            )


class AddSideInputFeaturesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((2, 8), (0, 4))
    def test_in_a_dataset(self, max_distance, num_added):
        config = types.SimpleNamespace(
            local_radius=2,
            relative_pos_max_distance=max_distance,
            use_hard_g2l_mask=True,
            use_hard_l2g_mask=False,
        )
        example = dict(
            long_breakpoints=_rows("00000100")[0],
            global_breakpoints=_rows("0010")[0],
            sentence_ids=_rows("00012200")[0],
            label=7,
        )
        dataset = tf.data.Dataset.from_tensors(example).repeat(3).batch(2)
        dataset = dataset.map(
            lambda features: side_inputs_lib.add_side_input_features(
                config, features
            )
        )
        first, last = list(dataset)
        self.assertLen(first, len(example) + num_added)
        self.assertAllEqual(first["label"], [7, 7])
        self.assertAllEqual(last["label"], [7])
        self.assertAllEqual(
            first["g2l_att_mask"],
            2 * [_rows("11100000 00010000 00001100 00000000")],
        )
        self.assertAllEqual(
            last["l2g_att_mask"], [_rows("1110 " * 6 + "0001 0001")]
        )
        if max_distance:
            self.assertAllEqual(
                last["l2l_relative_att_ids"], [[[4, 3, 0, 1, 2]] * 8]
            )

    def test_features_stay_as_they_are(self):
        config = types.SimpleNamespace(
            local_radius=2,
            relative_pos_max_distance=2,
            use_hard_g2l_mask=False,
            use_hard_l2g_mask=True,
        )
        features = dict(
            long_breakpoints=_rows("01"),
            global_breakpoints=_rows("1"),
            sentence_ids=[[0, -1]],
        )
        result = side_inputs_lib.add_side_input_features(config, features)
        self.assertLen(features, 3)
        self.assertAllEqual(result["l2g_att_mask"], [[[1], [0]]])
        self.assertAllEqual(result["g2l_att_mask"], [[[1, 1]]])

    def test_missing_feature(self):
        with self.assertRaisesRegex(ValueError, "sentence_ids.*got"):
            side_inputs_lib.add_side_input_features(
                types.SimpleNamespace(),
                dict(long_breakpoints=[[1]], global_breakpoints=[[1]]),
            )


if __name__ == "__main__":
    tf.test.main()
