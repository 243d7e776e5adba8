"""Masks and labels described rather than spelled out.

A mask or labels of all pairs of long tokens and their neighbours, or of long
and global tokens, take far more memory than what they follow from: an id for
each token, or nothing but the distance. Wherever attention takes a mask or
ids, it also takes one of the classes here. The streaming implementation then
makes each part of the mask when it gets there; the others make the tensor.

They are plain objects, not tensors: make them where the layers are called
(inside a layer's or model's `call`, or a `tf.function`), from tensors at hand,
rather than between the layers of a functional model.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from etcmodel import tensor_utils


class AttentionSpec:
    """Base of what may be passed instead of a mask or of label ids."""


class SegmentMask(AttentionSpec):
    """Long tokens attend to the tokens around them that have an equal id.

    For `l2l_att_mask`. With the ids `[[7, 7, 9]]` and a radius of 1 it stands
    for `[[0, 1, 1], [1, 1, 0], [0, 1, 0]]`.

    Args:
        segment_ids: `<int>[batch, long]`, any values.
    """

    def __init__(self, segment_ids: tf.Tensor):
        self.segment_ids = tf.convert_to_tensor(segment_ids)

    def to_band(self, local_radius: int) -> tf.Tensor:
        """The mask as a tensor.

        Args:
            local_radius: positions to each side.

        Returns:
            `<bool>[batch, long, 2*local_radius + 1]`; False beyond the ends.
        """
        ids = self.segment_ids
        length = tensor_utils.get_shape_list(ids)[1]
        padding = [[0, 0], [local_radius, local_radius]]
        # [long, 2*local_radius + 1]
        window = tf.range(length)[:, tf.newaxis] + tf.range(
            2 * local_radius + 1
        )
        # [batch, long, 2*local_radius + 1]
        near_ids = tf.gather(tf.pad(ids, padding), window, axis=1)
        position = window - local_radius
        in_sequence = (position >= 0) & (position < length)
        return (near_ids == ids[:, :, tf.newaxis]) & in_sequence


class DistanceLabels(AttentionSpec):
    """Labels of the long tokens' neighbours that depend on distance alone.

    For `l2l_relative_att_ids`. Label `k` is that of the key `k - local_radius`
    positions on; `RelativePositionGenerator.make_local_relative_att_spec`
    makes the usual ones. With `DistanceLabels([2, 0, 1])` a token has label 0
    for itself, 2 for the token before it and 1 for the one after.

    Args:
        pattern: `2*local_radius + 1` labels.

    Raises:
        ValueError: there are fewer than 3, or an even number of them.
    """

    def __init__(self, pattern: Sequence[int]):
        self.pattern = tuple(int(label) for label in pattern)
        if len(self.pattern) % 2 == 0 or len(self.pattern) < 3:
            raise ValueError(
                "pattern needs a label for each of 2*local_radius + 1 "
                "distances, an odd number from 3 on, but has "
                f"{len(self.pattern)}"
            )

    def to_band(self, batch_size, length) -> tf.Tensor:
        """The labels as a tensor.

        Args:
            batch_size: int or `<int32>[]`.
            length: int or `<int32>[]`, number of long tokens.

        Returns:
            `<int32>[batch, long, 2*local_radius + 1]`.
        """
        return tf.broadcast_to(
            tf.constant(self.pattern, tf.int32),
            tf.stack([batch_size, length, len(self.pattern)]),
        )

    def runs(self) -> tuple[int, list[int], int]:
        """The pattern as a run of one label, a middle, and another run.

        Returns:
            `(lead, columns, trail)`: the pattern is `columns[0]`, `lead` times,
            then `columns[1:-1]`, then `columns[-1]`, `trail` times. The pattern
            5 5 5 1 2 3 3 is `(3, [5, 1, 2, 3], 2)`.
        """
        pattern = self.pattern
        lead = 1
        while lead < len(pattern) - 1 and pattern[lead] == pattern[0]:
            lead += 1
        trail = 1
        while (
            trail < len(pattern) - lead and pattern[-1 - trail] == pattern[-1]
        ):
            trail += 1
        middle = list(pattern[lead : len(pattern) - trail])
        return lead, [pattern[0], *middle, pattern[-1]], trail


class LongGlobalMask(AttentionSpec):
    """Which long and global tokens may attend to each other.

    For `l2g_att_mask` and for `g2l_att_mask`, which takes the same object (not
    a transposed one). A pair is allowed if the ids are equal and, where there
    are `links`, one of them names the global token or one of the two tokens is
    exempt.

    With `long_ids=[[1, 1, 0]]`, `global_ids=[[1, 1]]` and
    `links=[[[0, 1, 1]]]`, the long tokens' masks are 10, 01 and 00.

    Args:
        long_ids: `<int>[batch, long]`, such as one id for each packed example
            and another one for padding.
        global_ids: `<int>[batch, global]`, such ids for the global tokens.
        links: tensors `<int>[batch, long]`, the index of a global token each;
            anything out of range is no link. None allows all pairs of equal
            ids.
        exempt_long: `<int or bool>[batch, long]`, nonzero for long tokens that
            need no link.
        exempt_global: `<int or bool>[batch, global]`, likewise.
    """

    def __init__(
        self,
        long_ids: tf.Tensor,
        global_ids: tf.Tensor,
        links: Sequence[tf.Tensor] | None = None,
        exempt_long: tf.Tensor | None = None,
        exempt_global: tf.Tensor | None = None,
    ):
        self.long_ids = tf.convert_to_tensor(long_ids)
        self.global_ids = tf.cast(global_ids, self.long_ids.dtype)
        self.links = None
        if links is not None:
            self.links = [tf.convert_to_tensor(link) for link in links]
        self.exempt_long = _as_bool(exempt_long)
        self.exempt_global = _as_bool(exempt_global)

    def long_tensors(self) -> list[tf.Tensor]:
        """The tensors of which a part belongs to each part of the text."""
        tensors = [self.long_ids, *(self.links or [])]
        if self.exempt_long is not None:
            tensors.append(self.exempt_long)
        return tensors

    def part(self, long_tensors: Sequence[tf.Tensor]) -> tf.Tensor:
        """The mask of some of the long tokens.

        Args:
            long_tensors: those of `long_tensors`, the second axis cut.

        Returns:
            `<bool>[batch, part, global]`.
        """
        long_ids, *rest = long_tensors
        # [batch, part, global]
        mask = long_ids[:, :, tf.newaxis] == self.global_ids[:, tf.newaxis]
        if self.links is None:
            return mask
        # [batch, part, global]
        global_len = tensor_utils.get_shape_list(self.global_ids)[1]
        linked = _linked(rest[: len(self.links)], global_len)
        if self.exempt_long is not None:
            linked |= rest[-1][:, :, tf.newaxis]
        if self.exempt_global is not None:
            linked |= self.exempt_global[:, tf.newaxis]
        return mask & linked

    def to_tensor(self) -> tf.Tensor:
        """The whole mask, `<bool>[batch, long, global]`."""
        return self.part(self.long_tensors())


class LongGlobalLabels(AttentionSpec):
    """Labels of linked long and global tokens, and one for all others.

    For `l2g_relative_att_ids` and `g2l_relative_att_ids`, which takes the same
    object (not a transposed one). With `links=[[[0, 1, -1]]]`, two global
    tokens and the labels 8 (linked) and 7, the long tokens' labels are 87, 78
    and 77. With the links `[[0, 1, -1]]` and `[[0, 0, -1]]`, which have the
    labels 8 and 9, they are 97, 98 and 77.

    Args:
        links: tensors `<int>[batch, long]`, the index of a global token each;
            anything out of range is no link.
        linked: the label of a pair that one of the links names; or one label
            for each link, of which the last that names a pair counts.
        not_linked: the label of all other pairs.

    Attributes:
        columns: `not_linked`, then the labels of links, each of them once.

    Raises:
        ValueError: there are no links, or more or fewer labels than links.
    """

    def __init__(
        self,
        links: Sequence[tf.Tensor],
        linked: int | Sequence[int],
        not_linked: int,
    ):
        self.links = [tf.convert_to_tensor(link) for link in links]
        if not self.links:
            raise ValueError("links needs at least one tensor, but is empty")
        labels = np.ravel(linked).tolist()
        if np.ndim(linked) == 0:
            labels *= len(self.links)
        if len(labels) != len(self.links):
            raise ValueError(
                f"linked needs one label, or one for each of the "
                f"{len(self.links)} links, but is {linked}"
            )
        distinct = list(dict.fromkeys(labels))
        self.columns = [int(not_linked), *distinct]
        self._column_of_link = [1 + distinct.index(label) for label in labels]

    def long_tensors(self) -> list[tf.Tensor]:
        """The tensors of which a part belongs to each part of the text."""
        return self.links

    def part(self, long_tensors: Sequence[tf.Tensor], global_len) -> tf.Tensor:
        """How some of the long tokens are linked.

        Args:
            long_tensors: those of `long_tensors`, the second axis cut.
            global_len: int or `<int32>[]`.

        Returns:
            `<bool>[batch, part, global]`, whether there is a link; if there
            are several labels of links, `<int32>[batch, part, global]`, the
            index of the pair's label in `columns`.
        """
        if len(self.columns) == 2:
            return _linked(long_tensors, global_len)
        index = tf.constant(0)
        for link, column in zip(
            long_tensors, self._column_of_link, strict=True
        ):
            # [batch, part, global]
            index = tf.where(_linked([link], global_len), column, index)
        return index

    def to_tensor(self, global_len) -> tf.Tensor:
        """All labels, `<int32>[batch, long, global]`."""
        part = self.part(self.links, global_len)
        if part.dtype == tf.bool:
            return tf.where(part, self.columns[1], self.columns[0])
        return tf.gather(self.columns, part)


def check_types(l2l_mask, l2l_ids, l2g_mask, l2g_ids) -> None:
    """Checks that each description is in its place.

    Args:
        l2l_mask: mask of long tokens and their neighbours.
        l2l_ids: labels of the same.
        l2g_mask: mask of long and global tokens.
        l2g_ids: labels of the same.

    Raises:
        ValueError: one is a description of something else.
    """
    for name, value, allowed in (
        ("l2l_att_mask", l2l_mask, SegmentMask),
        ("l2l_relative_att_ids", l2l_ids, DistanceLabels),
        ("l2g_att_mask or g2l_att_mask", l2g_mask, LongGlobalMask),
        (
            "l2g_relative_att_ids or g2l_relative_att_ids",
            l2g_ids,
            LongGlobalLabels,
        ),
    ):
        if isinstance(value, AttentionSpec) and not isinstance(value, allowed):
            raise ValueError(
                f"{name} may be a tensor or a {allowed.__name__}, but is a "
                f"{type(value).__name__}."
            )


def band_mask_tensor(mask, local_radius: int) -> tf.Tensor | None:
    """`l2l_att_mask`, given either way, as a tensor (or None)."""
    if isinstance(mask, SegmentMask):
        return mask.to_band(local_radius)
    return mask


def band_label_tensor(ids, batch_size, length) -> tf.Tensor | None:
    """`l2l_relative_att_ids`, given either way, as a tensor (or None)."""
    if isinstance(ids, DistanceLabels):
        return ids.to_band(batch_size, length)
    return ids


def side_mask_tensor(mask, from_global: bool = False) -> tf.Tensor | None:
    """`l2g_att_mask` or (`from_global`) `g2l_att_mask` as a tensor."""
    if isinstance(mask, LongGlobalMask):
        mask = mask.to_tensor()
        return tf.transpose(mask, [0, 2, 1]) if from_global else mask
    return mask


def side_label_tensor(
    ids, global_len, from_global: bool = False
) -> tf.Tensor | None:
    """`l2g_` or (`from_global`) `g2l_relative_att_ids` as a tensor."""
    if isinstance(ids, LongGlobalLabels):
        ids = ids.to_tensor(global_len)
        return tf.transpose(ids, [0, 2, 1]) if from_global else ids
    return ids


def _linked(links, global_len):
    """`<bool>[batch, part, global]`, whether any link names the token."""
    result = tf.constant(False)
    for link in links:
        # [batch, part, global]
        result |= link[:, :, tf.newaxis] == tf.range(
            tf.cast(global_len, link.dtype), dtype=link.dtype
        )
    return result


def _as_bool(tensor):
    return None if tensor is None else tf.cast(tensor, tf.bool)
