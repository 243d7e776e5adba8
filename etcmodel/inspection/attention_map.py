"""An attention map: the tokens of a record, and which attend to which.

`map_records` makes the map, `map_page` shows it as HTML, and `map_picture`
draws it as an image.
"""

import dataclasses
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from etcmodel.inspection.attention_scores import AVERAGE
from etcmodel.inspection.attention_scores import LayerScores
from etcmodel.inspection.surface_text import Cut
from etcmodel.inspection.surface_text import Token


class GlobalToken(NamedTuple):
    """A global token, as a map shows it.

    Attributes:
        label: its name, such as "unit 2.0", or the text it stands for.
        kind: its special token, such as "sentence" or "candidate", or the name
            of its section.
    """

    label: str
    kind: str


class Block(NamedTuple):
    """Consecutive tokens that are shown as one paragraph.

    Attributes:
        first: index of its first token.
        last: index after its last token.
        global_tokens: indices of the global tokens that are shown beside it.
        heading: heading above it; "" for none.
        segment: index of the segment that begins here; None if none does.
    """

    first: int
    last: int
    global_tokens: Sequence[int] = ()
    heading: str = ""
    segment: int | None = None


class Link(NamedTuple):
    """A link of the layout between two nodes; its name may be ""."""

    source: int
    target: int
    name: str


class Mark(NamedTuple):
    """Consecutive tokens that spell an answer.

    Attributes:
        first: index of the first token.
        last: index after the last token.
        kind: "predicted", "gold" or "both".
    """

    first: int
    last: int
    kind: str


class Memory(NamedTuple):
    """A memory of ReadTwice, as a map shows it.

    Attributes:
        label: the text of the entity's mention, or the name of the segment.
        segment: index of its segment, even if the map does not show that
            segment.
    """

    label: str
    segment: int


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """A record and its attention probabilities, for pages and pictures.

    The nodes are numbered: the global tokens, the tokens of the text, the
    segments and the memories. Row i of a layer belongs to node i or, if `rows`
    is given, to node `rows[i]`.

    Attributes:
        title: the task and the record.
        summary: names and values that describe the record.
        answers: names and values: the predicted and the gold answer.
        global_tokens: the global tokens.
        tokens: the tokens of the text, without padding.
        blocks: paragraphs of tokens, in order.
        links: links between nodes, except those that `blocks` show.
        cuts: the truncated texts, which the model did not get.
        segments: names of ReadTwice's segments.
        memories: ReadTwice's memories.
        layers: the attention probabilities of each layer.
        rows: ascending numbers of the tokens that have rows; None for all.
        marks: the places of the answers in the text.
    """

    title: str
    summary: Sequence[tuple[str, str]]
    answers: Sequence[tuple[str, str]]
    global_tokens: Sequence[GlobalToken]
    tokens: Sequence[Token]
    blocks: Sequence[Block]
    links: Sequence[Link]
    cuts: Sequence[Cut]
    segments: Sequence[str]
    memories: Sequence[Memory]
    layers: Sequence[LayerScores]
    rows: Sequence[int] | None = None
    marks: Sequence[Mark] = ()

    @property
    def num_tokens(self) -> int:
        """The number of global tokens and tokens of the text."""
        return len(self.global_tokens) + len(self.tokens)

    @property
    def default_layer(self) -> int:
        """Index of the layer to show first.

        Prefers layers with the most rows (in ReadTwice, those that attend to
        memories), and averages over layers.
        """

        def rank(i):
            heads = self.layers[i].heads
            return len(heads[AVERAGE].keys), len(heads) == 1, -i

        return max(range(len(self.layers)), key=rank)

    @property
    def default_node(self) -> int:
        """Number of the node to show first.

        Chooses the first of these that has a row: a segment; the global token
        of an answer, such as a candidate; the first token of an answer; any
        node.
        """
        numbers = self.row_numbers()
        num_global = len(self.global_tokens)
        answers = {
            _joined(x.text for x in self.tokens[mark.first : mark.last])
            for mark in self.marks
        }
        wanted = [
            *range(self.num_tokens, self.num_tokens + len(self.segments)),
            *(
                i
                for i, x in enumerate(self.global_tokens)
                if _joined([x.label]) in answers
            ),
            *(num_global + x.first for x in self.marks),
            *numbers[:1],
        ]
        rows = self.layers[self.default_layer].heads[AVERAGE].keys
        with_rows = {*numbers[: len(rows)]}
        return next((x for x in wanted if x in with_rows), 0)

    def row_numbers(self) -> list[int]:
        """Returns the node number of each row of the layers."""
        rows = range(self.num_tokens) if self.rows is None else self.rows
        segments = range(len(self.segments))
        return [*rows, *(self.num_tokens + i for i in segments)]

    def label(self, node: int) -> str:
        """Returns the name of a node."""
        index = node
        for nodes, name in (
            (self.global_tokens, lambda x: x.label),
            (self.tokens, lambda x: x.text),
            (self.segments, str),
            (self.memories, lambda x: x.label),
        ):
            if index < len(nodes):
                return name(nodes[index])
            index -= len(nodes)
        raise IndexError(f"The map has no node {node}.")

    def reads(
        self, node: int, layer: int | None = None, head: str = AVERAGE
    ) -> dict[int, float]:
        """Returns the nodes that a node attends to most: node -> probability.

        Args:
            node: number of a token or segment.
            layer: index in `layers`; by default `default_layer`.
            head: "average", or the number of a head from "1".

        Raises:
            ValueError: the map has no row for the node, or the head does not
                exist.
        """
        chosen = self.layers[self.default_layer if layer is None else layer]
        numbers = self.row_numbers()
        if head not in chosen.heads:
            raise ValueError(
                f"{chosen.label} has no head {head!r}. Choose one of: "
                f"{', '.join(chosen.heads)}."
            )
        rows = chosen.heads[head]
        row = numbers.index(node) if node in numbers else len(rows.keys)
        if row >= len(rows.keys):
            raise ValueError(
                f"The map has no row for the node {node} in {chosen.label}."
            )
        return {
            int(key): float(value)
            for key, value in zip(rows.keys[row], rows.values[row], strict=True)
            if key >= 0
        }


def find_marks(
    tokens: Sequence[Token], predicted: Any, gold: Any
) -> list[Mark]:
    """Finds the tokens that spell the predicted and the gold answer.

    Example: in the tokens "in", "Brno", ".", the prediction "Brno" and the gold
    answer "brno" give `[Mark(1, 2, "both")]`.
    """
    words = [x.text.casefold() for x in tokens]
    right, given = _words_of(gold), _words_of(predicted)
    found: dict[int, Mark] = {}
    for answer in sorted(right | given, key=len):
        kind = "gold" if answer in right else "predicted"
        if answer in right & given:
            kind = "both"
        for first in range(len(words)):
            last, text = first, ""
            while len(text) < len(answer) and last < len(words):
                text += words[last]
                last += 1
            if text == answer:
                found[first] = Mark(first, last, kind)
    return [found[first] for first in sorted(found)]


# Keys of the answers' texts in predictions and gold answers.
_TEXTS = ("answer", "answers")


def _joined(texts: Iterable[str]) -> str:
    """Joins texts, in lower case and without spaces."""
    return "".join("".join(texts).casefold().split())


def _words_of(value: Any) -> set[str]:
    """Returns the texts in an answer; see `_joined`."""
    if isinstance(value, str):
        text = _joined(value)
        return {text} if text else set()
    value = _as_mapping(value)
    if isinstance(value, Mapping):
        value = [value[name] for name in _TEXTS if name in value]
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        return set()
    return set().union(*map(_words_of, value)) if value else set()


def _as_mapping(value: Any) -> Any:
    """Converts named tuples and dataclasses to mappings."""
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {x.name: getattr(value, x.name) for x in fields}
    return value._asdict() if hasattr(value, "_asdict") else value


def show_answer(value: Any) -> str:
    """Formats a prediction or a gold answer of any task as one line.

    Example: `{"answer": "Brno", "score": 0.51234}` becomes "answer: Brno;
    score: 0.512".
    """
    if value is None:
        return "none"
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value or "none"
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.3g}"
    value = _as_mapping(value)
    if isinstance(value, Mapping) and "is_selected" in value:
        return f"{value['content']} ({show_answer(value['score'])})"
    if isinstance(value, Mapping):
        return "; ".join(
            f"{name}: {show_answer(x)}" for name, x in value.items()
        )
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if isinstance(value, Sequence):
        shown = [show_answer(x) for x in value if _is_selected(x)]
        return ", ".join(shown) if shown else "none"
    return str(value)


def _is_selected(value: Any) -> bool:
    """Returns whether a unit was selected; True for values other than units."""
    return getattr(value, "is_selected", True)
