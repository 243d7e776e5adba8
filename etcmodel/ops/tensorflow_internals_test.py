import importlib
import types
import warnings
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import checks
from etcmodel.ops import custom_gradients
from etcmodel.ops import shared_graphs
from etcmodel.ops import tensorflow_internals

X = tf.constant([0.5, -1.5, 2.0])


@shared_graphs.shared
@custom_gradients.custom_gradient
def _cube(x):
    return x**3, lambda upstream: 3.0 * x**2 * upstream


def _slope(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = _cube(x)
    return tape.gradient(y, x)


def _slope_of_slope(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        slope = _slope(x)
    return tape.gradient(slope, x)


def _forward(x):
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
        y = _cube(x)
    return accumulator.jvp(y)


class AnswersTest(tf.test.TestCase, parameterized.TestCase):
    def test_forward_mode(self):
        other = tf.constant(1.0)
        with tf.autodiff.ForwardAccumulator(X, X):
            self.assertTrue(tensorflow_internals.is_forward_mode([other, X]))
            self.assertFalse(tensorflow_internals.is_forward_mode([other]))
        self.assertFalse(tensorflow_internals.is_forward_mode([X]))

    @parameterized.parameters(
        (0, False, False), (1, False, False), (1, True, True), (2, False, True)
    )
    def test_tapes(self, number, is_persistent, expected):
        def ask(number):
            if not number:
                return tensorflow_internals.has_several_tapes([X])
            with tf.GradientTape(persistent=is_persistent) as tape:
                tape.watch(X)
                return ask(number - 1)

        self.assertEqual(expected, ask(number))

    def test_compilation(self):
        answers = []

        def ask(x):
            answers.append(tensorflow_internals.is_compiled_whole())
            return x

        ask(X)
        tf.function(ask)(X)
        tf.function(ask, jit_compile=True)(X)
        # `ask` runs in a function that a compiled function calls.
        tf.function(lambda x: tf.function(ask)(x), jit_compile=True)(X)
        self.assertEqual([False, False, True, True], answers)


class VectorizedTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.answers = []

    def ask(self, x, scope="inside"):
        with tf.name_scope(scope):
            self.answers.append(tensorflow_internals.is_vectorized())
        return x

    def test_loops(self):
        def jacobian(x):
            @tf.custom_gradient
            def same(x):
                return x, self.ask

            with tf.GradientTape() as tape:
                tape.watch(x)
                y = same(x)
            return tape.jacobian(y, x)

        def loop(x):
            return tf.vectorized_map(self.ask, x)

        def loop_in_a_loop(x):
            return tf.vectorized_map(loop, tf.stack([x, x]))

        def second(x):
            tf.vectorized_map(tf.identity, x)
            return loop(x)

        def loop_in_a_scope(x):
            with tf.name_scope("loop_body"):
                return loop(x)

        def within_control_flow(x):
            return tf.vectorized_map(
                lambda row: tf.while_loop(
                    lambda row: row < 1.0,
                    lambda row: [self.ask(row) + 1],
                    [row],
                ),
                x,
            )

        def user_scope(x):
            return tf.vectorized_map(lambda row: self.ask(row, "loop_body"), x)

        for function in (
            loop,
            jacobian,
            loop_in_a_loop,
            second,
            loop_in_a_scope,
            within_control_flow,
            user_scope,
        ):
            runs = [function, tf.function(function, autograph=False)]
            # XLA cannot compile the vectorized `tf.while_loop`.
            if function is not within_control_flow:
                runs.append(tf.function(function, jit_compile=True))
            for run in runs:
                self.answers.clear()
                run(X)
                self.assertEqual({True}, set(self.answers), function)

    @parameterized.parameters(
        "loop_body", "loop_body_1", "loop_body_mine", "a/loop_body/b"
    )
    def test_user_scopes_are_not_loops(self, scope):
        def after_a_loop(x):
            tf.vectorized_map(tf.identity, x)
            return self.ask(x, scope)

        def with_a_placeholder(x):
            with tf.name_scope(scope):
                x = tf.compat.v1.placeholder_with_default(x, x.shape)
                return self.ask(x)

        def in_a_function_after_a_loop(x):
            tf.vectorized_map(tf.identity, x)
            return tf.function(self.ask, autograph=False)(x, scope)

        for run in (
            lambda x: self.ask(x, scope),
            after_a_loop,
            in_a_function_after_a_loop,
            with_a_placeholder,
        ):
            tf.function(run, autograph=False)(X)
        self.ask(X, scope)
        self.assertEqual([False] * 5, self.answers)

    @parameterized.parameters("loop_body", "loop_body_mine")
    def test_layers_in_user_scopes_keep_their_backward_pass(self, scope):
        @custom_gradients.custom_gradient
        def double(x):
            """Doubles its input; its custom gradient is 7."""
            return 2.0 * x, lambda upstream: 7.0 * upstream

        @tf.function
        def derivative(x):
            with tf.name_scope(scope), tf.GradientTape() as tape:
                tape.watch(x)
                y = double(x)
            return tape.gradient(y, x)

        self.assertAllClose([7.0] * 3, derivative(X))


class OtherVersionTest(tf.test.TestCase, parameterized.TestCase):
    """Tests TensorFlow versions that lack one of its private functions."""

    def setUp(self):
        super().setUp()
        self.addCleanup(tensorflow_internals._find.cache_clear)
        tensorflow_internals._find.cache_clear()

    def remove(self, module, name):
        """Removes an attribute of a module or, without a name, the module."""
        # Only importlib's lookups fail: TensorFlow itself uses most of these
        # functions.
        removed, import_module = (
            f"tensorflow.python.{module}",
            importlib.import_module,
        )

        def other_version(path):
            found = import_module(path)
            if path != removed:
                return found
            if name is None:
                raise ModuleNotFoundError(f"No module named {path!r}")
            others = {k: v for k, v in vars(found).items() if k != name}
            return types.SimpleNamespace(**others)

        patch = mock.patch.object(importlib, "import_module", other_version)
        patch.start()
        self.addCleanup(patch.stop)

    @parameterized.parameters(
        ("eager.forwardprop_util", "pack_tangents"),
        ("eager.forwardprop_util", None),
        ("ops.gradients_util", "PossibleTapeGradientTypes"),
        ("ops.gradients_util", "POSSIBLE_GRADIENT_TYPES_HIGHER_ORDER"),
        ("ops.gradients_util", None),
        ("ops.control_flow_util", "GraphOrParentsInXlaContext"),
        ("ops.control_flow_util", None),
    )
    def test_results_are_the_same(self, module, name):
        self.remove(module, name)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for derivative, expected in (
                (_slope, 3.0 * X**2),
                (_slope_of_slope, 6.0 * X),
                (_forward, 3.0 * X**2),
            ):
                for run in (
                    derivative,
                    tf.function(derivative, autograph=False),
                    tf.function(derivative, autograph=False, jit_compile=True),
                ):
                    self.assertAllClose(expected, run(X))
        messages = [
            str(x.message) for x in caught if x.category is RuntimeWarning
        ]
        self.assertNotEmpty(messages)
        self.assertLen(set(messages), len(messages))
        for message in messages:
            self.assertStartsWith(
                message, f"TensorFlow {tf.__version__} has no "
            )
            self.assertIn(f"{module}.{name or ''}", message)

    def test_answers_without_private_functions(self):
        for module in (
            "eager.forwardprop_util",
            "ops.gradients_util",
            "ops.control_flow_util",
        ):
            self.remove(module, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertTrue(tensorflow_internals.is_forward_mode([X]))
            self.assertTrue(tensorflow_internals.has_several_tapes([X]))
            self.assertFalse(tensorflow_internals.is_compiled_whole())
            with tf.Graph().as_default():
                self.assertTrue(tensorflow_internals.is_compiled_whole())

    def test_graphs_with_checks_can_be_compiled(self):
        self.remove("ops.control_flow_util", "GraphOrParentsInXlaContext")

        @tf.function(jit_compile=True)
        def checked(ids):
            check = checks.in_range("ids", ids, 0, 3)
            (ids,) = checks.guard([check], "an example", ids)
            return ids * 2

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertAllEqual([[2, 4]], checked(tf.constant([[1, 2]])))


if __name__ == "__main__":
    tf.test.main()
