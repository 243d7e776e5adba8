"""What a stored example holds: from one description its writer and its parser.

Every task has the nine EtcFeatures (see `etc_features`), the id of the record,
which of the record's rows an example is, and, where the answer is known, the
`reference` that predictions are compared with. A task adds fields of its own:

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

# Labels: stored only where the answer is known.
LABEL = "label"
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
        role: what it is for: `LABEL`, `CONTEXT` or `TEXT`.
        dtype: as stored: `tf.int64`, `tf.float32` or `tf.string`.
        pad: what a token without a value has, and the value of an example
            that lacks one; None if every example must have it.
    """

    axis: str
    role: str
    dtype: tf.DType = tf.int64
    pad: Any = None


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

    def __init__(self, **fields: Field):
        """Adds fields of a task to those of all tasks.

        Args:
            **fields: the task's own, by name.

        Raises:
            ValueError: a name is taken, or there is no such axis.
        """
        taken = {*_COMMON, *etc_features.FEATURES, REFERENCE} & {*fields}
        if taken:
            raise ValueError(f"Every task has {sorted(taken)}: rename yours.")
        for name, field in fields.items():
            if field.axis not in _AXES:
                raise ValueError(
                    f"The field {name!r} has the axis {field.axis!r}, expected "
                    f"one of {_AXES}."
                )
        self.fields = {**_COMMON, **fields}

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
            name: etc_features.trim_padding(np.asarray(value), field.pad)
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
            A pair of the EtcFeatures and of name -> field: `<dtype>[batch,
            long]`, `<dtype>[batch, global]`, `<dtype>[batch]`, or ragged for
            lists, `<dtype>[batch, (values)]`. Integers are int32.

        Raises:
            tf.errors.InvalidArgumentError: when run, if an example lacks a
                field that all must have, or does not fit the lengths.
        """
        lengths = {"long": long_length, "global": global_length}
        names = self.names(*roles)
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
                # [batch, length]
                value = value.to_tensor(
                    default_value=field.pad, shape=[None, lengths[field.axis]]
                )
            elif field.axis == "list":
                value = value.with_row_splits_dtype(tf.int64)
            if field.dtype == tf.int64:
                value = tf.cast(value, tf.int32)
            values[name] = value
        return parsed, values
