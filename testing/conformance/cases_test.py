import numpy as np
import tensorflow as tf

from etcmodel.weight_paths import get_weight_paths
from testing.conformance import cases


class _Pair(tf.keras.layers.Layer):
    """Two layers, one of them under two names."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = tf.keras.layers.Dense(2)
        self.again = self.first
        self.others = [tf.keras.layers.Dense(1, use_bias=False)]
        self.others_0 = self.others[0]

    def call(self, inputs):
        return self.others[0](self.first(inputs))


class CasesTest(tf.test.TestCase):
    def test_inputs_are_of_their_axes_and_ranges(self):
        sizes = dict(batch=50, seq=3)
        ids = cases.ints(4, "batch", "seq", 2, min_value=1)
        self.assertEqual([50, 3, 2], ids.shape(sizes))
        self.assertEqual([None, None, 2], ids.shape(cases.unknown_sizes()))
        values = ids.make("ids", sizes)
        self.assertAllEqual([1, 2, 3], np.unique(values))
        self.assertAllEqual(values, ids.make("ids", sizes))
        self.assertNotAllEqual(values, ids.make("others", sizes))
        mask = cases.bools("batch").make("mask", sizes)
        self.assertEqual(bool, mask.dtype)
        self.assertBetween(mask.mean(), 0.6, 0.9)
        self.assertEqual(
            np.float32, cases.floats("batch").make("x", sizes).dtype
        )

    def test_a_case_calls_its_layer(self):
        case = cases.Case(
            tf.keras.layers.Dot,
            dict(axes=1),
            dict(x=cases.floats("batch", 3), y=cases.floats("side", 3)),
            (("batch", 1),),
            never_empty=("batch",),
        )
        self.assertNotIn(0, [sizes["batch"] for sizes in case.sizes])
        self.assertLen(case.sizes, len(cases.OTHER_SIZES))
        layer = case.make_layer(name="dot")
        self.assertEqual(("dot", 1), (layer.name, layer.axes))
        self.assertEqual([3, 3], case.make_inputs()["y"].shape)
        scale = cases.Case(lambda: None, {}, {}, ()).call(
            lambda x, y, factor: {"b": x * factor, "a": (y, None)},
            dict(x=tf.constant(2.0), y=tf.constant(3.0)),
            factor=5.0,
        )
        self.assertAllEqual([3.0, 10.0], scale)

    def test_random_weights(self):
        layers = [_Pair(), _Pair(), _Pair()]
        for layer, seed in zip(layers, (1, 1, 2), strict=True):
            layer(tf.zeros([1, 3]))
            layer.set_weights([np.ones(w.shape) for w in layer.get_weights()])
            cases.randomize(layer, seed)
        weights = [np.ravel(layer.get_weights()[0]) for layer in layers]
        self.assertAllEqual(weights[0], weights[1])
        self.assertNotIn(1.0, weights[0])
        self.assertNotAllClose(weights[0], weights[2])

    def test_comparisons(self):
        cases.assert_close([tf.ones([2])], {"x": np.ones(2) + 1e-7})
        with self.assertRaises(AssertionError):
            cases.assert_close([tf.ones([2])], [tf.constant([1.0, 1.001])])
        with self.assertRaises(AssertionError):
            cases.assert_close([tf.ones([2])], [tf.ones([2])] * 2)
        # (3, 4) is off by (0, 0.5).
        self.assertAllClose(
            0.1,
            cases.relative_error(
                [tf.constant(3.0), tf.constant(4.5, tf.bfloat16)],
                [tf.constant(3.0), tf.constant(4.0)],
            ),
        )
        self.assertEqual(0.0, cases.relative_error([], []))

    def test_gradients(self):
        case = cases.Case(
            _Pair, {}, dict(inputs=cases.floats("batch", 3)), (("batch", 1),)
        )
        layer = _Pair()
        case.call(layer, case.make_inputs())
        gradients = cases.gradients_of(case, layer)
        self.assertEqual(list(get_weight_paths(layer)), list(gradients))
        for path, weight in get_weight_paths(layer).items():
            self.assertEqual(tuple(weight.shape), gradients[path].shape)
            self.assertGreater(np.max(np.abs(gradients[path])), 0)
        layer.first.trainable = False
        self.assertEqual(
            ["others_0/kernel"], list(cases.gradients_of(case, layer))
        )


if __name__ == "__main__":
    tf.test.main()
