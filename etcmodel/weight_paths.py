"""Names weights identically in Keras 2 and Keras 3."""

import tensorflow as tf


def get_weight_paths(layer) -> dict:
    """Returns attribute path -> weight for all weights of a layer.

    A path is, for example, "long_query_projection/linear/kernel". A weight with
    several paths gets the first one, in the order in which attributes were set.
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
            # A functional model does not hold its layers as attributes.
            if isinstance(value, tf.keras.Model):
                for child in value.layers:
                    visit(child, [*path, child.name])

    weights = layer.weights
    visit(layer, [])
    if len(paths) != len(weights):
        raise AssertionError(
            f"only {len(paths)} of {len(weights)} weights can be reached by "
            f"attributes: {sorted(paths)}"
        )
    return paths
