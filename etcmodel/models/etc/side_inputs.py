"""Masks and relative labels as a Keras layer."""

from typing import Any

import tensorflow as tf

from etcmodel import feature_utils
from etcmodel.feature_utils.layout import spec
from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat

STRUCTURES = ("sentences", "paragraphs")


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class SideInputs(keras_compat.ConstructorConfig, graph_layer.GraphLayer):
    """Makes masks and relative labels from the inputs of `build_encoder`.

    The arguments are those of `EtcConfig` and `StructuredEtcModel`.
    `structure` may also be the fields of `EncoderInputs` as lists. With
    `flat_sequence`, links without their own label are ignored, unless they
    allow attention that hard masks forbid.

    With `materialize=False`, masks and labels of long tokens are descriptions,
    not tensors. Descriptions can be passed to layers within the same layer's
    `call` or `tf.function`; they cannot connect the layers of a functional
    model.

    Raises:
        ValueError: the structure does not exist, or an option does not apply to
            "sentences".
    """

    def __init__(
        self,
        local_radius: int,
        relative_pos_max_distance: int,
        structure: Any = "sentences",
        use_hard_g2l_mask: bool = False,
        use_hard_l2g_mask: bool = False,
        flat_sequence: bool = False,
        use_links: bool = True,
        ignore_hard_g2l_types=(),
        ignore_hard_l2g_types=(),
        materialize: bool = True,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        if isinstance(structure, spec.LayoutSpec):
            structure = structure.encoder_inputs
        if not isinstance(structure, str):
            links, values = structure
            structure = spec.EncoderInputs(
                tuple(spec.LinkFeature(*x) for x in links),
                tuple(
                    spec.ValueFeature(
                        name, source, tuple(shape), dtype, tuple(added_to)
                    )
                    for name, source, shape, dtype, added_to in values
                ),
            )
        elif structure not in STRUCTURES:
            raise ValueError(
                f"structure is '{structure}'. Expected one of "
                f"{', '.join(STRUCTURES)}, or a LayoutSpec."
            )
        self.local_radius = local_radius
        self.relative_pos_max_distance = relative_pos_max_distance
        self.structure = structure
        self.use_hard_g2l_mask = use_hard_g2l_mask
        self.use_hard_l2g_mask = use_hard_l2g_mask
        self.flat_sequence = flat_sequence
        self.use_links = use_links
        self.ignore_hard_g2l_types = tuple(ignore_hard_g2l_types)
        self.ignore_hard_l2g_types = tuple(ignore_hard_l2g_types)
        self.materialize = materialize
        if structure == "sentences":
            for option in (
                "flat_sequence",
                "ignore_hard_g2l_types",
                "ignore_hard_l2g_types",
            ):
                if getattr(self, option):
                    raise ValueError(
                        f"{option} applies to structure 'paragraphs' only, but "
                        "structure is 'sentences'. Omit it."
                    )

    @property
    def encoder_inputs(self) -> spec.EncoderInputs:
        """Returns the links and the embedded values."""
        if self.structure == "sentences":
            return spec.EncoderInputs(links=())
        if self.structure == "paragraphs":
            return spec.EncoderInputs()
        return self.structure

    def build(self, input_shape):
        """Builds nothing; there are no weights."""
        super().build(input_shape)

    def call(self, features):
        """Makes the masks and labels; see `make`."""
        return self.make(features)

    def make(self, features):
        """Returns masks and labels by their argument names in `EtcModel.call`.

        Keras 2 saves a call as a `tf.function`, which cannot return
        descriptions. A layer that needs descriptions calls this method instead.
        `features` are the inputs of `build_encoder`; other entries are ignored.
        """
        common = dict(
            local_radius=self.local_radius,
            relative_pos_max_distance=self.relative_pos_max_distance,
            use_hard_g2l_mask=self.use_hard_g2l_mask,
            use_hard_l2g_mask=self.use_hard_l2g_mask,
            materialize=self.materialize,
        )
        if self.structure == "sentences":
            make = feature_utils.make_global_local_transformer_side_inputs
            side_inputs = make(
                long_breakpoints=features["long_breakpoints"],
                global_breakpoints=features["global_breakpoints"],
                sentence_ids=features["sentence_ids"],
                **common,
            )
        else:
            side_inputs = feature_utils.make_multihop_side_inputs(
                **{
                    name: features[name]
                    for name in (
                        "long_paragraph_breakpoints",
                        "long_paragraph_ids",
                        "long_sentence_ids",
                        "global_paragraph_breakpoints",
                    )
                },
                ignore_hard_g2l_mask=_is_one_of(
                    features["global_token_type_ids"],
                    self.ignore_hard_g2l_types,
                ),
                ignore_hard_l2g_mask=_is_one_of(
                    features["long_token_type_ids"], self.ignore_hard_l2g_types
                ),
                flat_sequence=self.flat_sequence,
                links=self._links(features),
                **common,
            )
        return side_inputs.to_dict(exclude_none_values=True)

    def _links(self, features):
        own = self.encoder_inputs.labels
        number = {None: None} | {label: i for i, label in enumerate(own)}
        return [
            feature_utils.TypedLink(
                features[link.name],
                link.source,
                number[link.label],
                number[link.back_label],
                link.opens_hard_masks,
            )
            for link in self.encoder_inputs.links
            if self.use_links
            and not (
                self.flat_sequence
                and link == spec.LinkFeature(link.name, link.source)
            )
        ]


def _is_one_of(type_ids, types):
    """Marks tokens of the types, `<int32>[batch, length]`; None if no types."""
    if not types:
        return None
    # [batch, length, types]
    is_equal = type_ids[:, :, tf.newaxis] == tf.constant(types, type_ids.dtype)
    return tf.cast(tf.reduce_any(is_equal, axis=-1), tf.int32)
