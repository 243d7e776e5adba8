"""EtcFeatures: the compact integer description of a batch of examples.

A dict of dense int32 tensors. Those of the *long* input, the text, have shape
[batch, long_length]; those of the *global* input, the auxiliary tokens, have
shape [batch, global_length]. Only these are stored: masks and relative labels
are made from them on the device (see `models.etc.side_inputs`).

Stored as `tf.train.Example`, every feature loses its trailing padding and gets
it back when parsed, each with its own padding value:

    long_token_ids     [101, 7592, 0, 0]  -> stored [101, 7592]
    long_sentence_ids  [0, 0, -1, -1]     -> stored [0, 0]
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Names of the features of the long input, with their padding values.
LONG_FEATURES: dict[str, int] = {
    # Token ids.
    "long_token_ids": 0,
    # Token types: which kind of text a token belongs to.
    "long_token_type_ids": 0,
    # Index of the global token of the token's sentence (or its own).
    "long_sentence_ids": -1,
    # Index of the global token of the token's paragraph.
    "long_paragraph_ids": -1,
    # 1 on the last token of every local-attention paragraph.
    "long_paragraph_breakpoints": 0,
    # Index of another global token that it is linked to, such as the candidate
    # answer that it mentions.
    "l2g_linked_ids": -1,
}

# Names of the features of the global input, with their padding values.
GLOBAL_FEATURES: dict[str, int] = {
    "global_token_ids": 0,
    "global_token_type_ids": 0,
    # 1 on the last token of every group of global tokens.
    "global_paragraph_breakpoints": 0,
}

# All of them.
FEATURES: dict[str, int] = {**LONG_FEATURES, **GLOBAL_FEATURES}


def trim_padding(values: np.ndarray, pad_value: int) -> np.ndarray:
    """Cuts trailing padding: `([3, -1, 5, -1, -1], -1)` gives `[3, -1, 5]`."""
    used = np.flatnonzero(values != pad_value)
    return values[: used[-1] + 1] if used.size else values[:0]


def _fill(feature: tf.train.Feature, name: str, value: Any) -> None:
    """Writes an extra value of ints, floats or strings into a feature."""
    if isinstance(value, str | bytes):
        value = [value]
    values = np.asarray(value).reshape(-1)
    if not values.size:
        # An empty list has no kind and can be read as any.
        return
    if values.dtype.kind in "SUO":
        # NumPy's fixed-length bytes would lose trailing zeros.
        items = [value] if np.ndim(value) == 0 else list(value)
        if not all(isinstance(item, str | bytes) for item in items):
            raise ValueError(
                f"The feature {name!r} mixes kinds of values: expected ints, "
                f"floats, or strings, got {value!r}."
            )
        feature.bytes_list.value.extend(
            item.encode("utf-8") if isinstance(item, str) else item
            for item in items
        )
    elif values.dtype.kind == "f":
        feature.float_list.value.extend(values.tolist())
    elif values.dtype.kind in "iub":
        feature.int64_list.value.extend(values.astype(int).tolist())
    else:
        raise ValueError(
            f"The feature {name!r} has values of an unsupported kind "
            f"({values.dtype}): expected ints, floats, or strings."
        )


def serialize(
    features: Mapping[str, Any], extra: Mapping[str, Any] | None = None
) -> bytes:
    """Serializes one record as a `tf.train.Example`, without trailing padding.

    Args:
        features: some of the `FEATURES` of one record, vectors of ints.
        extra: other values to store, by name: ints, floats, strings, bytes, or
            lists of one kind.

    Raises:
        ValueError: an unknown feature, one that is not a vector, or an extra
            value of another kind.
    """
    example = tf.train.Example()
    # Filled in place: passing a message on would copy it.
    stored = example.features.feature
    for name, values in features.items():
        if name not in FEATURES:
            raise ValueError(
                f"{name!r} is no feature of EtcFeatures, which has "
                f"{sorted(FEATURES)}. Pass other values as `extra`."
            )
        values = np.asarray(values)
        if values.ndim != 1:
            raise ValueError(
                f"The feature {name!r} of one record must be a vector, got "
                f"the shape {values.shape}."
            )
        values = trim_padding(values, FEATURES[name])
        stored[name].int64_list.SetInParent()
        stored[name].int64_list.value.extend(values.tolist())
    for name, value in (extra or {}).items():
        if name in FEATURES:
            raise ValueError(
                f"The extra value {name!r} has the name of a feature of "
                "EtcFeatures: choose another name."
            )
        _fill(stored[name], name, value)
    return example.SerializeToString(deterministic=True)


def _pad(
    name: str, values: tf.RaggedTensor, pad_value: int, length: int | tf.Tensor
) -> tf.Tensor:
    """Pads or cuts a stored feature to its length; cuts only padding."""
    if tf.is_tensor(length):
        shape = tf.stack([-1, length])
        # [batch, longest]
        dense = values.to_tensor(default_value=pad_value, shape=shape)
        return tf.cast(dense, tf.int32)
    beyond = tf.reduce_any(values[:, length:].flat_values != pad_value)
    check = tf.debugging.Assert(
        ~beyond,
        [
            f"An example has a {name!r} that is longer than the {length} "
            "positions asked for. Use the lengths with which the examples "
            "were made, or greater ones. Its length is:",
            tf.reduce_max(values.row_lengths()),
        ],
    )
    with tf.control_dependencies([check] if check is not None else []):
        # [batch, length]
        dense = values.to_tensor(default_value=pad_value, shape=[None, length])
    return tf.cast(dense, tf.int32)


def parse(
    serialized: tf.Tensor,
    long_length: int | None,
    global_length: int | None,
    extra: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, tf.Tensor]:
    """Parses serialized examples, `<string>[batch]`; graph code.

    Also reads examples that were stored with padding, such as those of the
    original code. A feature that an example lacks is all padding. Without a
    length, features are as long as the longest of the batch. `extra` specifies
    other names, as for `tf.io.parse_example`; `names` are the features to read,
    all by default.

    Raises:
        tf.errors.InvalidArgumentError: when run, if a value beyond a length is
            not padding, or an example is damaged.
        ValueError: a name in `names` is unknown.
    """
    names = list(FEATURES if names is None else names)
    unknown = sorted(set(names) - set(FEATURES))
    if unknown:
        raise ValueError(
            f"Unknown features {unknown}: expected some of {sorted(FEATURES)}."
        )
    spec: dict[str, Any] = {
        name: tf.io.RaggedFeature(tf.int64) for name in names
    }
    spec.update(extra or {})
    parsed = tf.io.parse_example(serialized, spec)
    for group, length in (
        (LONG_FEATURES, long_length),
        (GLOBAL_FEATURES, global_length),
    ):
        group = {name: parsed[name] for name in names if name in group}
        if length is None and group:
            longest = [x.bounding_shape(axis=1) for x in group.values()]
            length = tf.reduce_max(tf.stack(longest))
        for name, values in group.items():
            parsed[name] = _pad(name, values, FEATURES[name], length)
    return parsed
