"""Describes the layers to check, and compares their results."""

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

# Sizes of named axes. They differ from each other and from the sizes that
# tables give as numbers, so that mixed-up axes are noticed.
SIZES = dict(batch=2, seq=5, long=7, side=3, mentions=4)
# Other sizes, to call traced or saved layers with longer and empty axes.
OTHER_SIZES = (
    dict(batch=1, seq=6, long=11, side=5, mentions=3),
    dict(batch=2, seq=4, long=0, side=0, mentions=0),
    dict(batch=0, seq=3, long=4, side=2, mentions=1),
    dict(batch=2, seq=0, long=5, side=4, mentions=2),
)
# Maximum relative difference of mixed precision from float32.
TOLERANCES = dict(mixed_bfloat16=0.03, mixed_float16=0.004)


@dataclasses.dataclass(frozen=True)
class Input:
    """An argument of a call: its axes, by name or size, and its values.

    Floats are normally distributed. Ints are drawn from `min_value` to
    `below - 1`. If `below` names an axis, ints are indices into this axis,
    except the index of its last element, which is padding. Bools are true with
    a probability of 3/4. Breakpoints are 0 or 1; the last two of a row are 1
    and 0.
    """

    axes: tuple[str | int, ...]
    dtype: str = "float32"
    min_value: int = 0
    below: int | str = 2
    are_breakpoints: bool = False

    def shape(self, sizes: Mapping[str, int | None]) -> list[int | None]:
        """Returns the shape for the given sizes of named axes."""
        return shape_of(self.axes, sizes)

    def make(self, name: str, sizes: Mapping[str, int]) -> np.ndarray:
        """Draws values that depend only on the name and the sizes."""
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
    """Describes `<int32>` breakpoints with two axes, padding at the end."""
    return Input(axes, "int32", are_breakpoints=True)


def floats(*axes) -> Input:
    """Describes a `<float32>` input with these axes."""
    return Input(axes)


def bools(*axes) -> Input:
    """Describes a `<bool>` input with these axes, such as a mask."""
    return Input(axes, "bool")


def ints(below: int | str, *axes, min_value: int = 0) -> Input:
    """Describes an `<int32>` input with these axes; see `Input`."""
    return Input(axes, "int32", min_value, below)


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer to check.

    Attributes:
        layer_class: the layer's class.
        arguments: arguments of the constructor; or a function that makes them,
            if they include layers or initializers.
        inputs: name -> tensor argument of a call; the first is passed by
            position.
        outputs: the axes of each output, in the order of `tf.nest.flatten`;
            None for an axis of unknown size.
        packed: whether a call takes the inputs as one dict.
        options: arguments of a call that are not tensors.
        variants: further sets of constructor arguments, used only to check the
            configuration. `arguments` and `variants` must together cover every
            argument of the constructor.
        not_in_config: arguments that need not be covered, since layers that
            have them have no configuration.
        never_empty: axes for which the layer does not support the size 0.
        has_dropout: whether training changes the outputs.
        without_gradient: pattern of the paths of weights -> the reason why
            their gradient is zero.
        own_precision: pattern of the names of sublayers -> the reason why they
            do not follow the dtype policy.
        float32_outputs: whether the outputs are float32 under all policies.
        has_output_shape: whether the layer has `compute_output_shape`.
        tolerances: policy -> tolerance that replaces the one in `TOLERANCES`.
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
        """All sizes to call the layer with; the first are `SIZES`."""
        return [
            sizes
            for sizes in (SIZES, *OTHER_SIZES)
            if all(sizes[axis] for axis in self.never_empty)
        ]

    def make_layer(self, variant=None, **options):
        """Creates a layer with `arguments` or, if given, with a variant's."""
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
    """Returns a list of the tensors in a nested structure, without None."""
    return [x for x in tf.nest.flatten(outputs) if x is not None]


def shape_of(axes, sizes: Mapping[str, int | None]) -> list[int | None]:
    """Returns a shape for the given sizes of named axes."""
    return [sizes[axis] if isinstance(axis, str) else axis for axis in axes]


def unknown_sizes() -> Mapping[str, None]:
    """Returns sizes in which every named axis is None."""
    return collections.defaultdict(lambda: None)


def weight_names(layer) -> list[tuple[str, set[str]]]:
    """Returns each weight's name, and the set of expected names.

    An expected name, such as "encoder/dense/kernel", consists of the names of
    the layers that lead to the weight, and the weight's own name. If several
    layers hold the weight's layer, the name may contain any of them.
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
        # Keras 3's weights have a `path`. In Keras 2, `name` is the whole path.
        (getattr(weight, "path", weight.name).split(":")[0], names)
        for weight, names in zip(layer.weights, expected.values(), strict=True)
    ]


def randomize(layer, seed: int = 1) -> None:
    """Sets all weights to values that depend only on their paths and a seed.

    Scales of normalizations are around one, all others around zero.
    """
    for path, weight in get_weight_paths(layer).items():
        generator = np.random.RandomState(zlib.crc32(f"{seed} {path}".encode()))
        value = 0.3 * generator.standard_normal(weight.shape)
        if path.endswith("gamma"):
            value += 1.0
        weight.assign(value.astype(np.float32))


def assert_close(actual, expected, tolerance: float = 1e-5, message="") -> None:
    """Raises an AssertionError unless all tensors are nearly equal."""
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
    """Computes the norm of the difference divided by the norm of `expected`."""
    pairs = list(zip(flatten(actual), flatten(expected), strict=True))
    difference = [
        np.sum(np.square(to_float(x) - to_float(y))) for x, y in pairs
    ]
    size = [np.sum(np.square(to_float(y))) for _, y in pairs]
    return float(np.sqrt(np.sum(difference) / max(np.sum(size), 1e-30)))


def to_float(tensor) -> np.ndarray:
    return tf.cast(tensor, tf.float64).numpy()


def as_arrays(outputs) -> list[np.ndarray]:
    """Converts outputs to NumPy arrays, to pass them between processes."""
    return [np.array(x) for x in flatten(outputs)]


def gradients_of(case: Case, layer) -> dict[str, tf.Tensor]:
    """Returns the gradient of each trainable weight, by its path.

    Differentiates a randomly weighted sum of all float outputs, so that no
    symmetry makes a gradient zero.
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
    # A tape watches TensorFlow's variables, which Keras 3 wraps.
    gradients = tape.gradient(loss, [tf_variable(x) for x in paths.values()])
    return {
        path: None if gradient is None else tf.convert_to_tensor(gradient)
        for path, gradient in zip(paths, gradients, strict=True)
    }


def tf_variable(weight) -> tf.Variable:
    return weight if isinstance(weight, tf.Variable) else weight.value


def serializable_classes(package: str) -> set[type]:
    """Returns the layer classes that a package's modules register with Keras.

    Imports all modules of the package. Only classes that are registered under
    `etcmodel>` count.
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
        # Skips proxies for classes that are not imported.
        and issubclass(type(x), type)
        and x.__module__ in modules
    }


def as_configuration(value):
    """Converts an argument to its form in a Keras configuration."""
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
    """Stores an exception's text in `results`, so that other cases run."""
    try:
        yield
    except Exception:  # noqa: BLE001
        results[name, form] = traceback.format_exc()
