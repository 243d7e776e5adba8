"""Schema of stored examples, used to write and to parse them.

A field's axis determines how many values it has; its role, how they are used.
An ETC task adds its own fields to the common ones (see `etc_schema`):

    SCHEMA = etc_schema(
        LAYOUT.encoder_inputs,
        words=Field("long", DECODING, pad=-1),  # word index of each long token
        paragraphs=Field("list", TEXT, tf.string),
        answer_type=Field("one", LABEL),
    )
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils.layout.spec import DEFAULT_LINK
from etcmodel.feature_utils.layout.spec import EncoderInputs

INPUT = "input"  # inputs of the model
LABEL = "label"  # labels; stored only if the answer is known
CONTEXT = "context"  # numbers for the losses or for decoding
DECODING = "decoding"  # numbers for decoding only; not stored for training
# Texts to make answers from; per record rather than per row, and not stored for
# training.
TEXT = "text"

_AXES = ("long", "global", "one", "list", "block")

EXAMPLE_ID = "example_id"
# The gold answer as JSON, which evaluation compares with the prediction.
GOLD = "gold"
# The `TEXT` fields of a record: name -> value.
Values = Mapping[str, Any]
# Stored as 1 in examples of the split "train".
_FOR_TRAINING = "for_training"


class Field(NamedTuple):
    """A field of a stored example.

    Attributes:
        axis: how many values an example has: one per token (`"long"` or
            `"global"`, stored without trailing padding), one per record
            (`"one"`), one per ReadTwice segment (`"block"`), or any number
            (`"list"`).
        role: the use of the values: `INPUT`, `LABEL`, `CONTEXT`, `DECODING` or
            `TEXT`.
        dtype: the stored dtype: `tf.int64`, `tf.float32` or `tf.string`.
        pad: value of padding and of a missing field; None if every example must
            have the field.
        size: size of the vector that each token or segment has, or the name of
            the preprocessing option that sets it; None for a scalar.
        as_steps: whether to store each element of the vector as its difference
            from the previous one, so that ascending numbers compress better.
    """

    axis: str
    role: str
    dtype: tf.DType = tf.int64
    pad: Any = None
    size: int | str | None = None
    as_steps: bool = False


class Packing(NamedTuple):
    """Limits for packing several records into one example.

    Attributes:
        limits: field -> name of the size that limits its length.
        blocks: name of the size that sets the number of segments per example;
            "" if the task has no segments.
    """

    limits: Mapping[str, str]
    blocks: str = ""


class ExampleSchema:
    """The fields of stored examples.

    Args:
        packing: limits for packing; None if each example holds one record.
        merge_texts: function that joins the texts of a record's examples, in
            order, if each example stores only a part of them; None if each
            stores all of the texts.
        **fields: name -> `Field`.

    Raises:
        ValueError: a field has an unknown axis.
    """

    def __init__(
        self,
        packing: Packing | None = None,
        merge_texts: Callable[[Sequence[Values]], Values] | None = None,
        **fields: Field,
    ):
        for name, field in fields.items():
            if field.axis not in _AXES:
                raise ValueError(
                    f"The field {name!r} has the axis {field.axis!r}, expected "
                    f"one of {_AXES}."
                )
        self.fields = fields
        self.packing = packing
        self.merge_texts = merge_texts

    def names(self, *roles: str) -> list[str]:
        """Returns the names of the fields with the given roles, in order."""
        return [name for name, x in self.fields.items() if x.role in roles]

    def input_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the `TensorSpec`s of the model's inputs.

        Shapes are `[rows, tokens]` or `[rows, tokens, size]`; `[rows]` for a
        scalar per segment.
        """
        specs = {}
        for name in self.names(INPUT):
            field = self.fields[name]
            is_number = field.axis == "block" and field.size is None
            size = [field.size] if isinstance(field.size, int) else []
            specs[name] = tf.TensorSpec(
                [None] if is_number else [None, None, *size],
                tf.int32 if field.dtype == tf.int64 else field.dtype,
            )
        return specs

    def select(self, values: Mapping[str, Any], split: str) -> dict[str, Any]:
        """Returns the values that a split stores.

        The split "train" drops fields with the roles `TEXT` and `DECODING`.
        """
        if split != "train":
            return dict(values)
        kept = {
            name: value
            for name, value in values.items()
            if name == EXAMPLE_ID
            or name in self.fields
            and self.fields[name].role not in (DECODING, TEXT)
        }
        return {**kept, _FOR_TRAINING: 1}

    def serialize(self, values: Mapping[str, Any]) -> bytes:
        """Serializes values to a `tf.train.Example`, without padding."""
        features, extra = {}, {}
        for name, value in values.items():
            field = self.fields.get(name)
            if field is not None and field.as_steps:
                # [blocks, size]
                value = np.diff(np.asarray(value), axis=-1, prepend=0)
            if name in etc_features.FEATURES:
                features[name] = value
            elif field is not None and field.axis in ("long", "global"):
                extra[name] = etc_features.trim_padding(
                    np.asarray(value).reshape(-1), field.pad
                )
            else:
                extra[name] = value
        return etc_features.serialize(features, extra)

    def parse(
        self,
        serialized: tf.Tensor,
        sizes: Mapping[str, int | None],
        roles: Collection[str],
    ) -> tuple[dict[str, tf.Tensor], dict[str, Any]]:
        """Parses serialized examples; graph code.

        Args:
            serialized: `<string>[batch]`.
            sizes: the preprocessing configuration. If its `long_length` or
                `global_length` is None, the batch is padded to its longest
                example.
            roles: roles to parse besides `INPUT`.

        Returns:
            The inputs and the other fields, as two dicts. By axis, shapes are
            `[batch, long]`, `[batch, global]`, `[batch]` for `"one"` and
            `[batch, blocks, ...]`. Lists, and `"one"` in packed examples, are
            ragged: `[batch, (values)]`. Integers are int32.

        Raises:
            tf.errors.InvalidArgumentError: when the graph runs, if an example
                lacks a required field, does not fit the sizes, or was stored
                for training and lacks the texts or decoding fields of `roles`.
        """
        names = self.names(INPUT, *roles)
        stored = {
            name: self._stored(name, sizes)
            for name in names
            if name not in etc_features.FEATURES
        }
        needs_all = (
            {DECODING, TEXT} & {*roles} & {x.role for x in self.fields.values()}
        )
        if needs_all:
            stored[_FOR_TRAINING] = tf.io.RaggedFeature(tf.int64)
        parsed = etc_features.parse(
            serialized,
            sizes.get("long_length"),
            sizes.get("global_length"),
            extra=stored,
            names=[name for name in names if name in etc_features.FEATURES],
        )
        if needs_all:
            parsed = _check_not_for_training(parsed)
        values = {
            name: self._dense(name, parsed, sizes)
            if name in stored
            else parsed[name]
            for name in names
        }
        inputs = {name: values.pop(name) for name in self.names(INPUT)}
        return inputs, values

    def _stored(self, name: str, sizes: Mapping[str, int | None]):
        """Returns the feature description for `tf.io.parse_example`."""
        field = self.fields[name]
        if field.axis == "block":
            shape = [sizes[self.packing.blocks], *_size(field, sizes)]
            return tf.io.FixedLenFeature(shape, field.dtype)
        if field.axis == "one" and self.packing is None:
            return tf.io.FixedLenFeature([], field.dtype, field.pad)
        return tf.io.RaggedFeature(field.dtype, row_splits_dtype=tf.int64)

    def _dense(self, name: str, parsed: Mapping[str, Any], sizes) -> Any:
        """Pads a parsed field to its length; converts integers to int32."""
        field, value = self.fields[name], parsed[name]
        if field.axis in ("long", "global"):
            length = sizes.get(f"{field.axis}_length")
            if length is None:
                length = tf.shape(parsed[f"{field.axis}_token_ids"])[1]
            size = _size(field, sizes)
            number = tf.cast(length * (size[0] if size else 1), tf.int64)
            # [batch, length * size]
            value = value.to_tensor(
                default_value=field.pad, shape=tf.stack([-1, number])
            )
            # [batch, length] or [batch, length, size]
            value = tf.reshape(value, [-1, length, *size])
        if field.as_steps:
            value = tf.cumsum(value, axis=-1)
        return tf.cast(value, tf.int32) if field.dtype == tf.int64 else value


def _size(field: Field, sizes: Mapping[str, int | None]) -> list[int]:
    size = sizes[field.size] if isinstance(field.size, str) else field.size
    return [] if size is None else [size]


def _check_not_for_training(parsed: dict[str, Any]) -> dict[str, Any]:
    """Asserts that no example was stored for training: these lack texts."""
    number = tf.size(parsed.pop(_FOR_TRAINING).flat_values)
    check = tf.debugging.Assert(
        tf.equal(number, 0),
        [
            "Examples were preprocessed with `split=train`, so they lack the "
            "texts that answers are made from. Preprocess them with "
            "`split=dev` or `split=predict`. Number of such examples:",
            number,
        ],
    )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.nest.map_structure(
            tf.identity, parsed, expand_composites=True
        )


def etc_schema(
    inputs: EncoderInputs | None = None, **fields: Field
) -> ExampleSchema:
    """Returns the schema of an ETC task: one record or window per example.

    The schema has the features of `etc_features`, the record's id, and the
    index of the window.

    Args:
        inputs: further inputs of the encoder, by default none.
        **fields: the task's own fields.

    Raises:
        ValueError: a name is used twice.
    """
    inputs = inputs or EncoderInputs()
    common = {
        **{
            name: Field(axis, INPUT, pad=pad)
            for axis, features in (
                ("long", etc_features.LONG_FEATURES),
                ("global", etc_features.GLOBAL_FEATURES),
            )
            for name, pad in features.items()
        },
        EXAMPLE_ID: Field("one", CONTEXT, tf.string, pad=""),
        "window": Field("one", CONTEXT, pad=0),
        "is_real_example": Field("one", CONTEXT, pad=1),
    }
    read = {
        **{
            link.name: Field(link.source, INPUT, pad=-1)
            for link in inputs.links
            if link.name != DEFAULT_LINK.name
        },
        **{
            value.name: Field(
                value.source,
                INPUT,
                tf.float32
                if tf.dtypes.as_dtype(value.dtype).is_floating
                else tf.int64,
                pad=0,
                size=value.shape[0] if value.shape else None,
            )
            for value in inputs.values
        },
    }
    reserved = {*common, GOLD}
    taken = reserved & {*read} | (reserved | {*read}) & {*fields}
    if taken:
        raise ValueError(
            f"Rename the fields {sorted(taken)}: every task has the fields "
            f"{sorted(reserved)}, and the encoder's inputs are {sorted(read)}."
        )
    return ExampleSchema(None, **common, **read, **fields)
