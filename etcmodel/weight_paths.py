"""Names of weights that are the same under both Kerases."""

import tensorflow as tf


def get_weight_paths(layer) -> dict:
    """Returns a layer's weights by the attributes that lead to them.

    For example "long_query_projection/linear/kernel". A weight with several
    paths gets the first one, in the order in which attributes were set.
    """
    paths, seen = {}, set()

    def visit(value, path):
        if id(value) in seen:
            return
        if any(value is weight for weight in weights):
            seen.add(id(value))
            paths["/".join(path)] = value
        elif isinstance(value, tf.keras.layers.Layer):
            seen.add(id(value))
            for name, child in vars(value).items():
                visit(child, [*path, name.lstrip("_")])
            # The layers of a functional model are not its attributes.
            if isinstance(value, tf.keras.Model):
                for child in value.layers:
                    visit(child, [*path, child.name])

    weights = layer.weights
    visit(layer, [])
    if len(paths) != len(weights):
        raise AssertionError(
            f"{len(paths)} of {len(weights)} weights have an attribute of "
            f"their own: {sorted(paths)}"
        )
    return paths
