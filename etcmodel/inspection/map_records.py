"""Makes attention maps of records, for ETC and for ReadTwice."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils import layout
from etcmodel.inspection import attention_scores
from etcmodel.inspection.attention_map import AttentionMap
from etcmodel.inspection.attention_map import Block
from etcmodel.inspection.attention_map import GlobalToken
from etcmodel.inspection.attention_map import Link
from etcmodel.inspection.attention_map import Memory
from etcmodel.inspection.surface_text import Cut
from etcmodel.inspection.surface_text import SurfaceTexts
from etcmodel.inspection.surface_text import Token


class RowsError(ValueError):
    """Raised for rows that the record does not have."""


def map_layout(
    encoder: tf.keras.layers.Layer,
    tokenizer: Any,
    spec: layout.LayoutSpec,
    made: Mapping[str, np.ndarray],
    long_sources: np.ndarray,
    global_sources: np.ndarray,
    texts: Mapping[str, Any],
    name_global: Callable[[str, int, int], str] = (
        lambda section, group, unit: section
    ),
    rows: Sequence[int] | None = None,
    **described: Any,
) -> AttentionMap:
    """Makes the attention map of one row of a layout, for ETC.

    Args:
        encoder: the `StructuredEtcModel`.
        tokenizer: the tokenizer of the layout's tokens.
        spec: the layout.
        made: `Layout.features` and `Layout.values` of the row, `[1, length,
            ...]`.
        long_sources: see `Layout`, `<int>[long, 4]`.
        global_sources: see `Layout`, `<int>[global, 4]`.
        texts: name -> texts of the record, strings or nested lists of strings,
            in which the tokens are found.
        name_global: names the global token of a section, group and unit; with
            the unit -1, the group's own token.
        rows: see `AttentionMap`.
        **described: attributes of `AttentionMap` that this function does not
            compute.

    Raises:
        ValueError: `rows` has a number that belongs to no token.
    """
    num_long = _used(long_sources[:, 0] >= 0)
    if spec.blocks is not None:
        num_global = _used(made["global_token_ids"][0] > 0)
    else:
        num_global = _used(global_sources[:, 0] >= 0)
    rows = _checked(rows, num_global + num_long)
    long_sources = long_sources[:num_long]
    features = _features(encoder, made, num_long, num_global)
    ids = features["long_token_ids"][0]
    surface = SurfaceTexts(tokenizer, texts)
    tokens, units = _tokens(surface, ids, long_sources)
    names = _names(
        spec,
        tokens,
        long_sources,
        global_sources[:num_global],
        num_global,
        name_global,
    )
    return AttentionMap(
        global_tokens=names,
        tokens=tokens,
        blocks=_blocks(spec, units, features, num_global, long_sources),
        links=list(_links(encoder, features, num_global)),
        cuts=surface.cut(),
        segments=(),
        memories=(),
        layers=attention_scores.read_etc(encoder, features, rows),
        rows=rows,
        **described,
    )


def _used(is_used: np.ndarray) -> int:
    """Returns the number of tokens without padding at the end."""
    return int(np.flatnonzero(is_used)[-1]) + 1 if is_used.any() else 0


def _checked(rows, number) -> list[int] | None:
    """Returns the rows in ascending order, without repeated ones."""
    if rows is None:
        return None
    rows = sorted({int(x) for x in rows})
    if rows and not 0 <= rows[0] <= rows[-1] < number:
        raise RowsError(
            f"The tokens to explain are {rows[0]} to {rows[-1]}, expected "
            f"numbers from 0 to {number - 1}: the record has {number} tokens."
        )
    return rows


def _features(encoder, made, num_long, num_global):
    """Returns the encoder's inputs without padding, `[1, length, ...]`."""
    inputs = encoder.side_inputs.encoder_inputs
    lengths = {"long": num_long, "global": num_global}
    return {
        name: np.asarray(made[name])[:1, : lengths[source]]
        for source, names in (
            ("long", etc_features.LONG_FEATURES),
            ("global", etc_features.GLOBAL_FEATURES),
            *((x.source, [x.name]) for x in (*inputs.links, *inputs.values)),
        )
        for name in names
        if name in made
    }


def _runs(sources: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields the first index and the end of each run of equal rows."""
    is_new = np.any(sources[1:] != sources[:-1], axis=1)
    edges = [0, *(np.flatnonzero(is_new) + 1).tolist(), len(sources)]
    if len(sources):
        yield from zip(edges, edges[1:], strict=False)


def _tokens(surface, ids, sources):
    """Returns the tokens, and for each unit the first index and the end."""
    tokens: list[Token] = []
    units = list(_runs(sources[:, :3]))
    after: dict[int, int] = {}
    for first, last in units:
        section = int(sources[first, 0])
        place = surface.find(ids[first:last], after.get(section, 0))
        if place >= 0:
            after[section] = place + last - first
        tokens += surface.tokens(ids[first:last], place)
    return tokens, units


def _names(spec, tokens, long_sources, sources, number, name_global):
    """Returns the `GlobalToken`s."""
    if spec.blocks is not None:
        return [GlobalToken(f"block {i}", "block") for i in range(number)]
    texts = {
        tuple(source): token.text
        for source, token in zip(long_sources.tolist(), tokens, strict=True)
    }
    found = []
    for section, group, unit, token in sources.tolist():
        given = spec.sections[section]
        level = "token" if token >= 0 else "unit" if unit >= 0 else "group"
        kind = given.global_tokens[level].token_id
        label = texts.get((section, group, unit, token))
        if not label:
            label = name_global(given.name, group, unit)
        found.append(
            GlobalToken(label, kind if isinstance(kind, str) else given.name)
        )
    return found


def _blocks(spec, units, features, num_global, sources):
    """Returns a block per unit, with the global tokens that begin there."""
    # For each global token, index of the first token of its text.
    first: dict[int, int] = {}
    for name in ("long_paragraph_ids", "long_sentence_ids"):
        owners = features[name][0]
        for index, position in zip(
            *np.unique(owners, return_index=True), strict=True
        ):
            if index >= 0:
                first.setdefault(int(index), int(position))
    beside: dict[int, list[int]] = {}
    starts = [x for x, _ in units]
    for index in range(num_global):
        place = np.searchsorted(starts, first.get(index, 0), side="right") - 1
        beside.setdefault(int(place), []).append(index)
    blocks, before = [], None
    for i, (start, end) in enumerate(units):
        section = spec.sections[sources[start, 0]].name
        heading = section if section != before else ""
        blocks.append(Block(start, end, beside.get(i, ()), heading))
        before = section
    return blocks


def _links(encoder, features, num_global):
    """Yields the links that the layout adds."""
    for link in encoder.side_inputs.encoder_inputs.links:
        shift = num_global if link.source == "long" else 0
        targets = features[link.name][0]
        for i in np.flatnonzero(targets >= 0).tolist():
            yield Link(i + shift, int(targets[i]), link.label or "")


def map_segments(
    encoder: tf.keras.layers.Layer,
    tokenizer: Any,
    inputs: Mapping[str, np.ndarray],
    texts: Mapping[str, Any],
    rows: Sequence[int] | None = None,
    max_tokens: int | None = None,
    encoder_options: Mapping[str, Any] | None = None,
    **described: Any,
) -> AttentionMap:
    """Makes the attention map of a document's segments, for ReadTwice.

    Args:
        encoder: the `ReadTwiceModel`.
        tokenizer: the tokenizer of the segments.
        inputs: the model's inputs: the segments of one document, each
            `[segments, ...]`. `prefix_length` is the number of tokens before
            the text of each segment.
        texts: see `map_layout`.
        rows: see `AttentionMap`.
        max_tokens: maximum number of tokens. The map leaves out segments beyond
            it, but shows their memories.
        encoder_options: further arguments of the encoder.
        **described: attributes of `AttentionMap` that this function does not
            compute.

    Raises:
        ValueError: `rows` has a number that belongs to no token.
    """
    ids = np.asarray(inputs["token_ids"])
    lengths = [_used(x > 0) for x in ids]
    shown = np.cumsum(lengths)
    if max_tokens is not None:
        lengths = lengths[: max(1, int(np.sum(shown <= max_tokens)))]
    rows = _checked(rows, sum(lengths))
    surface = SurfaceTexts(tokenizer, texts)
    prefixes = np.asarray(inputs["prefix_length"]).tolist()
    tokens: list[Token] = []
    blocks: list[Block] = []
    after = 0
    for i, (length, prefix) in enumerate(zip(lengths, prefixes, strict=False)):
        for start, end, heading in (
            (0, 1, f"Segment {i + 1}"),
            (1, prefix - 1, ""),
            (prefix - 1, prefix, ""),
            (prefix, length, ""),
        ):
            part = ids[i, start:end]
            if not len(part):
                continue
            place = surface.find(part, after if start == prefix else 0)
            if start == prefix and place >= 0:
                # The next segment may overlap this one, so it may begin
                # anywhere after this one's first token.
                after = place + 1
            made = surface.tokens(part, place)
            if 0 < start < prefix:
                made[0] = made[0]._replace(space=" ")
            first = len(tokens)
            tokens += made
            if 0 < start < prefix:
                blocks[-1] = blocks[-1]._replace(last=len(tokens))
                continue
            blocks.append(
                Block(
                    first,
                    len(tokens),
                    heading=heading,
                    segment=None if start else i,
                )
            )
    given = {x: y for x, y in inputs.items() if x != "prefix_length"}
    scores = attention_scores.read_segments(
        encoder, given, lengths, rows, **(encoder_options or {})
    )
    segments = [f"Segment {i + 1}" for i in range(len(lengths))]
    memories = _memories(scores, inputs, lengths, tokens)
    cuts = surface.cut()
    if len(lengths) < len(ids):
        cuts = [
            Cut(f"read, but not shown here: {x.name}", x.text, x.number)
            for x in cuts
        ]
    return AttentionMap(
        global_tokens=(),
        tokens=tokens,
        blocks=blocks,
        links=(),
        cuts=cuts,
        segments=segments,
        memories=memories,
        layers=scores.layers,
        rows=rows,
        **described,
    )


def _memories(scores, inputs, lengths, tokens):
    """Returns the memories, named by the first mention of their entity."""
    starts = np.cumsum([0, *lengths])
    is_taken = set()
    found = []
    for position, label in zip(
        scores.memory_positions.tolist(),
        scores.memory_labels.tolist(),
        strict=True,
    ):
        segment = position - 1
        name = ""
        if "annotation_labels" in inputs and 0 <= segment < len(lengths):
            labels = np.asarray(inputs["annotation_labels"][segment])
            for i in np.flatnonzero(labels == label).tolist():
                if (segment, i) in is_taken:
                    continue
                is_taken.add((segment, i))
                first, last = (
                    int(starts[segment] + inputs[f"annotation_{x}"][segment][i])
                    for x in ("begins", "ends")
                )
                name = "".join(
                    (x.space if j else "") + x.text
                    for j, x in enumerate(tokens[first : last + 1])
                )
                break
        found.append(Memory(name or f"Segment {position}", segment))
    return found
