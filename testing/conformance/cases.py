"""Rows of a table of Keras layers, and tools to compare results."""

import collections
import contextlib
import dataclasses
import importlib
import inspect
import json
import pkgutil
import traceback
import zlib
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.weight_paths import get_weight_paths

# Sizes of the axes that have a name. No two are equal, or equal to a size that
# tables are likely to give as a number, so that axes are not mixed up unseen.
SIZES = dict(batch=2, seq=5, long=7, side=3, mentions=4)
# Other ones, for what has been traced or saved: longer, and with nothing.
OTHER_SIZES = (
    dict(batch=1, seq=6, long=11, side=5, mentions=3),
    dict(batch=2, seq=4, long=0, side=0, mentions=0),
    dict(batch=0, seq=3, long=4, side=2, mentions=1),
    dict(batch=2, seq=0, long=5, side=4, mentions=2),
)
# How far, as a share of a result's size, mixed precision may be from float32.
TOLERANCES = dict(mixed_bfloat16=0.03, mixed_float16=0.004)


@dataclasses.dataclass(frozen=True)
class Input:
    """An argument of a call: its axes, by name or size, and its values.

    Floats are normally distributed; ints are `min_value` to `below - 1`, of
    which every example has some; bools are true for three of four elements.
    If `below` is an axis, its last element, which is padding, is left out.
    Breakpoints are 0 or 1, of the last two elements of a row 1 and 0.
    """

    axes: tuple[str | int, ...]
    dtype: str = "float32"
    min_value: int = 0
    below: int | str = 2
    are_breakpoints: bool = False

    def shape(self, sizes: Mapping[str, int | None]) -> list[int | None]:
        """Returns the shape, with the sizes of the named axes."""
        return shape_of(self.axes, sizes)

    def make(self, name: str, sizes: Mapping[str, int]) -> np.ndarray:
        """Makes values that depend on the name and the sizes alone."""
        generator = np.random.RandomState(zlib.crc32(name.encode()))
        shape = self.shape(sizes)
        if self.dtype == "bool":
            return generator.rand(*shape) < 0.75
        if self.are_breakpoints:
            ends = generator.randint(0, 2, shape, np.int32)
            ends[:, -2:] = [1, 0][: shape[1]]
            return ends
        if self.dtype == "int32":
            below = self.below
            if isinstance(below, str):
                below = max(sizes[below] - 1, self.min_value + 1)
            return generator.randint(self.min_value, below, shape, np.int32)
        return generator.randn(*shape).astype(np.float32)


def breakpoints(*axes) -> Input:
    """Returns `<int32>` breakpoints of two axes; the last token is padding."""
    return Input(axes, "int32", are_breakpoints=True)


def floats(*axes) -> Input:
    """Returns `<float32>` of these axes."""
    return Input(axes)


def bools(*axes) -> Input:
    """Returns `<bool>` of these axes, such as a mask."""
    return Input(axes, "bool")


def ints(below: int | str, *axes, min_value: int = 0) -> Input:
    """Returns `<int32>` of these axes; see `Input`."""
    return Input(axes, "int32", min_value, below)


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer of the table.

    Attributes:
        layer_class: its class.
        arguments: those of its constructor; or a function that makes them, if
            there are layers or initializers among them.
        inputs: the tensors that it is called with, by name; the first is given
            by position.
        outputs: the axes of each of its outputs, in the order of
            `tf.nest.flatten`; None for an axis whose size is not known.
        packed: whether the inputs are one dict, the first argument of a call.
        options: arguments of a call that are no tensors.
        variants: further arguments, which only the configuration is tested
            with. Every argument of the constructor occurs in one or the other.
        not_in_config: but these, with which a layer has no configuration.
        never_empty: axes of which the layer needs something.
        has_dropout: whether training changes the outputs.
        without_gradient: weights whose gradient is zero, a pattern of their
            paths, with the reason.
        own_precision: sublayers that do not follow the policy, a pattern of
            their names, with the reason.
        float32_outputs: whether the outputs are float32 in all policies.
        has_output_shape: whether `compute_output_shape` tells their shapes.
        tolerances: instead of some of `TOLERANCES`.
    """

    layer_class: type
    arguments: Mapping[str, Any] | Callable[[], Mapping[str, Any]]
    inputs: Mapping[str, Input]
    outputs: tuple[tuple[str | int | None, ...], ...]
    packed: bool = False
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    variants: tuple = ()
    not_in_config: tuple[str, ...] = ()
    never_empty: tuple[str, ...] = ()
    has_dropout: bool = False
    without_gradient: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )
    own_precision: Mapping[str, str] = dataclasses.field(default_factory=dict)
    float32_outputs: bool = False
    has_output_shape: bool = True
    tolerances: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def sizes(self) -> list[dict[str, int]]:
        """All sizes that the layer is tried with, `SIZES` first."""
        return [
            sizes
            for sizes in (SIZES, *OTHER_SIZES)
            if all(sizes[axis] for axis in self.never_empty)
        ]

    def make_layer(self, variant=None, **options):
        """Makes a layer with these arguments, or those of a variant."""
        arguments = self.arguments if variant is None else variant
        arguments = arguments() if callable(arguments) else arguments
        return self.layer_class(**arguments, **options)

    def make_inputs(self, sizes=None) -> dict[str, tf.Tensor]:
        return {
            name: tf.constant(value.make(name, sizes or SIZES))
            for name, value in self.inputs.items()
        }

    def takes_training(self) -> bool:
        return "training" in inspect.signature(self.layer_class.call).parameters

    def call(self, layer, inputs: Mapping, **options) -> list:
        """Calls a layer with inputs by name, and flattens the outputs."""
        options = {**self.options, **options}
        if self.packed:
            outputs = layer(dict(inputs), **options)
        else:
            (_, first), *others = inputs.items()
            outputs = layer(first, **dict(others), **options)
        return flatten(outputs)


def flatten(outputs) -> list:
    """Returns the tensors of a nested structure, without None."""
    return [x for x in tf.nest.flatten(outputs) if x is not None]


def shape_of(axes, sizes: Mapping[str, int | None]) -> list[int | None]:
    """Returns a shape, with the sizes of the named axes."""
    return [sizes[axis] if isinstance(axis, str) else axis for axis in axes]


def unknown_sizes() -> Mapping[str, None]:
    """Says of every named axis that its size is not known."""
    return collections.defaultdict(lambda: None)


def weight_names(layer) -> list[tuple[str, set[str]]]:
    """Returns the names of the weights of a layer, and the expected ones.

    A weight is called after the layers that lead to it, by their names, and
    ends with its own, such as "encoder/dense/kernel". One in a layer that
    several others hold may be called after any of them.
    """
    expected = {id(weight): set() for weight in layer.weights}

    def visit(value, path):
        for name, child in vars(value).items():
            if id(child) in expected:
                expected[id(child)].add("/".join([*path, name.lstrip("_")]))
            elif isinstance(child, tf.keras.layers.Layer):
                visit(child, [*path, child.name])

    visit(layer, [layer.name])
    return [
        # Keras 3 has paths, Keras 2 the names of TensorFlow.
        (getattr(weight, "path", weight.name).split(":")[0], names)
        for weight, names in zip(layer.weights, expected.values(), strict=True)
    ]


def randomize(layer, seed: int = 1) -> None:
    """Gives all weights values that depend on their paths and a seed alone.

    They are around zero, and around one where they multiply.
    """
    for path, weight in get_weight_paths(layer).items():
        generator = np.random.RandomState(zlib.crc32(f"{seed} {path}".encode()))
        value = 0.3 * generator.standard_normal(weight.shape)
        if path.endswith("gamma"):
            value += 1.0
        weight.assign(value.astype(np.float32))


def assert_close(actual, expected, tolerance: float = 1e-5, message="") -> None:
    """Raises an AssertionError unless all tensors are nearly the same."""
    actual, expected = flatten(actual), flatten(expected)
    assert len(actual) == len(expected), (len(actual), len(expected))
    for i, (x, y) in enumerate(zip(actual, expected, strict=True)):
        np.testing.assert_allclose(
            np.array(x, np.float64),
            np.array(y, np.float64),
            rtol=tolerance,
            atol=tolerance,
            err_msg=f"output {i} {message}",
        )


def relative_error(actual, expected) -> float:
    """Computes the size of the difference, relative to that of the tensors."""
    pairs = list(zip(flatten(actual), flatten(expected), strict=True))
    difference = [
        np.sum(np.square(to_float(x) - to_float(y))) for x, y in pairs
    ]
    size = [np.sum(np.square(to_float(y))) for _, y in pairs]
    return float(np.sqrt(np.sum(difference) / max(np.sum(size), 1e-30)))


def to_float(tensor) -> np.ndarray:
    return tf.cast(tensor, tf.float64).numpy()


def as_arrays(outputs) -> list[np.ndarray]:
    """Returns the outputs as arrays that any process can read."""
    return [np.array(x) for x in flatten(outputs)]


def gradients_of(case: Case, layer) -> dict[str, tf.Tensor]:
    """Returns the gradient of each trainable weight, by its path.

    What is differentiated is the sum of all float outputs, each element times a
    random number, so that no symmetry makes anything zero.
    """
    paths = {
        path: weight
        for path, weight in get_weight_paths(layer).items()
        if any(weight is x for x in layer.trainable_variables)
    }
    generator = np.random.RandomState(7)
    with tf.GradientTape() as tape:
        loss = tf.zeros([])
        for output in case.call(layer, case.make_inputs()):
            if output.dtype.is_floating:
                factors = generator.standard_normal(output.shape)
                loss += tf.reduce_sum(
                    tf.cast(output, tf.float32)
                    * tf.constant(factors, tf.float32)
                )
    # Keras 3 hands its variables' values over to the tape.
    gradients = tape.gradient(loss, [tf_variable(x) for x in paths.values()])
    return {
        path: None if gradient is None else tf.convert_to_tensor(gradient)
        for path, gradient in zip(paths, gradients, strict=True)
    }


def tf_variable(weight) -> tf.Variable:
    return weight if isinstance(weight, tf.Variable) else weight.value


def serializable_classes(package: str) -> set[type]:
    """Returns the layers that the modules of a package register.

    Args:
        package: its name.

    Returns:
        The classes that are registered under the package `etcmodel`.
    """
    folder = importlib.import_module(package).__path__
    modules = {
        module.name
        for module in pkgutil.walk_packages(folder, f"{package}.")
        if not module.name.endswith("_test")
    }
    for module in modules:
        importlib.import_module(module)
    return {
        x
        for name, x in tf.keras.utils.get_custom_objects().items()
        if name.startswith("etcmodel>")
        # Not proxies of classes that are not imported.
        and issubclass(type(x), type)
        and x.__module__ in modules
    }


def as_configuration(value):
    """Returns an argument as Keras's own rules write a configuration."""
    if isinstance(value, list | tuple):
        return [as_configuration(item) for item in value]
    if dataclasses.is_dataclass(value):
        return dataclasses.asdict(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return tf.keras.utils.serialize_keras_object(value)


def as_json(value) -> object:
    return json.loads(json.dumps(value))


@contextlib.contextmanager
def attempt(results: dict, name: str, form: str):
    """Keeps an exception's text, so that other cases go on."""
    try:
        yield
    except Exception:  # noqa: BLE001
        results[name, form] = traceback.format_exc()
