"""Side inputs (masks and relative labels) for long text with sentences.

Attention has four parts: long-to-long (l2l), global-to-global (g2g),
long-to-global (l2g) and global-to-long (g2l). A long token belongs to at most
one sentence (or fixed block), and each sentence has one global token. Several
examples may be packed into one row.

All functions raise a `ValueError` if an input is not a matrix, lengths differ,
`local_radius` is below 1 or `relative_pos_max_distance` is negative.
Functions that take breakpoints also reject impossible structure (see
`structure_checks`): a `ValueError` in eager mode, a
`tf.errors.InvalidArgumentError` in a graph. Graphs compiled by XLA check
nothing.

Source: ETC (Ainslie et al., 2020), section 3.3 and Figure 3a.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from etcmodel.feature_utils import masks
from etcmodel.feature_utils import structure_checks
from etcmodel.feature_utils.relative_positions import RelativePositionGenerator
from etcmodel.feature_utils.typed_links import TypedLink
from etcmodel.ops import attention
from etcmodel.ops import checks
from etcmodel.ops import shapes
from etcmodel.ops.attention import masks as masks_lib
from etcmodel.ops.attention import relative_ids


@dataclasses.dataclass(eq=False)
class GlobalLocalTransformerSideInputs:
    """Masks and labels of the global-local layers.

    Masks hold 1 where the query (second axis) may attend to the key (third
    axis). Labels hold relative position ids. Every field may be None.

    Tensors are `<int32>[batch, long or global, long or global]`, except l2l:
    `[batch, long, 2 * local_radius + 1]`, where column `k` is the key at the
    distance `k - local_radius`. Instead of a tensor, each field except g2g may
    be a compact description, which takes memory per token rather than per pair:
    `SegmentMask`, `LongGlobalMask`, `DistanceLabels` or `LongGlobalLabels` (see
    `etcmodel.ops.attention`).
    """

    l2l_att_mask: Any
    g2g_att_mask: Any
    l2g_att_mask: Any
    g2l_att_mask: Any
    l2l_relative_att_ids: Any
    g2g_relative_att_ids: Any
    l2g_relative_att_ids: Any
    g2l_relative_att_ids: Any

    def to_dict(self, exclude_none_values: bool = False) -> dict[str, Any]:
        """Returns the fields as a layer's keyword arguments, without copying.

        `exclude_none_values` leaves out fields that are None.
        """
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if not (exclude_none_values and getattr(self, field.name) is None)
        }


def make_global_local_transformer_side_inputs(
    long_breakpoints: tf.Tensor,
    global_breakpoints: tf.Tensor,
    sentence_ids: tf.Tensor,
    local_radius: int,
    relative_pos_max_distance: int,
    use_hard_g2l_mask: bool = False,
    use_hard_l2g_mask: bool = False,
    materialize: bool = True,
    name: str | None = None,
) -> GlobalLocalTransformerSideInputs:
    """Makes the side inputs of rows that hold one or more packed examples.

    `long_breakpoints`, `<int>[batch, long]`, and `global_breakpoints`,
    `<int>[batch, global]`, mark the last token of each example; tokens after
    the last one are padding. The other arguments are those of
    `make_global_local_transformer_side_inputs_from_example_ids`.

    Example: the radius is 2, the long breakpoints are `00000100` (6 tokens, 2
    of padding), the global breakpoints `0010` (3 tokens, 1 of padding) and the
    sentence ids `00012200`. The g2l mask is hard. The maximum distance is 2, so
    label 5 is "not linked" and label 6 "linked":

        g2g mask    1110 1110 1110 0001
        l2g mask    1110 (6 times) 0001 0001
        g2l mask    11100000 00010000 00001100 00000000
        g2l labels  66655566 55565555 55556655 55555555
    """
    with tf.name_scope(name or "make_global_local_transformer_side_inputs"):
        long_breakpoints = tf.convert_to_tensor(long_breakpoints)
        global_breakpoints = tf.convert_to_tensor(global_breakpoints)
        long_example_ids = example_ids_from_breakpoints(
            "long_breakpoints", long_breakpoints
        )
        global_example_ids = example_ids_from_breakpoints(
            "global_breakpoints", global_breakpoints
        )
        sentence_ids = tf.convert_to_tensor(sentence_ids)
        check_matrices(
            long_breakpoints=long_example_ids, sentence_ids=sentence_ids
        )
        (sentence_ids,) = checks.guard(
            [
                structure_checks.breakpoints(
                    "long_breakpoints", long_breakpoints
                ),
                structure_checks.breakpoints(
                    "global_breakpoints", global_breakpoints
                ),
                *structure_checks.sentences(
                    long_example_ids, global_example_ids, sentence_ids
                ),
            ],
            structure_checks.SENTENCES_EXAMPLE,
            sentence_ids,
        )
        return make_global_local_transformer_side_inputs_from_example_ids(
            long_example_ids=long_example_ids,
            global_example_ids=global_example_ids,
            sentence_ids=sentence_ids,
            local_radius=local_radius,
            relative_pos_max_distance=relative_pos_max_distance,
            use_hard_g2l_mask=use_hard_g2l_mask,
            use_hard_l2g_mask=use_hard_l2g_mask,
            materialize=materialize,
        )


def make_global_local_transformer_side_inputs_from_example_ids(
    long_example_ids: tf.Tensor,
    global_example_ids: tf.Tensor,
    sentence_ids: tf.Tensor,
    local_radius: int,
    relative_pos_max_distance: int,
    use_hard_g2l_mask: bool = False,
    use_hard_l2g_mask: bool = False,
    materialize: bool = True,
    name: str | None = None,
) -> GlobalLocalTransformerSideInputs:
    """Makes the side inputs from one example id per token.

    Tokens attend only to tokens with an equal example id. Long tokens attend to
    long tokens within the radius; all other pairs attend at any distance. With
    `V = 2 * relative_pos_max_distance + 1`, the labels of pairs are:

    * 0 .. V-1: the distance between two long or two global tokens;
    * V: a long token and a global token of another sentence;
    * V + 1: a long token and the global token of its sentence.

    Example: two examples and padding have the long ids `2221100`, the global
    ids `2210` and the sentence ids `0012200`. The hard g2l mask is `1100000
    0010000 0001100 0000000`; the l2g mask, which is not hard, is `1100 1100
    1100 0010 0010 0001 0001`.

    Args:
        long_example_ids: `<int>[batch, long]`, any id per packed example, and
            another id (usually 0) for padding.
        global_example_ids: `<int>[batch, global]`, the example id of each
            global token.
        sentence_ids: `<int>[batch, long]`, index in the row of the global token
            of each long token's sentence; -1 for none.
        local_radius: how many tokens on each side a long token attends to.
        relative_pos_max_distance: larger distances are clipped to this
            distance; 0 for no labels.
        use_hard_g2l_mask: whether a global token attends only to the long
            tokens of its own sentence.
        use_hard_l2g_mask: whether a long token attends only to the global token
            of its own sentence.
        materialize: whether to return masks and labels as tensors; otherwise
            they are compact descriptions.
        name: name scope.
    """
    with tf.name_scope(
        name or "make_global_local_transformer_side_inputs_from_example_ids"
    ):
        long_example_ids = tf.convert_to_tensor(long_example_ids)
        global_example_ids = tf.cast(global_example_ids, long_example_ids.dtype)
        sentence_ids = tf.convert_to_tensor(sentence_ids)
        check_matrices(
            long_example_ids=long_example_ids, sentence_ids=sentence_ids
        )
        check_matrices(global_example_ids=global_example_ids)

        def make_mask(is_hard):
            return attention.LongGlobalMask(
                long_example_ids,
                global_example_ids,
                links=[sentence_ids] if is_hard else None,
            )

        return assemble_side_inputs(
            long_segment_ids=long_example_ids,
            g2g_att_mask=masks.make_segmented_att_mask(global_example_ids),
            l2g_att_mask=make_mask(use_hard_l2g_mask),
            g2l_att_mask=make_mask(use_hard_g2l_mask),
            links=[TypedLink(sentence_ids)],
            local_radius=local_radius,
            relative_pos_max_distance=relative_pos_max_distance,
            materialize=materialize,
        )


def make_fixed_block_side_inputs(
    input_mask: tf.Tensor,
    num_tokens_per_block: int,
    local_radius: int,
    relative_pos_max_distance: int,
    use_hard_g2l_mask: bool = False,
    use_hard_l2g_mask: bool = False,
    global_token_id: int = 1,
    materialize: bool = True,
    name: str | None = None,
) -> tuple[GlobalLocalTransformerSideInputs, tf.Tensor]:
    """Makes global tokens and side inputs for text without any structure.

    Every block of `num_tokens_per_block` long tokens gets a global token with
    the id `global_token_id`, unless the whole block is padding. (An English
    sentence has about 27 tokens.) `input_mask` is `<int or bool>[batch, long]`,
    1 for text; the other arguments are those of
    `make_global_local_transformer_side_inputs_from_example_ids`.

    Example: the input mask `1111100000`, 3 tokens per block and the maximum
    distance 2 give the global ids `1100` and the g2l labels `6665555555
    5556665555 5555556665 5555555556`.

    Returns:
        The side inputs, and the ids of the global tokens, `<int32>[batch,
        ceil(long / num_tokens_per_block)]`, 0 for blocks of padding.
    """
    with tf.name_scope(name or "make_fixed_block_side_inputs"):
        input_mask = tf.cast(input_mask, tf.int32)
        check_matrices(input_mask=input_mask)
        if num_tokens_per_block < 1:
            raise ValueError(
                "`num_tokens_per_block` must be 1 or more, got "
                f"{num_tokens_per_block}."
            )
        batch_size, length = shapes.get_shape_list(input_mask)
        num_blocks = -(-length // num_tokens_per_block)
        missing = num_blocks * num_tokens_per_block - length
        # [batch, global, num_tokens_per_block]
        blocks = tf.reshape(
            tf.pad(input_mask, [[0, 0], [0, missing]]),
            [batch_size, num_blocks, num_tokens_per_block],
        )
        # [batch, global]
        global_mask = tf.reduce_max(blocks, axis=2)
        # [batch, long]
        block_ids = tf.broadcast_to(
            tf.range(tf.shape(input_mask)[1]) // num_tokens_per_block,
            tf.shape(input_mask),
        )
        side_inputs = (
            make_global_local_transformer_side_inputs_from_example_ids(
                long_example_ids=input_mask,
                global_example_ids=global_mask,
                sentence_ids=block_ids,
                local_radius=local_radius,
                relative_pos_max_distance=relative_pos_max_distance,
                use_hard_g2l_mask=use_hard_g2l_mask,
                use_hard_l2g_mask=use_hard_l2g_mask,
                materialize=materialize,
            )
        )
        return side_inputs, global_token_id * global_mask


def add_side_input_features(
    model_config: Any, features: dict[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Adds the side inputs that are not None to a batch, for `Dataset.map`.

    `features` must contain `long_breakpoints`, `global_breakpoints` and
    `sentence_ids` (see `make_global_local_transformer_side_inputs`). Example:
    `dataset.batch(8).map(partial(add_side_input_features, config))`.
    """
    needed = ("long_breakpoints", "global_breakpoints", "sentence_ids")
    missing = [name for name in needed if name not in features]
    if missing:
        raise ValueError(
            f"The side inputs need the features {missing}. Add them; got only "
            f"{sorted(features)}."
        )
    side_inputs = make_global_local_transformer_side_inputs(
        **{name: features[name] for name in needed},
        local_radius=model_config.local_radius,
        relative_pos_max_distance=model_config.relative_pos_max_distance,
        use_hard_g2l_mask=model_config.use_hard_g2l_mask,
        use_hard_l2g_mask=model_config.use_hard_l2g_mask,
    )
    return {**features, **side_inputs.to_dict(exclude_none_values=True)}


def example_ids_from_breakpoints(
    name: str, breakpoints: tf.Tensor
) -> tf.Tensor:
    """Numbers packed examples backwards, so that padding gets 0.

    Example: `[[0, 1, 0, 0, 1, 0]]` gives `[[2, 2, 1, 1, 1, 0]]`. `name` is the
    name of the breakpoints in error messages.
    """
    # Small types such as uint8 would overflow.
    breakpoints = tf.cast(breakpoints, tf.int32)
    check_matrices(**{name: breakpoints})
    return tf.cumsum(breakpoints, axis=1, reverse=True)


def assemble_side_inputs(
    long_segment_ids: tf.Tensor,
    g2g_att_mask: tf.Tensor,
    l2g_att_mask: attention.LongGlobalMask,
    g2l_att_mask: attention.LongGlobalMask,
    links: Sequence[TypedLink],
    local_radius: int,
    relative_pos_max_distance: int,
    global_segment_ids: tf.Tensor | None = None,
    materialize: bool = True,
) -> GlobalLocalTransformerSideInputs:
    """Combines segments and links into side inputs.

    Long tokens attend to long tokens within the radius that have an equal
    `long_segment_ids`. Pairs of global tokens with different
    `global_segment_ids` have the label "other context" instead of a distance.
    At least one of `links` must have the source "long". Links set labels only,
    not masks.
    """
    generator = RelativePositionGenerator(relative_pos_max_distance)
    # Called even if there are no labels, since it checks the radius.
    l2l_ids = generator.make_local_relative_att_spec(local_radius)
    not_linked = generator.relative_vocab_size

    def describe(labelled, otherwise):
        """Describes labels; `labelled` has pairs (link ids, link's label)."""
        ids, own = zip(*labelled, strict=True)
        linked = [not_linked + (1 if x is None else 3 + x) for x in own]
        return attention.LongGlobalLabels(ids, linked, otherwise)

    l2g_ids = describe(
        [(x.ids, x.label) for x in links if x.source == "long"], not_linked
    )
    global_links = [x for x in links if x.source == "global"]
    if relative_pos_max_distance == 0:
        l2l_ids = g2g_ids = l2g_ids = None
    else:
        batch_size, global_len = shapes.get_shape_list(g2g_att_mask)[:2]
        # [batch, global, global]
        g2g_ids = generator.make_relative_att_ids(global_len, batch_size)
        if global_segment_ids is not None:
            g2g_ids = masks.overwrite_relative_att_ids_outside_segments(
                g2g_ids, global_segment_ids, not_linked + 2
            )
        if global_links:
            there = [(x.ids, x.label) for x in global_links]
            back = [
                (x.ids, x.label if x.back_label is None else x.back_label)
                for x in global_links
            ]
            # [batch, global, global]
            there, back = (
                describe(x, -1).to_tensor(global_len) for x in (there, back)
            )
            for labels in (tf.transpose(back, [0, 2, 1]), there):
                g2g_ids = tf.where(labels < 0, g2g_ids, labels)
    side_inputs = GlobalLocalTransformerSideInputs(
        l2l_att_mask=attention.SegmentMask(long_segment_ids),
        g2g_att_mask=g2g_att_mask,
        l2g_att_mask=l2g_att_mask,
        g2l_att_mask=g2l_att_mask,
        l2l_relative_att_ids=l2l_ids,
        g2g_relative_att_ids=g2g_ids,
        l2g_relative_att_ids=l2g_ids,
        g2l_relative_att_ids=l2g_ids,
    )
    if materialize:
        return _materialized(side_inputs, local_radius)
    return side_inputs


def _materialized(
    side_inputs: GlobalLocalTransformerSideInputs, local_radius: int
) -> GlobalLocalTransformerSideInputs:
    """Converts descriptions of masks and labels to `<int32>` tensors."""
    l2l_mask = side_inputs.l2l_att_mask
    l2l_ids = side_inputs.l2l_relative_att_ids
    batch_size, long_len = shapes.get_shape_list(l2l_mask.segment_ids)
    l2g_ids = side_inputs.l2g_relative_att_ids
    g2l_ids = None
    # [batch, long, global]
    l2g_mask = side_inputs.l2g_att_mask.to_tensor()
    # [batch, global, long]
    g2l_mask = masks_lib.pair_mask_tensor(
        side_inputs.g2l_att_mask, from_global=True
    )
    if l2g_ids is not None:
        # [batch, long, global]
        l2g_ids = l2g_ids.to_tensor(shapes.get_shape_list(l2g_mask)[2])
        l2g_ids.set_shape(l2g_mask.shape)
        # [batch, global, long]
        g2l_ids = tf.transpose(l2g_ids, [0, 2, 1])
    return dataclasses.replace(
        side_inputs,
        # [batch, long, 2 * local_radius + 1]
        l2l_att_mask=tf.cast(l2l_mask.to_band(local_radius), tf.int32),
        l2g_att_mask=tf.cast(l2g_mask, tf.int32),
        g2l_att_mask=tf.cast(g2l_mask, tf.int32),
        # [batch, long, 2 * local_radius + 1]
        l2l_relative_att_ids=relative_ids.band_label_tensor(
            l2l_ids, batch_size, long_len
        ),
        l2g_relative_att_ids=l2g_ids,
        g2l_relative_att_ids=g2l_ids,
    )


def check_matrices(**tensors: tf.Tensor) -> None:
    """Raises a `ValueError` unless all tensors are matrices of one shape."""
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        if tensor.shape.rank != 2:
            raise ValueError(
                f"`{name}` must have 2 dimensions, [batch, length], got shape "
                f"{tensor.shape}."
            )
        if not tensor.shape.is_compatible_with(first.shape):
            raise ValueError(
                f"`{name}` and `{first_name}` must have the same shape, got "
                f"{tensor.shape} and {first.shape}."
            )
