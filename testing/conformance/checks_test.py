import unittest

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import keras_compat
from testing.conformance import cases
from testing.conformance import checks
from testing.conformance import suite


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class Good(tf.keras.layers.Layer):
    """A layer that passes all checks."""

    def __init__(self, units=2, scale=1.0, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.scale = scale
        self.dense = tf.keras.layers.Dense(
            units, dtype=self.dtype_policy, name="dense"
        )
        self.dropout = tf.keras.layers.Dropout(
            0.5, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, input_shape):
        keras_compat.build_once(self.dense, input_shape)
        super().build(input_shape)

    def call(self, inputs, training=None):
        dropped = self.dropout(self.dense(inputs), training=training)
        return self.scale * dropped

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "scale": self.scale,
        }


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class ForgetsAnArgument(Good):
    def get_config(self):
        config = super().get_config()
        del config["scale"]
        return config


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class ConfigIsOfAnother(Good):
    def get_config(self):
        return {**super().get_config(), "scale": 1.0}


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class DiffersInGraphs(Good):
    def call(self, inputs, training=None):
        outputs = super().call(inputs, training=training)
        return outputs if tf.executing_eagerly() else 1.01 * outputs


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class KeepsTheFirstLength(Good):
    def build(self, input_shape):
        super().build(input_shape)
        self.length = input_shape[1]

    def call(self, inputs, training=None):
        outputs = super().call(inputs, training=training)
        return outputs[:, : self.length]


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class TellsAnotherShape(Good):
    def compute_output_shape(self, input_shape):
        return input_shape


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class HasOneName(Good):
    def __init__(self, units=2, scale=1.0, name="fixed", **kwargs):
        super().__init__(units, scale, name=name, **kwargs)


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class AlwaysDrops(Good):
    def call(self, inputs, training=None):
        return super().call(inputs, training=True)


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class NeverDrops(Good):
    def call(self, inputs, training=None):
        return super().call(inputs, training=False)


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class TrainsNoBias(Good):
    def call(self, inputs, training=None):
        bias = tf.convert_to_tensor(self.dense.bias)
        outputs = super().call(inputs, training=training)
        return outputs + tf.cast(
            self.scale * (tf.stop_gradient(bias) - bias), outputs.dtype
        )


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class IsNotInCheckpoints(Good):
    def _trackable_children(self, *args, **kwargs):
        children = super()._trackable_children(*args, **kwargs)
        # In Keras 3, lists of layers are missing in checkpoints like this.
        return {k: x for k, x in children.items() if k != "dense"}


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class ReadsTheKernel(Good):
    def call(self, inputs, training=None):
        kernel = tf.convert_to_tensor(self.dense.kernel)
        return self.scale * tf.matmul(inputs, tf.cast(kernel, inputs.dtype))


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class StartsEqual(Good):
    def build(self, input_shape):
        super().build(input_shape)
        self.dense.kernel.assign(np.ones([3, self.units]))


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class LosesDigits(Good):
    def call(self, inputs, training=None):
        outputs = super().call(inputs, training=training)
        if outputs.dtype == tf.float32:
            return outputs
        return tf.round(outputs)


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class IgnoresThePolicy(Good):
    def __init__(self, units=2, scale=1.0, **kwargs):
        super().__init__(units, scale, **kwargs)
        self.dense = tf.keras.layers.Dense(units, dtype="float32", name="dense")


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class HasAWrongGradient(Good):
    def call(self, inputs, training=None):
        del training
        return _cube(self.dense(inputs))


@tf.custom_gradient
def _cube(x):
    return x**3, lambda upstream: 3.1 * x * x * upstream


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class SlicesTooMuch(Good):
    """A layer with a slice that XLA rejects for fewer than five sequences."""

    def call(self, inputs, training=None):
        outputs = super().call(inputs, training=training)
        return tf.cond(
            tf.shape(outputs)[0] < 5,
            lambda: outputs,
            lambda: tf.slice(outputs, [0, 0, 0], [5, 1, 1]),
        )


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class FillsEmptyBatches(Good):
    def call(self, inputs, training=None):
        outputs = super().call(inputs, training=training)
        missing = tf.maximum(1 - tf.shape(outputs)[0], 0)
        return tf.pad(outputs, [[0, missing], [0, 0], [0, 0]])


def make_suite(layer_class):
    return suite.Suite(
        __name__,
        {
            "good": cases.Case(
                layer_class,
                dict(units=2, scale=2.0),
                dict(inputs=cases.floats("batch", "seq", 3)),
                (("batch", "seq", 2),),
                has_dropout=True,
            )
        },
    )


SUITE = make_suite(Good)
BAD = (
    ("config", ForgetsAnArgument, "scale is not in"),
    ("config", ConfigIsOfAnother, "scale"),
    ("calls", DiffersInGraphs, "of a graph"),
    ("calls", KeepsTheFirstLength, "output"),
    ("calls", HasOneName, "fixed"),
    ("default_name", HasOneName, "fixed"),
    ("default_name", NeverDrops, "never_drops"),
    ("output_shape", TellsAnotherShape, "3"),
    ("training", AlwaysDrops, "not equal"),
    ("training", NeverDrops, ""),
    ("gradients", TrainsNoBias, "dense/bias has no gradient"),
    ("checkpoint", IsNotInCheckpoints, "0 of 2 weights are saved"),
    ("initial_weights", StartsEqual, "1"),
    *(
        [("quantized", ReadsTheKernel, "outputs are off by")]
        if hasattr(tf.keras.Model, "quantize")
        else []
    ),
    ("mixed_bfloat16", LosesDigits, "outputs are off by"),
    ("mixed_float16", LosesDigits, "outputs are off by"),
    ("mixed_bfloat16", IgnoresThePolicy, "dense"),
    ("derivatives", HasAWrongGradient, "first derivatives"),
    ("compiled", SlicesTooMuch, "size.0."),
    ("empty", FillsEmptyBatches, "without batch"),
)


class GoodTest(checks.make_test_case(SUITE)):
    """Tests that a correct layer passes all checks."""

    def test_there_is_a_test_of_each_check(self):
        names = [name for name in dir(self) if name.endswith("_of_good")]
        self.assertEqual(15, len(names), names)


class ChecksTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*BAD)
    def test_finds(self, check, layer_class, message):
        errors = (AssertionError, ValueError, tf.errors.InvalidArgumentError)
        check = (checks.CHECKS | checks.ONE_KERAS_CHECKS)[check]
        with self.assertRaisesRegex(errors, message):
            check(make_suite(layer_class)["good"])

    def test_finds_wrong_files_and_reports_exceptions(self):
        suite = make_suite(Good)
        prepared = suite["good"]
        outputs = cases.as_arrays(prepared.model(prepared.case.make_inputs()))
        suite.restored = {
            ("good", "keras"): [outputs[0], 1.01 * outputs[1]],
            ("good", "weights"): "OSError: no such file",
            ("good", "saved_model"): [],
        }
        with self.assertRaisesRegex(AssertionError, "output 1 of a keras"):
            checks.check_keras_file(prepared)
        with self.assertRaisesRegex(AssertionError, "no such file"):
            checks.check_weights_file(prepared)
        with self.assertRaises(AssertionError):
            checks.check_saved_model(prepared)


if __name__ == "__main__":
    unittest.main()
