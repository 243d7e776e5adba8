import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import feature_utils
from etcmodel.feature_utils import side_inputs as side_inputs_lib

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


def _numbers(text):
    """`"1 -1"` -> `[[1, -1]]`."""
    return [[int(number) for number in text.split()]]


def _toy_hotpotqa():
    """A question of two tokens, paragraphs of 2 and 1 sentences."""
    return dict(
        long_paragraph_breakpoints=_numbers("1 0 1 0 0 0 1 0 0 1 0 0 0 0"),
        long_paragraph_ids=_numbers("-1 -1 -1 3 3 3 3 7 7 7 -1 -1 -1 -1"),
        long_sentence_ids=_numbers("-1 1 2 4 5 5 6 8 8 9 -1 -1 -1 -1"),
        global_paragraph_breakpoints=_numbers("1 0 1 0 0 0 1 0 0 1 0 0 0"),
        local_radius=2,
        relative_pos_max_distance=2,
    )


def _four_contexts():
    """Four contexts of four long tokens at most, with free links."""
    return dict(
        long_paragraph_breakpoints=_rows("000100010001000"),
        long_paragraph_ids=[[-1] * 4 + [5] * 4 + [9] * 4 + [-1] * 3],
        long_sentence_ids=[[1, 2, 3, 4, 6, 6, 7, 8, 10, 10, 11, 12] + [-1] * 3],
        global_paragraph_breakpoints=_rows("10001000100010"),
        l2g_linked_ids=[[1, -1, -1, -1, 1, 1, 2] + [-1] * 8],
        local_radius=4,
        relative_pos_max_distance=2,
    )


def _reference_label(distance, max_distance):
    label = min(abs(distance), max_distance)
    return label if distance >= 0 else max_distance + label


def _reference_row(
    long_breakpoints,
    global_breakpoints,
    sentence_ids,
    paragraph_ids,
    linked_ids,
    ignore_g2l,
    ignore_l2g,
    radius,
    max_distance,
    g2l,
    l2g,
    flat,
):
    """The eight fields of one row, pair by pair from their definitions."""
    long_len, global_len = len(long_breakpoints), len(global_breakpoints)
    # The context of each token, counted from the end; 0 is padding.
    long_contexts = [sum(long_breakpoints[i:]) for i in range(long_len)]
    global_contexts = [sum(global_breakpoints[i:]) for i in range(global_len)]
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
    vocab = 2 * max_distance + 1
    for i in range(long_len):
        for k in range(2 * radius + 1):
            j = i + k - radius
            fields["l2l_relative_att_ids"][i, k] = _reference_label(
                k - radius, max_distance
            )
            if 0 <= j < long_len:
                if flat:
                    visible = bool(long_contexts[i]) == bool(long_contexts[j])
                else:
                    visible = long_contexts[i] == long_contexts[j]
                fields["l2l_att_mask"][i, k] = visible
        for j in range(global_len):
            visible = bool(long_contexts[i]) == bool(global_contexts[j])
            contains = sentence_ids[i] == j
            if not flat:
                contains |= paragraph_ids[i] == j
            see_l2g = contains or not l2g or (not flat and ignore_l2g[i])
            see_g2l = contains or not g2l or (not flat and ignore_g2l[j])
            linked = contains or (not flat and linked_ids[i] == j)
            fields["l2g_att_mask"][i, j] = visible and see_l2g
            fields["g2l_att_mask"][j, i] = visible and see_g2l
            fields["l2g_relative_att_ids"][i, j] = vocab + linked
            fields["g2l_relative_att_ids"][j, i] = vocab + linked
    for i in range(global_len):
        for j in range(global_len):
            fields["g2g_att_mask"][i, j] = bool(global_contexts[i]) == bool(
                global_contexts[j]
            )
            label = _reference_label(j - i, max_distance)
            if not flat and global_contexts[i] != global_contexts[j]:
                label = vocab + 2
            fields["g2g_relative_att_ids"][i, j] = label
    return fields


class MakeMultihopSideInputsTest(tf.test.TestCase, parameterized.TestCase):
    def test_toy_hotpotqa(self):
        side_inputs = side_inputs_lib.make_multihop_side_inputs(
            **_toy_hotpotqa(),
            use_hard_g2l_mask=True,
            ignore_hard_g2l_mask=_numbers("1 0 0 0 0 0 0 0 0 0 0 0 0"),
        )
        self.assertAllEqual(
            side_inputs.l2l_att_mask,
            [
                _rows(
                    "00100"
                    " 00110 01100"
                    " 00111 01111 11110 11100"
                    " 00111 01110 11100"
                    " 00111 01111 11110 11100"
                )
            ],
        )
        self.assertAllEqual(
            side_inputs.g2g_att_mask,
            [_rows("1111111111000 " * 10 + "0000000000111 " * 3)],
        )
        self.assertAllEqual(
            side_inputs.l2g_att_mask,
            [_rows("1111111111000 " * 10 + "0000000000111 " * 4)],
        )
        self.assertAllEqual(
            side_inputs.g2l_att_mask,
            [
                _rows(
                    "11111111110000 01000000000000 00100000000000"
                    " 00011110000000 00010000000000 00001100000000"
                    " 00000010000000 00000001110000 00000001100000"
                    " 00000000010000"
                    " 00000000000000 00000000000000 00000000000000"
                )
            ],
        )
        self.assertAllEqual(
            side_inputs.l2l_relative_att_ids, [[[4, 3, 0, 1, 2]] * 14]
        )
        g2l_ids = np.array(
            _rows(
                "55555555555555 56555555555555 55655555555555"
                " 55566665555555 55565555555555 55556655555555"
                " 55555565555555 55555556665555 55555556655555"
                " 55555555565555"
                " 55555555555555 55555555555555 55555555555555"
            )
        )
        self.assertAllEqual(side_inputs.g2l_relative_att_ids, [g2l_ids])
        self.assertAllEqual(side_inputs.l2g_relative_att_ids, [g2l_ids.T])
        self.assertAllEqual(
            side_inputs.g2g_relative_att_ids,
            [
                _rows(
                    "0777777777777"
                    " 7017777777777 7307777777777"
                    " 7770122777777 7773012777777 7774301777777 7774430777777"
                    " 7777777012777 7777777301777 7777777430777"
                    " 7777777777012 7777777777301 7777777777430"
                )
            ],
        )

    def test_four_contexts_with_links(self):
        side_inputs = side_inputs_lib.make_multihop_side_inputs(
            **_four_contexts(),
            use_hard_g2l_mask=True,
            ignore_hard_g2l_mask=_rows("10100000000000"),
        )
        self.assertAllEqual(
            side_inputs.l2l_att_mask[0, 0], _rows("000011110")[0]
        )
        self.assertAllEqual(
            side_inputs.g2g_relative_att_ids[0, 0], [0] + [7] * 13
        )
        self.assertAllEqual(
            side_inputs.g2g_relative_att_ids[0, 1],
            [7, 0, 1, 2, 2] + [7] * 9,
        )
        self.assertAllEqual(
            side_inputs.l2g_relative_att_ids[0, 4],
            [5, 6, 5, 5, 5, 6, 6] + [5] * 7,
        )
        self.assertAllEqual(
            tf.gather(side_inputs.g2l_att_mask[0], [0, 1, 2, 5, 6]),
            _rows(
                "111111111111000 100000000000000 111111111111000"
                " 000011110000000 000011000000000"
            ),
        )

    def test_worked_example(self):
        side_inputs = side_inputs_lib.make_multihop_side_inputs(
            long_paragraph_breakpoints=_rows("010010"),
            long_paragraph_ids=[[-1, -1, 2, 2, 2, -1]],
            long_sentence_ids=[[0, 1, 3, 4, 4, -1]],
            global_paragraph_breakpoints=_rows("01001"),
            local_radius=1,
            relative_pos_max_distance=1,
            use_hard_g2l_mask=True,
        )
        self.assertAllEqual(
            side_inputs.l2l_att_mask, [_rows("011 110 011 111 110 010")]
        )
        self.assertAllEqual(
            side_inputs.g2l_att_mask,
            [_rows("100000 010000 001110 001000 000110")],
        )
        self.assertAllEqual(
            side_inputs.g2l_relative_att_ids,
            [_rows("433333 343333 334443 334333 333443")],
        )
        self.assertAllEqual(
            side_inputs.g2g_relative_att_ids,
            [_rows("01555 20555 55011 55201 55220")],
        )

    @parameterized.parameters(bool, np.uint8)
    def test_breakpoints_of_small_types(self, dtype):
        # 300 contexts of one token; a uint8 counts to 255.
        breakpoints = np.ones([1, 300], dtype)
        ids = np.arange(300)[np.newaxis]
        side_inputs = side_inputs_lib.make_multihop_side_inputs(
            breakpoints, ids, ids, breakpoints, 1, 1
        )
        self.assertAllEqual(side_inputs.l2l_att_mask, [[[0, 1, 0]] * 300])
        self.assertAllEqual(
            side_inputs.l2g_att_mask, np.ones([1, 300, 300], np.int32)
        )

    def test_boolean_ignore_masks(self):
        toy = _toy_hotpotqa()
        long_mask = tf.range(14)[tf.newaxis] == 4
        global_mask = tf.range(13)[tf.newaxis] == 1
        side_inputs = side_inputs_lib.make_multihop_side_inputs(
            **toy,
            use_hard_g2l_mask=True,
            ignore_hard_g2l_mask=global_mask,
            use_hard_l2g_mask=True,
            ignore_hard_l2g_mask=long_mask,
        )
        self.assertAllEqual(
            side_inputs.g2l_att_mask[0, :3],
            _rows("00000000000000 11111111110000 00100000000000"),
        )
        self.assertAllEqual(
            side_inputs.l2g_att_mask[0, 3:6],
            _rows("0001100000000 1111111111000 0001010000000"),
        )

    def test_links_change_labels_only(self):
        arguments = _four_contexts() | dict(
            use_hard_g2l_mask=True, use_hard_l2g_mask=True
        )
        linked = side_inputs_lib.make_multihop_side_inputs(**arguments)
        del arguments["l2g_linked_ids"]
        plain = side_inputs_lib.make_multihop_side_inputs(**arguments)
        for name in _FIELDS:
            if name in ("l2g_relative_att_ids", "g2l_relative_att_ids"):
                continue
            self.assertAllEqual(
                getattr(linked, name), getattr(plain, name), msg=name
            )
        changed = tf.where(
            linked.l2g_relative_att_ids != plain.l2g_relative_att_ids
        )
        # Position 0 is linked with global token 1 as its sentence already.
        self.assertAllEqual(changed, [[0, 4, 1], [0, 5, 1], [0, 6, 2]])

    @parameterized.product(
        hard_g2l=[False, True], hard_l2g=[False, True], flat=[False, True]
    )
    def test_matches_definition(self, hard_g2l, hard_l2g, flat):
        rng = np.random.default_rng(11)
        batch, long_len, global_len, radius, max_distance = 3, 13, 7, 3, 2
        long_breakpoints = rng.integers(0, 2, [batch, long_len])
        long_breakpoints[:, -3:] = 0
        global_breakpoints = rng.integers(0, 2, [batch, global_len])
        global_breakpoints[:, -2:] = 0
        # The last row has no padding, the second one nothing else.
        long_breakpoints[2, -1] = global_breakpoints[2, -1] = 1
        long_breakpoints[1] = global_breakpoints[1] = 0
        ids = rng.integers(-1, global_len + 1, [3, batch, long_len])
        sentence_ids, paragraph_ids, linked_ids = ids
        ignore_g2l = rng.integers(0, 2, [batch, global_len])
        ignore_l2g = rng.integers(0, 2, [batch, long_len])
        side_inputs = side_inputs_lib.make_multihop_side_inputs(
            long_breakpoints.astype(np.int32),
            paragraph_ids.astype(np.int32),
            sentence_ids,
            global_breakpoints,
            radius,
            max_distance,
            use_hard_g2l_mask=hard_g2l,
            ignore_hard_g2l_mask=ignore_g2l,
            use_hard_l2g_mask=hard_l2g,
            ignore_hard_l2g_mask=ignore_l2g,
            flat_sequence=flat,
            l2g_linked_ids=linked_ids,
        )
        expected = [
            _reference_row(
                long_breakpoints[b],
                global_breakpoints[b],
                sentence_ids[b],
                paragraph_ids[b],
                linked_ids[b],
                ignore_g2l[b],
                ignore_l2g[b],
                radius,
                max_distance,
                hard_g2l,
                hard_l2g,
                flat,
            )
            for b in range(batch)
        ]
        for name in _FIELDS:
            value = getattr(side_inputs, name)
            self.assertEqual(value.dtype, tf.int32, name)
            self.assertAllEqual(
                value, [row[name] for row in expected], msg=name
            )

    @parameterized.parameters(False, True)
    def test_no_labels(self, flat):
        side_inputs = side_inputs_lib.make_multihop_side_inputs(
            **(_toy_hotpotqa() | dict(relative_pos_max_distance=0)),
            flat_sequence=flat,
        )
        self.assertEqual(
            tuple(side_inputs.to_dict(exclude_none_values=True)), _FIELDS[:4]
        )

    def test_lengths_known_in_the_graph_only(self):
        toy = _toy_hotpotqa()
        names = [name for name, value in toy.items() if isinstance(value, list)]
        unknown = tf.TensorSpec([None, None], tf.int32)

        @tf.function(input_signature=[{name: unknown for name in names}])
        def make(features):
            return side_inputs_lib.make_multihop_side_inputs(
                **(toy | features),
                use_hard_g2l_mask=True,
                use_hard_l2g_mask=True,
                l2g_linked_ids=features["long_sentence_ids"] - 1,
            ).to_dict()

        for cut in (0, 3):
            features = {
                name: np.array(toy[name], np.int32)[:, cut:] for name in names
            }
            graph = make(features)
            expected = _reference_row(
                features["long_paragraph_breakpoints"][0],
                features["global_paragraph_breakpoints"][0],
                features["long_sentence_ids"][0],
                features["long_paragraph_ids"][0],
                features["long_sentence_ids"][0] - 1,
                np.zeros(20, np.int32),
                np.zeros(20, np.int32),
                radius=2,
                max_distance=2,
                g2l=True,
                l2g=True,
                flat=False,
            )
            for name in _FIELDS:
                self.assertAllEqual(graph[name], [expected[name]], msg=name)

    def test_known_sizes_stay_static(self):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 8], tf.int32),
                tf.TensorSpec([None, 3], tf.int32),
            ]
        )
        def make(long_ids, global_ids):
            fields = side_inputs_lib.make_multihop_side_inputs(
                long_ids,
                long_ids,
                long_ids,
                global_ids,
                local_radius=2,
                relative_pos_max_distance=2,
                use_hard_g2l_mask=True,
                ignore_hard_g2l_mask=global_ids,
                use_hard_l2g_mask=True,
                ignore_hard_l2g_mask=long_ids,
                l2g_linked_ids=long_ids,
            ).to_dict()
            self.assertEqual(
                [fields[name].shape.as_list() for name in _FIELDS],
                2 * [[None, 8, 5], [None, 3, 3], [None, 8, 3], [None, 3, 8]],
            )
            return fields["l2g_att_mask"]

        mask = make(tf.zeros([2, 8], tf.int32), tf.zeros([2, 3], tf.int32))
        self.assertEqual(mask.shape, [2, 8, 3])

    def test_compiles(self):
        arguments = _four_contexts()
        make = tf.function(
            lambda: side_inputs_lib.make_multihop_side_inputs(
                **arguments, use_hard_g2l_mask=True
            ).to_dict(),
            jit_compile=True,
        )
        eager = side_inputs_lib.make_multihop_side_inputs(
            **arguments, use_hard_g2l_mask=True
        ).to_dict()
        compiled = make()
        for name in _FIELDS:
            self.assertAllEqual(compiled[name], eager[name], msg=name)

    @parameterized.parameters(
        ("long_paragraph_breakpoints", [[1, 1]]),
        ("long_paragraph_breakpoints", [1]),
        ("long_paragraph_ids", [[1, 1]]),
        ("long_sentence_ids", [[1, 1]]),
        ("global_paragraph_breakpoints", [1]),
        ("l2g_linked_ids", [[1, 1]]),
        ("ignore_hard_g2l_mask", [[1, 1]]),
        ("ignore_hard_l2g_mask", [[1, 1]]),
        ("local_radius", 0),
        ("relative_pos_max_distance", -1),
    )
    def test_bad_arguments(self, name, value):
        arguments = _toy_hotpotqa() | dict(
            use_hard_g2l_mask=True, use_hard_l2g_mask=True, name="scope"
        )
        arguments[name] = value
        message = name if isinstance(value, list) else "must be"
        with self.assertRaisesRegex(ValueError, message):
            side_inputs_lib.make_multihop_side_inputs(**arguments)

    def test_public_names(self):
        for name in side_inputs_lib.__all__:
            self.assertIs(
                getattr(feature_utils, name), getattr(side_inputs_lib, name)
            )
        for name in feature_utils.__all__:
            self.assertTrue(callable(getattr(feature_utils, name)))


if __name__ == "__main__":
    tf.test.main()
