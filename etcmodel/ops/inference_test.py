import os

import tensorflow as tf
from absl.testing import parameterized
from tensorflow.core.protobuf import saved_model_pb2

from etcmodel.layers import activations
from etcmodel.ops import inference
from etcmodel.ops import shared_graphs


class ForInferenceTest(tf.test.TestCase, parameterized.TestCase):
    traced = staticmethod(shared_graphs.shared(activations.gelu))

    def _stored(self, name):
        """Counts custom gradients and compiled functions in a SavedModel."""
        path = os.path.join(self.get_temp_dir(), name)
        module = tf.Module()
        # Large enough to be compiled.
        module.call = tf.function(
            lambda x: activations.gelu(self.traced(x)),
            input_signature=[tf.TensorSpec([512, 512])],
            autograph=False,
        )
        tf.saved_model.save(module, path)
        with open(os.path.join(path, "saved_model.pb"), "rb") as file:
            stored = saved_model_pb2.SavedModel.FromString(file.read())
        functions = stored.meta_graphs[0].graph_def.library.function
        kinds = [
            node.attr["_gradient_op_type"].s
            for function in functions
            for node in function.node_def
        ]
        return (
            sum(x.startswith(b"CustomGradient") for x in kinds),
            sum(x.attr["_XlaMustCompile"].b for x in functions),
        )

    def test_holds_no_gradients_and_nothing_compiled(self):
        with inference.for_inference():
            self.assertEqual((0, 0), self._stored("inference"))
        gradients, compiled = self._stored("training")
        self.assertGreater(gradients, 0)
        self.assertGreater(compiled, 0)

    @parameterized.parameters(False, True)
    def test_holds_calls_unless_inlined(self, inline):
        function = tf.function(
            self.traced, input_signature=[tf.TensorSpec([2])], autograph=False
        )
        with inference.for_inference(inline=inline):
            graph = function.get_concrete_function().graph
        calls = [x for x in graph.get_operations() if "Call" in x.type]
        self.assertLen(calls, 0 if inline else 1)
        # gelu(x) = x * Phi(x); Phi is the cumulative distribution function
        # of the standard normal distribution.
        self.assertAllClose([0.0, 2 * 0.97725], function([0.0, 2.0]), 1e-3)


if __name__ == "__main__":
    tf.test.main()
