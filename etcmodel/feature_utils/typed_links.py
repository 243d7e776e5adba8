"""Links between tokens, with their own relative labels."""

from typing import NamedTuple

import tensorflow as tf


class TypedLink(NamedTuple):
    """Links every token of one input to at most one global token.

    With `V = 2 * relative_pos_max_distance + 1`, the relative label of a linked
    pair is V + 1, as for a token and its sentence, or V + 3 + n if the link has
    its own label n. Between global tokens, this label replaces the label of the
    distance. If several links apply to a pair, the last link wins. Between
    global tokens, however, forward links win over back labels.

    Example: three long tokens, each a sentence. The maximum distance is 1, so
    label 3 is "not linked", 4 "linked", and 6 to 8 are the links' own labels.
    `TypedLink([[-1, 0, -1]], label=0)` and `TypedLink([[2, -1, -1]],
    source="global", label=1, back_label=2)` give the labels

        l2g  433 643 334    g2l  463 343 334    g2g  017 201 820

    Attributes:
        ids: `<int>[batch, long]` or `<int>[batch, global]`, index of the global
            token that each token is linked to; -1 for no link. Ids of padding
            are ignored.
        source: input of the linked tokens, "long" or "global".
        label: number of the link's own label, from 0; None for V + 1.
        back_label: number of the label from the target back to the token, for
            links between global tokens; None for `label`.
        opens_hard_masks: whether linked long and global tokens attend to each
            other despite hard masks.
    """

    ids: tf.Tensor
    source: str = "long"
    label: int | None = None
    back_label: int | None = None
    opens_hard_masks: bool = False

    def check(self, name: str) -> None:
        """Raises a `ValueError` if attributes conflict."""
        if self.source not in ("long", "global"):
            raise ValueError(
                f"`{name}` must have the source 'long' or 'global', got "
                f"{self.source!r}."
            )
        if self.source == "global" and self.opens_hard_masks:
            raise ValueError(
                f"`{name}` links global tokens, but hard masks never separate "
                "global tokens. Set `opens_hard_masks=False`."
            )
        if self.source == "long" and self.back_label is not None:
            raise ValueError(
                f"`{name}` has source 'long' and `back_label` "
                f"{self.back_label}, expected None: only links between global "
                "tokens have a label back."
            )
        if min(self.label or 0, self.back_label or 0) < 0:
            raise ValueError(
                f"`{name}` has the label {self.label} and the back label "
                f"{self.back_label}, expected 0 or more."
            )
