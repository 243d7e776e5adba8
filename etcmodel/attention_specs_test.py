import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import attention_specs
from etcmodel import feature_utils


def _rows(text):
    """`"011 110"` -> `[[0, 1, 1], [1, 1, 0]]`."""
    return [[int(char) for char in row] for row in text.split()]


def _of_any_length(function, *inputs):
    """Calls a function of matrices without known sizes, plain and compiled."""
    inputs = [tf.convert_to_tensor(x) for x in inputs]
    signature = [tf.TensorSpec([None, None], x.dtype) for x in inputs]
    for jit_compile in (False, True):
        yield tf.function(
            function, input_signature=signature, jit_compile=jit_compile
        )(*inputs)


class SegmentMaskTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("779", 1, "011 110 010"),
        ("77799", 2, "00111 01110 11100 00110 01100"),
        # A segment with a gap.
        ("0100", 2, "00101 00100 10110 01100"),
        # Beyond the ends there is nothing, whatever the id.
        ("00", 3, "0001100 0011000"),
        ("5", 2, "00100"),
    )
    def test_to_band(self, ids, radius, expected):
        mask = attention_specs.SegmentMask(_rows(ids))
        band = mask.to_band(radius)
        self.assertEqual(band.dtype, tf.bool)
        self.assertAllEqual(tf.cast(band, tf.int32), [_rows(expected)])

    @parameterized.parameters(np.int32, np.int64, np.float32, np.uint8)
    def test_rows_and_types(self, dtype):
        ids = np.array(_rows("779 777"), dtype)
        band = attention_specs.SegmentMask(ids).to_band(1)
        self.assertAllEqual(
            tf.cast(band, tf.int32),
            [_rows("011 110 010"), _rows("011 111 110")],
        )

    def test_any_length(self):
        for band in _of_any_length(
            lambda ids: attention_specs.SegmentMask(ids).to_band(1),
            _rows("779"),
        ):
            self.assertAllEqual(band, [np.array(_rows("011 110 010"), bool)])

    def test_static_shape(self):
        @tf.function(input_signature=[tf.TensorSpec([None, 5], tf.int32)])
        def make(ids):
            band = attention_specs.SegmentMask(ids).to_band(2)
            self.assertEqual(band.shape.as_list(), [None, 5, 5])
            return band

        self.assertEqual(make(tf.zeros([0, 5], tf.int32)).shape, [0, 5, 5])


class DistanceLabelsTest(tf.test.TestCase, parameterized.TestCase):
    def test_to_band(self):
        labels = attention_specs.DistanceLabels([2, 0, 1])
        self.assertEqual(labels.pattern, (2, 0, 1))
        band = labels.to_band(2, 4)
        self.assertEqual(band.dtype, tf.int32)
        self.assertAllEqual(band, [[[2, 0, 1]] * 4] * 2)

    def test_numbers_of_any_kind(self):
        labels = attention_specs.DistanceLabels(np.array([2, 0, 1], np.int8))
        self.assertEqual(labels.pattern, (2, 0, 1))
        self.assertIs(type(labels.pattern[0]), int)

    def test_any_length(self):
        labels = attention_specs.DistanceLabels([2, 0, 1])

        def make(ids):
            band = labels.to_band(*tf.unstack(tf.shape(ids)))
            self.assertEqual(band.shape.as_list(), [None, None, 3])
            return band

        for band in _of_any_length(make, _rows("00 00 00")):
            self.assertAllEqual(band, [[[2, 0, 1]] * 2] * 3)

    def test_static_shape(self):
        @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
        def make(batch_size):
            labels = attention_specs.DistanceLabels([2, 0, 1])
            band = labels.to_band(batch_size, 4)
            self.assertEqual(band.shape.as_list(), [None, 4, 3])
            return band

        self.assertEqual(make(2).shape, [2, 4, 3])

    @parameterized.parameters(
        ([5, 5, 5, 1, 2, 3, 3], 3, [5, 1, 2, 3], 2),
        # No two neighbours are equal.
        ([4, 3, 0, 1, 2], 1, [4, 3, 0, 1, 2], 1),
        # The ends alone make runs, the middle may.
        ([1, 0, 0, 0, 2], 1, [1, 0, 0, 0, 2], 1),
        ([1, 0, 1], 1, [1, 0, 1], 1),
        ([6, 6, 6, 5, 4, 0, 1, 2, 3, 3, 3], 3, [6, 5, 4, 0, 1, 2, 3], 3),
        # Runs only.
        ([4, 4, 4, 2, 2], 3, [4, 2], 2),
        ([4, 4, 2], 2, [4, 2], 1),
        ([4, 2, 2], 1, [4, 2], 2),
    )
    def test_runs(self, pattern, lead, columns, trail):
        self.assertEqual(
            attention_specs.DistanceLabels(pattern).runs(),
            (lead, columns, trail),
        )

    @parameterized.parameters(
        ([7, 7, 7],),
        ([7] * 9,),
        ([0, 1, 2],),
        ([0, 0, 1, 0, 0],),
    )
    def test_runs_make_the_pattern(self, pattern):
        lead, columns, trail = attention_specs.DistanceLabels(pattern).runs()
        self.assertEqual(
            lead * columns[:1] + columns[1:-1] + trail * columns[-1:], pattern
        )

    @parameterized.parameters(0, 1, 2, 4)
    def test_pattern_of_a_wrong_length(self, length):
        with self.assertRaisesRegex(ValueError, f"has {length}$"):
            attention_specs.DistanceLabels(range(length))

    def test_same_as_the_generator_makes(self):
        generator = feature_utils.RelativePositionGenerator(3)
        self.assertAllEqual(
            attention_specs.DistanceLabels(
                [6, 6, 6, 5, 4, 0, 1, 2, 3, 3, 3]
            ).to_band(2, 4),
            generator.make_local_relative_att_ids(4, 5, batch_size=2),
        )


class LongGlobalMaskTest(tf.test.TestCase, parameterized.TestCase):
    def assert_mask(self, mask, expected):
        tensor = mask.to_tensor()
        self.assertEqual(tensor.dtype, tf.bool)
        self.assertAllEqual(tf.cast(tensor, tf.int32), [_rows(expected)])

    def test_docstring(self):
        self.assert_mask(
            attention_specs.LongGlobalMask(
                long_ids=[[1, 1, 0]], global_ids=[[1, 1]], links=[[[0, 1, 1]]]
            ),
            "10 01 00",
        )

    @parameterized.parameters(
        (None, "110 110 110 001"),
        (["0120"], "100 010 000 000"),
        # One of two links is enough; out of range is none.
        (["0120", "1097"], "110 110 000 000"),
    )
    def test_links(self, links, expected):
        if links is not None:
            links = [tf.constant(_rows(link)) for link in links]
        mask = attention_specs.LongGlobalMask(
            _rows("1110"), _rows("110"), links
        )
        self.assert_mask(mask, expected)

    def test_negative_is_no_link(self):
        links = [tf.constant([[-1, 0, -1]])]
        self.assert_mask(
            attention_specs.LongGlobalMask(_rows("111"), _rows("11"), links),
            "00 10 00",
        )

    @parameterized.parameters(
        ("0100", None, "100 110 000 000"),
        (None, "100", "100 110 100 000"),
        ("0001", "011", "110 010 010 001"),
        # Who needs no link still needs an equal id.
        ("1111", None, "110 110 110 001"),
        (None, "111", "110 110 110 001"),
    )
    def test_exempt(self, exempt_long, exempt_global, expected):
        links = [tf.constant([[0, 1, -1, -1]])]
        for dtype in (tf.int32, tf.bool):
            options = {
                name: tf.cast(_rows(exempt), dtype)
                for name, exempt in (
                    ("exempt_long", exempt_long),
                    ("exempt_global", exempt_global),
                )
                if exempt is not None
            }
            self.assert_mask(
                attention_specs.LongGlobalMask(
                    _rows("1110"), _rows("110"), links, **options
                ),
                expected,
            )

    def test_exempt_says_nothing_without_links(self):
        self.assert_mask(
            attention_specs.LongGlobalMask(
                _rows("10"), _rows("10"), exempt_long=_rows("01")
            ),
            "10 01",
        )

    def test_ids_of_different_types(self):
        mask = attention_specs.LongGlobalMask(
            tf.constant(_rows("2211"), tf.int64),
            tf.constant(_rows("21")),
            links=[tf.constant(_rows("0101"), tf.int32)],
        )
        self.assert_mask(mask, "10 00 00 01")

    @parameterized.parameters(False, True)
    def test_parts(self, has_exempt):
        rng = np.random.default_rng(0)
        mask = attention_specs.LongGlobalMask(
            rng.integers(0, 2, [2, 7]),
            rng.integers(0, 2, [2, 3]),
            links=[tf.constant(rng.integers(-1, 3, [2, 7])) for _ in range(2)],
            exempt_long=rng.integers(0, 2, [2, 7]) if has_exempt else None,
        )
        tensors = mask.long_tensors()
        self.assertLen(tensors, 3 + has_exempt)
        parts = [
            mask.part([x[:, start : start + 4] for x in tensors])
            for start in (0, 4)
        ]
        self.assertAllEqual(tf.concat(parts, 1), mask.to_tensor())

    def test_any_length(self):
        def make(long_ids, global_ids, link, exempt_long, exempt_global):
            return attention_specs.LongGlobalMask(
                long_ids, global_ids, [link], exempt_long, exempt_global
            ).to_tensor()

        for mask in _of_any_length(
            make,
            _rows("1110"),
            _rows("110"),
            [[0, -1, 1, 2]],
            _rows("0001"),
            _rows("010"),
        ):
            self.assertAllEqual(
                mask, [np.array(_rows("110 010 010 001"), bool)]
            )

    def test_static_shape(self):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 8], tf.int32),
                tf.TensorSpec([None, 3], tf.int32),
                tf.TensorSpec([None, None], tf.int64),
            ]
        )
        def make(long_ids, global_ids, link):
            mask = attention_specs.LongGlobalMask(long_ids, global_ids, [link])
            mask = mask.to_tensor()
            self.assertEqual(mask.shape.as_list(), [None, 8, 3])
            return mask

        zeros = tf.zeros([2, 8], tf.int32)
        make(zeros, zeros[:, :3], tf.cast(zeros, tf.int64))


class LongGlobalLabelsTest(tf.test.TestCase):
    def test_to_tensor(self):
        labels = attention_specs.LongGlobalLabels(
            [[[0, 1, -1]]], linked=8, not_linked=7
        )
        tensor = labels.to_tensor(2)
        self.assertEqual(tensor.dtype, tf.int32)
        self.assertAllEqual(tensor, [_rows("87 78 77")])

    def test_several_links(self):
        labels = attention_specs.LongGlobalLabels(
            [
                tf.constant([[0, 1, -1]]),
                tf.constant([[2, 1, 3]], tf.int64),
            ],
            linked=np.int64(2),
            not_linked=np.int64(1),
        )
        self.assertAllEqual(labels.to_tensor(3), [_rows("212 121 111")])

    def test_parts(self):
        labels = attention_specs.LongGlobalLabels(
            [[[0, 1, -1]], [[1, -1, -1]]], linked=8, not_linked=7
        )
        tensors = labels.long_tensors()
        self.assertLen(tensors, 2)
        for start, expected in ((0, "11"), (1, "01"), (2, "00")):
            part = labels.part([x[:, start : start + 1] for x in tensors], 2)
            self.assertEqual(part.dtype, tf.bool)
            self.assertAllEqual(tf.cast(part, tf.int32), [_rows(expected)])

    def test_any_length(self):
        def make(link, global_ids):
            labels = attention_specs.LongGlobalLabels([link], 8, 7)
            return labels.to_tensor(tf.shape(global_ids)[1])

        for tensor in _of_any_length(make, [[0, 1, -1]], [[0, 0]]):
            self.assertAllEqual(tensor, [_rows("87 78 77")])


class FunctionsTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.specs = [
            attention_specs.SegmentMask(_rows("779")),
            attention_specs.DistanceLabels([2, 0, 1]),
            attention_specs.LongGlobalMask(_rows("110"), _rows("10")),
            attention_specs.LongGlobalLabels([[[0, 1, -1]]], 8, 7),
        ]

    def test_types_in_place(self):
        attention_specs.check_types(*self.specs)
        attention_specs.check_types(None, None, None, None)
        attention_specs.check_types(*[tf.zeros([])] * 4)

    @parameterized.parameters(*itertools.permutations(range(4), 2))
    def test_types_out_of_place(self, place, kind):
        specs = [None] * 4
        specs[place] = self.specs[kind]
        name = ("l2l_att_mask", "l2l_rel", "g2l_att_mask", "g2l_rel")[place]
        allowed, given = (type(self.specs[i]).__name__ for i in (place, kind))
        with self.assertRaisesRegex(
            ValueError, f"{name}.*tensor or a {allowed}, but is a {given}"
        ):
            attention_specs.check_types(*specs)

    def test_all_are_specs(self):
        for spec in self.specs:
            self.assertIsInstance(spec, attention_specs.AttentionSpec)

    def test_tensors_stay(self):
        tensor = tf.zeros([1, 2, 3], tf.int32)
        for value in (tensor, None):
            self.assertIs(attention_specs.band_mask_tensor(value, 1), value)
            self.assertIs(attention_specs.band_label_tensor(value, 1, 2), value)
            for from_global in (False, True):
                self.assertIs(
                    attention_specs.side_mask_tensor(value, from_global), value
                )
                self.assertIs(
                    attention_specs.side_label_tensor(value, 3, from_global),
                    value,
                )

    def test_specs_become_tensors(self):
        l2l_mask, l2l_ids, l2g_mask, l2g_ids = self.specs
        self.assertAllEqual(
            tf.cast(attention_specs.band_mask_tensor(l2l_mask, 1), tf.int32),
            [_rows("011 110 010")],
        )
        self.assertAllEqual(
            attention_specs.band_label_tensor(l2l_ids, 1, 2),
            [_rows("201 201")],
        )
        self.assertAllEqual(
            tf.cast(attention_specs.side_mask_tensor(l2g_mask), tf.int32),
            [_rows("10 10 01")],
        )
        self.assertAllEqual(
            tf.cast(attention_specs.side_mask_tensor(l2g_mask, True), tf.int32),
            [_rows("110 001")],
        )
        self.assertAllEqual(
            attention_specs.side_label_tensor(l2g_ids, 2), [_rows("87 78 77")]
        )
        self.assertAllEqual(
            attention_specs.side_label_tensor(l2g_ids, 2, from_global=True),
            [_rows("877 787")],
        )

    @parameterized.product(hard_l2g=[False, True], hard_g2l=[False, True])
    def test_same_as_side_inputs(self, hard_l2g, hard_g2l):
        rng = np.random.default_rng(1)
        long_ids = tf.constant(rng.integers(0, 3, [2, 9]))
        global_ids = tf.constant(rng.integers(0, 3, [2, 4]))
        links = [tf.constant(rng.integers(-1, 5, [2, 9]))]
        make = feature_utils.side_inputs
        expected = (
            make.make_global_local_transformer_side_inputs_from_example_ids(
                long_ids,
                global_ids,
                links[0],
                local_radius=2,
                relative_pos_max_distance=1,
                use_hard_l2g_mask=hard_l2g,
                use_hard_g2l_mask=hard_g2l,
            )
        )
        l2g_mask, g2l_mask = (
            attention_specs.LongGlobalMask(
                long_ids, global_ids, links if is_hard else None
            )
            for is_hard in (hard_l2g, hard_g2l)
        )
        labels = attention_specs.LongGlobalLabels(links, 4, 3)
        for name, actual in (
            ("l2l_att_mask", attention_specs.SegmentMask(long_ids).to_band(2)),
            ("l2g_att_mask", l2g_mask.to_tensor()),
            ("g2l_att_mask", attention_specs.side_mask_tensor(g2l_mask, True)),
            ("l2g_relative_att_ids", labels.to_tensor(4)),
            (
                "g2l_relative_att_ids",
                attention_specs.side_label_tensor(labels, 4, True),
            ),
        ):
            self.assertAllEqual(
                getattr(expected, name), tf.cast(actual, tf.int32), msg=name
            )


if __name__ == "__main__":
    tf.test.main()
