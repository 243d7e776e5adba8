"""Raw text to features: what a task says, and what follows from it."""

import abc
import functools
from collections.abc import Callable
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
from etcmodel.pipeline.example_schema import Schema


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
    """What a `FeatureBuilder` makes of a batch of records.

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
        values: what else is stored with each row, name -> values.
        counts: what is added up over all records in `stats.json`.
    """

    rows: Sequence[Mapping[str, Any] | None]
    values: Mapping[str, Any]
    counts: Mapping[str, int]


def builds_features(build: Callable) -> Callable:
    """Checks that the inputs of a `FeatureBuilder.build` fit together.

    AutoGraph does not convert it, since that would make tracing slow.

    Args:
        build: the method.

    Returns:
        The method with the check; see `assert_same_sizes`.
    """

    @functools.wraps(build)
    @tf.autograph.experimental.do_not_convert
    def checked(self, *args, **inputs):
        inputs = dict(zip(self.INPUTS, args, strict=False), **inputs)
        checks = assert_same_sizes(
            inputs, {name: x.axes for name, x in self.INPUTS.items()}
        )
        with tf.control_dependencies(checks):
            return build(self, **inputs)

    return checked


class FeatureBuilder(tf.Module, abc.ABC):
    """Turns batches of raw text into features; graph code.

    The same code for preprocessing and for serving. A record's features do not
    depend on the batch it is in.

    Attributes:
        INPUTS: the raw inputs: name -> `RawInput`. Strings are padded with
            "", flags with False, other numbers with -1, at the end.
        REQUEST: a small request of one record, to try a model and to warm it
            up.
        LAYOUT: how the parts of a record are laid out; global tokens are named
            as in the tokenizer's `special_ids`.
        SCHEMA: the fields of stored examples.
        ROWS_AT_ONCE: how many rows of a request go through the model at once;
            None for all of them.
        config: the sizes.
        tokenizer: the tokenizer.
        engine: the layout engine.
    """

    INPUTS: ClassVar[Mapping[str, RawInput]]
    REQUEST: ClassVar[Mapping[str, Any]]
    LAYOUT: ClassVar[layout.LayoutSpec]
    SCHEMA: ClassVar[Schema]
    ROWS_AT_ONCE: ClassVar[int | None] = None

    def __init__(self, config: Any, tokenizer: Any, name: str | None = None):
        """Makes the layout engine.

        Args:
            config: the sizes.
            tokenizer: the tokenizer; it is exported along.
            name: name of the module.

        Raises:
            ValueError: the vocabulary lacks what the task needs.
        """
        super().__init__(name=name)
        self.config = config
        self.tokenizer = tokenizer
        self.engine = layout.LayoutEngine(
            self.layout_spec(),
            config.long_length,
            config.global_length,
            tokenizer.special_ids,
        )

    def layout_spec(self) -> layout.LayoutSpec:
        """The layout for these sizes: `LAYOUT`, by default.

        Raises:
            ValueError: the vocabulary lacks what the sizes need.
        """
        return self.LAYOUT

    @abc.abstractmethod
    def build(self, **inputs: tf.Tensor) -> Encoded:
        """Builds the features of a batch.

        Args:
            **inputs: what `INPUTS` names.

        Returns:
            The features and what belongs to them.

        Raises:
            tf.errors.InvalidArgumentError: when run, if the inputs do not fit
                together; see `builds_features`.
        """

    @staticmethod
    @abc.abstractmethod
    def raw(record: Any) -> Mapping[str, Any]:
        """A record as `INPUTS`: values or lists of values, not padded."""

    @abc.abstractmethod
    def label(self, record: Any, view: RecordView, split: str) -> Labelled:
        """What is to be learned of a record, and what is counted.

        Args:
            record: the record.
            view: what was made of it.
            split: what it is for: "train" leaves out what teaches nothing,
                "predict" has no labels.

        Returns:
            Its labels and counts.

        Raises:
            RecordError: the record cannot be used.
        """

    @abc.abstractmethod
    def describe(self, record: Any) -> list[tuple[str, object]]:
        """What `inspect` tells of a record, as pairs of name and value."""

    def name_global(
        self, record: Any, section: str, group: int, unit: int
    ) -> str:
        """What to call a global token of a group or unit in pictures.

        Args:
            record: the record.
            section: its section.
            group: index of the group in the section.
            unit: index of the unit in the group; -1 for the group's own.

        Returns:
            A short name.
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


def raw_inputs(
    builder: type[FeatureBuilder], records: Sequence[Any]
) -> dict[str, np.ndarray]:
    """A batch of records as a request.

    Args:
        builder: the task's class.
        records: the records.

    Returns:
        What `INPUTS` names.
    """
    raw = [builder.raw(record) for record in records]
    return {
        name: pad([values[name] for values in raw], spec)
        for name, spec in builder.INPUTS.items()
    }


def make_builder(
    builder_class: type,
    config: Any,
    vocab_file: str,
    settings: TokenizerSettings | None = None,
) -> tf.Module:
    """Makes a feature builder for a vocabulary.

    Args:
        builder_class: makes the builder from `config` and a tokenizer.
        config: sizes of the features.
        vocab_file: a WordPiece vocabulary or a SentencePiece model.
        settings: counts more than what the files beside the vocabulary say;
            see `tokenizers.make_tokenizer`.

    Returns:
        The builder.

    Raises:
        UserError: the vocabulary or a size cannot be used.
    """
    try:
        return builder_class(config, make_tokenizer(vocab_file, settings))
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise UserError(
            f"--vocab_file={vocab_file} cannot be used: {error}"
        ) from error
