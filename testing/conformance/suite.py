"""A table of layers, with the objects and files that its checks share.

This module does not import the layers' modules: `read_in_fresh_process` first
loads SavedModels, as a server would, and only then imports them.
"""

import atexit
import functools
import importlib
import pathlib
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from etcmodel.weight_paths import get_weight_paths
from testing import helpers
from testing.conformance.cases import Case
from testing.conformance.cases import as_arrays
from testing.conformance.cases import attempt
from testing.conformance.cases import randomize
from testing.conformance.cases import unknown_sizes


class Prepared:
    """Objects that several checks of a case share."""

    def __init__(self, suite: "Suite", name: str, case: Case):
        self.suite = suite
        self.name = name
        self.case = case
        self.initial_weights = None

    @functools.cached_property
    def layer(self):
        """A layer with random weights, built by a call. Do not change it."""
        layer = self.case.make_layer()
        self.case.call(layer, self.case.make_inputs())
        randomize(layer)
        return layer

    @functools.cached_property
    def expected(self) -> list[list]:
        """The outputs of `layer` for each of the case's sizes."""
        return [
            self.case.call(self.layer, self.case.make_inputs(sizes))
            for sizes in self.case.sizes
        ]

    @functools.cached_property
    def function(self):
        """The call of `layer` as a graph in which all lengths are unknown."""
        specs = {
            name: tf.TensorSpec(
                value.shape(unknown_sizes()), value.dtype, name=name
            )
            for name, value in self.case.inputs.items()
        }
        layer = self.layer
        options = {"training": False} if self.case.takes_training() else {}

        @tf.function(input_signature=[specs])
        def apply(inputs):
            outputs = self.case.call(layer, inputs, **options)
            return {f"output_{i}": x for i, x in enumerate(outputs)}

        return apply.get_concrete_function()

    def make_model(self):
        """Returns a functional model of two layers with default names."""
        inputs = {
            name: tf.keras.Input(
                value.shape(unknown_sizes())[1:], dtype=value.dtype, name=name
            )
            for name, value in self.case.inputs.items()
        }
        outputs = []
        for _ in range(2):
            outputs += self.case.call(self.case.make_layer(), inputs)
        return tf.keras.Model(inputs, outputs)

    @functools.cached_property
    def model(self):
        """A functional model of two layers with random weights."""
        model = self.make_model()
        self.initial_weights = model.get_weights()
        for seed, layer in enumerate(self.layers_of(model)):
            randomize(layer, seed + 2)
        return model

    def layers_of(self, model) -> list:
        return [x for x in model.layers if type(x) is self.case.layer_class]


class Suite(dict[str, Prepared]):
    """The cases of a test module by name.

    Args:
        module: name of the module that holds the suite as `SUITE`.
        cases: name -> case. A name is the layer's default name, with an
            optional suffix to distinguish cases of the same class.
        load_checkpoint: function that loads a layer from the path of a
            checkpoint of the other Keras version; None to skip this check.
        whole: names of cases whose SavedModel includes the layer itself, not
            only its graph and variables. Keras 2 then traces the calls of all
            sublayers, which is slow.
    """

    def __init__(
        self,
        module: str,
        cases: Mapping[str, Case],
        load_checkpoint: Callable | None = None,
        whole: Collection[str] = (),
    ):
        super().__init__(
            {name: Prepared(self, name, case) for name, case in cases.items()}
        )
        self.module = module
        self.load_checkpoint = load_checkpoint
        self.whole = whole

    @functools.cached_property
    def restored(self) -> dict[tuple[str, str], Any]:
        """Outputs of all saved files, loaded in a fresh process.

        Maps a case and a format to the outputs, or to an exception's text.
        """
        folder, failures, requests = self.saved
        results = helpers.call_in_fresh_process(
            read_in_fresh_process, self.module, folder, requests
        )
        return results | failures

    @functools.cached_property
    def saved(self) -> tuple[str, dict, dict]:
        """Saves all cases in all formats.

        Returns the folder, the failures, and each case's requests to the
        SavedModel, which has a signature for each case.
        """
        folder = pathlib.Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        failures, requests = {}, {}
        module, signatures = tf.Module(), {}
        for name, prepared in self.items():
            case = prepared.case
            with attempt(failures, name, "saved_model"):
                signatures[name] = prepared.function
                setattr(
                    module,
                    name,
                    prepared.layer
                    if name in self.whole
                    else prepared.layer.variables,
                )
                requests[name] = [
                    {k: v.numpy() for k, v in case.make_inputs(sizes).items()}
                    for sizes in case.sizes
                ]
            with attempt(failures, name, "checkpoint"):
                checkpoint = tf.train.Checkpoint(layer=prepared.layer)
                checkpoint.write(str(folder / f"{name}.ckpt"))
            with attempt(failures, name, "keras"):
                prepared.model.save(str(folder / f"{name}.keras"))
            with attempt(failures, name, "weights"):
                prepared.model.save_weights(str(folder / f"{name}.weights.h5"))
        tf.saved_model.save(module, str(folder / "saved"), signatures)
        return str(folder), failures, requests

    def read(
        self, folder: pathlib.Path, names: Iterable[str]
    ) -> dict[tuple[str, str], Any]:
        """Returns the outputs of all files except SavedModels."""
        results = {}
        for name in names:
            prepared = self[name]
            case = prepared.case
            inputs = case.make_inputs()
            with attempt(results, name, "checkpoint"):
                layer = case.make_layer()
                case.call(layer, inputs)
                checkpoint = tf.train.Checkpoint(layer=layer)
                status = checkpoint.read(str(folder / f"{name}.ckpt"))
                status.assert_consumed()
                results[name, "checkpoint"] = as_arrays(
                    case.call(layer, inputs)
                )
            with attempt(results, name, "keras"):
                model = tf.keras.models.load_model(
                    str(folder / f"{name}.keras")
                )
                results[name, "keras"] = as_arrays(model(inputs))
            with attempt(results, name, "weights"):
                model = prepared.make_model()
                for layer in prepared.layers_of(model):
                    randomize(layer, seed=99)
                model.load_weights(str(folder / f"{name}.weights.h5"))
                results[name, "weights"] = as_arrays(model(inputs))
        return results


def read_in_fresh_process(
    module: str, folder: str, requests: Mapping[str, list]
) -> dict[tuple[str, str], Any]:
    """Loads all files of `Suite.saved`; loads SavedModels without etcmodel."""
    folder = pathlib.Path(folder)
    results = {}
    saved = tf.saved_model.load(str(folder / "saved"))
    for name, batches in requests.items():
        with attempt(results, name, "saved_model"):
            outputs = []
            for inputs in batches:
                output = saved.signatures[name](
                    **{k: tf.constant(v) for k, v in inputs.items()}
                )
                outputs += [
                    output[f"output_{i}"].numpy() for i in range(len(output))
                ]
            results[name, "saved_model"] = outputs
    # SavedModels must not need the code that made them.
    assert "etcmodel.layers" not in sys.modules
    suite = importlib.import_module(module).SUITE
    return results | suite.read(folder, suite)


def read_under_other_keras(module: str, weights: str, results: str) -> None:
    """Assigns weights by their paths, and reads files of `Suite.saved`.

    The file `weights` has the folder of `Suite.saved`, the names of the cases
    whose files are read, and the weights of all layers by path. Writes the
    outputs to the file `results`, in the format of `Suite.restored`.
    """
    with open(weights, "rb") as file:
        folder, names, weights = pickle.load(file)
    suite = importlib.import_module(module).SUITE
    outputs = suite.read(pathlib.Path(folder), names)
    for name, prepared in suite.items():
        with attempt(outputs, name, "paths"):
            case, inputs = prepared.case, prepared.case.make_inputs()
            layer = case.make_layer()
            case.call(layer, inputs)
            paths = get_weight_paths(layer)
            assert set(paths) == set(weights[name]), list(paths)
            for path, value in weights[name].items():
                paths[path].assign(value)
            outputs[name, "paths"] = as_arrays(case.call(layer, inputs))
            if name in names and suite.load_checkpoint is not None:
                layer = case.make_layer()
                suite.load_checkpoint(layer, f"{folder}/{name}.ckpt")
                outputs[name, "loaded"] = as_arrays(case.call(layer, inputs))
    with open(results, "wb") as file:
        pickle.dump(outputs, file)
