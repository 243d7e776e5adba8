"""What a stored example holds: from one description its writer and its parser.

Every task has the nine EtcFeatures (see `etc_features`), whatever else the
encoder reads of its layout (see `layout.EncoderInputs`), the id of the
record, which of the record's rows an example is, and, where the answer is
known, the `reference` that predictions are compared with. A task adds fields
of its own:

    SCHEMA = Schema(
        words=Field("long", CONTEXT),        # a number of each long token
        segments=Field("list", TEXT, tf.string),
        answer_type=Field("one", LABEL),
    )
"""

from collections.abc import Collection
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils.layout.spec import DEFAULT_LINK
from etcmodel.feature_utils.layout.spec import EncoderInputs

# Labels: stored only where the answer is known.
LABEL = "label"
# What the encoder reads beside the EtcFeatures.
INPUT = "input"
# Numbers that choosing an answer needs beside the EtcFeatures.
CONTEXT = "context"
# What makes a text of the choice; of the record, not of its rows.
TEXT = "text"

_AXES = ("long", "global", "one", "list")


class Field(NamedTuple):
    """A field of a stored example.

    Attributes:
        axis: what it has values for: `"long"` or `"global"`, each token of an
            input; `"one"`, the example; `"list"`, anything else.
        role: what it is for: `INPUT`, `LABEL`, `CONTEXT` or `TEXT`.
        dtype: as stored: `tf.int64`, `tf.float32` or `tf.string`.
        pad: what a token without a value has, and the value of an example
            that lacks one; None if every example must have it.
        size: how many numbers a token has; None for one.
    """

    axis: str
    role: str
    dtype: tf.DType = tf.int64
    pad: Any = None
    size: int | None = None


# Of every task.
_COMMON = {
    "example_id": Field("one", CONTEXT, tf.string, pad=""),
    # Which of the rows of its record an example is.
    "window": Field("one", CONTEXT, pad=0),
    "is_real_example": Field("one", CONTEXT, pad=1),
}
REFERENCE = "reference"


class Schema:
    """The fields of a task's stored examples.

    Attributes:
        fields: name -> field, without EtcFeatures and `reference`.
    """

    def __init__(self, inputs: EncoderInputs | None = None, **fields: Field):
        """Adds fields of a task to those of all tasks.

        Args:
            inputs: what the encoder reads of the layout; nothing beside the
                EtcFeatures by default.
            **fields: the task's own, by name.

        Raises:
            ValueError: a name is taken, or there is no such axis.
        """
        inputs = inputs or EncoderInputs()
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
        common = {*_COMMON, *etc_features.FEATURES, REFERENCE}
        taken = common & {*read} | (common | {*read}) & {*fields}
        if taken:
            raise ValueError(
                f"Every task has {sorted(common)}, and the encoder reads "
                f"{sorted(read)}: rename {sorted(taken)}."
            )
        for name, field in fields.items():
            if field.axis not in _AXES:
                raise ValueError(
                    f"The field {name!r} has the axis {field.axis!r}, expected "
                    f"one of {_AXES}."
                )
        self.fields = {**_COMMON, **read, **fields}

    def axis(self, name: str) -> str:
        """The axis of a field or of an EtcFeature.

        Args:
            name: its name.

        Returns:
            See `Field`.
        """
        if name in etc_features.FEATURES:
            return "long" if name in etc_features.LONG_FEATURES else "global"
        return self.fields[name].axis

    def input_specs(self) -> dict[str, tf.TensorSpec]:
        """What the encoder reads: `<dtype>[batch, length]`, or with a size.

        Returns:
            Name -> specification, the nine EtcFeatures first.
        """
        specs = dict.fromkeys(
            etc_features.FEATURES, tf.TensorSpec([None, None], tf.int32)
        )
        for name in self.names(INPUT):
            field = self.fields[name]
            size = [] if field.size is None else [field.size]
            specs[name] = tf.TensorSpec(
                [None, None, *size],
                tf.int32 if field.dtype == tf.int64 else field.dtype,
            )
        return specs

    def names(self, *roles: str) -> list[str]:
        """Names of the fields with one of some roles.

        Args:
            *roles: the roles.

        Returns:
            The names, those of all tasks first.
        """
        return [name for name, x in self.fields.items() if x.role in roles]

    def serialize(
        self, features: Mapping[str, Any], values: Mapping[str, Any]
    ) -> bytes:
        """Writes an example without trailing padding.

        Args:
            features: EtcFeatures of a row, `<int>[long]` or `<int>[global]`.
            values: name -> what else is stored: values of fields, or anything
                that nobody reads again.

        Returns:
            A serialized `tf.train.Example`.
        """
        values = {
            name: etc_features.trim_padding(
                np.asarray(value).reshape(-1), field.pad
            )
            if field is not None and field.axis in ("long", "global")
            else value
            for name, value, field in (
                (name, value, self.fields.get(name))
                for name, value in values.items()
            )
        }
        return etc_features.serialize(features, values)

    def parse(
        self,
        serialized: tf.Tensor,
        long_length: int | None,
        global_length: int | None,
        roles: Collection[str],
    ) -> tuple[dict[str, tf.Tensor], dict[str, Any]]:
        """Reads a batch of serialized examples; graph code.

        Args:
            serialized: `<string>[batch]`.
            long_length: length of the long input; None for the longest.
            global_length: length of the global input; likewise.
            roles: which fields to read.

        Returns:
            A pair of what the encoder reads and of name -> field:
            `<dtype>[batch, long]`, `<dtype>[batch, global]`, `<dtype>[batch]`,
            or ragged for lists, `<dtype>[batch, (values)]`. Integers are
            int32.

        Raises:
            tf.errors.InvalidArgumentError: when run, if an example lacks a
                field that all must have, or does not fit the lengths.
        """
        lengths = {"long": long_length, "global": global_length}
        names = self.names(INPUT, *roles)
        parsed = etc_features.parse(
            serialized,
            long_length,
            global_length,
            extra={
                name: tf.io.FixedLenFeature([], field.dtype, field.pad)
                if field.axis == "one"
                else tf.io.RaggedFeature(field.dtype)
                for name, field in self.fields.items()
                if name in names
            },
        )
        values = {name: parsed.pop(name) for name in names}
        for name, value in values.items():
            field = self.fields[name]
            if field.axis in lengths:
                length = lengths[field.axis]
                if length is None:
                    length = tf.shape(parsed[f"{field.axis}_token_ids"])[1]
                size = [] if field.size is None else [field.size]
                # [batch, length * size]
                value = value.to_tensor(
                    default_value=field.pad,
                    shape=[None, length * (field.size or 1)],
                )
                # [batch, length] or [batch, length, size]
                value = tf.reshape(value, [-1, length, *size])
            elif field.axis == "list":
                value = value.with_row_splits_dtype(tf.int64)
            if field.dtype == tf.int64:
                value = tf.cast(value, tf.int32)
            values[name] = value
        inputs = {name: values.pop(name) for name in self.names(INPUT)}
        return {**parsed, **inputs}, values
