"""The layout rules of all tasks in plain Python, one token after another.

What tests compare the layout engine with, in results, and `preprocess` in
speed. It shares no code with it: a task yields its units (see
`task_oracles.py`), and `lay_out` places them.
"""

import dataclasses
import json
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf

_BREAKPOINTS = ("long_paragraph_breakpoints", "global_paragraph_breakpoints")
# Features that are padded with 0; others are with -1.
_ZERO = ("token_ids", "type_ids", "breakpoints", "word_cuts")


class Unit(NamedTuple):
    """Long tokens that stand together, with their global token.

    Attributes:
        tokens: token ids.
        token_type: of the long tokens.
        global_id: token id of the global token; None if there is none.
        global_type: its token type.
        is_linked: whether the long tokens are its sentence.
        is_group: whether the units that follow are its paragraph.
        shares: what happens if there is no room for another global token:
            the long tokens take the last one. Otherwise the unit is left out.
        columns: further features, a value for each long token.
        global_columns: further features of the global token.
        key: what the unit is; for labels.
        spans: first character of each token, and the one after the last.
    """

    tokens: Sequence[int]
    token_type: int
    global_id: int | None = None
    global_type: int = 0
    is_linked: bool = True
    is_group: bool = False
    shares: bool = False
    columns: Mapping[str, Sequence[int]] = {}
    global_columns: Mapping[str, int] = {}
    key: Any = None
    spans: Sequence[tuple[int, int]] = ()


# Ends a paragraph in both inputs.
END = Unit((), -1)


@dataclasses.dataclass
class Layout:
    """Placed units.

    Attributes:
        columns: feature -> values, without padding.
        long_owners: unit of each long token, and the token's number in it.
        global_owners: unit of each global token.
        source: what else the task's labels need.
    """

    columns: dict[str, list[int]]
    long_owners: list[tuple[Unit, int]] = dataclasses.field(
        default_factory=list
    )
    global_owners: list[Unit] = dataclasses.field(default_factory=list)
    source: Any = None

    def padded(
        self, long_length: int, global_length: int
    ) -> dict[str, list[int]]:
        """Returns the features at their full lengths."""
        padded = {}
        for name, values in self.columns.items():
            length = global_length if _is_global(name) else long_length
            padded[name] = values + [_padding(name)] * (length - len(values))
        return padded

    def add(self, is_global: bool, number: int, values: Mapping) -> None:
        """Appends values to all features of one input, padding by default."""
        for name, column in self.columns.items():
            if _is_global(name) == is_global:
                column += values.get(name, [_padding(name)] * number)


def _is_global(name):
    return name.startswith("global_")


def _padding(name: str) -> int:
    return 0 if name.endswith(_ZERO) else -1


def lay_out(
    units: Iterable[Unit],
    names: Iterable[str],
    long_length: int,
    global_length: int,
) -> Layout:
    """Places units one after another.

    Example: with room for 3 long tokens, units of 2, 2 and 1 tokens become the
    first and the last one. The second does not fit.

    Args:
        units: the units.
        names: the features to make.
        long_length: the most long tokens.
        global_length: the most global tokens.

    Returns:
        The layout.
    """
    layout = Layout({name: [] for name in names})
    group = -1
    for unit in units:
        if unit is END:
            for name in _BREAKPOINTS:
                if column := layout.columns[name]:
                    column[-1] = 1
            continue
        number = len(unit.tokens)
        has_global = unit.global_id is not None
        if has_global and len(layout.global_owners) == global_length:
            if not unit.shares:
                continue
            has_global = False
        if len(layout.long_owners) + number > long_length:
            continue
        if has_global:
            layout.global_owners.append(unit)
            layout.add(
                True,
                1,
                {
                    "global_token_ids": [unit.global_id],
                    "global_token_type_ids": [unit.global_type],
                    **{k: [x] for k, x in unit.global_columns.items()},
                },
            )
        owner = len(layout.global_owners) - 1
        if unit.is_group:
            group = owner
        if unit.global_id is None or not unit.is_linked:
            owner = -1
        layout.long_owners += [(unit, i) for i in range(number)]
        layout.add(
            False,
            number,
            {
                "long_token_ids": unit.tokens,
                "long_token_type_ids": [unit.token_type] * number,
                "long_sentence_ids": [owner] * number,
                "long_paragraph_ids": [group] * number,
                **unit.columns,
            },
        )
    return layout


class Oracle(NamedTuple):
    """What a task stores of a record for training.

    Attributes:
        lay_out: takes record, tokenizer and configuration; returns layouts.
        store: takes record and layouts; returns labels and texts for each
            layout, or nothing if there is nothing to learn.
    """

    lay_out: Callable[..., list[Layout]]
    store: Callable[..., list[dict[str, Sequence[Any]]]]

    def make_features(self, record, tokenizer, config) -> list[dict]:
        """Returns features at their full lengths."""
        return [
            layout.padded(config.long_length, config.global_length)
            for layout in self.lay_out(record, tokenizer, config)
        ]

    def encode(self, record, tokenizer, config) -> list[bytes]:
        """Returns serialized examples."""
        layouts = self.lay_out(record, tokenizer, config)
        return [
            to_example(
                layout.padded(config.long_length, config.global_length) | stored
            )
            for layout, stored in zip(
                layouts, self.store(record, layouts), strict=False
            )
        ]


def to_json(value: Any) -> str:
    """Returns what evaluation needs as one string of an example."""
    return json.dumps(value, ensure_ascii=False)


def to_example(values: Mapping[str, Sequence[Any]]) -> bytes:
    """Serializes lists of ints, floats or strings as a `tf.train.Example`."""
    features = {}
    for name, items in values.items():
        if items and isinstance(items[0], str):
            items = [item.encode() for item in items]
            feature = {"bytes_list": tf.train.BytesList(value=items)}
        elif items and isinstance(items[0], float):
            feature = {"float_list": tf.train.FloatList(value=items)}
        else:
            feature = {"int64_list": tf.train.Int64List(value=items)}
        features[name] = tf.train.Feature(**feature)
    return tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString()


def from_example(serialized: bytes) -> dict[str, list[Any]]:
    """Reads an example without padding, and without lists that are empty."""
    values = {}
    stored = tf.train.Example.FromString(serialized).features.feature
    for name, feature in stored.items():
        kind = feature.WhichOneof("kind")
        items = list(getattr(feature, kind).value) if kind else []
        while items and items[-1] == _padding(name):
            items.pop()
        if items:
            values[name] = items
    return values
