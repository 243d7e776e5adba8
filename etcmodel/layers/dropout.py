"""Dropout from explicit seeds, which recomputation can repeat."""

from collections.abc import Callable

import tensorflow as tf
from absl import logging

from etcmodel.layers import keras_compat
from etcmodel.ops import attention
from etcmodel.ops import dropout
from etcmodel.ops import recompute
from etcmodel.ops import shared_graphs


def smart_cond(
    pred, true_fn: Callable, false_fn: Callable, name: str | None = None
):
    """Calls `tf.cond`, or one function if `pred` is static (None is false)."""
    for fn in (true_fn, false_fn):
        if not callable(fn):
            raise TypeError(
                f"smart_cond needs two functions, but got {type(fn).__name__}."
            )
    if tf.is_tensor(pred):
        static_pred = tf.get_static_value(pred)
        if static_pred is None:
            return tf.cond(pred, true_fn, false_fn, name=name)
        pred = static_pred
    return true_fn() if pred else false_fn()


def stateless_dropout(
    x: tf.Tensor,
    rate,
    seed: tf.Tensor,
    noise_shape=None,
    name: str | None = None,
) -> tf.Tensor:
    """Applies dropout with a mask that depends only on a seed.

    If a uniform draw from [0, 1) is at least `rate`, an element is kept and
    divided by `1 - rate`. Otherwise it becomes 0.

    Args:
        x: `<float>[...]`.
        rate: in [0, 1); a number or a scalar tensor.
        seed: `<int32>[2]`.
        noise_shape: shape of the mask, which is broadcast to `x`; by default
            the shape of `x`. None as a size stands for the size in `x`.
        name: name scope.

    Raises:
        ValueError: `x` is not a float tensor, or `rate` is not in [0, 1).
    """
    with tf.name_scope(name or "stateless_dropout"):
        x = tf.convert_to_tensor(x)
        if not x.dtype.is_floating:
            raise ValueError(
                "Dropout needs a float tensor, since it scales the kept "
                f"elements, but x is {x.dtype.name}. Cast it first."
            )
        static_rate = tf.get_static_value(rate) if tf.is_tensor(rate) else rate
        if static_rate is not None:
            check_rate(static_rate)
            if static_rate == 0:
                return x
            if static_rate > 0.5:
                logging.log_first_n(
                    logging.WARNING,
                    "Dropout rate %g: more than half of the elements are "
                    "dropped. Did you pass the probability of keeping?",
                    5,
                    static_rate,
                )
        if noise_shape is not None:
            noise_shape = tuple(noise_shape)
        return _dropped(x, tf.cast(seed, tf.int32), rate, noise_shape)


@shared_graphs.shared
def _dropped(x, seed, rate, noise_shape):
    """Applies `stateless_dropout` to checked arguments."""
    shape = tf.shape(x)
    if noise_shape is not None:
        shape = [
            shape[i] if size is None else size
            for i, size in enumerate(noise_shape)
        ]
    # Half precision is too coarse for draws and for the scale.
    draw_dtype = tf.float64 if x.dtype == tf.float64 else tf.float32
    result = dropout.drop(x, *dropout.draw(shape, seed, rate, draw_dtype))
    result.set_shape(x.shape)
    return result


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class RecomputingDropout(keras_compat.ConstructorConfig):
    """Dropout layer that drops the same elements when it is recomputed.

    Inside a function wrapped by `recompute_grad`, the mask depends on the
    function's seed, the layer, and the number of earlier calls of the layer in
    the function. Elsewhere, the mask is random.

    Args:
        rate: probability of dropping, in [0, 1).
        noise_shape: see `stateless_dropout`.
        seed: distinguishes this layer from others inside a recomputed function,
            and seeds the random draws elsewhere. By default, each layer drops
            different elements.
        force_recomputation: whether to raise a ValueError when the layer drops
            elements outside of a recomputed function.
    """

    def __init__(
        self,
        rate: float,
        noise_shape=None,
        seed: int | None = None,
        force_recomputation: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_rate(rate)
        self.rate = rate
        self.noise_shape = noise_shape
        self.seed = seed
        self.force_recomputation = force_recomputation
        self.supports_masking = True
        # The layer has no weights, and `draw_seed` works without a call.
        self.built = True

    def call(self, inputs, training=None):
        """Drops elements in training."""
        if self.rate == 0:
            return tf.identity(inputs)
        return smart_cond(
            training,
            lambda: stateless_dropout(
                inputs, self.rate, self.draw_seed(), self.noise_shape
            ),
            lambda: tf.identity(inputs),
        )

    def draw_seed(self) -> tf.Tensor:
        """Returns a new seed, `<int32>[2]`; a recomputation repeats it."""
        context = recompute.get_recompute_context()
        if context is not None:
            number = self.seed
            if number is None:
                number = context.number_of(self)
            call_index = context.call_counts[number]
            context.call_counts[number] += 1
            return tf.stack([context.seed, _mix_to_int32(number, call_index)])
        if self.force_recomputation:
            raise ValueError(
                f"{self.name}: force_recomputation is set, but the layer is "
                "called outside of a recomputed function. Call it in a "
                "function wrapped by `recompute_grad`."
            )
        return tf.random.uniform(
            [2], tf.int32.min, tf.int32.max, dtype=tf.int32, seed=self.seed
        )

    def of_probabilities(self, training) -> attention.Dropout | None:
        """Returns dropout for the probabilities of one call, or None."""
        rate = self.rate
        if not rate:
            return None
        if tf.is_tensor(training):
            rate = tf.where(training, rate, 0.0)
        elif not training:
            return None
        return attention.Dropout(rate, self.draw_seed())

    def compute_output_shape(self, input_shape):
        """Returns the shape of the inputs."""
        return input_shape


def check_rate(rate: float):
    """Raises a ValueError if a dropout rate is not in [0, 1)."""
    if not 0 <= rate < 1:
        raise ValueError(
            f"The dropout rate must be in [0, 1), but is {rate}. It is the "
            "probability of dropping an element."
        )


def _mix_to_int32(layer_seed: int, call_index: int) -> int:
    """Hashes a pair of small integers to an int32."""
    mixed = (layer_seed * 0x9E3779B1 + call_index * 0x85EBCA77) % 2**32
    mixed = ((mixed ^ (mixed >> 16)) * 0x7FEB352D) % 2**32
    mixed = ((mixed ^ (mixed >> 15)) * 0x846CA68B) % 2**32
    mixed ^= mixed >> 16
    return mixed - 2**31
