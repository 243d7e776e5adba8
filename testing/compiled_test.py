import tensorflow as tf
from absl.testing import parameterized

from testing import compiled


def _print(x):
    tf.py_function(print, [x], [])
    return x


class OffendersTest(tf.test.TestCase, parameterized.TestCase):
    def _offenders(self, function):
        function = tf.function(function, jit_compile=True, autograph=False)
        return compiled.offenders(function, tf.constant([1, 2, 1]))

    def test_no_offenders(self):
        self.assertEqual([], self._offenders(lambda x: tf.math.top_k(x, 2)[0]))

    @parameterized.parameters(
        (lambda x: tf.unique(x)[0], "a dynamic size: .*Unique"),
        (lambda x: tf.cast(x, tf.float64), "64-bit floats: .*Cast"),
    )
    def test_offenders_in_the_hlo(self, function, expected):
        self.assertRegex("\n".join(self._offenders(function)), expected)

    def test_offenders_in_the_graph(self):
        """Checks only the graphs, since XLA cannot compile these functions."""

        def text(x):
            return tf.strings.as_string(x)

        for function, expected in (
            (_print, "runs on the host: .*EagerPyFunc"),
            (text, "a string: AsString"),
        ):
            function = tf.function(function, jit_compile=True, autograph=False)
            found = compiled.graph_offenders(
                function.get_concrete_function(tf.constant([1])).graph
            )
            self.assertRegex("\n".join(found), expected)


if __name__ == "__main__":
    tf.test.main()
