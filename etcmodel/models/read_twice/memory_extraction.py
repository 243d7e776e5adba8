"""Extracts the memory of ReadTwice: vectors for each segment of a document.

A batch is a list of segments ("blocks") of one or more documents. `block_ids`
holds the document of each segment, 0 for padding. `block_pos` holds the
segment's number in its document, from 1.
"""

from typing import NamedTuple

import tensorflow as tf

from etcmodel import layers
from etcmodel.feature_utils.entity_masking import mention_token_mask
from etcmodel.layers import keras_compat
from etcmodel.layers.activations import get_activation
from etcmodel.models.etc import encoder_layer
from etcmodel.models.read_twice.config import ReadTwiceConfig
from etcmodel.ops import collectives
from etcmodel.ops import shapes

CROSS_BLOCK_ATTENTION_MODES = ("doc", "block", "batch", "other_blocks")


class Summary(NamedTuple):
    """Memories: vectors that each represent a piece of text.

    Attributes:
        states: `<float>[memories, hidden_size]`, as extracted.
        processed_states: `<float>[memories, hidden_size]`, the vectors that
            tokens attend to; equal to `states` before memories are gathered.
        block_ids: `<int32>[memories]` document of each memory, 0 for padding.
        block_pos: `<int32>[memories]` number of each memory's segment in the
            document.
        labels: `<int32>[memories]`, 0 for padding. Otherwise the `summary_mode`
            determines the label: the entity's id in "entity", 1 in
            "text_block", the document's id in "cls".
    """

    states: tf.Tensor
    processed_states: tf.Tensor
    block_ids: tf.Tensor
    block_pos: tf.Tensor
    labels: tf.Tensor


class SummaryExtractionOutput(NamedTuple):
    """The result of `SummaryExtraction`.

    Attributes:
        local_summary: memories of this replica, segment by segment.
        global_summary: memories of all replicas, concatenated.
        block_att_mask: `<bool>[batch, memories]`, which memories the tokens of
            a segment may attend to.
        token_mask: `<bool>[batch, length]`, which tokens may attend to
            memories; None for all.
    """

    local_summary: Summary
    global_summary: Summary
    block_att_mask: tf.Tensor
    token_mask: tf.Tensor | None


def check_cross_block_attention_mode(cross_block_attention_mode: str) -> None:
    """Raises a ValueError for an unknown mode."""
    if cross_block_attention_mode not in CROSS_BLOCK_ATTENTION_MODES:
        raise ValueError(
            f"cross_block_attention_mode is {cross_block_attention_mode!r}. "
            "Expected one of "
            f"{', '.join(map(repr, CROSS_BLOCK_ATTENTION_MODES))}."
        )


def get_cross_block_att(
    block_ids,
    block_pos,
    all_block_ids,
    all_block_pos,
    cross_block_attention_mode: str,
) -> tf.Tensor:
    """Marks the memories that each segment sees, `<bool>[batch, memories]`.

    Example: for segments of the documents 1 and 3 and memories of the documents
    4, 1 and 3, "doc" gives `[[0, 1, 0], [0, 0, 1]]` (as booleans), and "batch"
    is true everywhere. `block_ids` is `<int>[batch]` and `all_block_ids`
    `<int>[memories]`. `block_pos` and `all_block_pos` have the same shapes, and
    may be None in "doc" and "batch". Modes:

        doc           memories of the same document
        block         memories of the same segment
        other_blocks  memories of other segments of the document
        batch         all memories

    Segments of padding see no memories, and memories of padding are not seen.

    Raises:
        ValueError: the mode does not exist.
    """
    check_cross_block_attention_mode(cross_block_attention_mode)
    # [batch, 1] and [1, memories]
    rows, columns = block_ids[:, tf.newaxis], all_block_ids[tf.newaxis]
    # [batch, memories]
    mask = tf.logical_and(tf.not_equal(rows, 0), tf.not_equal(columns, 0))
    if cross_block_attention_mode == "batch":
        return mask
    mask = tf.logical_and(mask, tf.equal(rows, columns))
    if cross_block_attention_mode == "doc":
        return mask
    same_block = tf.equal(block_pos[:, tf.newaxis], all_block_pos[tf.newaxis])
    if cross_block_attention_mode == "other_blocks":
        same_block = tf.logical_not(same_block)
    return tf.logical_and(mask, same_block)


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class SummaryExtraction(encoder_layer.ConfiguredLayer):
    """Makes memories and gathers them from all replicas.

    ReadTwice paper, section 2.1, "ExtractMemories and Gather".
    """

    config_class = ReadTwiceConfig

    def __init__(
        self,
        config: ReadTwiceConfig,
        use_one_hot_embeddings: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(config, use_one_hot_embeddings, name=name, **kwargs)
        self.entity_pool_linear = None
        self.cls_pool = None
        self.block_position_emb_lookup = None
        self.summary_emb_layer_norm = None
        self.transformer_with_side_inputs = None
        if config.summary_mode != "cls":
            self.entity_pool_linear = self._make_dense("entity_pool_linear")
        if config.summary_postprocessing_type == "linear":
            self.cls_pool = self._make_dense("cls_pool", activation="tanh")
        elif config.summary_postprocessing_type in ("pos", "transformer"):
            self.block_position_emb_lookup = self._make_lookup(
                "block_position_emb_lookup", config.max_num_blocks_per_document
            )
            self.summary_emb_layer_norm = self._make_norm(
                "summary_emb_layer_norm"
            )
        if config.summary_postprocessing_type == "transformer":
            self.transformer_with_side_inputs = make_transformer(
                config,
                config.summary_postprocessing_num_layers,
                share_kv_projections=True,
                dtype=self.dtype_policy,
                name="transformer_layers",
            )

    def build(self, input_shape):
        """Builds all layers from the configuration; ignores `input_shape`."""
        size = self.config.hidden_size
        keras_compat.build_all((None, None, 2 * size), self.entity_pool_linear)
        keras_compat.build_all((None, size), self.cls_pool)
        keras_compat.build_all((None,), self.block_position_emb_lookup)
        keras_compat.build_all((None, size), self.summary_emb_layer_norm)
        keras_compat.build_all(
            (None, None, size), self.transformer_with_side_inputs
        )
        super().build(input_shape)

    def call(
        self,
        hidden_states,
        token_ids,
        block_ids,
        block_pos,
        annotation_begins=None,
        annotation_ends=None,
        annotation_labels=None,
        cross_block_attention_mode="doc",
        training=None,
    ):
        """Extracts, gathers and processes memories.

        `hidden_states` is the output of the first read, `<float>[batch, length,
        hidden_size]`. The other arguments are those of `ReadTwiceModel.call`.

        Raises:
            ValueError: `summary_mode` is "entity" and annotations are missing,
                or the attention mode does not exist.
        """
        block_ids = tf.cast(block_ids, tf.int32)
        block_pos = tf.cast(block_pos, tf.int32)
        if self.config.summary_mode == "cls":
            # [batch, 1, hidden_size] and [batch, 1]
            states = hidden_states[:, :1]
            labels = block_ids[:, tf.newaxis]
            length = shapes.get_shape_list(hidden_states)[1]
            token_mask = self._every(length, hidden_states)
        elif self.config.summary_mode == "text_block":
            states, labels = self._extract_text_blocks(hidden_states, token_ids)
            token_mask = self._every(
                self.config.text_block_extract_every_x, hidden_states
            )
        else:
            annotations = [
                annotation_begins,
                annotation_ends,
                annotation_labels,
            ]
            if any(x is None for x in annotations):
                raise ValueError(
                    f"{self.name}: memories of entity mentions need "
                    "annotation_begins, annotation_ends and annotation_labels."
                )
            begins, ends, labels = (tf.cast(x, tf.int32) for x in annotations)
            states = self._pool(hidden_states, begins, ends, labels)
            token_mask = mention_token_mask(
                begins,
                ends,
                labels,
                shapes.get_shape_list(hidden_states)[1],
            )
        if not self.config.use_sparse_memory_attention:
            token_mask = None

        local_summary = self._flatten(states, labels, block_ids, block_pos)
        global_summary = self._gather(local_summary)
        global_summary = global_summary._replace(
            processed_states=self._process(
                global_summary, cross_block_attention_mode, training
            )
        )
        # [batch, memories]
        block_att_mask = tf.logical_and(
            get_cross_block_att(
                block_ids,
                block_pos,
                global_summary.block_ids,
                global_summary.block_pos,
                cross_block_attention_mode,
            ),
            tf.not_equal(global_summary.labels, 0)[tf.newaxis],
        )
        return SummaryExtractionOutput(
            local_summary, global_summary, block_att_mask, token_mask
        )

    def _every(self, number, hidden_states):
        """Marks the first of every `number` tokens, `<bool>[batch, length]`."""
        batch, length, _ = shapes.get_shape_list(hidden_states)
        # [length]
        mask = tf.equal(tf.range(length) % number, 0)
        return tf.tile(mask[tf.newaxis], [batch, 1])

    def _extract_text_blocks(self, hidden_states, token_ids):
        """Returns states and labels of text blocks.

        A block that begins or ends in padding has the label 0.
        """
        every = self.config.text_block_extract_every_x
        batch, length, _ = shapes.get_shape_list(hidden_states)
        # [batch, blocks]; the last block may be shorter.
        begins = tf.tile(tf.range(0, length, every)[tf.newaxis], [batch, 1])
        ends = tf.minimum(begins + every, length) - 1
        is_real = tf.not_equal(
            tf.cast(token_ids, tf.int32), self.config.summary_padding_token_id
        )
        labels = tf.cast(
            tf.logical_and(
                tf.gather(is_real, begins, batch_dims=1),
                tf.gather(is_real, ends, batch_dims=1),
            ),
            tf.int32,
        )
        return self._pool(hidden_states, begins, ends, labels), labels

    def _pool(self, hidden_states, begins, ends, labels):
        """Returns a vector for each inclusive span, zeros for the label 0."""
        # [batch, spans, 2 * hidden_size]
        both = tf.concat(
            [
                tf.gather(hidden_states, begins, batch_dims=1),
                tf.gather(hidden_states, ends, batch_dims=1),
            ],
            axis=-1,
        )
        # [batch, spans, hidden_size]
        pooled = self.entity_pool_linear(both)
        is_there = tf.not_equal(labels, 0)[..., tf.newaxis]
        return tf.where(is_there, pooled, tf.zeros([], pooled.dtype))

    def _flatten(self, states, labels, block_ids, block_pos):
        """Flattens the `[batch, memories]` of all segments into a `Summary`."""
        number = shapes.get_shape_list(states)[1]
        # [batch * memories, hidden_size]
        states = shapes.flatten_dims(states, last_dim=1)
        return Summary(
            states=states,
            processed_states=states,
            block_ids=tf.repeat(block_ids, number),
            block_pos=tf.repeat(block_pos, number),
            labels=shapes.flatten_dims(labels),
        )

    def _gather(self, summary):
        """Gathers the memories of all replicas; gradients flow back."""
        # [all memories, hidden_size]
        states = collectives.all_gather(summary.states)
        # [all memories, 3]
        numbers = collectives.all_gather(
            tf.stack(
                [summary.block_ids, summary.block_pos, summary.labels], axis=1
            )
        )
        block_ids, block_pos, labels = tf.unstack(numbers, axis=1)
        return Summary(states, states, block_ids, block_pos, labels)

    def _process(self, summary, cross_block_attention_mode, training):
        """Returns `processed_states`, `<float>[memories, hidden_size]`."""
        states = summary.states
        if self.cls_pool is not None:
            return self.cls_pool(states)
        if self.block_position_emb_lookup is None:
            return states
        last = self.config.max_num_blocks_per_document - 1
        states += self.block_position_emb_lookup(
            tf.minimum(summary.block_pos, last)
        )
        states = self.summary_emb_layer_norm(states)
        if self.transformer_with_side_inputs is None:
            return states
        # [memories, memories]
        mask = tf.logical_and(
            get_cross_block_att(
                summary.block_ids,
                summary.block_pos,
                summary.block_ids,
                summary.block_pos,
                cross_block_attention_mode,
            ),
            tf.not_equal(summary.labels, 0)[tf.newaxis],
        )
        return self.transformer_with_side_inputs(
            states[tf.newaxis], att_mask=mask[tf.newaxis], training=training
        )[0]


def make_transformer(
    config: ReadTwiceConfig, num_hidden_layers: int, **options
) -> layers.TransformerWithSideInputLayers:
    """Creates a stack of Transformer layers with a configuration's sizes."""
    return layers.TransformerWithSideInputLayers(
        hidden_size=config.hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        hidden_act=get_activation(config.hidden_act),
        hidden_dropout_prob=config.hidden_dropout_prob,
        attention_probs_dropout_prob=config.attention_probs_dropout_prob,
        initializer_range=config.initializer_range,
        grad_checkpointing_period=config.grad_checkpointing_period,
        **options,
    )
