"""Links between tokens that have relative labels of their own."""

from typing import NamedTuple

import tensorflow as tf


class TypedLink(NamedTuple):
    """Ties every token of one input to at most one global token.

    With `V = 2 * relative_pos_max_distance + 1`, the label of a tied pair is
    V + 1, that of a token and its sentence, or V + 3 + n for the own label n.
    It replaces distances, too. Where several links hold for a pair, the last
    one wins; between global tokens those of the way there before those of the
    way back.

    Example: three long tokens, each a sentence, maximum distance 1 (3 is "not
    linked", 4 "linked", 6 to 8 are own labels): `TypedLink([[-1, 0, -1]],
    label=0)` and `TypedLink([[2, -1, -1]], source="global", label=1,
    back_label=2)` give the labels

        l2g  433 643 334    g2l  463 343 334    g2g  017 201 820

    Attributes:
        ids: `<int>[batch, long]` or `<int>[batch, global]`, the global token
            that each token is tied to; -1 for none, anything for padding.
        source: "long" if tokens of the long input are tied, or "global".
        label: number of the own label, from 0; None for V + 1.
        back_label: likewise the way back of a global token; None for `label`.
        opens_hard_masks: whether tied long and global tokens see each other in
            spite of hard masks.
    """

    ids: tf.Tensor
    source: str = "long"
    label: int | None = None
    back_label: int | None = None
    opens_hard_masks: bool = False

    def check(self, name: str) -> None:
        """Raises a `ValueError` if attributes do not go together."""
        if self.source not in ("long", "global"):
            raise ValueError(
                f"`{name}` must have the source 'long' or 'global', got "
                f"{self.source!r}."
            )
        if self.source == "global" and self.opens_hard_masks:
            raise ValueError(
                f"`{name}` ties global tokens, between which there is no hard "
                "mask to be opened."
            )
        if self.source == "long" and self.back_label is not None:
            raise ValueError(
                f"`{name}` ties long tokens, whose way back has no label of "
                f"its own, but `back_label` is {self.back_label}."
            )
        if min(self.label or 0, self.back_label or 0) < 0:
            raise ValueError(
                f"`{name}` must have labels from 0 on, got {self.label} and "
                f"{self.back_label}."
            )
