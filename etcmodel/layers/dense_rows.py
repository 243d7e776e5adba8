"""Applies `Dense` layers through a traced function that they share."""

from collections.abc import Sequence

import tensorflow as tf

from etcmodel.layers import lora
from etcmodel.ops import feed_forward
from etcmodel.ops import shapes
from etcmodel.ops import shared_graphs


def apply(
    layer: tf.keras.layers.Layer,
    inputs: tf.Tensor,
    row_rank: int = 1,
    split: Sequence[int] | None = None,
) -> tf.Tensor:
    """Applies a dense layer to the last axes of a tensor.

    The product of a built `Dense` layer, with LoRA's update if it has one, is
    traced once for all layers. Any
    other layer, such as a subclass of `Dense` or a quantized layer, is called
    with `<float>[rows, size]`. For the other arguments and the result, see
    `shapes.apply_to_rows`.
    """
    if not _is_product(layer):
        return shapes.apply_to_rows(layer, inputs, row_rank, split)
    inputs = tf.cast(inputs, layer.compute_dtype)
    weights, factors = (
        [
            tf.cast(tf.convert_to_tensor(weight), inputs.dtype)
            for weight in group
            if weight is not None
        ]
        for group in ((layer.kernel, layer.bias), lora.factors_of(layer))
    )
    return _product(inputs, weights, factors, row_rank, split)


def is_quantized(layer: tf.keras.layers.Layer) -> bool:
    """Tells whether Keras 3 quantized a layer; its kernel is then scaled."""
    return getattr(layer, "quantization_mode", None) is not None


def _is_product(layer):
    """Tells whether a layer only computes a product and adds a bias."""
    return (
        type(layer) is tf.keras.layers.Dense
        and layer.activation is tf.keras.activations.linear
        and layer.activity_regularizer is None
        and not is_quantized(layer)
    )


@shared_graphs.shared
def _product(inputs, weights, factors, row_rank, split):
    if factors:
        # Frozen, so that the backward pass skips their gradients.
        weights = [tf.stop_gradient(weight) for weight in weights]
    kernel, *biases = weights

    def apply_to_matrix(rows):
        # [rows, units]
        rows = feed_forward.product(rows, kernel, factors)
        for bias in biases:
            rows = tf.nn.bias_add(rows, bias)
        return rows

    return shapes.apply_to_rows(apply_to_matrix, inputs, row_rank, split)
