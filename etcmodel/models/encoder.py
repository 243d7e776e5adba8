"""The encoder as a Keras model that takes the compact features."""

from typing import Any

import tensorflow as tf

from etcmodel import feature_utils
from etcmodel import tensor_utils
from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils import layout_spec
from etcmodel.feature_utils import token_types
from etcmodel.layers import building
from etcmodel.layers import graph_layer
from etcmodel.models import config as config_lib
from etcmodel.models import etc_model

# Names of the inputs of a text of sentences, by stream. Several examples may
# be packed into one row.
SENTENCES_LONG_FEATURES = ("long_token_ids", "long_breakpoints", "sentence_ids")
SENTENCES_GLOBAL_FEATURES = ("global_token_ids", "global_breakpoints")
STRUCTURES = ("sentences", "paragraphs")


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class SideInputs(graph_layer.GraphLayer):
    """Makes the masks and relative labels from the compact features.

    Args:
        local_radius: how many tokens a long token sees to each side.
        relative_pos_max_distance: distances beyond have the same label; 0 for
            no labels.
        structure: "sentences" (as in `feature_utils.
            make_global_local_transformer_side_inputs`) or "paragraphs"
            (`feature_utils.make_multihop_side_inputs`). A `LayoutSpec`, its
            `EncoderInputs`, or the same as lists, for "paragraphs" with the
            links that it has.
        use_hard_g2l_mask: whether a global token sees its own tokens only.
        use_hard_l2g_mask: whether a long token sees its own global tokens
            only.
        flat_sequence: see `make_multihop_side_inputs`.
        use_links: whether links are used. In a flat sequence those without a
            label of their own are not, unless they open hard masks.
        ignore_hard_g2l_types: types of global tokens that see all long tokens
            in spite of the hard mask.
        ignore_hard_l2g_types: types of long tokens that see all global tokens
            in spite of the hard mask.
        as_specs: whether to describe masks and labels instead of making
            tensors, wherever long tokens take part (see
            `feature_utils.GlobalLocalTransformerSideInputs`). Descriptions
            are for layers that are called within the same layer's `call` or
            `tf.function`; they cannot connect the layers of a functional
            model.
        name: name of the layer.
        **kwargs: passed to `tf.keras.layers.Layer`.

    Raises:
        ValueError: there is no such structure, or an option is given that
            "sentences" does not have.
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
        as_specs: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        if isinstance(structure, layout_spec.LayoutSpec):
            structure = structure.encoder_inputs
        if not isinstance(structure, str):
            links, values = structure
            structure = layout_spec.EncoderInputs(
                tuple(layout_spec.LinkFeature(*x) for x in links),
                tuple(layout_spec.ValueFeature(*x) for x in values),
            )
        elif structure not in STRUCTURES:
            raise ValueError(
                f"there is no structure '{structure}'; expected one of "
                f"{', '.join(STRUCTURES)}, or a LayoutSpec"
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
        self.as_specs = as_specs
        if structure == "sentences":
            for option in (
                "flat_sequence",
                "ignore_hard_g2l_types",
                "ignore_hard_l2g_types",
            ):
                if getattr(self, option):
                    raise ValueError(
                        f"{option} is an option of structure 'paragraphs', "
                        "but structure is 'sentences'"
                    )

    @property
    def encoder_inputs(self) -> layout_spec.EncoderInputs:
        """Links and embedded values that there are."""
        if self.structure == "sentences":
            return layout_spec.EncoderInputs(links=())
        if self.structure == "paragraphs":
            return layout_spec.EncoderInputs()
        return self.structure

    def build(self, input_shape):
        """Makes nothing: there are no weights."""
        super().build(input_shape)

    def call(self, features):
        """See `make`."""
        return self.make(features)

    def make(self, features):
        """Makes the side inputs.

        Keras 2 calls what is saved as a `tf.function`, which cannot return
        descriptions. A layer that takes them uses this instead of a call.

        Args:
            features: dict of `<int>[batch, long]` and `<int>[batch, global]`
                tensors. "sentences": long_breakpoints, global_breakpoints,
                sentence_ids. "paragraphs": the features of
                `feature_utils.etc_features`. A layout: these and its links.
                May hold others.

        Returns:
            dict of `<int32>` masks and, unless `relative_pos_max_distance` is
            0, relative labels, named as the arguments of `EtcModel.call`. With
            `as_specs` they are described where long tokens take part.
        """
        common = dict(
            local_radius=self.local_radius,
            relative_pos_max_distance=self.relative_pos_max_distance,
            use_hard_g2l_mask=self.use_hard_g2l_mask,
            use_hard_l2g_mask=self.use_hard_l2g_mask,
            as_specs=self.as_specs,
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
        """The links that are used, as `TypedLink`s."""
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
                and link == layout_spec.LinkFeature(link.name, link.source)
            )
        ]

    def get_config(self):
        """Returns the constructor's arguments."""
        names = (
            "local_radius",
            "relative_pos_max_distance",
            "structure",
            "use_hard_g2l_mask",
            "use_hard_l2g_mask",
            "flat_sequence",
            "use_links",
            "ignore_hard_g2l_types",
            "ignore_hard_l2g_types",
            "as_specs",
        )
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in names},
        }


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class StructuredEtcModel(etc_model.EtcModel):
    """An `EtcModel` that makes its masks and relative labels by itself.

    They exist within a call only and, where long tokens take part, merely as
    descriptions (see `etcmodel.attention`): no tensor of the size of
    the long input times its window, or times the global input, has to be kept
    for all layers.

    Each value that a layout embeds has a projection, such as
    `visual_projection` for the value "visual", whose output is added to the
    embeddings of its tokens. There is no bias, so that zeros add nothing.

    Args:
        config: sizes, sharing, and whether there are hard masks; copied.
        structure: "sentences", "paragraphs" or a layout; see `SideInputs`.
        flat_sequence: for "paragraphs", treat all as one flat text.
        use_links: for "paragraphs", whether links are used.
        ignore_hard_g2l_types: for "paragraphs", types of global tokens that
            see all long tokens in spite of a hard g2l mask.
        ignore_hard_l2g_types: for "paragraphs", types of long tokens that see
            all global tokens in spite of a hard l2g mask.
        **kwargs: passed to `EtcModel`.

    Raises:
        ValueError: `config.validate` objects, there is no such structure, an
            option does not belong to it, or `config.relative_vocab_size` is
            too small for the labels of a layout's links.
    """

    _IDS = ("long_token_ids", "global_token_ids")

    def __init__(
        self,
        config: config_lib.EtcConfig,
        structure: Any = "sentences",
        flat_sequence: bool = False,
        use_links: bool = True,
        ignore_hard_g2l_types=(),
        ignore_hard_l2g_types=(),
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        if structure == "sentences" and config.question_words_in_global:
            raise ValueError(
                "question_words_in_global is of inputs with a question, but "
                "structure is 'sentences'"
            )
        self.side_inputs = SideInputs(
            local_radius=config.local_radius,
            relative_pos_max_distance=config.relative_pos_max_distance,
            structure=structure,
            use_hard_g2l_mask=config.use_hard_g2l_mask,
            use_hard_l2g_mask=config.use_hard_l2g_mask,
            flat_sequence=flat_sequence,
            use_links=use_links,
            ignore_hard_g2l_types=ignore_hard_g2l_types,
            ignore_hard_l2g_types=ignore_hard_l2g_types,
            as_specs=True,
            name="side_inputs",
        )
        inputs = self.side_inputs.encoder_inputs
        max_distance = config.relative_pos_max_distance
        needed = (
            2 * max_distance
            + 1
            + config_lib.NUM_OTHER_RELATIVE_IDS
            + len(inputs.labels)
        )
        if max_distance and config.relative_vocab_size < needed:
            raise ValueError(
                f"links have the labels {inputs.labels} of their own, for "
                f"which relative_vocab_size ({config.relative_vocab_size}) is "
                f"too small; set it to at least {needed}"
            )
        for value in inputs.values:
            projection = tf.keras.layers.Dense(
                config.hidden_size,
                use_bias=False,
                kernel_initializer=tf.keras.initializers.TruncatedNormal(
                    stddev=config.initializer_range
                ),
                dtype=self.dtype_policy,
                name=f"{value.name}_projection",
            )
            setattr(self, projection.name, projection)

    def build(self, input_shape):
        """Builds everything; the sizes are known."""
        for value in self.side_inputs.encoder_inputs.values:
            projection = getattr(self, f"{value.name}_projection")
            building.build_once(projection, (None, None, value.size))
        building.build_once(self.side_inputs, None)
        super().build(input_shape)

    def call(
        self,
        features,
        return_attention_scores=False,
        long_query_positions=None,
        global_query_positions=None,
        training=None,
    ):
        """Encodes a batch.

        Args:
            features: dict of `<int>[batch, long]` and `<int>[batch, global]`
                tensors: `long_token_ids`, `global_token_ids` and those of
                `SideInputs.make`; and of what a layout embeds, `<any>[batch,
                long, size]` and `<any>[batch, global, size]`. May hold others.
            return_attention_scores: see `EtcModel.call`.
            long_query_positions: likewise.
            global_query_positions: likewise.
            training: whether dropout is applied.

        Returns:
            `[long_output, global_output]`, or a pair of that and the scores of
            all layers, as `EtcModel.call`.

        Raises:
            ValueError: both `training` and `is_training` of the constructor
                are given.
        """
        further = {}
        if self.side_inputs.structure != "sentences":
            further = {
                "segment_ids": features["long_token_type_ids"],
                "global_segment_ids": features["global_token_type_ids"],
            }
        if self.config.absolute_positions == "paragraph":
            further |= self._positions(features)
        for value in self.side_inputs.encoder_inputs.values:
            projection = getattr(self, f"{value.name}_projection")
            # [batch, length, hidden_size]
            projected = projection(
                tf.cast(features[value.name], self.compute_dtype)
            )
            adder = f"{value.source}_embedding_adder"
            further[adder] = further.get(adder, 0) + projected
        global_token_ids = features["global_token_ids"]
        if self.config.question_words_in_global:
            global_token_ids = self._question_words(features)
        return super().call(
            features["long_token_ids"],
            global_token_ids,
            **further,
            **self.side_inputs.make(features),
            return_attention_scores=return_attention_scores,
            long_query_positions=long_query_positions,
            global_query_positions=global_query_positions,
            training=training,
        )

    def _question_words(self, features):
        """Global token ids, those of the question's tokens their words'."""
        ids = features["global_token_ids"]
        # [batch, global], 0 of what is no word
        words = self._of_question(features, features["long_token_ids"])
        return tf.where(words > 0, tf.cast(words, ids.dtype), ids)

    def _of_question(self, features, values):
        """What the question's tokens have, at their global tokens; else 0."""
        return feature_utils.take_first_owned(
            values,
            tf.where(_is_question(features), features["long_sentence_ids"], -1),
            tensor_utils.get_shape_list(features["global_token_ids"])[1],
        )

    def _positions(self, features):
        """Absolute positions of both inputs; see `EtcConfig`."""
        has_question = "long_breakpoints" not in features
        prefix = "long_paragraph_" if has_question else "long_"
        # [batch, long]
        positions = feature_utils.make_paragraph_positions(
            features[prefix + "breakpoints"],
            _is_question(features) if has_question else None,
            self.config.max_absolute_position_embeddings,
        )
        # [batch, global], those of words; others are the [CLS] of their part
        global_positions = (
            self._of_question(features, positions)
            if has_question
            else tf.zeros_like(features["global_token_ids"])
        )
        return {
            "position_ids": positions,
            "global_position_ids": global_positions,
        }

    def get_config(self):
        """Returns the constructor's arguments."""
        names = (
            "structure",
            "flat_sequence",
            "use_links",
            "ignore_hard_g2l_types",
            "ignore_hard_l2g_types",
        )
        return {
            **super().get_config(),
            **{name: getattr(self.side_inputs, name) for name in names},
        }


def build_encoder(
    config: config_lib.EtcConfig,
    structure: Any = "sentences",
    long_length: int | None = None,
    global_length: int | None = None,
    flat_sequence: bool = False,
    use_links: bool = True,
    ignore_hard_g2l_types=(),
    ignore_hard_l2g_types=(),
    use_one_hot_embeddings: bool = False,
    use_one_hot_relative_embeddings: bool = False,
    dtype=None,
    name: str = "etc_encoder",
) -> tf.keras.Model:
    """Builds a Keras model from compact features to encodings.

    Masks and relative labels are made inside, on the device, and only as far
    as they are used at a time. `model.get_layer("etc_document_bert")` is the
    `EtcModel` inside, a `StructuredEtcModel`; called with the same inputs and
    `return_attention_scores=True` it gives the attention probabilities.

    Args:
        config: sizes, sharing, and whether there are hard masks.
        structure: "sentences" for a text (or several packed into one row) of
            sentences with a global token each. "paragraphs" for a question
            and unordered paragraphs of sentences; token types are then given,
            too. A `feature_utils.layout_spec.LayoutSpec`, or its
            `encoder_inputs`, for what it lays out: "paragraphs" with links of
            any kind and values that are embedded.
        long_length: static length of the long inputs; None for any. Static
            lengths let TPUs and XLA compile.
        global_length: static length of the global inputs; None for any.
        flat_sequence: for "paragraphs", treat all as one flat text.
        use_links: for "paragraphs", whether links are used.
        ignore_hard_g2l_types: for "paragraphs", types of global tokens that
            see all long tokens in spite of a hard g2l mask.
        ignore_hard_l2g_types: for "paragraphs", types of long tokens that see
            all global tokens in spite of a hard l2g mask.
        use_one_hot_embeddings: see `EtcModel`.
        use_one_hot_relative_embeddings: see `EtcModel`.
        dtype: dtype policy of the `EtcModel`, such as "mixed_bfloat16"; the
            global policy by default.
        name: name of the model.

    Returns:
        A functional `tf.keras.Model`. Its input is a dict of `<int32>[batch,
        long_length]` and `<int32>[batch, global_length]` tensors; "sentences":
        long_token_ids, long_breakpoints, sentence_ids, global_token_ids,
        global_breakpoints (see `feature_utils.
        make_global_local_transformer_side_inputs`); "paragraphs": the features
        of `feature_utils.etc_features`; a layout: these, its links, and
        `<any>[batch, long_length or global_length, size]` for what it embeds.
        Its output is a dict of `long_output` `<float>[batch, long_length,
        hidden_size]` and `global_output` `<float>[batch, global_length,
        hidden_size]`.

    Raises:
        ValueError: the configuration is not valid, there is no such structure,
            an option does not belong to it, or there are too few labels.
    """
    model_options = {} if dtype is None else {"dtype": dtype}
    model = StructuredEtcModel(
        config,
        structure=structure,
        flat_sequence=flat_sequence,
        use_links=use_links,
        ignore_hard_g2l_types=ignore_hard_g2l_types,
        ignore_hard_l2g_types=ignore_hard_l2g_types,
        use_one_hot_embeddings=use_one_hot_embeddings,
        use_one_hot_relative_embeddings=use_one_hot_relative_embeddings,
        name="etc_document_bert",
        **model_options,
    )
    if structure == "sentences":
        names = [SENTENCES_LONG_FEATURES, SENTENCES_GLOBAL_FEATURES]
    else:
        names = [etc_features.LONG_FEATURES, etc_features.GLOBAL_FEATURES]
    links, values = model.side_inputs.encoder_inputs
    lengths = {"long": long_length, "global": global_length}
    # Shape and dtype of each input.
    kinds = {
        **{x: ([long_length], "int32") for x in names[0]},
        **{x: ([global_length], "int32") for x in names[1]},
        **{x.name: ([lengths[x.source]], "int32") for x in links},
        **{x.name: ([lengths[x.source], x.size], x.dtype) for x in values},
    }
    inputs = {
        input_name: tf.keras.Input(shape, dtype=dtype, name=input_name)
        for input_name, (shape, dtype) in kinds.items()
    }
    long_output, global_output = model(inputs)
    return tf.keras.Model(
        inputs,
        {"long_output": long_output, "global_output": global_output},
        name=name,
    )


def _is_one_of(type_ids, types):
    """1 where the type is one of `types`, `<int32>[batch, length]` or None."""
    if not types:
        return None
    # [batch, length, types]
    is_equal = type_ids[:, :, tf.newaxis] == tf.constant(types, type_ids.dtype)
    return tf.cast(tf.reduce_any(is_equal, axis=-1), tf.int32)


def _is_question(features):
    """Which long tokens are a question's, `<bool>[batch, long]`.

    Those whose own global token says so.
    """
    owners = features["long_sentence_ids"]
    # [batch, long]
    types = tf.gather(
        features["global_token_type_ids"],
        tf.maximum(owners, 0),
        batch_dims=1,
    )
    return tf.equal(types, token_types.QUESTION_GLOBAL) & (owners >= 0)
