"""Links between tokens, with their own relative labels."""

from typing import NamedTuple

import tensorflow as tf


class TypedLink(NamedTuple):
    """Links every token of one input to at most one global token.

    With `V = 2 * relative_pos_max_distance + 1`, the label of a linked pair is
    V + 1, that of a token and its sentence, or V + 3 + n for the own label n.
    It also replaces distances. If several links hold for a pair, the last one
    wins; between global tokens, forward links win over backward ones.

    Example: three long tokens, each a sentence, maximum distance 1 (3 is "not
    linked", 4 "linked", 6 to 8 are own labels): `TypedLink([[-1, 0, -1]],
    label=0)` and `TypedLink([[2, -1, -1]], source="global", label=1,
    back_label=2)` give the labels

        l2g  433 643 334    g2l  463 343 334    g2g  017 201 820

    Attributes:
        ids: `<int>[batch, long]` or `<int>[batch, global]`, the global token
            that each token is linked to; -1 for none, anything for padding.
        source: "long" if tokens of the long input are linked, or "global".
        label: number of the own label, from 0; None for V + 1.
        back_label: own label from a global token back; None for `label`.
        opens_hard_masks: whether linked long and global tokens see each other
            despite hard masks.
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
                f"`{name}` links global tokens, between which there is no hard "
                "mask to open."
            )
        if self.source == "long" and self.back_label is not None:
            raise ValueError(
                f"`{name}` links long tokens, which have no label for the way "
                f"back, but `back_label` is {self.back_label}."
            )
        if min(self.label or 0, self.back_label or 0) < 0:
            raise ValueError(
                f"`{name}` must have labels from 0 on, got {self.label} and "
                f"{self.back_label}."
            )
