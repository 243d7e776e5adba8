"""How layers are named, tracked and built by the layers that hold them."""

import contextlib
import inspect

import tensorflow as tf


def is_keras_3() -> bool:
    """Whether `tf.keras` is Keras 3."""
    return hasattr(tf.keras, "Operation")


def default_name(name: str | None, base: str) -> str:
    """The name of a layer, which is another one for each that is given none.

    Layers of a functional model need different names. Keras does the same with
    a base of its own, the name of the class in snake case; this is for those
    that are called otherwise.

    Args:
        name: the name that is asked for, or None.
        base: name of the first of a kind of layers without names; `base_1` is
            that of the second.

    Returns:
        The name.
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

    Args:
        owner: the layer that has the lists.
        *attributes: names of the lists, which are complete.
    """
    for attribute in attributes:
        for i, layer in enumerate(getattr(owner, attribute)):
            setattr(owner, f"{attribute}_{i}", layer)


def build_once(layer, input_shape):
    """Builds a layer, unless that is done already or is for its first call.

    Its variables are called after it and what holds it, as those of a layer
    that is built by a call are. Keras 3 sees to that in every `build`.

    Args:
        layer: a layer, which may be shared and so be built already. One whose
            `build` wants the shapes of several inputs (as Keras 3's
            `MultiHeadAttention` does) is left to build itself when called.
        input_shape: shape of its first input.
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


def takes_argument(layer, name: str, or_any: bool = True) -> bool:
    """Whether a layer's `call` has an argument, or takes any (`or_any`)."""
    parameters = inspect.signature(layer.call).parameters.values()
    return any(
        parameter.name == name
        or (or_any and parameter.kind is parameter.VAR_KEYWORD)
        for parameter in parameters
    )


def is_training(training) -> bool:
    """Whether a backward pass is to be expected.

    Args:
        training: argument of a call; a tensor may be true.
    """
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
    """Raises a NotImplementedError unless the shapes of all inputs are known.

    Where a layer was built from one shape alone, Keras 3's `summary` asks for
    the outputs' shapes with that one, by the name `input_shape`, and shows "?"
    if it gets this error.

    Args:
        layer: a layer of several inputs.
        last_shape: shape of the last input, or None.
        input_shape: the shape that the layer was built from.

    Raises:
        NotImplementedError: there is no last shape.
    """
    if last_shape is None:
        raise NotImplementedError(
            f"{layer.name} has several inputs, and the shapes of its outputs "
            f"follow from all of theirs, not from {input_shape} alone."
        )
