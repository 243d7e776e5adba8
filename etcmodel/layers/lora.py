"""LoRA: low-rank updates of frozen dense layers (arXiv:2106.09685).

The update of a kernel is the product of two factors, `lora_kernel_a` (random)
and `lora_kernel_b` (zeros at first, so the layer starts unchanged). They are
weights of the `Dense` layer, in both versions of Keras, and are not scaled: the
paper's `alpha` equals the rank, which is also Keras's default.
"""

import tensorflow as tf

from etcmodel.layers import keras_compat

# Names of the factors, as in Keras 3.
FACTORS = ("lora_kernel_a", "lora_kernel_b")


def enable(layer: tf.keras.layers.Dense, rank: int) -> None:
    """Freezes a built `Dense` layer, and adds factors that are trained.

    In Keras 3, this is `Dense.enable_lora`, with a frozen bias. In Keras 2,
    `dense_rows.apply` and `DenseLayers` add the update; calling the layer
    itself does not.

    Raises:
        ValueError: the rank is below 1, or the layer already has factors.
    """
    if rank < 1:
        raise ValueError(f"The LoRA rank is {rank}, but must be at least 1.")
    if hasattr(layer, FACTORS[0]) or getattr(layer, "lora_enabled", False):
        raise ValueError(f"{layer.name} already has LoRA factors.")
    keras_compat.freeze(layer)
    if keras_compat.is_keras_3():
        layer.enable_lora(rank)
        return
    size, units = layer.kernel.shape
    for name, shape, initializer in (
        (FACTORS[0], [size, rank], "he_uniform"),
        (FACTORS[1], [rank, units], "zeros"),
    ):
        weight = layer.add_weight(
            name, shape=shape, initializer=initializer, dtype=tf.float32
        )
        setattr(layer, name, weight)


def factors_of(layer: tf.keras.layers.Layer) -> list[tf.Variable]:
    """Returns the factors that `layer.kernel` lacks; [] if there are none.

    In Keras 3, `layer.kernel` includes the update.
    """
    if keras_compat.is_keras_3() or not hasattr(layer, FACTORS[0]):
        return []
    return [getattr(layer, name) for name in FACTORS]
