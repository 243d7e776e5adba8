"""Turns raw records into the inputs of the model and stored examples."""

import abc
import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.feature_utils import layout
from etcmodel.feature_utils.text.tokenizer_settings import TokenizerSettings
from etcmodel.feature_utils.text.tokenizers import make_tokenizer
from etcmodel.pipeline.example_schema import CONTEXT
from etcmodel.pipeline.example_schema import DECODING
from etcmodel.pipeline.example_schema import EXAMPLE_ID
from etcmodel.pipeline.example_schema import INPUT
from etcmodel.pipeline.example_schema import TEXT
from etcmodel.pipeline.example_schema import ExampleSchema
from etcmodel.readers.records import Source

# Lengths of requests are rounded up to multiples of this number.
LENGTH_STEP = 64


class RawInput(NamedTuple):
    """An input of a task's requests; axes are named or have a fixed size.

    Axes with the same name, such as `("records", "paragraphs")`, must have the
    same size.
    """

    dtype: tf.DType
    axes: Sequence[str | int]

    @property
    def shape(self) -> tf.TensorShape:
        """The static shape; None for named axes."""
        return tf.TensorShape(
            [x if isinstance(x, int) else None for x in self.axes]
        )

    @property
    def spec(self) -> tf.TensorSpec:
        """The specification of its tensors."""
        return tf.TensorSpec(self.shape, self.dtype)


def assert_same_sizes(
    inputs: Mapping[str, tf.Tensor | tf.RaggedTensor],
    axes: Mapping[str, Sequence[str | int]],
) -> list[tf.Operation]:
    """Asserts that axes with the same name have the same size; graph code.

    Example: `titles` `[1, 1]` with the axes `("records", "paragraphs")` and
    `sentences` `[1, 2, 3]` with `("records", "paragraphs", "sentences")` fail
    with "titles and sentences differ in their number of paragraphs: [1] [2]".
    In eager mode it raises the error at once, and returns no assertions.
    """
    first, checks = {}, []
    for name, x in inputs.items():
        sizes = (
            x.bounding_shape(out_type=tf.int64)
            if isinstance(x, tf.RaggedTensor)
            else tf.shape(x, tf.int64)
        )
        for i, axis in enumerate(axes[name]):
            if isinstance(axis, int):
                continue
            other, size = first.setdefault(axis, (name, sizes[i]))
            if other != name:
                check = tf.debugging.Assert(
                    tf.equal(size, sizes[i]),
                    [
                        f"The inputs {other} and {name} differ in their "
                        f"number of {axis}:",
                        size,
                        sizes[i],
                    ],
                )
                checks += [] if check is None else [check]
    return checks


class Encoded(NamedTuple):
    """A batch of preprocessed records, each with one row or several windows.

    Attributes:
        context: values of `CONTEXT` and `DECODING` fields, `[rows, ...]`.
        text: values of `TEXT` fields, `[batch, ...]`.
        host: values for labels and counts, `[batch, ...]`.
        request: values for answers to raw text besides `text`, such as sizes.
        outputs: values returned with the answers to raw text, `[batch]`.
    """

    layout: layout.Layout
    context: Mapping[str, tf.Tensor]
    text: Mapping[str, Any]
    host: Mapping[str, Any] = {}  # noqa: RUF012
    request: Mapping[str, tf.Tensor] = {}  # noqa: RUF012
    outputs: Mapping[str, tf.Tensor] = {}  # noqa: RUF012

    @property
    def owner(self) -> tf.Tensor:
        """The record of each row, `<int32>[rows]`."""
        return self.layout.owner


class RecordView:
    """One record of an `Encoded` from `on_host`, as arrays and Python lists.

    `features` has the features of the layout and the context, `[rows, ...]`;
    `windows` has `starts` and `sizes`, `<int>[rows]`, if there are windows.
    """

    def __init__(self, batch: Encoded, index: int):
        rows = np.flatnonzero(batch.owner == index)
        made = batch.layout
        self.number = len(rows)
        self.features = {
            name: value[rows]
            for name, value in {
                **made.features,
                **made.values,
                **batch.context,
            }.items()
        }
        self.long_sources = made.long_sources[rows]
        self.global_sources = made.global_sources[rows]
        self.counts = {
            name: layout.Counts(*(int(x[index]) for x in counts))
            for name, counts in made.counts.items()
        }
        self.text, self.host, self.windows = (
            {name: x[index] for name, x in values.items()}
            for values in (batch.text, batch.host, made.windows)
        )


def on_host(batch: Encoded) -> Encoded:
    """Fetches whole tensors as arrays; fetching each record would be slow.

    Ragged tensors become arrays with an array, or a list of bytes, per record.
    """

    def fetch(value):
        if not isinstance(value, tf.RaggedTensor):
            return value.numpy()
        # An object array: `np.array` would join lists of equal lengths.
        rows = np.empty(value.shape[0], object)
        if value.dtype == tf.string:
            rows[:] = value.to_list()
        elif len(rows):
            ends = value.row_splits.numpy()[1:-1]
            rows[:] = np.split(value.values.numpy(), ends)
        return rows

    return tf.nest.map_structure(fetch, batch, expand_composites=False)


class Labelled(NamedTuple):
    """Labels of a record's rows, with None for rows to leave out.

    `values` are texts to store with each row, except for training; `stats.json`
    has the sums of `counts` over all records.
    """

    rows: Sequence[Mapping[str, Any] | None]
    values: Mapping[str, Any]
    counts: Mapping[str, int]


class Examples(NamedTuple):
    """Stored examples of a record (none if it is no use), and counts.

    `source` is the place of the record.
    """

    rows: Sequence[Mapping[str, Any]]
    counts: Mapping[str, int]
    source: Source = Source()


class ModelBatch(NamedTuple):
    """A batch for the model, `[rows, ...]`, and for decoding its answers.

    Attributes:
        context: `CONTEXT` and `DECODING` fields, `[rows, ...]`.
        owner: the record of each row, `<int32>[rows]`, ascending.
        text: `TEXT` fields, `[records, ...]`.
        outputs: values that the signature returns with the answers.
        stops: see `signatures.run_in_parts`, `<int32>[stops]`.
    """

    inputs: Mapping[str, tf.Tensor]
    context: Mapping[str, tf.Tensor]
    owner: tf.Tensor
    text: Mapping[str, Any]
    outputs: Mapping[str, tf.Tensor] = {}  # noqa: RUF012
    stops: tf.Tensor | None = None


class Preprocessor(tf.Module, abc.ABC):
    """Turns batches of raw records into the model's inputs; graph code.

    Preprocessing and the exported model run the same code. A record's result
    does not depend on its batch.

    Attributes:
        INPUTS: name -> `RawInput`. Inputs are padded at the end: strings with
            "", flags with False, other numbers with -1.
        REQUEST: a small request of one record, to test and warm up an exported
            model; empty if the task has no answers.
        TEXT_REQUEST: one for the signature `text`, whose inputs are strings,
            one a record; empty if the task has none. See `of_text`.
    """

    INPUTS: ClassVar[Mapping[str, RawInput]]
    REQUEST: ClassVar[Mapping[str, Any]] = {}
    TEXT_REQUEST: ClassVar[Mapping[str, Any]] = {}
    SCHEMA: ClassVar[ExampleSchema]
    RECORDS_AT_ONCE: ClassVar[int] = 8

    def __init__(self, config: Any, tokenizer: Any, name: str | None = None):
        super().__init__(name=name)
        self.config = config
        self.tokenizer = tokenizer

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args, **inputs):
        """Checks that sizes fit, then calls `build`."""
        inputs = dict(zip(self.INPUTS, args, strict=False), **inputs)
        checks = assert_same_sizes(
            inputs, {name: x.axes for name, x in self.INPUTS.items()}
        )
        with tf.control_dependencies(checks):
            return self.build(**inputs)

    @abc.abstractmethod
    def build(self, **inputs: tf.Tensor) -> Any:
        """Preprocesses a batch of inputs whose sizes fit."""

    @staticmethod
    @abc.abstractmethod
    def raw(record: Any) -> Mapping[str, Any]:
        """Converts a record to `INPUTS`: nested lists without padding."""

    @classmethod
    def raw_batch(cls, records: Sequence[Any]) -> dict[str, np.ndarray]:
        """Converts records to padded `INPUTS`."""
        return cls.pad_batch([cls.raw(record) for record in records])

    @classmethod
    def pad_batch(cls, raw: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Pads the inputs of requests (see `raw`) to arrays.

        Raises a `UserError` if an input is not nested like its axes.
        """
        for i, values in enumerate(raw):
            for name, spec in cls.INPUTS.items():
                if not _is_nested(values[name], spec.shape.rank - 1):
                    raise UserError(_wrong_nesting(i, name, spec, values[name]))
        return {
            name: pad([values[name] for values in raw], spec)
            for name, spec in cls.INPUTS.items()
        }

    @staticmethod
    def of_text(
        **inputs: tf.Tensor,
    ) -> tuple[dict[str, Any], dict[str, tf.Tensor]]:
        """Makes `INPUTS` of one string a record; graph code.

        Args:
            **inputs: the inputs of `TEXT_REQUEST`, `<string>[records]`.

        Returns:
            The inputs, which may be ragged, and the parts of the text that
            answers name by their positions: `[records, ...]`, padded with "".
        """
        raise NotImplementedError("The task has no signature `text`.")

    @abc.abstractmethod
    def view(self, batch: Any, index: int) -> Any:
        """Returns one record of a result of `build`, as arrays."""

    @abc.abstractmethod
    def examples(self, record: Any, view: Any, split: str) -> Examples:
        """Returns the stored examples of a record, with its labels.

        "train" leaves out examples without use; "predict" has no labels.
        Raises a `RecordError` if the record cannot be used.
        """

    @property
    def rows_at_once(self) -> int | None:
        """Rows of a request that the model sees at once; None for all."""
        return None

    def batch_of_raw(self, **inputs: tf.Tensor) -> ModelBatch:
        """Makes a batch for the model from raw inputs; graph code."""
        raise NotImplementedError(f"{type(self).__name__} has no answers.")

    def batch_of_stored(self, serialized: tf.Tensor) -> ModelBatch:
        """Makes a batch from `<string>[examples]`; graph code."""
        raise NotImplementedError(f"{type(self).__name__} has no answers.")

    def example_of_raw(self, **inputs: tf.Tensor) -> bytes:
        """Returns a stored example of raw inputs of one record; eager."""
        raise NotImplementedError(f"{type(self).__name__} has no answers.")

    def summarize(
        self, counts: Mapping[str, int], number: int
    ) -> Mapping[str, float]:
        """Returns statistics of summed counts and the number of examples."""
        del counts, number
        return {}


class EtcPreprocessor(Preprocessor):
    """Preprocesses records for ETC, with the layout engine.

    Global tokens of `LAYOUT` are named as in the tokenizer's `special_ids`.
    """

    LAYOUT: ClassVar[layout.LayoutSpec]

    def __init__(self, config: Any, tokenizer: Any, name: str | None = None):
        super().__init__(config, tokenizer, name)
        self.engine = layout.LayoutEngine(
            self.layout_spec(),
            config.long_length,
            config.global_length,
            tokenizer.special_ids,
        )

    def layout_spec(self) -> layout.LayoutSpec:
        """Returns the layout; raises a ValueError if a token is missing."""
        return self.LAYOUT

    def view(self, batch, index):
        """Returns one record of a result of `build`, as arrays."""
        return RecordView(batch, index)

    def examples(self, record, view, split):
        """Returns the examples, with labels and counts from `labels`."""
        labelled = self.labels(record, view, split)
        text, features = self._stored(view)
        return Examples(
            [
                {
                    **text,
                    **labelled.values,
                    **{name: x[row] for name, x in features.items()},
                    **({"window": row} if view.number > 1 else {}),
                    **labels,
                }
                for row, labels in enumerate(labelled.rows)
                if labels is not None
            ],
            labelled.counts,
        )

    def batch_of_raw(self, **inputs):
        """Makes a batch from raw inputs; `tokens_cut` counts lost tokens."""
        made = self(**inputs)
        given = {**made.layout.features, **made.layout.values}
        features, context = self._trim(
            {name: given[name] for name in self.SCHEMA.names(INPUT)},
            made.context,
        )
        # [records]
        tokens_cut = tf.add_n(
            [x.tokens - x.kept_tokens for x in made.layout.counts.values()]
        )
        return ModelBatch(
            features,
            context,
            made.owner,
            {**made.text, **made.request},
            {"tokens_cut": tokens_cut, **made.outputs},
        )

    def batch_of_stored(self, serialized):
        """Makes a batch of stored examples, each with its own answer."""
        features, fields = self.SCHEMA.parse(
            serialized,
            dataclasses.asdict(self.config),
            (CONTEXT, DECODING, TEXT),
        )
        return ModelBatch(
            features, fields, tf.range(tf.size(serialized)), fields
        )

    def example_of_raw(self, **inputs):
        """Returns a stored example of the record's first row."""
        text, features = self._stored(self.view(on_host(self(**inputs)), 0))
        row = {name: x[0] for name, x in features.items()}
        return self.SCHEMA.serialize({EXAMPLE_ID: "warm-up", **text, **row})

    def _stored(self, view: RecordView) -> tuple[dict, dict]:
        """Returns the fields of a record and the fields of its rows."""
        fields = self.SCHEMA
        return tuple(
            {name: values[name] for name in names if name in values}
            for names, values in (
                (fields.names(TEXT), view.text),
                (fields.names(INPUT, CONTEXT, DECODING), view.features),
            )
        )

    def _trim(self, features, context):
        """Cuts trailing padding that all rows share.

        A short text then costs as much as in a model of its length. Lengths
        that are multiples of `LENGTH_STEP` keep the number of traces small.
        """

        def needed(breakpoints):
            # The last token of an input always ends a paragraph.
            is_last = tf.cast(breakpoints > 0, tf.int32)
            ends = is_last * tf.range(1, tf.shape(breakpoints)[1] + 1)
            used = tf.reduce_max(
                tf.concat([tf.reshape(ends, [-1]), [1]], axis=0)
            )
            return LENGTH_STEP * tf.math.floordiv(
                used + LENGTH_STEP - 1, LENGTH_STEP
            )

        sizes = {
            axis: needed(features[f"{axis}_paragraph_breakpoints"])
            for axis in ("long", "global")
        }
        return tuple(
            {
                name: x[:, : sizes[axis]]
                if (axis := self.SCHEMA.fields[name].axis) in sizes
                else x
                for name, x in values.items()
            }
            for values in (features, context)
        )

    @abc.abstractmethod
    def labels(self, record: Any, view: RecordView, split: str) -> Labelled:
        """Returns the labels and counts of a record; see `examples`."""

    @abc.abstractmethod
    def describe(self, record: Any) -> list[tuple[str, object]]:
        """Lists the names and values that `inspect` shows."""

    def name_global(
        self, record: Any, section: str, group: int, unit: int
    ) -> str:
        """Names the global token of a unit; -1 is the group's own."""
        del record
        return f"{section} {group}" + (f".{unit}" if unit >= 0 else "")


def count_cut(
    view: RecordView, names: Mapping[str, tuple[str | None, str | None]]
) -> dict[str, int]:
    """Counts tokens, groups and units, and how many of them were cut.

    `names` has the names of a section's groups and units; None is not
    counted. Example: `{"text": ("paragraphs", None)}` gives `{"tokens": 9,
    "tokens_cut": 2, "paragraphs": 3, "paragraphs_cut": 1, "records_cut": 1}`.
    """
    total = {"tokens": 0, "tokens_cut": 0}

    def add(name, number, kept):
        total[name] = total.get(name, 0) + number
        total[f"{name}_cut"] = total.get(f"{name}_cut", 0) + number - kept

    for section, x in view.counts.items():
        add("tokens", x.tokens, x.kept_tokens)
        groups, units = names.get(section, (None, None))
        if groups:
            add(groups, x.groups, x.kept_groups)
        if units:
            add(units, x.units, x.kept_units)
    return {**total, "records_cut": int(total["tokens_cut"] > 0)}


def to_bytes(text: str) -> bytes:
    """Encodes as UTF-8, with "?" for characters such as lone surrogates."""
    return text.encode("utf-8", "replace")


def pad(values: Any, spec: RawInput) -> np.ndarray:
    """Pads nested lists, as deep as the input's rank, to an array.

    Padding is "", False or -1, by type. Example: `[["a", "b"], ["c"]]` gives
    `[[b"a", b"b"], [b"c", b""]]`.
    """
    rank = spec.shape.rank
    sizes = [size or 0 for size in spec.shape]

    def measure(value, level):
        sizes[level] = max(sizes[level], len(value))
        if level + 1 < rank:
            for x in value:
                measure(x, level + 1)

    measure(values, 0)
    is_text = spec.dtype == tf.string
    dtype = object if is_text else spec.dtype.as_numpy_dtype
    nothing = b"" if is_text else dtype(False if dtype is np.bool_ else -1)
    filled = np.full(sizes, nothing, dtype)

    def fill(part, value):
        if part.ndim > 1:
            for x, y in zip(part, value, strict=False):
                fill(x, y)
        elif is_text:
            part[: len(value)] = [to_bytes(x) for x in value]
        else:
            part[: len(value)] = value

    fill(filled, values)
    return filled


def _is_nested(value: Any, depth: int) -> bool:
    """Tells whether a value has at least `depth` nested lists."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.ndim == depth
    is_list = isinstance(value, list | tuple | np.ndarray)
    if not depth:
        return not is_list and not isinstance(value, dict | set)
    return is_list and all(_is_nested(x, depth - 1) for x in value)


def _wrong_nesting(number: int, name: str, spec: RawInput, value: Any) -> str:
    """Returns the error of an input that is nested otherwise."""
    kind = "text" if spec.dtype == tf.string else spec.dtype.name
    expected = " of ".join([*(f"list ({x})" for x in spec.axes[1:]), kind])
    given = repr(value)
    if len(given) > 60:
        given = f"{given[:57]}..."
    return (
        f"Record {number} of the batch: {name} is {given}. Expected {expected}."
    )


def make_preprocessor(
    preprocessor_class: type[Preprocessor],
    config: Any,
    vocab_file: str,
    settings: TokenizerSettings | None = None,
) -> Preprocessor:
    """Makes a preprocessor; raises a `UserError` for a wrong vocabulary."""
    try:
        return preprocessor_class(config, make_tokenizer(vocab_file, settings))
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise UserError(
            f"`vocab_file={vocab_file}` cannot be used: {error}"
        ) from error
