"""Activation functions and the names configuration files have for them."""

from collections.abc import Callable

import tensorflow as tf


@tf.keras.utils.register_keras_serializable(package="etcmodel")
def tanh_gelu(x: tf.Tensor) -> tf.Tensor:
    """Gaussian error linear unit, in its tanh form.

    `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`, the form BERT and ETC
    were trained with. Keras's string `"gelu"` means the exact (erf) form.

    Args:
        x: <float>[...].

    Returns:
        <same dtype>[...].
    """
    x = tf.convert_to_tensor(x)
    inner = x
    if x.dtype == tf.float16:
        # The cube would overflow and make the gradient NaN; tanh is flat
        # long before.
        inner = tf.clip_by_value(x, -10.0, 10.0)
    sqrt_2_over_pi = 0.7978845608028654
    cubic = sqrt_2_over_pi * 0.044715
    return (
        0.5
        * x
        * (1.0 + tf.tanh(inner * (sqrt_2_over_pi + cubic * inner * inner)))
    )


# The name that configuration files and the original code have for it. The
# function itself has another one, because Keras would read "gelu" back from
# a saved layer as its own, exact form.
gelu = tanh_gelu


def get_activation(activation_string: str | Callable | None) -> Callable | None:
    """Activation function of a configuration file's name for it.

    Args:
        activation_string: '' or 'linear' (none), 'relu', 'gelu' (the tanh
            form) or 'tanh', in any case. Anything that is not a string is
            returned as it is.

    Returns:
        The function, or None for no activation.

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
        "tanh": tf.tanh,
    }
    lowered = activation_string.lower()
    if lowered not in known:
        raise ValueError(
            f"unknown activation '{activation_string}'; expected one of "
            "'linear', 'relu', 'gelu', 'tanh', or a function"
        )
    return known[lowered]
