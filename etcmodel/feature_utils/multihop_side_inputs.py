"""Side inputs for questions about paragraphs (HotpotQA, WikiHop).

A row holds a question, candidates and paragraphs. Paragraphs are unordered;
the sentences of a paragraph are ordered.

Source: ETC (Ainslie et al., 2020), section 3.4, Figure 3b and Appendix F.
"""

from collections.abc import Sequence

import tensorflow as tf

from etcmodel.feature_utils import global_local_side_inputs as common
from etcmodel.feature_utils import masks
from etcmodel.feature_utils import structure_checks
from etcmodel.feature_utils.typed_links import TypedLink
from etcmodel.ops import attention
from etcmodel.ops import checks


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

    A context is the question, a paragraph, or the candidates; it ends at a
    paragraph breakpoint. With `V = 2 * relative_pos_max_distance + 1`:

    | part | masked | label |
    | --- | --- | --- |
    | l2l | beyond the radius, other contexts | distance |
    | g2g | nothing | distance; V + 2 between two contexts |
    | l2g, g2l | as the hard masks say | V + 1 if linked, else V |

    A global token is linked to the long tokens that name it in their sentence
    ids, paragraph ids or `l2g_linked_ids`. `links` may set other labels in all
    parts except l2l. Tokens after the last breakpoint are padding. Padding
    attends only to padding, even with hard masks.

    Example: a question of two tokens with one global token each, a paragraph
    with its own global token and two sentences, and padding. The radius is 1
    and the g2l mask is hard. The maximum distance is 1, so label 3 is "not
    linked", 4 "linked" and 5 "other context":

        long breakpoints  010010           global breakpoints  01001
        sentence ids      0 1 3 4 4 -1     paragraph ids  -1 -1 2 2 2 -1

        l2l mask    011 110 011 111 110 010
        g2l mask    100000 010000 001110 001000 000110
        g2l labels  433333 343333 334443 334333 333443
        g2g labels  01555 20555 55011 55201 55220

    Breakpoints are 1 on the last token of each context. Ids are the index of a
    global token, or -1 for none. Most arguments are those of
    `make_global_local_transformer_side_inputs_from_example_ids`. In addition:

    * with hard masks, a long token and its paragraph's global token still
      attend to each other. `ignore_hard_g2l_mask`, `<int>[batch, global]`, is 1
      for global tokens that the hard g2l mask does not restrict;
      `ignore_hard_l2g_mask`, `<int>[batch, long]`, is 1 for long tokens that
      the hard l2g mask does not restrict;
    * `l2g_linked_ids` link each long token to one more global token, without
      changing masks;
    * `links` are further links. If several links apply to a pair, the last link
      wins;
    * with `flat_sequence`, the row is one text of sentences: distances count
      across contexts, and paragraphs, `l2g_linked_ids` and both
      `ignore_hard_*_mask` are ignored.

    Raises:
        ValueError: an input is not a matrix, lengths do not agree, a value is
            out of range, or a link's attributes conflict. In a graph, ids out
            of range raise `tf.errors.InvalidArgumentError` instead; graphs
            compiled by XLA do not check them.
    """
    with tf.name_scope(name or "make_multihop_side_inputs"):
        breakpoints = {
            "long_paragraph_breakpoints": tf.convert_to_tensor(
                long_paragraph_breakpoints
            ),
            "global_paragraph_breakpoints": tf.convert_to_tensor(
                global_paragraph_breakpoints
            ),
        }
        # [batch, long], [batch, global]
        long_contexts, global_contexts = (
            common.example_ids_from_breakpoints(key, x)
            for key, x in breakpoints.items()
        )
        long_valid = tf.minimum(long_contexts, 1)
        global_valid = tf.minimum(global_contexts, 1)

        paragraphs = {"long_paragraph_ids": long_paragraph_ids}
        if flat_sequence:
            l2g_linked_ids = ignore_hard_l2g_mask = ignore_hard_g2l_mask = None
            paragraphs = {}
        named = {
            key: TypedLink(ids, opens_hard_masks=True)
            for key, ids in (
                {"long_sentence_ids": long_sentence_ids} | paragraphs
            ).items()
        }
        if l2g_linked_ids is not None:
            named["l2g_linked_ids"] = TypedLink(l2g_linked_ids)
        named |= {f"links[{i}]": link for i, link in enumerate(links)}
        long_side = {"long_paragraph_breakpoints": long_contexts}
        global_side = {"global_paragraph_breakpoints": global_contexts}
        links = [
            _checked(key, link, long_side, global_side)
            for key, link in named.items()
        ]
        links = _guarded(
            breakpoints,
            long_contexts,
            global_contexts,
            dict(zip(named, links, strict=True)),
        )
        opening = [x.ids for x in links if x.opens_hard_masks]
        # Arguments by which hard masks restrict pairs of text tokens.
        l2g_limits, g2l_limits = {}, {}
        if use_hard_l2g_mask:
            l2g_limits["links"] = opening
            l2g_limits["exempt_long"] = _check_exempt(
                "ignore_hard_l2g_mask", ignore_hard_l2g_mask, **long_side
            )
        if use_hard_g2l_mask:
            g2l_limits["links"] = opening
            g2l_limits["exempt_global"] = _check_exempt(
                "ignore_hard_g2l_mask", ignore_hard_g2l_mask, **global_side
            )
        return common.assemble_side_inputs(
            long_segment_ids=long_valid if flat_sequence else long_contexts,
            g2g_att_mask=masks.make_segmented_att_mask(global_valid),
            l2g_att_mask=attention.LongGlobalMask(
                long_valid, global_valid, **l2g_limits
            ),
            g2l_att_mask=attention.LongGlobalMask(
                long_valid, global_valid, **g2l_limits
            ),
            links=links,
            local_radius=local_radius,
            relative_pos_max_distance=relative_pos_max_distance,
            global_segment_ids=None if flat_sequence else global_contexts,
            materialize=materialize,
        )


def _checked(name, link, long_side, global_side) -> TypedLink:
    """Converts a link's ids to a tensor and checks their shape."""
    link.check(name)
    link = link._replace(ids=tf.convert_to_tensor(link.ids))
    side = long_side if link.source == "long" else global_side
    common.check_matrices(**side, **{name: link.ids})
    return link


def _guarded(
    breakpoints, long_contexts, global_contexts, links
) -> list[TypedLink]:
    """Checks ids and breakpoints, and returns the links with checked ids."""
    ids = {
        source: {k: x.ids for k, x in links.items() if x.source == source}
        for source in ("long", "global")
    }
    tensors = checks.guard(
        [
            *(
                structure_checks.breakpoints(k, x)
                for k, x in breakpoints.items()
            ),
            *structure_checks.paragraphs(
                long_contexts, global_contexts, ids["long"], ids["global"]
            ),
        ],
        structure_checks.PARAGRAPHS_EXAMPLE,
        *(x.ids for x in links.values()),
    )
    return [
        link._replace(ids=ids)
        for link, ids in zip(links.values(), tensors, strict=True)
    ]


def _check_exempt(name, is_exempt, **like):
    """Returns the tokens exempt from a hard mask, `<bool>[batch, length]`."""
    if is_exempt is None:
        return None
    is_exempt = tf.cast(is_exempt, tf.bool)
    common.check_matrices(**like, **{name: is_exempt})
    return is_exempt
