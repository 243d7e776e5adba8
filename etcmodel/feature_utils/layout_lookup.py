"""Links and values of a layout's tokens; graph code. See `layout.py`."""

from collections.abc import Mapping

import tensorflow as tf

from etcmodel.feature_utils.layout_spec import DEFAULT_LINK
from etcmodel.feature_utils.layout_spec import INPUTS
from etcmodel.feature_utils.layout_spec import LEVELS
from etcmodel.feature_utils.layout_spec import LayoutSpec
from etcmodel.feature_utils.layout_spec import Link
from etcmodel.feature_utils.layout_spec import Value
from etcmodel.feature_utils.layout_tables import PlacedSection

# Of both inputs the marks of a table.
Marks = Mapping[str, Mapping[str, tf.Tensor]]


def _places_of(spec: LayoutSpec, part: Link | Value, marks: Marks) -> tf.Tensor:
    """Which unit of the flat content each token has a value of, or -1.

    Args:
        spec: the specification.
        part: the link or value.
        marks: of both inputs.

    Returns:
        <int32>[rows, length].
    """
    of_input = marks[part.source]
    is_own = tf.equal(of_input["section"], spec.index(part.section))
    if part.source == "global":
        # Not the tokens of the units that are in it.
        for level in LEVELS[LEVELS.index(part.level) + 1 :]:
            is_own &= of_input[level] < 0
    return tf.where(is_own, of_input[f"{part.level}_origin"], -1)


def look_up(
    spec: LayoutSpec, marks: Marks, values: Mapping[str, tf.RaggedTensor]
) -> dict[str, tf.Tensor]:
    """Lays values out with their tokens.

    Args:
        spec: the specification.
        marks: of both inputs.
        values: name -> those of every unit.

    Returns:
        Feature -> <dtype>[rows, length, ...].
    """
    result = {}
    for value in spec.values:
        flat = tf.cast(values[value.name].flat_values, value.dtype)
        place = _places_of(spec, value, marks)
        # The first place is for tokens that have none.
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
    """Finds the positions of what tokens are tied to.

    Args:
        spec: the specification.
        sections: with positions.
        marks: of both inputs.
        targets: link -> what every unit is tied to.
        owner: the record of each row, <int64>[rows].

    Returns:
        Feature -> <int32>[rows, length], -1 for what is tied to nothing.
    """
    # [rows, length]
    nothing = {
        source: tf.fill(tf.shape(marks[source]["section"]), -1)
        for source in INPUTS
    }
    result = {DEFAULT_LINK.name: nothing["long"]}
    for link in spec.links:
        section = sections[link.target_section]
        units, level = section.units, link.target_level
        row = units.row(level)
        starts = section.content.splits(level)
        most = tf.reduce_max(tf.concat([starts[1:] - starts[:-1], [0]], 0))
        # [units]
        index = units.origin(level) - tf.gather(starts, tf.gather(owner, row))
        # Positions of all units of a record in each of its rows; the first
        # and the last place are for what does not exist.
        # [rows, 1 + units + 1]
        positions = tf.tensor_scatter_nd_update(
            tf.fill(tf.stack([tf.size(owner, tf.int64), most + 2]), -1),
            tf.stack([row, index + 1], axis=1),
            tf.cast(section.global_positions[level], tf.int32),
        )
        place = _places_of(spec, link, marks)
        # [units, number]
        of_units = tf.reshape(
            tf.cast(targets[link.name].flat_values, tf.int64), [-1, link.number]
        )
        # [1 + units, number]
        of_units = tf.pad(of_units, [[1, 0], [0, 0]], constant_values=-1)
        for feature, target in zip(
            link.features, tf.unstack(of_units, axis=1), strict=True
        ):
            # [rows, length]
            target = tf.clip_by_value(tf.gather(target, place + 1), -1, most)
            found = tf.gather(positions, target + 1, batch_dims=1)
            before = result.get(feature.name, nothing[link.source])
            result[feature.name] = tf.where(found < 0, before, found)
    return result
