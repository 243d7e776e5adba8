"""Checks that every Keras layer must pass.

A test module describes its layers as `cases.Case`s and makes a `suite.Suite` of
them. `make_test_case` then creates a test for each pair of a check and a case.
The checks do not depend on any particular layer.
"""

import functools
import gc
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import unittest
import warnings
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from etcmodel.weight_paths import get_weight_paths
from testing.conformance.cases import SIZES
from testing.conformance.cases import TOLERANCES
from testing.conformance.cases import as_configuration
from testing.conformance.cases import as_json
from testing.conformance.cases import assert_close
from testing.conformance.cases import gradients_of
from testing.conformance.cases import relative_error
from testing.conformance.cases import shape_of
from testing.conformance.cases import unknown_sizes
from testing.conformance.cases import weight_names
from testing.conformance.derivatives import check_derivatives
from testing.conformance.sizes import check_compiled
from testing.conformance.sizes import check_empty
from testing.conformance.suite import Prepared
from testing.conformance.suite import Suite


def check_other_keras(suite: Suite, with_files: Sequence[str]) -> None:
    """Checks that weights have the same paths in Keras 2 and 3.

    Equal paths allow weights to be copied between the versions, for example in
    an `.npz` file. Reads files that the other version wrote, too. Reading may
    fail, but must never give wrong weights:

    * `.keras` files fail, since the configurations of models and dtype policies
      differ.
    * `.weights.h5` files fail if layers in lists, or shared layers, have
      different names in them.
    * A `tf.train.Checkpoint` seems to lack the kernels of `Dense` layers, since
      Keras 3 calls them `_kernel`; only `assert_consumed` reports this. If the
      suite has its own loader, the loader must read all weights.

    Args:
        suite: the layers.
        with_files: names of the cases whose files are read.
    """
    is_legacy = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    environment = os.environ | {
        "TF_USE_LEGACY_KERAS": "0" if is_legacy else "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    weights = {
        name: {
            path: np.array(weight)
            for path, weight in get_weight_paths(prepared.layer).items()
        }
        for name, prepared in suite.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("weights", "results")]
        with open(paths[0], "wb") as file:
            pickle.dump((suite.saved[0], with_files, weights), file)
        # Starts Python, since a fork could have loaded this process's Keras
        # version already.
        done = subprocess.run(
            [
                *(sys.executable, "-c"),
                "from testing.conformance import suite\n"
                f"suite.read_under_other_keras({suite.module!r}, *{paths!r})",
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        with open(paths[1], "rb") as file:
            results = pickle.load(file)
    for name, prepared in suite.items():
        actual = results[name, "paths"]
        assert not isinstance(actual, str), f"{name} failed\n{actual}"
        expected = prepared.expected[0]
        assert_close(actual, expected, message=f"of {name} elsewhere")
    for name in with_files:
        prepared = suite[name]
        of_model = prepared.model(prepared.case.make_inputs())
        for form, expected in (
            ("checkpoint", prepared.expected[0]),
            ("keras", of_model),
            ("weights", of_model),
        ):
            actual = results[name, form]
            if not isinstance(actual, str):
                assert_close(actual, expected, message=f"of {form} of {name}")
        if suite.load_checkpoint is not None:
            loaded = results[name, "loaded"]
            assert_close(loaded, prepared.expected[0], message="loaded")


def check_config(prepared: Prepared) -> None:
    """Checks that a configuration is complete and restores an equal layer."""
    case = prepared.case
    parameters = {
        parameter.name
        for base in case.layer_class.__mro__
        if getattr(base.__init__, "__module__", "").startswith(
            ("etcmodel.", "testing.")
        )
        for parameter in inspect.signature(base.__init__).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    } - {"self", "name"}
    tried = set()
    for variant in (case.arguments, *case.variants):
        given = variant() if callable(variant) else variant
        tried |= set(given)
        layer = case.make_layer(given, name="its_name")
        config = layer.get_config()
        assert config["name"] == "its_name"
        for key, value in given.items():
            assert key in config, f"{key} is not in the configuration"
            expected = as_configuration(value)
            assert as_json(config[key]) == as_json(expected), (
                f"{key} is {config[key]}, expected {expected}"
            )
        # A file stores the configuration as JSON.
        text = json.dumps(tf.keras.layers.serialize(layer))
        other = tf.keras.layers.deserialize(json.loads(text))
        assert type(other) is case.layer_class
        assert [(type(x), x.name) for x in other._flatten_layers()] == [
            (type(x), x.name) for x in layer._flatten_layers()
        ]
        assert as_json(config) == as_json(other.get_config()), config
    parameters -= set(case.not_in_config)
    assert parameters == tried, (
        f"the case gives {sorted(tried)}, expected each of {sorted(parameters)}"
    )
    layer = prepared.layer
    other = case.layer_class.from_config(layer.get_config())
    inputs = case.make_inputs()
    case.call(other, inputs)
    assert list(get_weight_paths(other)) == list(get_weight_paths(layer))
    other.set_weights(layer.get_weights())
    # With so small a tolerance, a difference in any option fails the check.
    assert_close(case.call(other, inputs), prepared.expected[0], 1e-6)


def check_default_name(prepared: Prepared) -> None:
    """Checks the default names of layers."""
    names = [prepared.case.make_layer().name for _ in range(2)]
    assert names[0] != names[1], names
    for name in names:
        base = re.sub("_[0-9]+$", "", name)
        assert prepared.name.startswith(base), (prepared.name, name)


def check_variable_names(prepared: Prepared) -> None:
    """Checks that weight names are unique and contain their layers' names."""
    seen = set()
    for layer in prepared.layers_of(prepared.model):
        for name, names in weight_names(layer):
            assert name in names, f"{name}, expected one of {sorted(names)}"
            assert name not in seen, f"two weights have the name {name}"
            seen.add(name)


def check_calls(prepared: Prepared) -> None:
    """Checks that eager calls, graphs and functional models agree.

    In graphs and models, all lengths are unknown.
    """
    case = prepared.case
    known = unknown_sizes()
    static = [shape_of(axes, known) for axes in case.outputs]
    graph = prepared.function
    in_graph = graph.structured_outputs
    assert len(in_graph) == len(static), (in_graph, static)
    for i, shape in enumerate(static):
        assert in_graph[f"output_{i}"].shape.as_list() == shape, (
            f"output {i} of a graph has the shape "
            f"{in_graph[f'output_{i}'].shape}, expected {shape}"
        )
    model = prepared.model
    for tensor, shape in zip(model.outputs, 2 * static, strict=True):
        assert list(tensor.shape) == shape, (
            f"{tensor} has the shape {tensor.shape}, expected {shape}"
        )
    for sizes, expected in zip(case.sizes, prepared.expected, strict=True):
        inputs = case.make_inputs(sizes)
        for output, axes in zip(expected, case.outputs, strict=True):
            shape = shape_of(axes, sizes)
            assert tf.TensorShape(shape).is_compatible_with(output.shape), (
                f"an output has the shape {output.shape}, expected {shape}"
            )
        outputs = graph(**inputs)
        assert_close(
            [outputs[f"output_{i}"] for i in range(len(outputs))],
            expected,
            message=f"of a graph with {sizes}",
        )
        of_layers = [
            case.call(layer, inputs) for layer in prepared.layers_of(model)
        ]
        assert_close(
            model(inputs), of_layers, message=f"of a model with {sizes}"
        )


def check_output_shape(prepared: Prepared) -> None:
    """Checks `compute_output_shape` for known and unknown sizes."""
    case = prepared.case
    if not case.has_output_shape:
        return
    compute = prepared.layer.compute_output_shape
    for sizes in (SIZES, unknown_sizes()):
        shapes = {x: tuple(y.shape(sizes)) for x, y in case.inputs.items()}
        first = shapes if case.packed else next(iter(shapes.values()))
        others = {
            f"{name}_shape": shape
            for name, shape in list(shapes.items())[1:]
            if f"{name}_shape" in inspect.signature(compute).parameters
        }
        # A tuple may be one shape or a structure of several outputs.
        actual = as_shapes(compute(first, **others))
        expected = [tuple(shape_of(axes, sizes)) for axes in case.outputs]
        assert len(actual) == len(expected), (actual, expected)
        for x, y in zip(actual, expected, strict=True):
            assert tf.TensorShape(y).is_compatible_with(x), (actual, expected)
            assert len(x) == len(y) and x[-1] == y[-1], (actual, expected)


def as_shapes(structure) -> list[tuple]:
    """Returns a list of the shapes in a nested structure."""
    if isinstance(structure, tf.TensorShape):
        return [tuple(structure.as_list())]
    if all(x is None or isinstance(x, int) for x in structure):
        return [tuple(structure)]
    return sum([as_shapes(x) for x in structure], [])


def check_training(prepared: Prepared) -> None:
    """Checks that outputs are random only in training, and due to dropout."""
    case, layer = prepared.case, prepared.layer
    inputs, expected = case.make_inputs(), prepared.expected[0]
    takes_training = case.takes_training()
    for training in (False, None, True) if takes_training else (None,):
        options = {} if training is None else {"training": training}
        outputs = case.call(layer, inputs, **options)
        again = case.call(layer, inputs, **options)
        if training and case.has_dropout:
            assert relative_error(outputs, expected) > 1e-3
            assert relative_error(outputs, again) > 1e-3
        else:
            for x, y, z in zip(outputs, again, expected, strict=True):
                np.testing.assert_array_equal(x.numpy(), y.numpy())
                np.testing.assert_array_equal(x.numpy(), z.numpy())


def check_restored(prepared: Prepared, form: str, expected) -> None:
    """Compares the outputs of a layer that a fresh process has loaded."""
    actual = prepared.suite.restored[prepared.name, form]
    assert not isinstance(actual, str), f"{form} failed\n{actual}"
    assert_close(actual, expected, message=f"of a {form}")


def check_saved_model(prepared: Prepared) -> None:
    """Checks a SavedModel at all sizes, loaded without this package."""
    expected = sum(prepared.expected, [])
    check_restored(prepared, "saved_model", expected)


def check_keras_file(prepared: Prepared) -> None:
    """Checks a functional model in a `.keras` file."""
    model = prepared.model
    expected = model(prepared.case.make_inputs())
    check_restored(prepared, "keras", expected)


def check_weights_file(prepared: Prepared) -> None:
    """Checks a `.weights.h5` file, loaded into a model with other weights."""
    model = prepared.model
    expected = model(prepared.case.make_inputs())
    check_restored(prepared, "weights", expected)


def check_checkpoint(prepared: Prepared) -> None:
    """Checks that a `tf.train.Checkpoint` holds all weights."""
    layer = prepared.layer
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(layer=layer).write(folder + "/checkpoint")
        saved = [
            (variable, shape)
            for variable, shape in tf.train.list_variables(path)
            if variable != "_CHECKPOINTABLE_OBJECT_GRAPH"
        ]
    assert sorted(tuple(shape) for _, shape in saved) == sorted(
        tuple(weight.shape) for weight in layer.weights
    ), f"{len(saved)} of {len(layer.weights)} weights are saved: {saved}"
    check_restored(prepared, "checkpoint", prepared.expected[0])


def check_gradients(prepared: Prepared) -> None:
    """Checks that all weights have gradients, except `without_gradient`."""
    case, layer = prepared.case, prepared.layer
    gradients = gradients_of(case, layer)
    assert len(gradients) == len(layer.trainable_variables)
    unused = set(case.without_gradient)
    for path, gradient in gradients.items():
        reasons = [p for p in case.without_gradient if re.search(p, path)]
        unused -= set(reasons)
        largest = 0 if gradient is None else np.max(np.abs(gradient))
        if reasons:
            assert largest < 1e-4, f"{path} has a gradient: {largest}"
        else:
            assert largest > 1e-3, f"{path} has no gradient: {gradient}"
    assert not unused, f"without_gradient matches no weights: {unused}"


def check_initial_weights(prepared: Prepared) -> None:
    """Checks that matrices of two new layers differ, unless they are zeros."""
    assert prepared.model.weights or not prepared.layer.weights
    matrices = [x for x in prepared.initial_weights if x.ndim > 1]
    for i, x in enumerate(matrices):
        for y in matrices[:i]:
            assert not x.any() or not np.array_equal(x, y), x


def check_mixed_precision(prepared: Prepared, policy: str) -> None:
    """Checks that outputs and gradients are near those of float32."""
    case, reference = prepared.case, prepared.layer
    compute_dtype = policy.removeprefix("mixed_")
    layer = case.make_layer(dtype=policy)
    inputs = case.make_inputs()
    case.call(layer, inputs)
    other = case.layer_class.from_config(layer.get_config())
    assert other.compute_dtype == compute_dtype
    for part in layer._flatten_layers():
        if not any(re.search(x, part.name) for x in case.own_precision):
            assert part.compute_dtype == compute_dtype, part.name
    for weight in layer.weights:
        assert tf.as_dtype(weight.dtype) == tf.float32, weight
    layer.set_weights(reference.get_weights())
    outputs = case.call(layer, inputs)
    dtype = "float32" if case.float32_outputs else compute_dtype
    pairs = zip(outputs, prepared.expected[0], strict=True)
    compared = []
    for output, expected in pairs:
        if expected.dtype.is_floating:
            assert output.dtype == dtype, (output.dtype, dtype)
            compared.append((output, expected))
        else:
            np.testing.assert_array_equal(output.numpy(), expected.numpy())
    if not compared:
        return
    error = relative_error(*zip(*compared, strict=True))
    tolerance = case.tolerances.get(policy, TOLERANCES[policy])
    assert error <= tolerance, f"outputs are off by {error:.2%}"
    if layer.trainable_variables:
        exact = gradients_of(case, reference)
        paths = [path for path, x in exact.items() if x is not None]
        gradients = gradients_of(case, layer)
        for path in paths:
            assert gradients[path] is not None, f"{path} has no gradient"
        error = relative_error(
            [gradients[path] for path in paths],
            [exact[path] for path in paths],
        )
        assert error <= 3 * tolerance, f"gradients are off by {error:.2%}"


class _Around(tf.keras.Model):
    """A model around a layer, so that Keras 3 can quantize its sublayers."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.built = True


def check_quantized(prepared: Prepared) -> None:
    """Checks that int8 quantization changes outputs only a little (Keras 3)."""
    if not hasattr(tf.keras.Model, "quantize"):
        return
    case, inputs = prepared.case, prepared.case.make_inputs()
    layer = case.make_layer()
    case.call(layer, inputs)
    layer.set_weights(prepared.layer.get_weights())
    # Keras collects garbage after each kernel, which is fast if all objects are
    # frozen.
    gc.freeze()
    with warnings.catch_warnings():
        # Keras warns about each layer that has no kernel.
        warnings.simplefilter("ignore")
        _Around(layer).quantize("int8")
    gc.unfreeze()
    pairs = zip(case.call(layer, inputs), prepared.expected[0], strict=True)
    pairs = [(x, y) for x, y in pairs if y.dtype.is_floating]
    if pairs:
        error = relative_error(*zip(*pairs, strict=True))
        assert error <= 0.1, f"outputs are off by {error:.2%}"


CHECKS = {
    "config": check_config,
    "default_name": check_default_name,
    "variable_names": check_variable_names,
    "calls": check_calls,
    "output_shape": check_output_shape,
    "training": check_training,
    "saved_model": check_saved_model,
    "keras_file": check_keras_file,
    "weights_file": check_weights_file,
    "checkpoint": check_checkpoint,
    "gradients": check_gradients,
    "initial_weights": check_initial_weights,
    "quantized": check_quantized,
    **{
        policy: functools.partial(check_mixed_precision, policy=policy)
        for policy in TOLERANCES
    },
}

# Slow checks that do not depend on the Keras version.
ONE_KERAS_CHECKS = {
    "derivatives": check_derivatives,
    "compiled": check_compiled,
    "empty": check_empty,
}


def make_test_case(
    suite: Suite, checks: Mapping[str, Callable] = CHECKS
) -> type[unittest.TestCase]:
    """Makes a test for each check and case, such as `test_config_of_<case>`."""

    def make_test(check, name):
        return lambda self: check(suite[name])

    return type(
        "ConformanceTest",
        (unittest.TestCase,),
        {
            f"test_{check}_of_{name}": make_test(function, name)
            for name in suite
            for check, function in checks.items()
        },
    )
