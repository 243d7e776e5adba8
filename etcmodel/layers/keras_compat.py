"""Names, tracks and builds layers inside other layers, in Keras 2 and 3."""

import contextlib
import functools
import inspect

import tensorflow as tf

from etcmodel.layers import initializers


def is_keras_3() -> bool:
    """Tells whether `tf.keras` is Keras 3."""
    return hasattr(tf.keras, "Operation")


def default_name(name: str | None, base: str) -> str:
    """Returns the given name; by default, an unused `base`, `base_1`, ...

    Layers of a functional model need different names. Keras derives them from
    the class's name; this function derives them from `base`.
    """
    if name is not None:
        return name
    number = tf.keras.backend.get_uid(base) - 1
    return f"{base}_{number}" if number else base


def track_layers(owner, *attributes: str) -> None:
    """Gives each layer of a list its own attribute.

    In Keras 3, `tf.train.Checkpoint` does not track lists of layers. The layers
    of `attention_layers` therefore also become the attributes
    `attention_layers_0`, `attention_layers_1` and so on, in Keras 2 and 3.
    """
    for attribute in attributes:
        for i, layer in enumerate(getattr(owner, attribute)):
            setattr(owner, f"{attribute}_{i}", layer)


def build_once(layer, input_shape):
    """Builds a layer for the shape of its first input, unless it is built.

    Its variables are named after the layer and its owners, as if a call had
    built it. Keras 3 does this in every `build`. A layer whose `build` takes
    the shapes of several inputs (such as Keras 3's `MultiHeadAttention`) is not
    built here, but by its first call.
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


def build_all(input_shape, *layers):
    """Builds layers, some of which may be None; see `build_once`."""
    for layer in layers:
        if layer is not None:
            build_once(layer, input_shape)


@contextlib.contextmanager
def untrained(layers):
    """Makes all weights that `layers` add in the block untrainable for good.

    `layer.trainable = False` does not last: Keras sets it to True again if the
    outer layer is frozen and unfrozen.
    """
    # Keyed by id, since layers may share a sublayer.
    parts = {
        id(part): part for layer in layers for part in layer._flatten_layers()
    }
    for part in parts.values():
        part.add_weight = functools.partial(_add_untrained, part.add_weight)
    try:
        yield
    finally:
        for part in parts.values():
            del part.add_weight


def _add_untrained(add_weight, *args, **kwargs):
    """Calls `add_weight` with `trainable=False`."""
    return add_weight(*args, **kwargs | {"trainable": False})


def freeze(layer) -> None:
    """Makes a layer's own weights, not its sublayers', permanently untrained.

    The layer must be built. Weights that it adds later can be trained.
    """
    if is_keras_3():
        for weight in layer._trainable_variables:
            weight.trainable = False
    else:
        layer._non_trainable_weights.extend(layer._trainable_weights)
        layer._trainable_weights.clear()


class ConstructorConfig(tf.keras.layers.Layer):
    """A layer whose config holds the arguments of its constructor.

    Each argument must be an attribute of the same name.
    """

    # Names of arguments that are initializers or activations.
    _initializers = ()
    _activations = ()
    # Names of arguments that a subclass's own `get_config` adds.
    _added_to_config = ()

    def get_config(self):
        """Returns the constructor's arguments."""
        config = super().get_config()
        for name in _constructor_arguments(type(self)):
            if name in self._added_to_config:
                continue
            value = getattr(self, name)
            if name in self._initializers:
                value = initializers.serialize(value)
            elif name in self._activations:
                value = tf.keras.activations.serialize(value)
            config[name] = value
        return config


@functools.cache
def _constructor_arguments(layer_class) -> list[str]:
    """Lists the constructor's arguments, except `name` and `**kwargs`."""
    constructor = next(
        c.__init__
        for c in layer_class.__mro__
        if "__init__" in vars(c) and c.__module__.startswith("etcmodel.")
    )
    return [
        parameter.name
        for parameter in inspect.signature(constructor).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.name not in ("self", "name")
    ]


def takes_argument(layer, name: str, or_any: bool = True) -> bool:
    """Tells whether `call` takes an argument; `or_any` counts `**kwargs`."""
    parameters = inspect.signature(layer.call).parameters.values()
    return any(
        parameter.name == name
        or (or_any and parameter.kind is parameter.VAR_KEYWORD)
        for parameter in parameters
    )


def is_keras_tensor(value) -> bool:
    """Tells whether a value is a symbolic input of a functional model."""
    try:
        return tf.keras.backend.is_keras_tensor(value)
    except ValueError:
        # Raised for values that are not tensors.
        return False


def options_in(arguments) -> dict:
    """Returns the arguments that do not contain tensors, such as strings.

    Keras 3 raises an error if `**kwargs` contains both tensors and other values
    (except None).
    """

    def is_tensor(value):
        return (
            tf.is_tensor(value)
            or is_keras_tensor(value)
            or hasattr(value, "__array__")
        )

    return {
        name: value
        for name, value in arguments.items()
        if value is not None and not any(map(is_tensor, tf.nest.flatten(value)))
    }


def is_training(training) -> bool:
    """Tells whether a backward pass may follow; a tensor counts as true."""
    return training is not None and training is not False


def _name_scope(layer):
    """Returns the scope that Keras 2 opens for a called layer's variables."""
    if is_keras_3():
        return contextlib.nullcontext()
    outer = tf.get_current_name_scope()
    # The trailing slash stops TensorFlow from adding numbers.
    return tf.name_scope(
        f"{outer}/{layer.name}/" if outer else layer.name + "/"
    )


def check_is_known(layer, last_shape, input_shape) -> None:
    """Raises a NotImplementedError unless the last input's shape is known.

    Keras 3's `summary` asks for the shapes of the outputs. If a layer of
    several inputs was built from one shape, `summary` passes only this shape,
    as `input_shape`. It shows "?" if it gets this error.
    """
    if last_shape is None:
        raise NotImplementedError(
            f"{layer.name}: the output shapes depend on the shapes of several "
            f"inputs, but only {input_shape} is given. Pass the other shapes."
        )
