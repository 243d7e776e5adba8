import gc
import weakref

import tensorflow as tf

from etcmodel.ops import traces


class Scale(tf.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.calls = []

    def apply(self, x):
        self.calls.append(x.shape.as_list())
        return x * self.factor


class TracesTest(tf.test.TestCase):
    def test_a_function_is_traced_once(self):
        shapes = []

        @traces.once
        def double(x):
            shapes.append(x.shape.as_list())
            return x + x

        def in_graph(x):
            return double(double(x)), double(x)

        specs = [tf.TensorSpec([None])]
        function = tf.function(in_graph, input_signature=specs)
        self.assertAllEqual([[12.0], [6.0]], function(tf.constant([3.0])))
        tf.function(in_graph, input_signature=specs)(tf.constant([1.0, 2.0]))
        self.assertEqual([[None]], shapes)
        calls = [
            x.type
            for x in function.get_concrete_function().graph.get_operations()
            if "Call" in x.type
        ]
        self.assertLen(calls, 3)

    def test_eager_calls_log_no_warning_about_traces(self):
        double = traces.once(lambda x: x + x)
        with self.assertNoLogs("tensorflow", "WARNING"):
            for kind in "int8 int16 int32 int64 float16 float32".split():
                double(tf.ones([1], kind))

    def test_each_object_has_a_trace_of_a_method(self):
        first, second = Scale(2.0), Scale(3.0)

        @tf.function(input_signature=[tf.TensorSpec([None])])
        def in_graph(x):
            for scale in (first, second, first):
                x = traces.once_method(scale.apply)(x)
            return x

        self.assertAllEqual([12.0], in_graph(tf.constant([1.0])))
        self.assertLen(first.calls, 1)
        self.assertLen(second.calls, 1)

    def test_objects_are_freed_and_do_not_hold_it(self):
        scale = Scale(2.0)
        traces.once_method(scale.apply)(tf.constant([1.0]))
        self.assertFalse(any(map(callable, vars(scale).values())))
        reference = weakref.ref(scale)
        del scale
        gc.collect()
        self.assertIsNone(reference())


if __name__ == "__main__":
    tf.test.main()
