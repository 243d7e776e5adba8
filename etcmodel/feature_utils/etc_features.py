"""EtcFeatures: a compact description of a batch of examples as integers.

EtcFeatures are a dict of dense int32 tensors. Features of the *long* input (the
text) have shape [batch, long_length]. Features of the *global* input (the
auxiliary tokens) have shape [batch, global_length]. Masks and relative labels
are not stored: the model computes them on the device (see
`models.etc.side_inputs`).

`serialize` drops the trailing padding of every feature, and `parse` restores
it. Each feature has its own padding value:

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
    # Token types, such as those of questions and sentences.
    "long_token_type_ids": 0,
    # Index of the global token of the token's sentence, or of the token's own
    # global token.
    "long_sentence_ids": -1,
    # Index of the global token of the token's paragraph.
    "long_paragraph_ids": -1,
    # 1 on the last token of every local-attention paragraph.
    "long_paragraph_breakpoints": 0,
    # Index of another global token that the token is linked to, such as the
    # candidate answer that it mentions.
    "l2g_linked_ids": -1,
}

# Names of the features of the global input, with their padding values.
GLOBAL_FEATURES: dict[str, int] = {
    "global_token_ids": 0,
    "global_token_type_ids": 0,
    # 1 on the last token of every group of global tokens.
    "global_paragraph_breakpoints": 0,
}

# Name of a length -> the features that have it. A model's lengths may exceed
# those of its records.
LENGTHS: dict[str, dict[str, int]] = {
    "long_length": LONG_FEATURES,
    "global_length": GLOBAL_FEATURES,
}

# The features of both inputs, with their padding values.
FEATURES: dict[str, int] = {**LONG_FEATURES, **GLOBAL_FEATURES}


def trim_padding(values: np.ndarray, pad_value: int) -> np.ndarray:
    """Drops trailing padding: `([3, -1, 5, -1, -1], -1)` gives `[3, -1, 5]`."""
    used = np.flatnonzero(values != pad_value)
    return values[: used[-1] + 1] if used.size else values[:0]


def _fill(feature: tf.train.Feature, name: str, value: Any) -> None:
    """Writes ints, floats or strings into a `tf.train.Feature`."""
    if isinstance(value, str | bytes):
        value = [value]
    values = np.asarray(value).reshape(-1)
    if not values.size:
        # Nothing is written, so the feature can be parsed as any type.
        return
    if values.dtype.kind in "SUO":
        # NumPy's fixed-length bytes would lose trailing zeros.
        items = [value] if np.ndim(value) == 0 else list(value)
        if not all(isinstance(item, str | bytes) for item in items):
            raise ValueError(
                f"The feature {name!r} mixes types: expected only ints, only "
                f"floats or only strings, got {value!r}."
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
            f"The feature {name!r} has the unsupported dtype {values.dtype}: "
            "expected ints, floats or strings."
        )


def serialize(
    features: Mapping[str, Any], extra: Mapping[str, Any] | None = None
) -> bytes:
    """Serializes one record as a `tf.train.Example`, without trailing padding.

    Args:
        features: some of the `FEATURES` of one record, vectors of ints.
        extra: name -> further value to store: an int, a float, a string, bytes,
            or a list of values of one type.

    Raises:
        ValueError: a feature is unknown or not a vector, or an extra value has
            another type or the name of a feature.
    """
    example = tf.train.Example()
    # Fills the message in place: assigning a message copies it.
    stored = example.features.feature
    for name, values in features.items():
        if name not in FEATURES:
            raise ValueError(
                f"{name!r} is not a feature of EtcFeatures, expected one of "
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
                "EtcFeatures. Choose another name."
            )
        _fill(stored[name], name, value)
    return example.SerializeToString(deterministic=True)


def measure(serialized: bytes) -> dict[str, int]:
    """Returns the lengths that a serialized example needs in `parse`.

    A length of 0 means that the example has no such features. Example: an
    example with the `long_token_ids` `[101, 7592]` gives `{"long_length": 2,
    "global_length": 0}`.
    """
    stored = tf.train.Example.FromString(serialized).features.feature
    return {
        length: max(
            len(stored[name].int64_list.value) if name in stored else 0
            for name in names
        )
        for length, names in LENGTHS.items()
    }


def _pad(
    name: str, values: tf.RaggedTensor, pad_value: int, length: int | tf.Tensor
) -> tf.Tensor:
    """Pads a stored feature to a length, or cuts off padding."""
    if tf.is_tensor(length):
        shape = tf.stack([-1, length])
        # [batch, longest]
        dense = values.to_tensor(default_value=pad_value, shape=shape)
        return tf.cast(dense, tf.int32)
    beyond = tf.reduce_any(values[:, length:].flat_values != pad_value)
    check = tf.debugging.Assert(
        ~beyond,
        [
            f"The feature {name!r} of an example is longer than {length}. Use "
            "at least the lengths with which the examples were made. Its "
            "length is:",
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

    Examples may contain padding, as those of the original code do. A feature
    that an example lacks is filled with padding. If a length is None, the
    features of this length are padded to the longest one in the batch. `extra`
    specifies further features, as for `tf.io.parse_example`. `names` are the
    EtcFeatures to read, by default all.

    Raises:
        tf.errors.InvalidArgumentError: when the graph runs, if a value beyond
            a length is not padding, or an example is damaged.
        ValueError: a name in `names` is unknown.
    """
    names = list(FEATURES if names is None else names)
    unknown = sorted(set(names) - set(FEATURES))
    if unknown:
        raise ValueError(
            f"Unknown features {unknown}: expected names from "
            f"{sorted(FEATURES)}."
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
