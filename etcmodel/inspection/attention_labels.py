"""Joins the masks and labels of ETC's four attention parts into one matrix.

Source: ETC (Ainslie et al., 2020), Figures 2 and 3, sections 3.2 to 3.4.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from etcmodel.feature_utils import GlobalLocalTransformerSideInputs

MASKED = -1


@dataclasses.dataclass(frozen=True)
class LabelScheme:
    """The meaning of relative position labels.

    Distances are clipped at `m = max_distance`. The label 0 is the token
    itself, 1..m are keys on the right, m+1..2m keys on the left, 2m+1 is "not
    linked", 2m+2 "linked" and 2m+3 "other context". From 2m+4 on, each label
    belongs to one link. Without labels, `max_distance` is 0 and the label 0
    means "may attend".
    """

    max_distance: int

    @property
    def not_linked(self) -> int:
        """The label of a long and a global token that are not linked."""
        return 2 * self.max_distance + 1

    @property
    def other_context(self) -> int:
        """The label of two global tokens from different contexts."""
        return 2 * self.max_distance + 3

    def describe(self, label: int) -> str:
        """Describes a label, or `MASKED`, in words.

        `LabelScheme(2)`: 0 -> "the token itself", 1 -> "1 to the right",
        2 -> "2 or more to the right", 3 -> "1 to the left", 5 -> "not
        linked", 6 -> "linked", 7 -> "other context", 8 -> "link 1". Raises a
        ValueError for a label that does not exist.
        """
        names = {
            MASKED: "masked",
            0: "the token itself" if self.max_distance else "may attend",
        }
        if self.max_distance:
            names |= {
                self.not_linked: "not linked",
                self.not_linked + 1: "linked",
                self.other_context: "other context",
            }
        if label in names:
            return names[label]
        if 0 < label <= 2 * self.max_distance:
            on_left = label > self.max_distance
            distance = label - self.max_distance if on_left else label
            more = " or more" if distance == self.max_distance else ""
            side = "left" if on_left else "right"
            return f"{distance}{more} to the {side}"
        if self.max_distance and label > self.other_context:
            return f"link {label - self.other_context}"
        raise ValueError(
            f"No label {label} exists with a maximum distance of "
            f"{self.max_distance}. Use the distance that made the labels."
        )


def find_label_scheme(
    side_inputs: GlobalLocalTransformerSideInputs,
) -> LabelScheme:
    """Infers the maximum distance from the labels.

    A pair of a long and a global token has the label `2m + 1` (not linked) or
    `2m + 2` (linked). One is odd and the other even, so either determines `m`.
    At least one pair must have one of these labels, because the greater labels
    of individual links do not determine `m`.
    """
    if side_inputs.l2g_relative_att_ids is None:
        return LabelScheme(max_distance=0)
    smallest = int(np.min(np.asarray(side_inputs.l2g_relative_att_ids)))
    return LabelScheme(max_distance=(smallest - 1) // 2)


def compose_attention_labels(
    side_inputs: GlobalLocalTransformerSideInputs,
    global_tokens: Sequence[int],
    long_tokens: Sequence[int],
) -> np.ndarray:
    """Joins the four attention parts of one record into a square matrix.

    Global tokens come before long ones. Each pair of a query (row) and a key
    (column) has a label or `MASKED`, `<int32>[shown, shown]`. A mask of None
    masks nothing within the radius. Labels of None count as 0.

    Example with radius 1 and maximum distance 1: one global token sees the
    first two of three long tokens (a hard g2l mask). `.` is `MASKED`:

    ```
    0 | 4 4 .
    --+------
    4 | 0 1 .
    4 | 2 0 1
    3 | . 2 0
    ```

    Raises:
        ValueError: the long-to-long mask and labels are both None.
    """
    global_tokens = np.asarray(global_tokens, np.int64)
    long_tokens = np.asarray(long_tokens, np.int64)
    band = side_inputs.l2l_att_mask
    if band is None:
        band = side_inputs.l2l_relative_att_ids
    if band is None:
        raise ValueError(
            "The long-to-long mask and labels are both None, so the local "
            "radius is unknown. Give one of them."
        )
    radius = np.shape(band)[-1] // 2
    # [long, long]
    columns = long_tokens[None, :] - long_tokens[:, None] + radius
    in_reach = (columns >= 0) & (columns <= 2 * radius)

    def piece(name, rows, columns):
        mask = getattr(side_inputs, f"{name}_att_mask")
        ids = getattr(side_inputs, f"{name}_relative_att_ids")
        shape = np.broadcast_shapes(rows.shape, columns.shape)
        labels = np.zeros(shape, np.int32)
        if ids is not None:
            labels = np.asarray(ids[0])[rows, columns]
        if mask is not None:
            visible = np.asarray(mask[0])[rows, columns] != 0
            labels = np.where(visible, labels, MASKED)
        return labels

    global_rows, global_columns = np.ix_(global_tokens, global_tokens)
    long_rows, long_columns = np.ix_(long_tokens, long_tokens)
    l2l = piece("l2l", long_rows, np.clip(columns, 0, 2 * radius))
    return np.block(
        [
            [
                piece("g2g", global_rows, global_columns),
                piece("g2l", global_rows, long_columns),
            ],
            [
                piece("l2g", long_rows, global_columns),
                np.where(in_reach, l2l, MASKED),
            ],
        ]
    ).astype(np.int32)


def choose_global_tokens(
    side_inputs: GlobalLocalTransformerSideInputs,
    num_global: int,
    long_tokens: Sequence[int],
    max_global_tokens: int,
) -> list[int]:
    """Chooses up to `max_global_tokens`, linked to `long_tokens` if possible.

    Returns indices in ascending order: all `num_global` if they are few enough,
    otherwise linked tokens first and then the first unlinked ones. Example: if
    only token 3 of 5 global tokens is linked, and at most 2 are chosen, the
    result is `[0, 3]`.
    """
    linked = np.zeros([num_global], bool)
    if side_inputs.l2g_relative_att_ids is not None:
        label = find_label_scheme(side_inputs).not_linked
        ids = np.asarray(side_inputs.l2g_relative_att_ids[0])
        linked = np.any(ids[np.asarray(long_tokens)] != label, axis=0)
        linked = linked[:num_global]
    by_interest = sorted(range(num_global), key=lambda j: (not linked[j], j))
    return sorted(by_interest[:max_global_tokens])
