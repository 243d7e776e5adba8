"""ReadTwice: reads segments twice, the second time with a shared memory."""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from etcmodel import layers
from etcmodel.layers import keras_compat
from etcmodel.models import input_checks
from etcmodel.models.etc import encoder_layer
from etcmodel.models.read_twice import base
from etcmodel.models.read_twice import memory_extraction
from etcmodel.models.read_twice.config import ReadTwiceConfig
from etcmodel.ops import checks
from etcmodel.ops import collectives
from etcmodel.ops import shapes as shapes_lib

# The outputs of a functional model.
OUTPUTS = ("final_hidden_states", "first_read")


class ReadTwiceOutput(NamedTuple):
    """The result of `ReadTwiceModel`.

    The other attributes are those of `SummaryExtractionOutput`.

    Attributes:
        final_hidden_states: `<float>[batch, length, hidden_size]` after the
            second read, or after the first read if there is no second.
        first_read: `<float>[batch, length, hidden_size]` after the first read.
    """

    final_hidden_states: tf.Tensor
    first_read: tf.Tensor
    local_summary: memory_extraction.Summary
    global_summary: memory_extraction.Summary
    block_att_mask: tf.Tensor


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class ReadTwiceModel(base.ReadTwiceBase):
    """The encoder of the ReadTwice paper (Zemlyanskiy et al., 2021).

    It reads each segment of a document on its own, extracts memories from all
    segments, and reads each segment again, now attending to the memories of the
    whole document. A batch holds the segments of one or more documents. The
    replicas of a `tf.distribute.Strategy` exchange memories, so the result does
    not depend on how the segments are sharded.

    There is no head; `fit` compares `final_hidden_states` with the targets.
    Keras 3 cannot export nested outputs; to export the model, use
    `build_read_twice_encoder`, which returns it as a functional model.

    Args:
        config: sizes and variants; copied and validated.
        use_one_hot_embeddings: look up tokens and positions by products with
            one-hot vectors, faster on TPUs for small tables.
    """

    def __init__(
        self,
        config: ReadTwiceConfig,
        use_one_hot_embeddings: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(
            config,
            use_one_hot_embeddings,
            name=keras_compat.default_name(name, "read_twice"),
            **kwargs,
        )
        # Only the layers of the second read attend to memories.
        self.transformer_with_side_inputs = memory_extraction.make_transformer(
            config,
            config.num_hidden_layers,
            share_kv_projections=(
                config.share_kv_projections
                or config.second_read_type != "from_scratch"
            ),
            dtype=self.dtype_policy,
            name="transformer_layers",
        )
        self.summary_extraction = memory_extraction.SummaryExtraction(
            config,
            use_one_hot_embeddings,
            dtype=self.dtype_policy,
            name="summary_extraction",
        )
        self.cross_attention_layer = None
        if config.second_read_type == "cross_attend_once":
            self.cross_attention_layer = self._make_cross_attention_layer()
        self.second_transformer = self._make_second_transformer()

    def _make_cross_attention_layer(self):
        config = self.config
        pos_embed_size = (
            config.cross_attention_pos_emb_size
            or config.max_num_blocks_per_document
        )
        return layers.ResidualBlock(
            inner_layer=layers.SideAttention(
                hidden_size=config.hidden_size,
                num_heads=config.second_read_num_cross_attention_heads,
                att_dropout_prob=config.attention_probs_dropout_prob,
                enable_default_side_input=(
                    config.second_read_enable_default_side_input
                ),
                initializer=tf.keras.initializers.TruncatedNormal(
                    stddev=config.initializer_range
                ),
                top_k_attention=config.cross_attention_top_k,
                pos_embed_mode=config.cross_attention_pos_emb_mode,
                pos_embed_size=pos_embed_size,
                use_one_hot_embeddings=self.use_one_hot_embeddings,
                dtype=self.dtype_policy,
                name="side_attention",
            ),
            dropout_probability=config.hidden_dropout_prob,
            dtype=self.dtype_policy,
            name="cross_attention_layer",
        )

    def _make_second_transformer(self):
        config = self.config
        if config.second_read_type == "from_scratch":
            return None
        options = {
            "cross_attend_once": dict(share_kv_projections=True),
            "new_layers": dict(
                share_kv_projections=config.share_kv_projections
            ),
            "new_layers_cross_attention": dict(
                num_cross_attention_heads=(
                    config.second_read_num_cross_attention_heads
                ),
                enable_default_side_input=(
                    config.second_read_enable_default_side_input
                ),
            ),
        }[config.second_read_type]
        return memory_extraction.make_transformer(
            config,
            config.second_read_num_new_layers,
            dtype=self.dtype_policy,
            name="transformer_layers_1",
            **options,
        )

    def build(self, input_shape):
        """Builds all layers from the configuration; ignores `input_shape`."""
        self._build_embeddings()
        keras_compat.build_all(
            (None, None, self.config.hidden_size),
            self.transformer_with_side_inputs,
            self.summary_extraction,
            self.cross_attention_layer,
            self.second_transformer,
        )
        super().build(input_shape)

    @encoder_layer.accepts_dict
    def call(
        self,
        token_ids,
        block_ids=None,
        block_pos=None,
        att_mask=None,
        position_ids=None,
        annotation_begins=None,
        annotation_ends=None,
        annotation_labels=None,
        enable_side_inputs=True,
        cross_block_attention_mode="doc",
        return_attention_scores=False,
        training=None,
    ):
        """Reads a batch of segments twice.

        Args:
            token_ids: `<int>[batch, length]`, a segment in each row; or a dict
                of arguments by name; more arguments may be passed separately.
            block_ids: `<int>[batch]` document of each segment, 0 for padding.
                By default each segment is a document.
            block_pos: `<int>[batch]` number of the segment in its document,
                from 1; all 1 by default.
            att_mask: `<int or bool>[batch, length, length]` or `[batch,
                length]`, 1 where tokens may be attended to. The default is all
                tokens except `config.summary_padding_token_id`.
            position_ids: `<int>[batch, length]` positions in the segment; 0, 1,
                2, ... by default.
            annotation_begins: `<int>[batch, mentions]` first token of each
                entity mention; needed for memories of mentions.
            annotation_ends: `<int>[batch, mentions]` last token of each
                mention.
            annotation_labels: `<int>[batch, mentions]` entity of each mention,
                1 for an unknown entity, 0 for padding.
            enable_side_inputs: bool, whether there is a second read.
            cross_block_attention_mode: see `get_cross_block_att`. "block" is
                the paper's single-segment mode.
            return_attention_scores: whether to also return the attention
                probabilities before dropout; disables gradient checkpointing.
            training: whether dropout is applied.

        Returns:
            A `ReadTwiceOutput`. With `return_attention_scores`, a pair of it
            and a dict. Its entries `"first_read"` and, if there is a second
            read, `"second_read"` are lists with one dict per layer (see
            `TransformerWithSideInputLayers`). With `"cross_attend_once"`, the
            entry `"cross_attention"` is `<float>[batch, heads, length,
            memories]`, where the memories are those of `global_summary`.

        Raises:
            ValueError: segments are longer than `config.max_seq_length`;
                annotations are missing; or an id is out of range (in a graph:
                `tf.errors.InvalidArgumentError`, see `check_inputs`).
        """
        batch = shapes_lib.get_shape_list(token_ids)[0]
        if block_pos is None:
            block_pos = tf.ones([batch], tf.int32)
        if block_ids is None:
            # [batch], distinct numbers on each replica
            block_ids = collectives.replica_id() * batch + tf.range(
                1, batch + 1
            )
        if att_mask is None:
            # [batch, length]
            att_mask = tf.not_equal(
                token_ids, self.config.summary_padding_token_id
            )
        block_ids, annotation_begins, annotation_ends = checks.guard(
            input_checks.block_checks(
                token_ids,
                block_ids,
                block_pos,
                att_mask,
                annotation_begins,
                annotation_ends,
                annotation_labels,
            ),
            input_checks.SEGMENTS_EXAMPLE,
            block_ids,
            annotation_begins,
            annotation_ends,
        )
        scores = {}
        call = functools.partial(
            _call, scores if return_attention_scores else None, training
        )
        embedded = self._embed(token_ids, position_ids, training)
        # [batch, length, hidden_size]
        first_read = call(
            "first_read",
            self.transformer_with_side_inputs,
            embedded,
            att_mask=att_mask,
        )
        extracted = self.summary_extraction(
            first_read,
            token_ids,
            block_ids,
            block_pos,
            annotation_begins=annotation_begins,
            annotation_ends=annotation_ends,
            annotation_labels=annotation_labels,
            cross_block_attention_mode=cross_block_attention_mode,
            training=training,
        )
        final = first_read
        if enable_side_inputs:
            final = self._read_again(
                call, embedded, first_read, extracted, att_mask, block_pos
            )
        output = ReadTwiceOutput(
            final_hidden_states=final,
            first_read=first_read,
            local_summary=extracted.local_summary,
            global_summary=extracted.global_summary,
            block_att_mask=extracted.block_att_mask,
        )
        return (output, scores) if return_attention_scores else output

    def _compared(self, output):
        return output.final_hidden_states

    def _read_again(
        self, call, embedded, first_read, extracted, att_mask, block_pos
    ):
        memory = extracted.global_summary
        # [batch, memories] or [batch, length, memories]
        memory_mask = extracted.block_att_mask
        token_mask = extracted.token_mask
        if self.cross_attention_layer is not None:
            # [batch, length or 1]
            sees_any = tf.reduce_any(memory_mask, axis=1, keepdims=True)
            if token_mask is not None:
                sees_any = tf.logical_and(sees_any, token_mask)
            attended = call(
                "cross_attention",
                self.cross_attention_layer,
                first_read,
                side_input=memory.processed_states,
                att_mask=memory_mask,
                main_pos=tf.cast(block_pos, tf.int32),
                side_pos=memory.block_pos,
                att_value_mask=sees_any,
            )
            return call(
                "second_read",
                self.second_transformer,
                attended,
                att_mask=att_mask,
            )
        if token_mask is not None:
            memory_mask = tf.logical_and(
                token_mask[:, :, tf.newaxis], memory_mask[:, tf.newaxis]
            )
        transformer, main_input = self.second_transformer, first_read
        if transformer is None:
            transformer, main_input = (
                self.transformer_with_side_inputs,
                embedded,
            )
        return call(
            "second_read",
            transformer,
            main_input,
            side_input=memory.processed_states,
            att_mask=att_mask,
            side_att_mask=memory_mask,
        )

    def compute_output_shape(self, token_ids_shape):
        """Returns a `ReadTwiceOutput` of shapes; also accepts a dict of shapes.

        The number of memories is None, since it depends on the number of
        mentions and replicas.
        """
        if isinstance(token_ids_shape, Mapping):
            token_ids_shape = token_ids_shape["token_ids"]
        batch, length = token_ids_shape
        size = self.config.hidden_size
        memories = memory_extraction.Summary(
            states=(None, size),
            processed_states=(None, size),
            block_ids=(None,),
            block_pos=(None,),
            labels=(None,),
        )
        return ReadTwiceOutput(
            final_hidden_states=(batch, length, size),
            first_read=(batch, length, size),
            local_summary=memories,
            global_summary=memories,
            block_att_mask=(batch, None),
        )


def _call(scores, training, name, layer, *args, **kwargs):
    """Calls a layer; stores its scores in `scores` unless that is None."""
    if scores is None:
        return layer(*args, **kwargs, training=training)
    output, scores[name] = layer(
        *args, **kwargs, training=training, return_attention_scores=True
    )
    return output


def build_read_twice_encoder(
    config: ReadTwiceConfig,
    *,
    enable_side_inputs: bool = True,
    cross_block_attention_mode: str = "doc",
    long_length: int | None = None,
    num_mentions: int | None = None,
    outputs=OUTPUTS,
    name: str = "read_twice_encoder",
    **options,
) -> tf.keras.Model:
    """Builds a functional model that reads segments twice.

    `model.get_layer("read_twice")` is the `ReadTwiceModel` inside.
    `long_length` and `num_mentions` are static numbers of tokens and mentions
    in a segment, which TPUs and XLA need; None allows any. `dtype` is a dtype
    policy, such as "mixed_bfloat16". `ReadTwiceModel` describes the other
    arguments and the errors.

    The input is a dict of `<int32>` tensors, as in `ReadTwiceModel.call`:
    `token_ids`, `block_ids`, `block_pos` and, for memories of mentions,
    `annotation_begins`, `annotation_ends` and `annotation_labels`. The output
    is a dict with the names in `outputs`: `final_hidden_states` and
    `first_read`, `<float>[batch, long_length, hidden_size]`.
    """
    encoder_layer.check_outputs(outputs, OUTPUTS)
    model = ReadTwiceModel(config, name="read_twice", **options)
    shapes = {"token_ids": [long_length], "block_ids": [], "block_pos": []}
    if config.summary_mode == "entity":
        for part in ("begins", "ends", "labels"):
            shapes[f"annotation_{part}"] = [num_mentions]
    inputs = {
        input_name: tf.keras.Input(shape, dtype="int32", name=input_name)
        for input_name, shape in shapes.items()
    }
    made = model(
        **inputs,
        enable_side_inputs=enable_side_inputs,
        cross_block_attention_mode=cross_block_attention_mode,
    )
    return encoder_layer.functional(inputs, made, outputs, name)
