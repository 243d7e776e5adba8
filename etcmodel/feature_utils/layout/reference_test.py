"""Compares `layout` with plain Python loops on random specifications.

An element is identified by its path: its indices in the content of a record.
The second group is `(1,)`, its first unit is `(1, 0)`, and this unit's first
token is `(1, 0, 0)`. The kept part of a section is a list of paths in
depth-first order.
"""

import functools
import itertools
import operator
import random
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.layout import LayoutEngine
from etcmodel.feature_utils.layout.spec import Blocks
from etcmodel.feature_utils.layout.spec import GlobalToken
from etcmodel.feature_utils.layout.spec import LayoutSpec
from etcmodel.feature_utils.layout.spec import Link
from etcmodel.feature_utils.layout.spec import Section
from etcmodel.feature_utils.layout.spec import Value

LEVELS = ("group", "unit", "token")
SPECIAL_IDS = {"special": 77}
PADS = {"sentence_ids": -1, "paragraph_ids": -1}
LONG = ("token_ids", "token_type_ids", *PADS, "paragraph_breakpoints")
CUTS = [*itertools.product(("tail", "fit"), ("unit", "group"))]
CUTS += [("keep", "unit")]
GLOBAL = ("token_ids", "token_type_ids", "paragraph_breakpoints")


class Case(NamedTuple):
    """A specification with its lengths."""

    spec: LayoutSpec
    long_length: int
    global_length: int


class Record(NamedTuple):
    """Nested lists: sections, targets of links, and values."""

    contents: dict[str, list]
    told: dict[str, list]


class Token(NamedTuple):
    """A token of an input; the global token of a block has section -1."""

    section: int
    path: tuple[int, ...]
    features: dict[str, int]


def paths_of(content, level=None):
    """Returns the paths of all elements, or of a level's, depth first."""
    paths = []
    for g, group in enumerate(content):
        paths.append((g,))
        for s, unit in enumerate(group):
            paths.append((g, s))
            paths += [(g, s, t) for t in range(len(unit))]
    return [x for x in paths if level in (None, LEVELS[len(x) - 1])]


def count(paths, level):
    return sum(LEVELS[len(path) - 1] == level for path in paths)


def used(section, paths):
    """Counts the long tokens, global tokens and units that paths use."""
    return (
        section.in_long * count(paths, "token"),
        sum(count(paths, level) for level in section.global_tokens),
        count(paths, "unit"),
    )


def pieces_of(section, content, budget):
    """Returns the parts of a section that are kept or dropped as a whole."""
    paths = paths_of(content)
    if section.cut == "keep":
        return [[path] for path in paths]
    if section.whole == "group":
        return [list(x) for _, x in itertools.groupby(paths, lambda x: x[:1])]
    if section.cut == "tail":
        # The maximum length of a unit. Without room, no unit is kept.
        most = budget[0] if section.in_long else len(paths)
        if section.token_global:
            above = {"group", "unit"} & {*section.global_tokens}
            most = min(most, budget[1] - len(above))
        paths = [x for x in paths if len(x) < 3 or x[2] < max(most, 1)]
    # A group without its units is one part; a unit with its tokens is another.
    return [list(x) for _, x in itertools.groupby(paths, lambda x: x[:2])]


def pack(section, pieces, budget):
    """Keeps pieces up to the first misfit; with "fit", keeps all that fit."""
    kept = []
    for piece in pieces:
        parent = piece[0][:-1]
        takes = used(section, kept + piece)
        if (not parent or parent in kept) and all(
            x <= most for x, most in zip(takes, budget, strict=True)
        ):
            kept += piece
        elif section.cut != "fit":
            # If no part of a group is kept, drops the group, too.
            while kept and kept[-1] == parent:
                parent = kept.pop()[:-1]
            break
    return kept


def counts_of(content, rows):
    """Counts a section's elements, and those that are in at least one row."""
    kept = {*itertools.chain(*rows)}
    return [
        count(paths, level)
        for level in reversed(LEVELS)
        for paths in (paths_of(content), kept)
    ]


def windows_of(section, content, budget):
    """Returns the part of a section in each window."""
    tokens, (room, global_room, _) = paths_of(content, "token"), budget
    rows, start, step = [], 0, min(section.stride or room, room)
    while not rows or start - step + room < len(tokens) and room > 0:
        shown = tokens[start : start + room]
        start += step
        # The shown tokens, and the units and groups that contain them.
        paths = list(dict.fromkeys(x[:n] for x in shown for n in (1, 2, 3)))
        if not section.share_last_global:
            paths = pack(section, [[path] for path in paths], budget)
        elif not global_room:
            paths = []
        rows.append(paths)
    return rows


def cut(case, contents):
    """Returns each row's kept paths by section, and the global room left."""
    spec, long_left, global_left = case
    if spec.blocks:
        long_left = min(long_left, global_left * spec.blocks.size)
    rows = [{}]
    for section in sorted(spec.sections, key=lambda x: x.rank):
        content = contents[section.name]
        budget = [long_left, global_left, section.max_units]
        if section.max_tokens is not None:
            budget[0] = min(long_left, section.max_tokens)
        if section.max_units is None:
            budget[2] = len(paths_of(content))
        if section.cut == "windows":
            shown = windows_of(section, content, budget)
            return [{**rows[0], section.name: x} for x in shown], global_left
        pieces = pieces_of(section, content, budget)
        rows[0][section.name] = pack(section, pieces, budget)
        takes = used(section, rows[0][section.name])
        long_left -= takes[0]
        global_left -= takes[1]
    return rows, global_left


def lay_out(spec, contents, kept, global_room):
    """Returns both inputs' tokens, and (section, path) -> global position."""
    long, global_, positions = [], [], {}
    for index, section in enumerate(spec.sections):
        most = len(global_) + global_room
        for _, group in itertools.groupby(kept[section.name], lambda x: x[0]):
            starts = len(long), len(global_)
            for path in group:
                token = section.global_tokens.get(LEVELS[len(path) - 1])
                if token and section.share_last_global and len(global_) == most:
                    positions[section.name, path] = most - 1
                elif token:
                    positions[section.name, path] = len(global_)
                    global_.append(global_token(token, index, path))
                if section.in_long and len(path) == 3:
                    features = long_features(section, path, positions)
                    features["token_ids"] = get(contents[section.name], path)
                    long.append(Token(index, path, features))
            for tokens, start in zip((long, global_), starts, strict=True):
                if section.breaks and len(tokens) > start:
                    tokens[-1].features["paragraph_breakpoints"] = 1
    if spec.blocks:
        for i, token in enumerate(long):
            token.features["sentence_ids"] = i // spec.blocks.size
            if i % spec.blocks.size == 0:
                global_.append(global_token(spec.blocks.global_token, -1, ()))
    for tokens in (long, global_):
        if tokens:
            tokens[-1].features["paragraph_breakpoints"] = 1
    return {"long": long, "global": global_}, positions


def get(nested, path):
    return functools.reduce(operator.getitem, path, nested)


def global_token(token, section, path):
    token_id = SPECIAL_IDS.get(token.token_id, token.token_id)
    types = {"token_ids": token_id, "token_type_ids": token.token_type_id}
    return Token(section, path, types)


def long_features(section, path, positions):
    group, unit, token = (
        positions.get((section.name, path[:n]), -1) for n in (1, 2, 3)
    )
    features = {"token_type_ids": section.token_type_id}
    if path[1] == 0 and section.first_unit_token_type_id is not None:
        features["token_type_ids"] = section.first_unit_token_type_id
    if section.link_sentences:
        features["sentence_ids"] = token if section.token_global else unit
    if section.link_paragraphs:
        features["paragraph_ids"] = group
    return features


def tokens_of(spec, part, inputs):
    """Returns the positions of a link's or value's tokens, and their paths."""
    depth = LEVELS.index(part.level) + 1
    for place, token in enumerate(inputs[part.source]):
        is_unit = part.source == "long" or len(token.path) == depth
        if token.section == spec.index(part.section) and is_unit:
            yield place, token.path[:depth]


def padded(rows, length, pad, shape=()):
    array = np.full([length, *shape], pad)
    for i, row in enumerate(rows):
        array[i] = row
    return array


def row_of(case, record, kept, global_room):
    """Returns all expected results of a row, by name."""
    spec = case.spec
    lengths = {"long": case.long_length, "global": case.global_length}
    inputs, positions = lay_out(spec, record.contents, kept, global_room)
    row = {"l2g_linked_ids": padded([], case.long_length, -1)}
    for source, names in (("long", LONG), ("global", GLOBAL)):
        tokens, length = inputs[source], lengths[source]
        sources = [(x.section, *x.path, -1, -1, -1)[:4] for x in tokens]
        row[f"{source}_sources"] = padded(sources, length, -1, [4])
        for name in names:
            pad = PADS.get(name, 0)
            feature = [x.features.get(name, pad) for x in tokens]
            row[f"{source}_{name}"] = padded(feature, length, pad)
    for link in spec.links:
        target = link.target_section
        units = paths_of(record.contents[target], link.target_level)
        for i, feature in enumerate(link.features):
            nothing = padded([], lengths[link.source], -1)
            ties = row.setdefault(feature.name, nothing)
            for place, path in tokens_of(spec, link, inputs):
                unit = np.ravel(get(record.told[link.name], path))[i]
                if 0 <= unit < len(units):
                    key = target, units[unit]
                    ties[place] = positions.get(key, ties[place])
    for value in spec.values:
        nothing = padded([], lengths[value.source], value.pad, value.shape)
        laid_out = row.setdefault(value.feature or value.name, nothing)
        for place, path in tokens_of(spec, value, inputs):
            laid_out[place] = get(record.told[value.name], path)
    return row


def maybe(rng, probability, value):
    return value if rng.random() < probability else None


def draw_section(rng, name, windows, blocks):
    shares = windows and not blocks and rng.random() < 0.6
    in_long = windows or rng.random() < 0.85
    likely = {level: 0 if blocks or shares else 0.45 for level in LEVELS}
    likely["unit"] = 1 if shares else likely["unit"]
    tokens = {
        f"{level}_global": maybe(rng, x, GlobalToken(i, rng.randint(0, 5)))
        for i, (level, x) in enumerate(likely.items())
    }
    cut = {"cut": "windows", "stride": rng.choice([None, 1, 2, 5])}
    if not windows:
        cut = dict(zip(("cut", "whole"), rng.choice(CUTS), strict=True))
        cut["priority"] = maybe(rng, 0.4, rng.randint(0, 3))
        cut["max_units"] = maybe(rng, 0.3, rng.randint(0, 4))
    return Section(
        name,
        token_type_id=rng.randint(0, 5),
        first_unit_token_type_id=rng.choice([None, 7]),
        in_long=in_long,
        link_sentences=rng.random() < 0.8,
        link_paragraphs=rng.random() < 0.8,
        breaks=rng.random() < 0.7,
        share_last_global=shares,
        max_tokens=maybe(rng, 0.3 * in_long, rng.randint(0, 9)),
        tokens=("special", 5) if name == "tokens" else (),
        **tokens,
        **cut,
    )


def draw_places(rng, owners, sections):
    """Draws (section, level, source) that a link or value can have."""
    long = [(x.name, y) for x in sections if x.in_long for y in LEVELS]
    for source in rng.choices(["long", "global"], k=rng.randint(0, 3)):
        if places := long if source == "long" else owners:
            yield *rng.choice(places), source


def draw_spec(rng):
    blocks = maybe(rng, 0.12, Blocks(rng.randint(1, 4), GlobalToken("special")))
    names = rng.choice([["a"], ["a", "b"], ["a", "tokens", "b"]])
    windows = rng.choice([None, names[0], names[-1]])
    sections = [draw_section(rng, x, x == windows, blocks) for x in names]
    owners = [(x.name, y) for x in sections for y in x.global_tokens]
    links, values = [], []
    places = draw_places(rng, owners, sections) if owners else ()
    for i, (section, level, source) in enumerate(places):
        target, number = rng.choice(owners), rng.randint(1, 2)
        shared = "l2g_linked_ids" if source == "long" else "g2g"
        tied = (section, *target, level, source, rng.choice([None, shared]))
        links.append(Link(f"link_{i}", *tied, number))
    for i, place in enumerate(draw_places(rng, owners, sections)):
        shape = rng.choice([(), (2,)])
        feature = rng.choice([None, f"{place[-1]}_values_{len(shape)}"])
        told = (*place, feature, tf.int64, shape, -3)
        values.append(Value(f"value_{i}", *told))
    return LayoutSpec(sections, links, values, blocks)


def draw_case(rng):
    spec = draw_spec(rng)
    # With little room in the global input, units share its last token.
    shares = any(x.share_last_global for x in spec.sections)
    most = [0, 1, 2, 3] if shares else [0, 2, 3, 5, 8, 50]
    return Case(spec, rng.choice([0, 4, 8, 12, 16, 24]), rng.choice(most))


def mapped(nested, level, draw):
    """Draws a value for every unit of a level."""
    if level == "group":
        return [draw() for _ in nested]
    below = LEVELS[LEVELS.index(level) - 1]
    return [mapped(x, below, draw) for x in nested]


def shape_of(part):
    if isinstance(part, Value):
        return part.shape
    return (part.number,) * (part.number > 1)


def draw_numbers(rng, low, high, shape):
    numbers = [rng.randint(low, high) for _ in range(np.prod(shape, dtype=int))]
    return np.reshape(numbers, shape).tolist()


def draw_content(rng, *most):
    if not most:
        return rng.randint(1, 99)
    # The number is often the maximum, and sometimes 0.
    number = min(most[0], rng.randint(0, most[0] + 2))
    return [draw_content(rng, *most[1:]) for _ in range(number)]


def draw_record(rng, spec):
    ids = [[[SPECIAL_IDS["special"], 5]]]
    contents = {
        x.name: ids if x.tokens else draw_content(rng, 3, 3, 4)
        for x in spec.sections
    }
    told = {}
    for part in (*spec.links, *spec.values):
        low, high = 1, 99
        if isinstance(part, Link):
            # Some targets are out of range.
            units = paths_of(contents[part.target_section], part.target_level)
            low, high = -2, len(units) + 1
        draw = functools.partial(draw_numbers, rng, low, high, shape_of(part))
        told[part.name] = mapped(contents[part.section], part.level, draw)
    return Record(contents, told)


def ragged(nested, level, shape=()):
    rank = LEVELS.index(level) + 1
    return tf.ragged.constant(nested, tf.int32, rank, shape)


def run_engine(case, records):
    """Returns the owners of rows, the counts, and all features by name."""
    contents = {
        x.name: ragged([y.contents[x.name] for y in records], "token")
        for x in case.spec.sections
        if not x.tokens
    }
    told = {}
    for part in (*case.spec.links, *case.spec.values):
        nested = [x.told[part.name] for x in records]
        told[part.name] = ragged(nested, part.level, shape_of(part))
    targets, values = (
        {x.name: told[x.name] for x in parts}
        for parts in (case.spec.links, case.spec.values)
    )
    layout = LayoutEngine(*case, SPECIAL_IDS)(contents, targets, values)
    sources = [f"{x}_sources" for x in ("long", "global")]
    made = {x: getattr(layout, x) for x in sources}
    made |= layout.features | layout.values
    owners, counts = layout.owner.numpy(), layout.counts
    return owners, counts, {k: v.numpy() for k, v in made.items()}


class LayoutReferenceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*range(8))
    def test_random_layouts(self, seed):
        rng = random.Random(seed)
        for _ in range(12):
            case = draw_case(rng)
            size = min(3, rng.randint(0, 6))
            records = [draw_record(rng, case.spec) for _ in range(size)]
            owners, counts, made = run_engine(case, records)
            numbers = []
            for i, record in enumerate(records):
                rows, room = cut(case, record.contents)
                message = f"{case}\n{record}\n"
                for name, content in record.contents.items():
                    self.assertEqual(
                        counts_of(content, [row[name] for row in rows]),
                        [int(x[i]) for x in counts[name]],
                        message + name,
                    )
                rows = [row_of(case, record, kept, room) for kept in rows]
                numbers.append(len(rows))
                self.assertEqual(numbers[-1], sum(owners == i), message)
                self.assertEqual({*made}, {*rows[0]}, message)
                for name, array in made.items():
                    expected = np.stack([row[name] for row in rows])
                    np.testing.assert_array_equal(
                        array[owners == i], expected, message + name
                    )
            self.assertAllEqual(owners, np.repeat(range(size), numbers))


if __name__ == "__main__":
    tf.test.main()
