"""Raw text to features: what a task says, and what follows from it."""

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

# Lengths of requests are rounded up to its multiples.
LENGTH_STEP = 64


class RawInput(NamedTuple):
    """An input of a task's requests.

    Attributes:
        dtype: its type.
        axes: name of each axis, such as `("records", "paragraphs")`, or its
            size if it is fixed. Inputs of a request must have the same size
            along axes with the same name.
    """

    dtype: tf.DType
    axes: Sequence[str | int]

    @property
    def shape(self) -> tf.TensorShape:
        """The sizes that are known."""
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
    """Asserts that inputs have the same size along axes with the same name.

    Graph code. Example: `titles` `[1, 1]` with the axes `("records",
    "paragraphs")` and `sentences` `[1, 2, 3]` with `("records", "paragraphs",
    "sentences")` end in "titles and sentences differ in their number of
    paragraphs: [1] [2]".

    Args:
        inputs: name -> dense or ragged tensor.
        axes: name -> names of its axes; see `RawInput`.

    Returns:
        The assertions; none in eager mode, which raises the error at once.

    Raises:
        tf.errors.InvalidArgumentError: when run, if sizes differ.
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
    """What an `EtcPreprocessor` makes of a batch of records.

    A record has one row, or several: its windows.

    Attributes:
        layout: the `Layout` of all rows.
        context: what the schema has as context, `[rows, ...]`.
        text: what it has as text, `[batch, ...]`.
        host: what labels and counts need, `[batch, ...]`.
        request: what answering raw text needs beside the text, such as the
            sizes of a request.
    """

    layout: layout.Layout
    context: Mapping[str, tf.Tensor]
    text: Mapping[str, Any]
    host: Mapping[str, Any] = {}  # noqa: RUF012
    request: Mapping[str, tf.Tensor] = {}  # noqa: RUF012

    @property
    def owner(self) -> tf.Tensor:
        """The record of each row, `<int32>[rows]`."""
        return self.layout.owner


class RecordView:
    """One record of an `Encoded` as arrays and lists of Python.

    Attributes:
        number: how many rows it has.
        features: name -> features of the layout and context, `[rows, ...]`.
        long_sources: see `Layout`, `<int>[rows, long, 4]`.
        global_sources: see `Layout`, `<int>[rows, global, 4]`.
        counts: section -> `Counts` of numbers.
        windows: `starts` and `sizes` of its windows, `<int>[rows]`, if there
            are windows.
        text: name -> value of the text.
        host: name -> value of what is for the host.
    """

    def __init__(self, batch: Encoded, index: int):
        """Takes a record out of a batch.

        Args:
            batch: from `on_host`.
            index: which record.
        """
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
    """All tensors of a batch at once as arrays: it takes long one by one.

    Args:
        batch: eager tensors.

    Returns:
        The same with arrays, and lists of arrays or of bytes for ragged ones.
    """

    def fetch(value):
        if not isinstance(value, tf.RaggedTensor):
            return value.numpy()
        # An array of as many lists, whatever their lengths.
        rows = np.empty(value.shape[0], object)
        if value.dtype == tf.string:
            rows[:] = value.to_list()
        elif len(rows):
            ends = value.row_splits.numpy()[1:-1]
            rows[:] = np.split(value.values.numpy(), ends)
        return rows

    return tf.nest.map_structure(fetch, batch, expand_composites=False)


class Labelled(NamedTuple):
    """What is stored of a record beside its features and texts.

    Attributes:
        rows: of each row what is to be learned, name -> values; None for a
            row that is left out.
        values: further texts that are stored with each row, except for
            training: name -> values.
        counts: what is added up over all records in `stats.json`.
    """

    rows: Sequence[Mapping[str, Any] | None]
    values: Mapping[str, Any]
    counts: Mapping[str, int]


class Examples(NamedTuple):
    """The stored examples of one record.

    Attributes:
        rows: name -> values of each example: one, or as many as the record has
            windows, or none if there is nothing to learn from it.
        counts: what is added up over all records in `stats.json`.
    """

    rows: Sequence[Mapping[str, Any]]
    counts: Mapping[str, int]


class ModelBatch(NamedTuple):
    """A batch as the model and the decoding of its answers read it.

    Attributes:
        inputs: the model's inputs, `[rows, ...]`.
        context: fields with the role `CONTEXT` or `DECODING`, `[rows, ...]`.
        owner: the record of each row, `<int32>[rows]`, ascending.
        text: fields with the role `TEXT`, `[records, ...]`.
        outputs: name -> what the signature returns beside the answers.
        stops: `<int32>[stops]` rows after which the batch may be divided, see
            `signatures.run_in_parts`; None for all rows.
    """

    inputs: Mapping[str, tf.Tensor]
    context: Mapping[str, tf.Tensor]
    owner: tf.Tensor
    text: Mapping[str, Any]
    outputs: Mapping[str, tf.Tensor] = {}  # noqa: RUF012
    stops: tf.Tensor | None = None


class Preprocessor(tf.Module, abc.ABC):
    """Turns batches of raw records into what the model reads; graph code.

    Preprocessing and the exported model run the same code. The result for a
    record does not depend on the batch that it is in.

    Attributes:
        INPUTS: the raw inputs: name -> `RawInput`. Strings are padded with
            "", flags with False, other numbers with -1, at the end.
        REQUEST: a small request of one record, to try an exported model and to
            warm it up; none where there are no answers.
        SCHEMA: the fields of stored examples.
        RECORDS_AT_ONCE: how many records `preprocess` takes at once.
        config: the preprocessing configuration.
        tokenizer: the tokenizer.
    """

    INPUTS: ClassVar[Mapping[str, RawInput]]
    REQUEST: ClassVar[Mapping[str, Any]] = {}
    SCHEMA: ClassVar[ExampleSchema]
    RECORDS_AT_ONCE: ClassVar[int] = 8

    def __init__(self, config: Any, tokenizer: Any, name: str | None = None):
        super().__init__(name=name)
        self.config = config
        self.tokenizer = tokenizer

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args, **inputs):
        """Preprocesses a batch.

        Args:
            *args: the inputs in the order of `INPUTS`.
            **inputs: the inputs by name.

        Returns:
            See `build` of the task.

        Raises:
            tf.errors.InvalidArgumentError: when run, if the inputs do not fit
                together.
        """
        inputs = dict(zip(self.INPUTS, args, strict=False), **inputs)
        checks = assert_same_sizes(
            inputs, {name: x.axes for name, x in self.INPUTS.items()}
        )
        with tf.control_dependencies(checks):
            return self.build(**inputs)

    @abc.abstractmethod
    def build(self, **inputs: tf.Tensor) -> Any:
        """Preprocesses a batch whose inputs fit together."""

    @staticmethod
    @abc.abstractmethod
    def raw(record: Any) -> Mapping[str, Any]:
        """Returns a record as `INPUTS`: nested lists without padding."""

    @classmethod
    def raw_batch(cls, records: Sequence[Any]) -> dict[str, np.ndarray]:
        """Returns records as padded `INPUTS`."""
        raw = [cls.raw(record) for record in records]
        return {
            name: pad([values[name] for values in raw], spec)
            for name, spec in cls.INPUTS.items()
        }

    @abc.abstractmethod
    def view(self, batch: Any, index: int) -> Any:
        """Returns one record of what `build` made, as arrays."""

    @abc.abstractmethod
    def examples(self, record: Any, view: Any, split: str) -> Examples:
        """Returns what is stored of a record, with its labels.

        Args:
            record: the record.
            view: from `view`.
            split: "train" leaves out what teaches nothing, "predict" has no
                labels.

        Raises:
            RecordError: the record cannot be used.
        """

    @property
    def rows_at_once(self) -> int | None:
        """Rows of a request that the model sees at once; None for all."""
        return None

    def batch_of_raw(self, **inputs: tf.Tensor) -> ModelBatch:
        """Makes a batch for the model from raw inputs; graph code."""
        raise NotImplementedError(f"{type(self).__name__} has no answers.")

    def batch_of_stored(self, serialized: tf.Tensor) -> ModelBatch:
        """Makes a batch for the model from stored examples; graph code.

        Args:
            serialized: `<string>[examples]`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no answers.")

    def example_of_raw(self, **inputs: tf.Tensor) -> bytes:
        """Returns a stored example of raw inputs of one record; eager."""
        raise NotImplementedError(f"{type(self).__name__} has no answers.")

    def summarize(
        self, counts: Mapping[str, int], number: int
    ) -> Mapping[str, float]:
        """Returns further statistics of all records; none by default.

        Args:
            counts: the sum of the counts of all records.
            number: how many examples were written.
        """
        del counts, number
        return {}


class EtcPreprocessor(Preprocessor):
    """Preprocesses records for ETC, with the layout engine.

    Attributes:
        LAYOUT: how the parts of a record are laid out; global tokens are named
            as in the tokenizer's `special_ids`.
        engine: the layout engine.
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
        """Returns the layout for these sizes: `LAYOUT`, by default.

        Raises:
            ValueError: the vocabulary lacks what the sizes need.
        """
        return self.LAYOUT

    def view(self, batch, index):
        """See `Preprocessor`."""
        return RecordView(batch, index)

    def examples(self, record, view, split):
        """See `Preprocessor`; labels and counts are those of `labels`."""
        labelled = self.labels(record, view, split)
        stored = self.SCHEMA.names(INPUT, CONTEXT, DECODING)
        features = {
            name: view.features[name]
            for name in stored
            if name in view.features
        }
        text = {
            name: view.text[name]
            for name in self.SCHEMA.names(TEXT)
            if name in view.text
        }
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
        """See `Preprocessor`; `tokens_cut` tells what the lengths cut off."""
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
            {"tokens_cut": tokens_cut},
        )

    def batch_of_stored(self, serialized):
        """See `Preprocessor`; every example has an answer of its own."""
        features, fields = self.SCHEMA.parse(
            serialized,
            dataclasses.asdict(self.config),
            (CONTEXT, DECODING, TEXT),
        )
        return ModelBatch(
            features, fields, tf.range(tf.size(serialized)), fields
        )

    def example_of_raw(self, **inputs):
        """See `Preprocessor`; the first row of the record."""
        view = self.view(on_host(self(**inputs)), 0)
        row = {
            name: view.features[name][0]
            for name in self.SCHEMA.names(INPUT, CONTEXT, DECODING)
            if name in view.features
        }
        return self.SCHEMA.serialize(
            {EXAMPLE_ID: "warm-up", **view.text, **row}
        )

    def _trim(self, features, context):
        """Cuts the padding that all rows have off their ends.

        A short text then costs what it costs in a model of its own length.
        Lengths are multiples of `LENGTH_STEP`, so that there are few different
        ones.
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
        """Returns what `inspect` shows of a record: names and values."""

    def name_global(
        self, record: Any, section: str, group: int, unit: int
    ) -> str:
        """Returns a short name of a group's or unit's global token.

        Args:
            record: the record.
            section: its section.
            group: index of the group in the section.
            unit: index of the unit in the group; -1 for the group's own.
        """
        del record
        return f"{section} {group}" + (f".{unit}" if unit >= 0 else "")


def count_cut(
    view: RecordView, names: Mapping[str, tuple[str | None, str | None]]
) -> dict[str, int]:
    """Counts of tokens, groups and units, and of what was cut of them.

    Args:
        view: the record.
        names: section -> what its groups and its units are called; None
            for what is not counted.

    Returns:
        `tokens` and `tokens_cut` of all sections, `records_cut` (1 if any
        token was cut), and likewise `NAME` and `NAME_cut` of what is named.
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
    """A string as UTF-8; "?" for what has none, such as lone surrogates.

    Args:
        text: the string.

    Returns:
        Its bytes.
    """
    return text.encode("utf-8", "replace")


def pad(values: Any, spec: RawInput) -> np.ndarray:
    """Pads nested lists to a tensor.

    Example: `[["a", "b"], ["c"]]` gives `[[b"a", b"b"], [b"c", b""]]`.

    Args:
        values: lists in lists, as deep as the specification's rank.
        spec: the input; its type tells the padding: "", False, or -1.

    Returns:
        The tensor as an array, strings as `bytes` objects.
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


def make_preprocessor(
    preprocessor_class: type[Preprocessor],
    config: Any,
    vocab_file: str,
    settings: TokenizerSettings | None = None,
) -> Preprocessor:
    """Makes a preprocessor for a vocabulary; see `TaskSpec`.

    Raises:
        UserError: the vocabulary or a size cannot be used.
    """
    try:
        return preprocessor_class(config, make_tokenizer(vocab_file, settings))
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise UserError(
            f"--vocab_file={vocab_file} cannot be used: {error}"
        ) from error
