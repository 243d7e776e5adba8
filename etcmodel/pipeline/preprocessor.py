"""Converts raw records to model inputs and stored examples."""

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
from etcmodel.pipeline import raw_inputs
from etcmodel.pipeline.example_schema import CONTEXT
from etcmodel.pipeline.example_schema import DECODING
from etcmodel.pipeline.example_schema import EXAMPLE_ID
from etcmodel.pipeline.example_schema import INPUT
from etcmodel.pipeline.example_schema import TEXT
from etcmodel.pipeline.example_schema import ExampleSchema
from etcmodel.pipeline.raw_inputs import RawInput
from etcmodel.pipeline.raw_inputs import assert_same_sizes
from etcmodel.readers.records import Source

# Lengths of serving requests are rounded up to a multiple of this number.
LENGTH_STEP = 64


class Encoded(NamedTuple):
    """A batch of preprocessed records, each with one row or several windows.

    Attributes:
        layout: the encoder's inputs; see `layout.Layout`.
        context: values of `CONTEXT` and `DECODING` fields, `[rows, ...]`.
        text: values of `TEXT` fields, `[batch, ...]`.
        host: values for labels and counts made in Python, `[batch, ...]`.
        request: when serving, other values for decoding, such as sizes.
        outputs: when serving, values to return with the answers, `[batch]`.
    """

    layout: layout.Layout
    context: Mapping[str, tf.Tensor]
    text: Mapping[str, Any]
    host: Mapping[str, Any] = {}  # noqa: RUF012
    request: Mapping[str, tf.Tensor] = {}  # noqa: RUF012
    outputs: Mapping[str, tf.Tensor] = {}  # noqa: RUF012

    @property
    def owner(self) -> tf.Tensor:
        """Index of each row's record, `<int32>[rows]`."""
        return self.layout.owner


class RecordView:
    """One record of an `Encoded` batch from `on_host`, as arrays and lists.

    Attributes:
        number: number of the record's rows.
        features: the layout's features and values, and the context,
            `[rows, ...]`.
        long_sources: `layout.Layout.long_sources` of this record's rows.
        global_sources: `layout.Layout.global_sources` of this record's rows.
        counts: section -> `layout.Counts` as integers.
        text: `Encoded.text` of this record.
        host: `Encoded.host` of this record.
        windows: `starts` and `sizes`, `<int>[rows]`; empty without windows.
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
    """Converts the tensors of a batch to NumPy arrays.

    Converts the whole batch at once, because converting single records is slow.
    A ragged tensor becomes an object array with one array, or list of bytes,
    per record.
    """

    def fetch(value):
        if not isinstance(value, tf.RaggedTensor):
            return value.numpy()
        # `np.array` would stack lists of equal length, so the object array is
        # filled.
        rows = np.empty(value.shape[0], object)
        if value.dtype == tf.string:
            rows[:] = value.to_list()
        elif len(rows):
            ends = value.row_splits.numpy()[1:-1]
            rows[:] = np.split(value.values.numpy(), ends)
        return rows

    return tf.nest.map_structure(fetch, batch, expand_composites=False)


class Labelled(NamedTuple):
    """Labels of a record's rows.

    Attributes:
        rows: labels of each row; None for a row to leave out.
        values: texts to store with each row, but not for training.
        counts: statistics of the record, which `stats.json` sums up over all
            records.
    """

    rows: Sequence[Mapping[str, Any] | None]
    values: Mapping[str, Any]
    counts: Mapping[str, int]


class Examples(NamedTuple):
    """Examples to store for a record.

    Attributes:
        rows: the examples; empty if the record is of no use.
        counts: statistics of the record.
        source: where the record was read.
    """

    rows: Sequence[Mapping[str, Any]]
    counts: Mapping[str, int]
    source: Source = Source()


class ModelBatch(NamedTuple):
    """Inputs of the model, and the values for decoding its answers.

    Attributes:
        inputs: the model's inputs, `[rows, ...]`.
        context: `CONTEXT` and `DECODING` fields, `[rows, ...]`.
        owner: index of each row's record, `<int32>[rows]`, ascending.
        text: `TEXT` fields, `[records, ...]`.
        outputs: values that the signature returns with the answers.
        stops: rows where a request can be split, `<int32>[stops]`; see
            `signatures.run_in_parts`.
    """

    inputs: Mapping[str, tf.Tensor]
    context: Mapping[str, tf.Tensor]
    owner: tf.Tensor
    text: Mapping[str, Any]
    outputs: Mapping[str, tf.Tensor] = {}  # noqa: RUF012
    stops: tf.Tensor | None = None


class Preprocessor(tf.Module, abc.ABC):
    """Converts batches of raw records to model inputs; graph code.

    Preprocessing and the exported model run the same code. A record's result
    does not depend on its batch.

    Args:
        config: the preprocessing configuration.
        tokenizer: the tokenizer.
        name: name of the module.

    Attributes:
        INPUTS: name -> `RawInput`. Inputs are padded at the end: strings with
            "", booleans with False, numbers with -1.
        REQUEST: a small request of one record, to test and warm up an exported
            model; empty if the task has no answers.
        TEXT_REQUEST: a request for the signature `text`, whose inputs have one
            string per record; empty if the task lacks it. See `of_text`.
        NEEDS_QUERY: whether a text without a query has no answer.
        SCHEMA: schema of the stored examples.
        RECORDS_AT_ONCE: number of records that `preprocess` batches.
    """

    INPUTS: ClassVar[Mapping[str, RawInput]]
    REQUEST: ClassVar[Mapping[str, Any]] = {}
    TEXT_REQUEST: ClassVar[Mapping[str, Any]] = {}
    NEEDS_QUERY: ClassVar[bool] = True
    SCHEMA: ClassVar[ExampleSchema]
    RECORDS_AT_ONCE: ClassVar[int] = 8

    def __init__(self, config: Any, tokenizer: Any, name: str | None = None):
        super().__init__(name=name)
        self.config = config
        self.tokenizer = tokenizer

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args, **inputs):
        """Checks that the inputs' sizes match, then calls `build`."""
        inputs = dict(zip(self.INPUTS, args, strict=False), **inputs)
        checks = assert_same_sizes(
            inputs, {name: x.axes for name, x in self.INPUTS.items()}
        )
        with tf.control_dependencies(checks):
            return self.build(**inputs)

    @abc.abstractmethod
    def build(self, **inputs: tf.Tensor) -> Any:
        """Converts a batch of `INPUTS` to features.

        `__call__` has already checked that shared axes have equal sizes.
        """

    @staticmethod
    @abc.abstractmethod
    def raw(record: Any) -> Mapping[str, Any]:
        """Converts a record to `INPUTS`, as nested lists without padding."""

    @classmethod
    def raw_batch(cls, records: Sequence[Any]) -> dict[str, np.ndarray]:
        """Converts records to a padded batch of `INPUTS`."""
        return cls.pad_batch([cls.raw(record) for record in records])

    @classmethod
    def pad_batch(cls, raw: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Pads a batch of results of `raw` to arrays.

        Raises a `UserError` if the nesting of an input differs from its axes.
        """
        return raw_inputs.pad_batch(raw, cls.INPUTS)

    @staticmethod
    def of_text(
        **inputs: tf.Tensor,
    ) -> tuple[dict[str, Any], dict[str, tf.Tensor]]:
        """Makes `INPUTS` from one string per record; graph code.

        Args:
            **inputs: the inputs of `TEXT_REQUEST`, `<string>[records]`.

        Returns:
            The inputs, which may be ragged, and the parts of the text to which
            positions in answers refer: `[records, ...]`, padded with "".
        """
        raise NotImplementedError("The task has no signature `text`.")

    @abc.abstractmethod
    def view(self, batch: Any, index: int) -> Any:
        """Returns one record of a result of `build`, as arrays."""

    @abc.abstractmethod
    def examples(self, record: Any, view: Any, split: str) -> Examples:
        """Returns the examples to store for a record, with labels.

        The split "train" drops examples that are of no use for training;
        "predict" adds no labels. Raises a `RecordError` if the record cannot be
        used.
        """

    @property
    def rows_at_once(self) -> int | None:
        """Maximum number of rows that the model runs at once; None: all."""
        return None

    def batch_of_raw(self, **inputs: tf.Tensor) -> ModelBatch:
        """Converts raw inputs to a batch for the model; graph code."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement `batch_of_raw`."
        )

    def batch_of_stored(self, serialized: tf.Tensor) -> ModelBatch:
        """Parses stored examples, `<string>[examples]`; graph code."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement `batch_of_stored`."
        )

    def example_of_raw(self, **inputs: tf.Tensor) -> bytes:
        """Serializes one record's raw inputs to a stored example; eager."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement `example_of_raw`."
        )

    def summarize(
        self, counts: Mapping[str, int], number: int
    ) -> Mapping[str, float]:
        """Returns further statistics for `stats.json`; none by default.

        `counts` are summed over all records; `number` counts the examples.
        """
        del counts, number
        return {}


class EtcPreprocessor(Preprocessor):
    """Preprocesses records for ETC, with the layout engine.

    `LAYOUT` names global tokens by the keys of the tokenizer's `special_ids`.
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
        """Converts raw inputs to a batch for the model.

        The output `tokens_cut` counts each record's truncated tokens.
        """
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
        """Parses stored examples; each is a record of its own."""
        features, fields = self.SCHEMA.parse(
            serialized,
            dataclasses.asdict(self.config),
            (CONTEXT, DECODING, TEXT),
        )
        return ModelBatch(
            features, fields, tf.range(tf.size(serialized)), fields
        )

    def example_of_raw(self, **inputs):
        """Serializes the record's first row to a stored example."""
        text, features = self._stored(self.view(on_host(self(**inputs)), 0))
        row = {name: x[0] for name, x in features.items()}
        return self.SCHEMA.serialize({EXAMPLE_ID: "warm-up", **text, **row})

    def _stored(self, view: RecordView) -> tuple[dict, dict]:
        """Returns the fields stored per record, and those stored per row."""
        fields = self.SCHEMA
        return tuple(
            {name: values[name] for name in names if name in values}
            for names, values in (
                (fields.names(TEXT), view.text),
                (fields.names(INPUT, CONTEXT, DECODING), view.features),
            )
        )

    def _trim(self, features, context):
        """Removes trailing padding that all rows share.

        A short text then costs only its own length. Lengths are multiples of
        `LENGTH_STEP`, so that few graphs are traced.
        """

        def needed(breakpoints):
            # Every row's last token ends a paragraph.
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
        """Returns name and value pairs that `inspect` shows for a record."""

    def name_global(
        self, record: Any, section: str, group: int, unit: int
    ) -> str:
        """Returns the name of a unit's global token; -1 means the group's."""
        del record
        return f"{section} {group}" + (f".{unit}" if unit >= 0 else "")


def count_cut(
    view: RecordView, names: Mapping[str, tuple[str | None, str | None]]
) -> dict[str, int]:
    """Counts a record's tokens, groups and units, and how many were truncated.

    `names` maps a section to names for its groups and its units; None omits the
    count. Example: `{"text": ("paragraphs", None)}` gives `{"tokens": 9,
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


def make_preprocessor(
    preprocessor_class: type[Preprocessor],
    config: Any,
    vocab_file: str,
    settings: TokenizerSettings | None = None,
) -> Preprocessor:
    """Makes a preprocessor.

    Raises a `UserError` if the vocabulary cannot be used.
    """
    try:
        return preprocessor_class(config, make_tokenizer(vocab_file, settings))
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise UserError(
            f"`vocab_file={vocab_file}` cannot be used: {error}"
        ) from error
