import types
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.engine import evaluate
from etcmodel.engine import rounded_metrics
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError

_NAN = float("nan")


def _found(before, after, is_lower_better=False, name="f1"):
    metrics = {"float32": {name: before}, "int8": {name: after}}
    return evaluate.Rounded(metrics, name, is_lower_better, 9)


class RoundedMetricsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # A point of a hundred, on both scales.
        (0.5, 0.4901, False, 1),
        (50.0, 49.01, False, 100),
        (0.5, 0.9, False, 1),
        (0.5, 0.509, True, 1),
        # Squared errors have no scale of their own.
        (-200.0, -201.9, False, 1),
        (200.0, 201.9, True, 1),
    )
    def test_a_small_fall_passes(self, before, after, is_lower, scale):
        found = _found(before, after, is_lower)
        rounded_metrics.check(found, "int8", 0.01, scale)

    @parameterized.parameters(
        (0.5, 0.4899, False, 1),
        (50.0, 48.9, False, 100),
        (0.5, 0.511, True, 1),
        (-200.0, -202.1, False, 1),
        (0.5, _NAN, False, 1),
    )
    def test_a_larger_fall_is_refused(self, before, after, is_lower, scale):
        change = "rises" if is_lower else "falls"
        with self.assertRaisesRegex(
            UserError,
            f"`weights=int8`, f1 {change} from {before:.4g} .float32. to "
            f"{after:.4g}, by more than .*`tolerance=0.01`",
        ):
            rounded_metrics.check(
                _found(before, after, is_lower), "int8", 0.01, scale
            )

    def test_a_loss_is_its_own_scale(self):
        check = rounded_metrics.check
        check(_found(0.9, 0.908, True, "a_loss"), "int8", 0.01, 100)
        with self.assertRaisesRegex(UserError, "more than 0.009, the limit"):
            check(_found(0.9, 0.91, True, "a_loss"), "int8", 0.01, 100)

    @parameterized.parameters(-0.1, 1.0, 1.85, _NAN)
    def test_tolerance_out_of_range(self, tolerance):
        options = types.SimpleNamespace(tolerance=tolerance)
        with self.assertRaisesRegex(UserError, f"`tolerance` is {tolerance}, "):
            rounded_metrics.check_tolerance(options)

    def test_data_without_the_metric(self):
        with self.assertRaisesRegex(UserError, "do not have the metric f1"):
            found = _found(0.5, 0.5)
            found.metrics["int8"].clear()
            rounded_metrics.check(found, "int8", 0.01, 1)

    def test_nothing_is_evaluated_without_data(self):
        options = types.SimpleNamespace(validation_data=None)
        with mock.patch.object(evaluate, "evaluate_rounded") as evaluated:
            found = rounded_metrics.measure(options, None, Reporter("quiet"))
        self.assertIsNone(found)
        evaluated.assert_not_called()


if __name__ == "__main__":
    tf.test.main()
