import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import checks


def _guarded(ids, more):
    found = [
        checks.in_range("ids", ids, 0, 9),
        checks.in_range("more", more, -1, [0, 1], "expected little"),
    ]
    return checks.guard(found, "Example: [0, 9].", ids, None)


class ChecksTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(np.int32, np.int64, np.uint8)
    def test_right_values_are_returned(self, dtype):
        ids = tf.constant([[0, 9, 9], [1, 2, 3]], dtype)
        more = tf.constant([[0], [1]], dtype)
        for call in (_guarded, tf.function(_guarded)):
            given, nothing = call(ids, more)
            self.assertAllEqual(ids, given)
            self.assertIsNone(nothing)

    @parameterized.parameters(
        ([[0, 1], [9, 10]], [[0], [0]], "ids", "0 to 9", 1, 10),
        ([[-1, 1], [9, 9]], [[0], [0]], "ids", "0 to 9", 0, -1),
        ([[0, 1], [9, 9]], [[1], [0]], "more", "little", 0, 1),
        ([[0, 1], [9, 9]], [[0], [2]], "more", "little", 1, 2),
    )
    def test_first_wrong_row(self, ids, more, name, expected, row, value):
        ids, more = tf.constant(ids), tf.constant(more)
        with self.assertRaisesRegex(
            ValueError,
            rf"^{name} is {value} in row {row} .*: expected {expected}\.\n"
            r"Example: \[0, 9\]\.$",
        ):
            _guarded(ids, more)
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError,
            rf"{name}: expected {expected}\.\] .*Row.* \[{row}\] .* "
            rf"\[{value}\] \[Example",
        ):
            tf.function(_guarded)(ids, more)

    def test_unused_and_empty_values(self):
        unused = checks.in_range(
            "ids",
            tf.constant([[7, 0]]),
            0,
            1,
            is_used=tf.constant([[False, True]]),
        )
        self.assertAllEqual([False], unused.is_broken)

        def call(ids):
            return checks.guard([checks.in_range("ids", ids, 0, 1)], "", ids)

        for shape in ([0, 3], [2, 0]):
            ids = tf.zeros(shape, tf.int32)
            for function in (call, tf.function(call)):
                self.assertAllEqual(ids, function(ids)[0])

    def test_xla_compiles_it_without_assertions(self):
        compiled = tf.function(_guarded, jit_compile=True)
        wrong = tf.constant([[-1, 1], [9, 9]]), tf.constant([[0], [0]])
        self.assertAllEqual(wrong[0], compiled(*wrong)[0])
        graph = compiled.get_concrete_function(*wrong).graph
        kinds = {x.type for x in graph.get_operations()}
        self.assertNotIn("Assert", kinds)


if __name__ == "__main__":
    tf.test.main()
