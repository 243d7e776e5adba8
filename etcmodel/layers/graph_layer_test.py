import pytest
import tensorflow as tf

from etcmodel.layers import graph_layer


def _positive(x):
    """Branches on a tensor, which only AutoGraph can convert."""
    return x if tf.reduce_sum(x) > 0 else -x


class Branches(graph_layer.GraphLayer):
    def call(self, inputs, training=None):
        return _positive(inputs) if training is None else inputs


class Renamed(graph_layer.GraphLayer):
    _FORMER_NAMES = {"rate": "hidden_dropout_prob"}

    def __init__(self, hidden_dropout_prob, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dropout_prob = hidden_dropout_prob


@pytest.mark.both_kerases
class GraphLayerTest(tf.test.TestCase):
    def test_call_is_not_rewritten(self):
        layer = Branches()
        self.assertAllEqual([2.0, 1.0], layer(tf.constant([-2.0, -1.0])))
        with self.assertRaisesRegex(Exception, "AutoGraph"):
            tf.function(layer).get_concrete_function(tf.zeros([2]))
        with self.assertRaisesRegex(Exception, "AutoGraph"):
            layer(tf.keras.Input([3]))

    def test_symbolic_calls_need_only_shapes(self):
        asked = []

        class Outer(graph_layer.GraphLayer):
            def call(self, inputs):
                return Recorder()(inputs)

        class Recorder(tf.keras.layers.Layer):
            def call(self, inputs):
                asked.append(graph_layer.needs_only_shapes())
                return inputs

        layer = Outer()
        inputs = tf.keras.Input([3])
        model = tf.keras.Model(inputs, layer(inputs))
        self.assertEqual([True], asked)
        asked.clear()
        model(tf.zeros([2, 3]))
        layer(tf.zeros([2, 3]))
        tf.function(layer)(tf.zeros([2, 3]))
        self.assertEqual([False] * 3, asked)

    def test_configs_may_have_former_names(self):
        for saved in ({"rate": 0.5}, {"hidden_dropout_prob": 0.5}):
            layer = Renamed.from_config({"name": "it", **saved})
            self.assertEqual(0.5, layer.hidden_dropout_prob)
            self.assertEqual("it", layer.name)

    def test_arguments_are_passed_on(self):
        outputs = tf.function(Branches())(tf.constant([-2.0]), training=True)
        self.assertAllEqual([-2.0], outputs)


if __name__ == "__main__":
    tf.test.main()
