"""Compact descriptions of masks, which take less memory than tensors.

A tensor with the mask or label of every pair takes far more memory than the ids
or distances that determine it. Attention therefore also takes an object that
describes the mask or the labels (`relative_ids.py`). The streaming
implementation computes each part of the mask when it is needed; the other
implementations compute the whole tensor.

Descriptions are plain objects, not tensors: create them where the layers are
called (inside a layer's or model's `call`, or a `tf.function`), not between the
layers of a functional model.
"""

from collections.abc import Sequence

import tensorflow as tf

from etcmodel.ops import shapes


class AttentionSpec:
    """Base class of objects that describe a mask or labels."""

    def long_tensors(self) -> list[tf.Tensor]:
        """Returns the tensors to cut into chunks, `<any>[batch, long, ...]`."""
        return []

    def global_tensors(self) -> list[tf.Tensor]:
        """Returns the tensors for global tokens, `<any>[batch, global]`."""
        return []


class SegmentMask(AttentionSpec):
    """Lets long tokens attend to nearby long tokens with an equal id.

    Use it as `l2l_att_mask`. The ids `[[7, 7, 9]]` and a radius of 1 give the
    mask `[[[0, 1, 1], [1, 1, 0], [0, 1, 0]]]`.

    Args:
        segment_ids: `<int>[batch, long]`, any values.
    """

    def __init__(self, segment_ids: tf.Tensor):
        self.segment_ids = tf.convert_to_tensor(segment_ids)

    def long_tensors(self) -> list[tf.Tensor]:
        """Returns the ids."""
        return [self.segment_ids]

    def to_band(self, local_radius: int) -> tf.Tensor:
        """Returns the mask as `<bool>[batch, long, 2*local_radius + 1]`."""
        ids = self.segment_ids
        length = shapes.get_shape_list(ids)[1]
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


class LongGlobalMask(AttentionSpec):
    """Lets long and global tokens with equal ids attend to each other.

    Use the same object as `l2g_att_mask` and as `g2l_att_mask` (do not
    transpose it). With `links`, a pair needs equal ids and a link: one of the
    long token's links must name the global token, unless one of the two tokens
    is exempt.

    `long_ids=[[1, 1, 0]]`, `global_ids=[[1, 1]]` and `links=[[[0, 1, 1]]]` give
    the mask `[[[1, 0], [0, 1], [0, 0]]]`.

    Args:
        long_ids: `<int>[batch, long]`, such as one id for each packed example
            and another id for padding.
        global_ids: `<int>[batch, global]`, the same ids.
        links: tensors `<int>[batch, long]`, each with indices of global tokens;
            indices out of range link nothing. None links all pairs.
        exempt_long: `<int or bool>[batch, long]`, nonzero for long tokens that
            need no links.
        exempt_global: `<int or bool>[batch, global]`, nonzero for global tokens
            that need no links.
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
        """Returns the ids, the links and `exempt_long`."""
        tensors = [self.long_ids, *(self.links or [])]
        if self.exempt_long is not None:
            tensors.append(self.exempt_long)
        return tensors

    def global_tensors(self) -> list[tf.Tensor]:
        """Returns the ids and `exempt_global`."""
        tensors = [self.global_ids, self.exempt_global]
        return [x for x in tensors if x is not None]

    def part(self, long_tensors: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the mask `<bool>[batch, part, global]` of a chunk."""
        long_ids, *rest = long_tensors
        # [batch, part, global]
        mask = long_ids[:, :, tf.newaxis] == self.global_ids[:, tf.newaxis]
        if self.links is None:
            return mask
        # [batch, part, global]
        global_len = shapes.get_shape_list(self.global_ids)[1]
        is_linked = linked(rest[: len(self.links)], global_len)
        if self.exempt_long is not None:
            is_linked |= rest[-1][:, :, tf.newaxis]
        if self.exempt_global is not None:
            is_linked |= self.exempt_global[:, tf.newaxis]
        return mask & is_linked

    def to_tensor(self) -> tf.Tensor:
        """Returns the whole mask, `<bool>[batch, long, global]`."""
        return self.part(self.long_tensors())


class PairMask(AttentionSpec):
    """A mask given pair by pair, `<int32 or bool>[batch, long, global]`."""

    def __init__(self, mask: tf.Tensor):
        self.mask = tf.cast(mask, tf.bool)

    def long_tensors(self) -> list[tf.Tensor]:
        """Returns the mask."""
        return [self.mask]

    def part(self, long_tensors: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the mask of a chunk; see `LongGlobalMask.part`."""
        return long_tensors[0]

    def to_tensor(self) -> tf.Tensor:
        """Returns the mask, `<bool>[batch, long, global]`."""
        return self.mask


def pair_mask(mask, from_global: bool = False):
    """Wraps a mask tensor in a `PairMask`; returns other masks unchanged.

    With `from_global`, a tensor is `[batch, global, long]` and is transposed.
    """
    if mask is None or isinstance(mask, AttentionSpec):
        return mask
    return PairMask(tf.linalg.matrix_transpose(mask) if from_global else mask)


def band_mask_tensor(mask, local_radius: int) -> tf.Tensor | None:
    """Converts an `l2l_att_mask` to a tensor; None stays None."""
    if isinstance(mask, SegmentMask):
        return mask.to_band(local_radius)
    return mask


def pair_mask_tensor(mask, from_global: bool = False) -> tf.Tensor | None:
    """Converts `l2g_att_mask` or (`from_global`) `g2l_att_mask` to a tensor."""
    if isinstance(mask, AttentionSpec):
        mask = mask.to_tensor()
        return tf.linalg.matrix_transpose(mask) if from_global else mask
    return mask


def linked(links: Sequence[tf.Tensor], global_len) -> tf.Tensor:
    """Marks the global tokens that are linked to long tokens.

    The links `[[[0, 2, -1]]]` and 3 global tokens give
    `[[[1, 0, 0], [0, 0, 1], [0, 0, 0]]]`, as `<bool>[batch, part, global]`.
    """
    result = tf.constant(False)
    for link in links:
        # [batch, part, global]
        result |= link[:, :, tf.newaxis] == tf.range(
            tf.cast(global_len, link.dtype), dtype=link.dtype
        )
    return result


def _as_bool(tensor):
    return None if tensor is None else tf.cast(tensor, tf.bool)
