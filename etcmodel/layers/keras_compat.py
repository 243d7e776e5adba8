"""How layers are named, tracked and built by the layers that hold them."""

import contextlib
import functools
import inspect

import tensorflow as tf

from etcmodel.layers import initializers


def is_keras_3() -> bool:
    """Whether `tf.keras` is Keras 3."""
    return hasattr(tf.keras, "Operation")


def default_name(name: str | None, base: str) -> str:
    """The given name, or for None an unused one: `base`, `base_1`, ...

    Layers of a functional model need different names. Keras makes them from the
    class's name; this is for classes with another base.
    """
    if name is not None:
        return name
    number = tf.keras.backend.get_uid(base) - 1
    return f"{base}_{number}" if number else base


def track_layers(owner, *attributes: str) -> None:
    """Gives each layer of a list an attribute of its own.

    `tf.train.Checkpoint` does not see Keras 3's lists of layers. What is in the
    list `attention_layers` is then also `attention_layers_0`,
    `attention_layers_1` and so on, under both Kerases.
    """
    for attribute in attributes:
        for i, layer in enumerate(getattr(owner, attribute)):
            setattr(owner, f"{attribute}_{i}", layer)


def build_once(layer, input_shape):
    """Builds a layer for the shape of its first input, unless it is built.

    Its variables are called after it and what holds it, as those of a layer
    that is built by a call are. Keras 3 sees to that in every `build`. A layer
    whose `build` wants the shapes of several inputs (as Keras 3's
    `MultiHeadAttention` does) is left to build itself when called.
    """
    if layer.built:
        return
    required = [
        parameter
        for parameter in inspect.signature(layer.build).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if len(required) <= 1:
        with _name_scope(layer):
            layer.build(input_shape)


def constructor_config(layer, layer_class, but=()) -> dict:
    """The arguments of a class's constructor, as a config holds them.

    Each is an attribute of the layer. A name ends with "initializer", "act" or
    "activation" if it is one.
    """
    config = {}
    for name in _constructor_arguments(layer_class):
        if name in but:
            continue
        value = getattr(layer, name)
        if name.endswith("initializer"):
            value = initializers.serialize(value)
        elif name.endswith(("act", "activation")):
            value = tf.keras.activations.serialize(value)
        config[name] = value
    return config


@functools.cache
def _constructor_arguments(layer_class) -> list[str]:
    """All but `self`, `name` and variable ones."""
    parameters = inspect.signature(layer_class.__init__).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.name not in ("self", "name")
    ]


def takes_argument(layer, name: str, or_any: bool = True) -> bool:
    """Whether a layer's `call` has an argument, or takes any (`or_any`)."""
    parameters = inspect.signature(layer.call).parameters.values()
    return any(
        parameter.name == name
        or (or_any and parameter.kind is parameter.VAR_KEYWORD)
        for parameter in parameters
    )


def is_training(training) -> bool:
    """Whether a backward pass is to be expected; a tensor may be true."""
    return training is not None and training is not False


def _name_scope(layer):
    """The scope that Keras 2 opens for the variables of a called layer."""
    if is_keras_3():
        return contextlib.nullcontext()
    outer = tf.get_current_name_scope()
    # The slash at the end keeps TensorFlow from adding numbers.
    return tf.name_scope(
        f"{outer}/{layer.name}/" if outer else layer.name + "/"
    )


def check_is_known(layer, last_shape, input_shape) -> None:
    """Raises a NotImplementedError unless the last input's shape is known.

    Where a layer of several inputs was built from one shape alone, Keras 3's
    `summary` asks for the outputs' shapes with that one, by the name
    `input_shape`, and shows "?" if it gets this error.
    """
    if last_shape is None:
        raise NotImplementedError(
            f"{layer.name} has several inputs, and the shapes of its outputs "
            f"follow from all of theirs, not from {input_shape} alone."
        )
