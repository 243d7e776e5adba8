"""Activation functions and the names configuration files have for them."""

from collections.abc import Callable

import tensorflow as tf

from etcmodel.ops import compilation
from etcmodel.ops import custom_gradients

_SQRT_2_OVER_PI = 0.7978845608028654
_CUBIC = 0.044715


@tf.keras.utils.register_keras_serializable(package="etcmodel")
def tanh_gelu(x: tf.Tensor) -> tf.Tensor:
    """Gaussian error linear unit, in its tanh form.

    `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`, the form BERT and ETC
    were trained with. Keras's string `"gelu"` means the exact (erf) form.
    """
    return _tanh_gelu(tf.convert_to_tensor(x))


@custom_gradients.custom_gradient
def _tanh_gelu(x):
    """Keeps nothing but `x`, where TensorFlow would keep seven steps."""
    return _gelu_value(x), lambda upstream: _gelu_gradient(x, upstream)


def _tanh_of_gelu(x):
    """`x` as it is computed with, and the tanh."""
    if x.dtype in (tf.float16, tf.bfloat16):
        x = tf.cast(x, tf.float32)
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
    """Gaussian error linear unit, in its exact (erf) form."""
    return tf.nn.gelu(x, approximate=False)


# The name that configuration files and the original code have for it. The
# function itself has another one, because Keras would read "gelu" back from
# a saved layer as its own, exact form.
gelu = tanh_gelu


def get_layer_activation(identifier):
    """Activation of a layer, by Keras's rules but for "gelu".

    The string is the tanh form, as everywhere in this package. Keras's own
    function, `tf.keras.activations.gelu`, is the exact form, but "gelu" in a
    configuration: it becomes `exact_gelu`, which has another name there.
    """
    if isinstance(identifier, str) and identifier.lower() == "gelu":
        return gelu
    function = tf.keras.activations.get(identifier)
    return exact_gelu if function is tf.keras.activations.gelu else function


def get_activation(activation_string: str | Callable | None) -> Callable | None:
    """Activation function of a configuration file's name for it.

    Names, in any case: '' or 'linear' (None), 'relu', 'gelu' (the tanh form),
    'exact_gelu' (the erf form) and 'tanh'. What is no string is returned.

    Raises:
        ValueError: an unknown name.
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
            f"unknown activation '{activation_string}'; expected one of "
            "'linear', 'relu', 'gelu', 'exact_gelu', 'tanh', or a function"
        )
    return known[lowered]
