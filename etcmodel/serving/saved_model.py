"""Writes SavedModels that load and run without this package.

A model's functions are traced with explicit signatures on a `tf.Module`. No
Keras objects are stored, so the SavedModel loads in Keras 2 and 3, in
TensorFlow Serving and with the C++ loader.
"""

import os
import statistics
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from etcmodel.ops.attention import for_inference
from etcmodel.pipeline import metadata_files
from etcmodel.pipeline.atomic import atomic_directory
from etcmodel.serving import exported
from etcmodel.serving.warmup import write_warmup_requests

_WARMUP_RUNS, _TIMED_RUNS = 2, 5


def model_variables(model: tf.keras.Model) -> list[tf.Variable]:
    """Returns a model's variables as `tf.Variable`s, in Keras 2 and 3."""
    return [
        variable if isinstance(variable, tf.Variable) else variable.value
        for variable in model.variables
    ]


class ServingModule(tf.Module):
    """The module to save: functions with signatures, and their resources.

    Args:
        variables: all variables that the functions read.
        resources: modules with tables and files, such as tokenizers.
        functions: signature name -> (function, input name -> `TensorSpec`).
            Functions take inputs by name and return a dict of tensors. They
            must refer to Keras layers only in closures, so that the layers are
            not saved.
    """

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        resources: Sequence[tf.Module],
        functions: Mapping[str, tuple[Callable, Mapping[str, tf.TensorSpec]]],
    ):
        super().__init__(name="serving")
        self.serving_variables = list(variables)
        self.serving_resources = list(resources)
        specs = {key: dict(specs) for key, (_, specs) in functions.items()}
        traced = {
            key: tf.function(function, autograph=False)
            for key, (function, _) in functions.items()
        }
        # Hidden in a closure, because saving would trace functions in
        # attributes again.
        self._functions = lambda: (traced, specs)

    def signatures(
        self, names: Sequence[str] | None = None
    ) -> dict[str, Callable]:
        """Returns concrete functions by signature name; by default, all."""
        functions, specs = self._functions()
        return {
            key: function.get_concrete_function(
                **{
                    name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
                    for name, spec in specs[key].items()
                }
            )
            for key, function in functions.items()
            if names is None or key in names
        }


def export_saved_model(
    module: ServingModule,
    output_dir: str,
    *,
    model_name: str,
    metadata: Mapping[str, object],
    warmup_inputs: Mapping[str, Mapping[str, np.ndarray]],
    overwrite: bool = False,
    add_files: Callable[[str], None] | None = None,
) -> None:
    """Writes a SavedModel that appears only when it is complete.

    Args:
        module: the module to save.
        output_dir: the directory to create.
        model_name: the name under which TensorFlow Serving serves the model.
        metadata: description of the model for `predict`, saved as
            `assets.extra/etcmodel.json`.
        warmup_inputs: signature name -> inputs of one request. As a check, the
            signatures are called with them before anything is written.
        overwrite: whether an existing directory may be replaced.
        add_files: called with the finished directory before it appears. The
            files that it adds have no checksums, so users may change them.

    Raises:
        UserError: the directory has files that may not be replaced, or cannot
            be written.
    """
    with for_inference():
        signatures = module.signatures()
    for name, inputs in warmup_inputs.items():
        signatures[name](
            **{key: tf.constant(value) for key, value in inputs.items()}
        )
    with atomic_directory(output_dir, overwrite=overwrite) as directory:
        tf.saved_model.save(module, directory, signatures=signatures)
        write_warmup_requests(directory, model_name, warmup_inputs.items())
        path = os.path.join(directory, exported.METADATA_FILE)
        metadata_files.write(
            path, {**metadata, "files": exported.describe_files(directory)}
        )
        if add_files is not None:
            add_files(directory)


def median_seconds(
    module: ServingModule, signature: str, inputs: Mapping[str, np.ndarray]
) -> float:
    """Returns the time of a request: the median of a few runs.

    Excludes the first runs, in which TensorFlow optimizes the graph.
    """
    with for_inference():
        call = module.signatures([signature])[signature]
    tensors = {name: tf.constant(x) for name, x in inputs.items()}
    seconds = []
    for _ in range(_WARMUP_RUNS + _TIMED_RUNS):
        start = time.perf_counter()
        outputs = call(**tensors)
        # Waits for a GPU.
        for x in outputs.values():
            x.numpy()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[_WARMUP_RUNS:])
