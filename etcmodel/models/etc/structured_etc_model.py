"""The ETC encoder as a Keras model that makes its own masks and labels."""

from typing import Any

import tensorflow as tf

from etcmodel import feature_utils
from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils import structure_checks
from etcmodel.feature_utils import token_types
from etcmodel.layers import keras_compat
from etcmodel.models.etc import config as config_lib
from etcmodel.models.etc import encoder_layer
from etcmodel.models.etc import etc_model
from etcmodel.models.etc.side_inputs import SideInputs
from etcmodel.ops import checks
from etcmodel.ops import gathering
from etcmodel.ops import shapes

# Inputs of the structure "sentences". A row may hold several packed examples.
SENTENCES_LONG_FEATURES = ("long_token_ids", "long_breakpoints", "sentence_ids")
SENTENCES_GLOBAL_FEATURES = ("global_token_ids", "global_breakpoints")

OUTPUTS = etc_model.EtcOutput._fields


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class StructuredEtcModel(etc_model.EtcModel):
    """An `EtcModel` that makes its masks and relative labels itself.

    Masks and labels exist only within a call. For long tokens they are
    descriptions (see `etcmodel.ops.attention`), so the model keeps no tensor of
    `long * window` or `long * global` elements for all layers.

    A layout can embed values, such as a token's font size. Each value has a
    projection without bias, such as `visual_projection` for the value "visual".
    Its output is added to the embeddings of the value's tokens, so a value of
    zeros changes nothing. `value_layers` replaces projections with your own
    layers. Your layer's output for zeros is then added to global tokens that
    have no value.

    Args:
        config: sizes, sharing, and hard masks; copied.
        structure: "sentences" for a text of sentences, each with its own global
            token (a row may hold several packed texts); "paragraphs" for a
            question and unordered paragraphs of sentences, with token types; or
            a `feature_utils.layout.LayoutSpec` or its `encoder_inputs`, which
            extend "paragraphs" with your own links and values.
        flat_sequence: for "paragraphs", treat the input as one flat text.
        use_links: for "paragraphs", whether links are used.
        ignore_hard_g2l_types: for "paragraphs", types of global tokens that
            attend to all long tokens despite a hard g2l mask.
        ignore_hard_l2g_types: for "paragraphs", types of long tokens that
            attend to all global tokens despite a hard l2g mask.
        value_layers: value name -> layer that replaces its projection. Each
            maps `<dtype>[batch, length, size]` to
            `<float>[batch, length, hidden_size]`.
        outputs: which of "long_output" and "global_output" are used. With only
            one of them, weights of the last layer that do not affect it are not
            trainable, since they get no gradient.
        **kwargs: passed to `EtcModel`.

    Raises:
        ValueError: an argument is invalid, or `config.relative_vocab_size` is
            too small for the labels of a layout's links.
    """

    _IDS = ("long_token_ids", "global_token_ids")
    # Arguments of the constructor that control masks and relative labels.
    OPTIONS = (
        "structure",
        "flat_sequence",
        "use_links",
        "ignore_hard_g2l_types",
        "ignore_hard_l2g_types",
    )

    def __init__(
        self,
        config: config_lib.EtcConfig,
        structure: Any = "sentences",
        flat_sequence: bool = False,
        use_links: bool = True,
        ignore_hard_g2l_types=(),
        ignore_hard_l2g_types=(),
        value_layers=None,
        outputs=OUTPUTS,
        **kwargs,
    ):
        # Autocast is off, so that values reach their layers in their own dtype.
        super().__init__(config, autocast=False, **kwargs)
        if structure == "sentences" and config.question_words_in_global:
            raise ValueError(
                "question_words_in_global needs inputs with a question, but "
                "structure is 'sentences'. Use 'paragraphs' or a layout."
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
            materialize=False,
            name="side_inputs",
        )
        encoder_layer.check_outputs(outputs, OUTPUTS)
        self.outputs_used = tuple(outputs)
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
                f"The links have their own labels {inputs.labels}, so "
                f"relative_vocab_size ({config.relative_vocab_size}) is too "
                f"small. Set it to at least {needed}."
            )
        given = dict(value_layers or {})
        self._given = tuple(given)
        for value in self._embedded:
            layer = given.pop(value.name, None)
            if isinstance(layer, dict):
                layer = tf.keras.layers.deserialize(layer)
            if layer is None:
                layer = self._make_dense(
                    f"{value.name}_projection", use_bias=False
                )
            # Checkpoints use the name of this attribute for the layer.
            setattr(self, f"{value.name}_projection", layer)
        if given:
            raise ValueError(
                f"value_layers has layers for {sorted(given)}, but embedded "
                f"values are {[x.name for x in self._embedded]}. Use their "
                "names."
            )

    @property
    def added_layers(self):
        """The layers that embed values."""
        return [self.value_layer(x.name) for x in self._embedded]

    def value_layer(self, name: str) -> tf.keras.layers.Layer:
        """Returns the layer that embeds a value."""
        return getattr(self, f"{name}_projection")

    @property
    def _embedded(self):
        """Returns the values that are added to embeddings."""
        return [x for x in self.side_inputs.encoder_inputs.values if x.added_to]

    def build(self, input_shape):
        """Builds all layers from the configuration; ignores `input_shape`."""
        for value in self._embedded:
            keras_compat.build_once(
                self.value_layer(value.name), (None, None, *value.shape)
            )
        keras_compat.build_once(self.side_inputs, None)
        stack, unused = self.global_local_transformer_layers, []
        for output in set(OUTPUTS).difference(self.outputs_used):
            stream = output.removesuffix("_output")
            unused += stack.layers_of_one_output(stream)
        with keras_compat.untrained(unused):
            super().build(input_shape)

    def call(
        self,
        features,
        return_attention_scores=False,
        long_query_positions=None,
        global_query_positions=None,
        training=None,
    ):
        """Encodes a batch; see `EtcModel.call` for the other arguments.

        `features` is a dict of the inputs of `build_encoder`; other entries are
        ignored.
        """
        further = {}
        sentence_ids, breakpoints = "sentence_ids", "long_breakpoints"
        if self.side_inputs.structure != "sentences":
            sentence_ids = "long_sentence_ids"
            breakpoints = "long_paragraph_breakpoints"
            further = {
                "token_type_ids": features["long_token_type_ids"],
                "global_token_type_ids": features["global_token_type_ids"],
            }
        if self.config.absolute_positions == "paragraph":
            further |= self._positions(features)
        for value in self._embedded:
            for source, added in self._embed_value(value, features).items():
                adder = f"{source}_embedding_adder"
                further[adder] = further.get(adder, 0) + added
        global_token_ids = features["global_token_ids"]
        if self.config.question_words_in_global:
            global_token_ids = self._question_words(features)
        (long_token_ids,) = checks.guard(
            [
                structure_checks.text_end(
                    breakpoints,
                    features[breakpoints],
                    features[sentence_ids],
                    features["long_token_ids"],
                )
            ],
            structure_checks.BREAKPOINTS_EXAMPLE,
            features["long_token_ids"],
        )
        return super().call(
            long_token_ids,
            global_token_ids,
            **further,
            **self.side_inputs.make(features),
            return_attention_scores=return_attention_scores,
            long_query_positions=long_query_positions,
            global_query_positions=global_query_positions,
            training=training,
        )

    def _embed_value(self, value, features):
        """Returns the embeddings to add to the long and the global input."""
        values = features[value.name]
        if value.name not in self._given:
            values = tf.cast(values, self.compute_dtype)
        # [batch, length, hidden_size]
        embedded = self.value_layer(value.name)(values)
        embedded = tf.cast(embedded, self.compute_dtype)
        added = {value.source: embedded}
        if value.source == "global" and "long" in value.added_to:
            owners = features["long_sentence_ids"]
            # [batch, long, hidden_size]
            tied = gathering.gather_positions(
                embedded, _clipped(owners, features)
            )
            added["long"] = tf.where(
                owners[..., tf.newaxis] < 0, tf.zeros_like(tied), tied
            )
        return {source: added[source] for source in value.added_to}

    def _question_words(self, features):
        """Returns global token ids, with question words as token ids."""
        ids = features["global_token_ids"]
        # [batch, global], 0 for tokens that are not question words
        words = self._of_question(features, features["long_token_ids"])
        return tf.where(words > 0, tf.cast(words, ids.dtype), ids)

    def _of_question(self, features, values):
        """Copies values of the question's long tokens to its global tokens."""
        return feature_utils.take_first_owned(
            values,
            tf.where(_is_question(features), features["long_sentence_ids"], -1),
            shapes.get_shape_list(features["global_token_ids"])[1],
        )

    def _positions(self, features):
        """Makes absolute positions of both inputs; see `EtcConfig`."""
        has_question = "long_breakpoints" not in features
        prefix = "long_paragraph_" if has_question else "long_"
        # [batch, long]
        positions = feature_utils.make_paragraph_positions(
            features[prefix + "breakpoints"],
            _is_question(features) if has_question else None,
            self.config.max_absolute_position_embeddings,
        )
        # [batch, global]; 0, the position of [CLS], except for question words
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
        return {
            **super().get_config(),
            **{name: getattr(self.side_inputs, name) for name in self.OPTIONS},
            "outputs": self.outputs_used,
            "value_layers": {
                name: tf.keras.layers.serialize(self.value_layer(name))
                for name in self._given
            },
        }


def build_encoder(
    config: config_lib.EtcConfig,
    structure: Any = "sentences",
    *,
    long_length: int | None = None,
    global_length: int | None = None,
    outputs=OUTPUTS,
    name: str = "etc_encoder",
    **options,
) -> tf.keras.Model:
    """Builds a functional encoder whose inputs are compact features.

    The features are token ids and owners, such as the sentence of each token.
    The model makes masks and relative labels from them, on the device.
    `model.get_layer("etc_document_bert")` is the `StructuredEtcModel` inside.
    Call it with the model's inputs and `return_attention_scores=True` to get
    the attention probabilities.

    `long_length` and `global_length` are static lengths of the inputs, which
    TPUs and XLA need; None allows any length. `dtype` is a dtype policy, such
    as "mixed_bfloat16". `EtcConfig` and `StructuredEtcModel` describe the other
    arguments and the errors.

    Returns:
        A functional `tf.keras.Model`. Its input is a dict of `<int32>[batch,
        long_length]` and `<int32>[batch, global_length]` tensors. "sentences":
        long_token_ids, long_breakpoints, sentence_ids, global_token_ids,
        global_breakpoints (see `feature_utils.
        make_global_local_transformer_side_inputs`). "paragraphs": the features
        of `feature_utils.etc_features`. A layout: the features of "paragraphs",
        the layout's links, and `<any>[batch, long_length or global_length,
        ...]` for each value that is embedded or used by a head.
        The output is a dict with the names in `outputs`: `long_output`
        `<float>[batch, long_length, hidden_size]` and `global_output`
        `<float>[batch, global_length, hidden_size]`.
    """
    model = StructuredEtcModel(
        config,
        structure=structure,
        outputs=outputs,
        name="etc_document_bert",
        **options,
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
        **{x.name: ([lengths[x.source], *x.shape], x.dtype) for x in values},
    }
    inputs = {
        input_name: tf.keras.Input(shape, dtype=dtype, name=input_name)
        for input_name, (shape, dtype) in kinds.items()
    }
    return encoder_layer.functional(inputs, model(inputs), outputs, name)


def _is_question(features):
    """Marks the question's long tokens, `<bool>[batch, long]`."""
    owners = features["long_sentence_ids"]
    # [batch, long]
    types = tf.gather(
        features["global_token_type_ids"],
        _clipped(owners, features),
        batch_dims=1,
    )
    return tf.equal(types, token_types.QUESTION_GLOBAL) & (owners >= 0)


def _clipped(owners, features):
    """Clips ids to valid indices; -1 becomes 0."""
    last = shapes.get_shape_list(features["global_token_ids"])[1] - 1
    return tf.maximum(tf.minimum(owners, last), 0)
