"""LoRA for encoders: freezes an encoder, and adds factors that are trained."""

import tensorflow as tf

from etcmodel import layers
from etcmodel.layers import keras_compat
from etcmodel.layers import lora
from etcmodel.models.etc.encoder_layer import EncoderLayer
from etcmodel.models.read_twice.memory_extraction import SummaryExtraction


def add_lora(encoder: EncoderLayer, rank: int) -> None:
    """Freezes an encoder, and adds LoRA of this rank to its projections.

    The projections are those of queries, keys, values and outputs of attention,
    and both layers of the feed-forward parts. Adding LoRA does not change the
    encoder's outputs. Layers that BERT does not have stay trainable: the
    embeddings of relative positions and of visual features, and ReadTwice's
    memories and its attention to them.

    Checkpoints contain the factors. `load_checkpoint` adds their products to
    the kernels when it reads such a checkpoint, so an encoder without LoRA
    computes the same as the trained one. `.keras` files do not contain the
    factors: Keras 3 stores the merged kernels, and under Keras 2 the `.keras`
    file of an encoder with LoRA cannot be loaded.

    Args:
        encoder: an `EtcModel` or `ReadTwiceModel`; built if it is not.
        rank: number of columns of the first factor, such as 8.

    Raises:
        ValueError: the rank is below 1, the encoder is frozen, or it already
            has LoRA.
    """
    keras_compat.build_once(encoder, None)
    new = _parts(*filter(_is_new, _parts(encoder)), *encoder.added_layers)
    kept = {id(x) for x in new}
    old = [x for x in _parts(encoder) if id(x) not in kept]
    projections = {
        id(dense): dense
        for layer in old
        for dense in _projections(layer)
        # Not of layers whose output is not used. With LoRA, the kernel is not
        # a variable in Keras 3.
        if getattr(dense.kernel, "trainable", True)
    }
    if not (
        encoder.trainable and any(x.trainable for x in projections.values())
    ):
        raise ValueError(
            "The encoder is frozen, so the factors would not be trained. Leave "
            "the encoder trainable; add_lora freezes it."
        )
    for dense in projections.values():
        lora.enable(dense, rank)
    for layer in old:
        if id(layer) not in projections:
            keras_compat.freeze(layer)


def _parts(*owners) -> list[tf.keras.layers.Layer]:
    """Returns layers and all layers inside them."""
    return [part for owner in owners for part in owner._flatten_layers()]


def _is_new(layer) -> bool:
    """Tells whether BERT has no weights for a layer."""
    if isinstance(layer, layers.ResidualBlock):
        layer = layer.inner_layer
    return isinstance(
        layer,
        layers.QkvRelativeAttention | layers.SideAttention | SummaryExtraction,
    )


def _projections(layer) -> list[tf.keras.layers.Dense]:
    """Returns the dense layers of a part of an attention or feed-forward."""
    if isinstance(layer, layers.ProjectAttentionHeads):
        return [layer.linear]
    if isinstance(layer, layers.DenseLayers):
        return list(layer.layers)
    names = ("output_projection", "long_output_projection")
    names += ("global_output_projection",)
    found = [getattr(layer, name, None) for name in names]
    return [x for x in found if isinstance(x, tf.keras.layers.Dense)]
