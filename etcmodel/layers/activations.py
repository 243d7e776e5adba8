"""Activation functions and their names in configuration files."""

from collections.abc import Callable

import tensorflow as tf

from etcmodel.ops import compilation
from etcmodel.ops import custom_gradients

_SQRT_2_OVER_PI = 0.7978845608028654
_SQRT_HALF = 0.7071067811865476
_CUBIC = 0.044715


@tf.keras.utils.register_keras_serializable(package="etcmodel")
def tanh_gelu(x: tf.Tensor) -> tf.Tensor:
    """Computes the Gaussian error linear unit, in its tanh form.

    BERT and ETC were trained with this form,
    `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`. Keras's string `"gelu"`
    means the exact (erf) form.
    """
    return _tanh_gelu(tf.convert_to_tensor(x))


@custom_gradients.custom_gradient
def _tanh_gelu(x):
    """Keeps only `x` for the gradient; TensorFlow would keep every step."""
    return _gelu_value(x), lambda upstream: _gelu_gradient(x, upstream)


def _widened(x):
    """Casts `x` to float32 if it has half precision."""
    is_half = x.dtype in (tf.float16, tf.bfloat16)
    return tf.cast(x, tf.float32) if is_half else x


def _tanh_of_gelu(x):
    """Returns `x`, in at least float32, and the tanh of its gelu."""
    x = _widened(x)
    inner = _SQRT_2_OVER_PI * (x + _CUBIC * x * x * x)
    return x, tf.tanh(inner)


@compilation.jit_if_large
def _gelu_value(x):
    wide, tanh = _tanh_of_gelu(x)
    return tf.cast(0.5 * wide * (1.0 + tanh), x.dtype)


@compilation.jit_if_large
def _gelu_gradient(x, upstream):
    wide, tanh = _tanh_of_gelu(x)
    slope = _SQRT_2_OVER_PI * (1.0 + 3.0 * _CUBIC * wide * wide)
    derivative = 0.5 * (1.0 + tanh + wide * (1.0 - tanh * tanh) * slope)
    return tf.cast(derivative, x.dtype) * upstream


@tf.keras.utils.register_keras_serializable(package="etcmodel")
def exact_gelu(x: tf.Tensor) -> tf.Tensor:
    """Computes the Gaussian error linear unit, in its exact (erf) form.

    The form is `0.5 x (1 + erf(x / sqrt(2)))`, as in Hugging Face's models.
    `tf.nn.gelu` takes longer on a CPU: for `[4192, 1536]`, 25 instead of 12 ms,
    in bfloat16 57 instead of 18 ms (2 cores, busy).
    """
    return _exact_gelu(tf.convert_to_tensor(x))


@custom_gradients.custom_gradient
def _exact_gelu(x):
    """Keeps only `x` for the gradient."""
    return _exact_value(x), lambda upstream: _exact_gradient(x, upstream)


@compilation.jit_if_large
def _exact_value(x):
    wide = _widened(x)
    # LiteRT fuses operations in this order into its GELU.
    value = 0.5 * wide * (1.0 + tf.math.erf(wide * _SQRT_HALF))
    return tf.cast(value, x.dtype)


@compilation.jit_if_large
def _exact_gradient(x, upstream):
    wide = _widened(x)
    # The derivative of `erf(x / sqrt(2))` is `sqrt(2 / pi) exp(-x^2 / 2)`.
    slope = _SQRT_2_OVER_PI * tf.exp(-0.5 * wide * wide)
    derivative = 0.5 * (1.0 + tf.math.erf(wide * _SQRT_HALF) + wide * slope)
    return tf.cast(derivative, x.dtype) * upstream


# The name in configuration files and in the original code. The function has
# another name, because Keras would read "gelu" in a saved layer as its own
# function, the exact form.
gelu = tanh_gelu


def get_layer_activation(identifier):
    """Returns a layer's activation, as Keras does except for "gelu".

    The string "gelu" means the tanh form, as everywhere in this package.
    Keras's own function, `tf.keras.activations.gelu`, is the exact form but is
    saved as "gelu". It is therefore replaced by `exact_gelu`, which is saved
    under its own name.
    """
    if isinstance(identifier, str) and identifier.lower() == "gelu":
        return gelu
    function = tf.keras.activations.get(identifier)
    return exact_gelu if function is tf.keras.activations.gelu else function


def get_activation(activation_string: str | Callable | None) -> Callable | None:
    """Returns the activation function that a configuration file names.

    The names are '' or 'linear' (None), 'relu', 'gelu' (the tanh form),
    'exact_gelu' (the erf form) and 'tanh', in upper or lower case. A function
    is returned as given.

    Raises:
        ValueError: the name is unknown.
    """
    if not isinstance(activation_string, str):
        return activation_string
    known = {
        "": None,
        "linear": None,
        "relu": tf.nn.relu,
        "gelu": gelu,
        "exact_gelu": exact_gelu,
        "tanh": tf.tanh,
    }
    lowered = activation_string.lower()
    if lowered not in known:
        raise ValueError(
            f"Unknown activation '{activation_string}'. Expected one of "
            "'linear', 'relu', 'gelu', 'exact_gelu', 'tanh', or a function."
        )
    return known[lowered]
