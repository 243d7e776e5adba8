"""Looks up the links, values and vectors of a layout's tokens; graph code."""

from collections.abc import Mapping
from collections.abc import Sequence

import tensorflow as tf

from etcmodel.feature_utils.layout.spec import DEFAULT_LINK
from etcmodel.feature_utils.layout.spec import INPUTS
from etcmodel.feature_utils.layout.spec import LEVELS
from etcmodel.feature_utils.layout.spec import LayoutSpec
from etcmodel.feature_utils.layout.spec import Link
from etcmodel.feature_utils.layout.spec import Value
from etcmodel.feature_utils.layout.tables import PlacedSection

# "long" or "global" -> the marks of this input's table; see `tables.Table`.
Marks = Mapping[str, Mapping[str, tf.Tensor]]


def _places_of(spec: LayoutSpec, part: Link | Value, marks: Marks) -> tf.Tensor:
    """Returns the index of each token's element in the flat content, or -1."""
    of_input = marks[part.source]
    is_own = tf.equal(of_input["section"], spec.index(part.section))
    if part.source == "global":
        # Excludes the global tokens of the levels below.
        for level in LEVELS[LEVELS.index(part.level) + 1 :]:
            is_own &= of_input[level] < 0
    return tf.where(is_own, of_input[f"{part.level}_origin"], -1)


def look_up(
    spec: LayoutSpec, marks: Marks, values: Mapping[str, tf.RaggedTensor]
) -> dict[str, tf.Tensor]:
    """Returns the features of values: name -> `<dtype>[rows, length, ...]`."""
    result = {}
    for value in spec.values:
        flat = tf.cast(values[value.name].flat_values, value.dtype)
        place = _places_of(spec, value, marks)
        # Index 0 is for tokens without a value.
        padded = tf.concat(
            [tf.fill([1, *value.shape], value.padding), flat], axis=0
        )
        # [rows, length, ...]
        found = tf.gather(padded, place + 1)
        name = value.feature or value.name
        if name in result:
            is_own = place >= 0
            for _ in value.shape:
                is_own = is_own[..., tf.newaxis]
            found = tf.where(is_own, found, result[name])
        result[name] = found
    return result


def resolve(
    spec: LayoutSpec,
    sections: Mapping[str, PlacedSection],
    marks: Marks,
    targets: Mapping[str, tf.RaggedTensor],
    owner: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Returns the features of links: the position of each token's target.

    Each feature is `<int32>[rows, length]`, -1 for tokens without a link.
    """
    # [rows, length]
    nothing = {
        source: tf.fill(tf.shape(marks[source]["section"]), -1)
        for source in INPUTS
    }
    result = {DEFAULT_LINK.name: nothing["long"]}
    for link in spec.links:
        section = sections[link.target_section]
        content, level = section.content, link.target_level
        row = content.row(level)
        starts = section.original.splits(level)
        max_units = tf.reduce_max(tf.concat([starts[1:] - starts[:-1], [0]], 0))
        # [units]
        index = content.origin(level) - tf.gather(starts, tf.gather(owner, row))
        # For each row, the positions of all units of its record. The first and
        # the last column are for targets that do not exist.
        # [rows, 1 + units + 1]
        positions = tf.tensor_scatter_nd_update(
            tf.fill(tf.stack([tf.size(owner, tf.int64), max_units + 2]), -1),
            tf.stack([row, index + 1], axis=1),
            tf.cast(section.global_positions[level], tf.int32),
        )
        place = _places_of(spec, link, marks)
        # [elements, number]
        of_units = tf.reshape(
            tf.cast(targets[link.name].flat_values, tf.int64), [-1, link.number]
        )
        # [1 + elements, number]
        of_units = tf.pad(of_units, [[1, 0], [0, 0]], constant_values=-1)
        for feature, target in zip(
            link.features, tf.unstack(of_units, axis=1), strict=True
        ):
            # [rows, length]
            target = tf.clip_by_value(
                tf.gather(target, place + 1), -1, max_units
            )
            found = tf.gather(positions, target + 1, batch_dims=1)
            before = result.get(feature.name, nothing[link.source])
            result[feature.name] = tf.where(found < 0, before, found)
    return result


def pick_units(
    spec: LayoutSpec,
    sources: tf.Tensor,
    vectors: tf.Tensor,
    section: str,
    level: str,
    sizes: Sequence[int] | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Gathers the vectors of a section's elements from an encoder's output.

    Example: two records have the global tokens `title, clause 0, clause 1` and
    `title, clause 0, padding`, and each clause is a group. Then

        made = engine(contents)
        output = encoder(made.features)["global_output"]  # [2, 3, hidden]
        pick_units(spec, made.global_sources, output, "clauses", "group")

    gives the vectors of the clauses, `[2, 2, hidden]`, and `[[True, True],
    [True, False]]`. The second record has no second clause, so the clause's
    vector is 0. With `long_sources` and `long_output`, the function gathers the
    vectors of text tokens.

    `sizes` are the number of groups, the number of units per group and the
    number of tokens per unit, down to the level. Elements beyond these sizes
    are dropped. By default, the sizes are the largest in the batch.

    Returns:
        The vectors, `<float>[rows, groups, (units, (tokens,)) hidden]`, indexed
        as the content before truncation; and whether each element has a token,
        `<bool>[rows, groups, (units, (tokens))]`. Vectors of elements that were
        cut, or have no token, are 0.

    Raises:
        ValueError: the section or level does not exist, or the number of
            `sizes` does not match the level.
    """
    index = spec.index(section)
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}, expected one of {LEVELS}.")
    depth = 1 + LEVELS.index(level)
    if sizes is not None and len(sizes) != depth:
        raise ValueError(
            f"sizes has {len(sizes)} values {[*sizes]}, expected {depth}: one "
            f"for each of {', '.join(LEVELS[:depth])}."
        )
    # [rows, length]
    is_own = tf.equal(sources[..., 0], index)
    is_own &= tf.reduce_all(sources[..., 1 : 1 + depth] >= 0, axis=-1)
    is_own &= tf.reduce_all(sources[..., 1 + depth :] < 0, axis=-1)
    # Index 0 of each axis is for all other tokens.
    # [rows, length, depth]
    places = tf.where(
        is_own[..., tf.newaxis], 1 + sources[..., 1 : 1 + depth], 0
    )
    if sizes is None:
        # [depth]
        sizes = tf.reduce_max(
            tf.pad(tf.reshape(places, [-1, depth]), [[1, 0], [0, 0]]), axis=0
        )
    is_own &= tf.reduce_all(places <= sizes, axis=-1)
    places = tf.where(is_own[..., tf.newaxis], places, 0)
    rows, length = tf.unstack(tf.shape(sources)[:2])
    # [rows, length, 1 + depth]
    places = tf.concat(
        [
            tf.tile(tf.range(rows)[:, tf.newaxis, tf.newaxis], [1, length, 1]),
            places,
        ],
        axis=2,
    )
    of_units = (slice(None), *(slice(1, None) for _ in range(depth)))

    def lay_out(values):
        """Maps `[rows, length, ...]` to `[rows, groups, ...]`."""
        shape = tf.concat(
            [[rows], tf.convert_to_tensor(sizes) + 1, tf.shape(values)[2:]], 0
        )
        return tf.scatter_nd(places, values, shape)[of_units]

    own = is_own[..., tf.newaxis]
    found = lay_out(tf.where(own, vectors, tf.zeros_like(vectors)))
    return found, lay_out(tf.cast(is_own, tf.int32)) > 0
