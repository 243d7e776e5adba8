"""Masks and labels of the four attention pieces, for questions on paragraphs.

The structure of the multi-hop tasks (HotpotQA, WikiHop): a question or query,
candidates, and paragraphs without an order among them, each made of ordered
sentences.

Source: ETC (Ainslie et al., 2020), section 3.4, Figure 3b and Appendix F.
"""

from collections.abc import Sequence

import tensorflow as tf

from etcmodel.feature_utils import global_local_side_inputs as common
from etcmodel.feature_utils import masks
from etcmodel.feature_utils.typed_links import TypedLink
from etcmodel.ops import attention


def make_multihop_side_inputs(
    long_paragraph_breakpoints: tf.Tensor,
    long_paragraph_ids: tf.Tensor,
    long_sentence_ids: tf.Tensor,
    global_paragraph_breakpoints: tf.Tensor,
    local_radius: int,
    relative_pos_max_distance: int,
    use_hard_g2l_mask: bool = False,
    ignore_hard_g2l_mask: tf.Tensor | None = None,
    use_hard_l2g_mask: bool = False,
    ignore_hard_l2g_mask: tf.Tensor | None = None,
    flat_sequence: bool = False,
    l2g_linked_ids: tf.Tensor | None = None,
    links: Sequence[TypedLink] = (),
    materialize: bool = True,
    name: str | None = None,
) -> common.GlobalLocalTransformerSideInputs:
    """Makes the side inputs of questions with paragraphs, one per row.

    A context is what ends at a paragraph breakpoint: the question, each
    paragraph, the candidates. With `V = 2 * relative_pos_max_distance + 1`:

    | piece | masked | label |
    | --- | --- | --- |
    | l2l | beyond the radius, other contexts | distance |
    | g2g | nothing | distance; V + 2 between two contexts |
    | l2g, g2l | as the hard masks say | V + 1 if linked, else V |

    A global token is linked with the long tokens that name it as their
    sentence, their paragraph or their free link. `links` may have other labels,
    in all pieces but l2l. Padding, all that follows the last breakpoint,
    attends to padding only; hard masks cut that, too.

    Args:
        long_paragraph_breakpoints: <int>[batch, long]. 1 for the last long
            token of each context, else 0.
        long_paragraph_ids: <int>[batch, long]. Index of the global token of
            each long token's paragraph; -1 for none.
        long_sentence_ids: <int>[batch, long]. Index of the global token of each
            long token's sentence; -1 for none.
        global_paragraph_breakpoints: <int>[batch, global]. 1 for the last
            global token of each context, else 0.
        local_radius: int. How far a long token sees on each side.
        relative_pos_max_distance: int. Distance at which labels are clipped; 0
            for no labels at all.
        use_hard_g2l_mask: bool. Whether a global token sees only the long
            tokens of its own sentence or paragraph.
        ignore_hard_g2l_mask: <int>[batch, global] or None. 1 for global tokens
            that see all long tokens in spite of the hard g2l mask.
        use_hard_l2g_mask: bool. Whether a long token sees only the global
            tokens of its own sentence and paragraph.
        ignore_hard_l2g_mask: <int>[batch, long] or None. 1 for long tokens that
            see all global tokens in spite of the hard l2g mask.
        flat_sequence: bool. Whether to treat the row as one text of sentences,
            as in `make_global_local_transformer_side_inputs`: distances count
            across contexts, and paragraphs, `l2g_linked_ids` and the two
            ignore masks are not used.
        l2g_linked_ids: <int>[batch, long] or None. Index of one more global
            token each long token is linked with; -1 for none. It changes
            labels only, never masks.
        links: further links, of long or of global tokens. Where several links
            hold for a pair, the last one gives the label.
        materialize: bool. Whether masks and labels are tensors; if not, they
            are descriptions, see `GlobalLocalTransformerSideInputs`.
        name: string. Name scope of the operations.

    Returns:
        `GlobalLocalTransformerSideInputs`; the labels are None if
        `relative_pos_max_distance` is 0.

    Raises:
        ValueError: if an input is not a matrix, lengths that must agree do
            not, `local_radius` is below 1, `relative_pos_max_distance` is
            negative, or attributes of a link do not go together.

    Example:
        A question of two tokens with a global token each, a paragraph with its
        own global token and two sentences, padding; radius 1, maximum distance
        1 (so 3 is "not linked", 4 "linked", 5 "other context"), hard g2l mask:

        ```
        long breakpoints  010010       global breakpoints  01001
        sentence ids      0 1 3 4 4 -1
        paragraph ids     -1 -1 2 2 2 -1

        l2l mask  g2l mask  g2l labels  g2g labels
        011       100000    433333      01555
        110       010000    343333      20555
        011       001110    334443      55011
        111       001000    334333      55201
        110       000110    333443      55220
        010
        ```
    """
    with tf.name_scope(name or "make_multihop_side_inputs"):
        # [batch, long]
        long_segments = common.example_ids_from_breakpoints(
            "long_paragraph_breakpoints", long_paragraph_breakpoints
        )
        # [batch, global]
        global_segments = common.example_ids_from_breakpoints(
            "global_paragraph_breakpoints", global_paragraph_breakpoints
        )
        long_valid = tf.minimum(long_segments, 1)
        global_valid = tf.minimum(global_segments, 1)

        contains = {"long_sentence_ids": long_sentence_ids}
        if flat_sequence:
            l2g_linked_ids = ignore_hard_l2g_mask = ignore_hard_g2l_mask = None
        else:
            contains["long_paragraph_ids"] = long_paragraph_ids
        named = {
            key: TypedLink(ids, opens_hard_masks=True)
            for key, ids in contains.items()
        }
        if l2g_linked_ids is not None:
            named["l2g_linked_ids"] = TypedLink(l2g_linked_ids)
        named |= {f"links[{i}]": link for i, link in enumerate(links)}
        for key, link in named.items():
            link.check(key)
            link = link._replace(ids=tf.convert_to_tensor(link.ids))
            if link.source == "long":
                breakpoints = {"long_paragraph_breakpoints": long_segments}
            else:
                breakpoints = {"global_paragraph_breakpoints": global_segments}
            common.check_matrices(**breakpoints, **{key: link.ids})
            named[key] = link
        opening = [x.ids for x in named.values() if x.opens_hard_masks]
        # What further limits the pairs of valid tokens.
        l2g_limits, g2l_limits = {}, {}
        if use_hard_l2g_mask:
            l2g_limits["links"] = opening
            l2g_limits["exempt_long"] = _check_exempt(
                "ignore_hard_l2g_mask",
                ignore_hard_l2g_mask,
                long_paragraph_breakpoints=long_segments,
            )
        if use_hard_g2l_mask:
            g2l_limits["links"] = opening
            g2l_limits["exempt_global"] = _check_exempt(
                "ignore_hard_g2l_mask",
                ignore_hard_g2l_mask,
                global_paragraph_breakpoints=global_segments,
            )
        return common.assemble_side_inputs(
            long_segment_ids=long_valid if flat_sequence else long_segments,
            g2g_att_mask=masks.make_segmented_att_mask(global_valid),
            l2g_att_mask=attention.LongGlobalMask(
                long_valid, global_valid, **l2g_limits
            ),
            g2l_att_mask=attention.LongGlobalMask(
                long_valid, global_valid, **g2l_limits
            ),
            links=[*named.values()],
            local_radius=local_radius,
            relative_pos_max_distance=relative_pos_max_distance,
            global_segment_ids=None if flat_sequence else global_segments,
            materialize=materialize,
        )


def _check_exempt(name, is_exempt, **segments):
    """Checks which tokens a hard mask spares.

    Args:
        name: string. What `is_exempt` is called in an error.
        is_exempt: <int or bool>[batch, long or global] or None.
        **segments: a tensor that must have the shape of `is_exempt`.

    Returns:
        <bool>[batch, long or global] or None.
    """
    if is_exempt is None:
        return None
    is_exempt = tf.cast(is_exempt, tf.bool)
    common.check_matrices(**segments, **{name: is_exempt})
    return is_exempt
