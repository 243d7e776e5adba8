"""Writes SavedModels that load and answer without this package.

The functions of a model are traced with explicit signatures on a `tf.Module`:
nothing of Keras is stored, so they load the same whichever Keras wrote them,
in Python, in TensorFlow Serving and through the C++ loader.
"""

import dataclasses
import json
import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel import inner_jit
from etcmodel import own_gradients
from etcmodel.errors import UserError
from etcmodel.feature_utils import etc_features
from etcmodel.tasks.atomic import atomic_directory
from etcmodel.tasks.serving_warmup import write_warmup_requests

SERVING_DEFAULT = "serving_default"
SERIALIZED_EXAMPLES = "serialized_examples"
FEATURES = "features"
METADATA_FILE = os.path.join("assets.extra", "etcmodel.json")


def model_variables(model: tf.keras.Model) -> list[tf.Variable]:
    """The TensorFlow variables of a Keras model, under Keras 2 and 3.

    Args:
        model: the model.

    Returns:
        Its variables as `tf.Variable`s.
    """
    return [
        variable if isinstance(variable, tf.Variable) else variable.value
        for variable in model.variables
    ]


class ServingModule(tf.Module):
    """What is saved: functions with signatures, and what they stand on."""

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        resources: Sequence[tf.Module],
        functions: Mapping[str, tuple[Callable, Mapping[str, tf.TensorSpec]]],
        name: str = "serving",
    ):
        """Wraps plain functions into signatures.

        Args:
            variables: all variables that the functions read.
            resources: modules whose tables and files the functions use, such
                as tokenizers.
            functions: signature name -> (function, input name -> its
                specification). The function takes the inputs by name and
                returns a dict of tensors. It must hold Keras layers only in
                its closure, so that they are not saved themselves.
            name: name of the module.
        """
        super().__init__(name=name)
        self.serving_variables = list(variables)
        self.serving_resources = list(resources)
        specs = {key: dict(specs) for key, (_, specs) in functions.items()}
        traced = {
            key: tf.function(function)
            for key, (function, _) in functions.items()
        }
        # Out of sight of whatever saves the module: it would trace them again.
        self._functions = lambda: (traced, specs)

    def signatures(self) -> dict[str, Callable]:
        """Signature name -> concrete function, which takes inputs by name."""
        functions, specs = self._functions()
        return {
            key: function.get_concrete_function(
                **{
                    name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
                    for name, spec in specs[key].items()
                }
            )
            for key, function in functions.items()
        }


def features_signature(
    names: Sequence[str],
) -> dict[str, tf.TensorSpec]:
    """Input signature of the `features` endpoint.

    Args:
        names: names of the features, all `[batch, length]`.

    Returns:
        name -> specification, `<int64>[batch, length]`. An endpoint has one
        type only; int64 is what most clients send, and int32 fits into it.
    """
    return {name: tf.TensorSpec([None, None], tf.int64) for name in names}


@dataclasses.dataclass(frozen=True)
class TextTask:
    """How a task gets from raw text to features and from logits to answers.

    What `decode` needs beside features and outputs, such as the text itself, is
    its *context*: any structure of tensors.

    Attributes:
        inputs: input name of `serving_default` -> its specification.
        encode: graph function from these inputs, by name, to a pair of
            EtcFeatures and a context.
        stored: what `preprocess` stores for `decode` beside EtcFeatures: name
            -> specification, as for `tf.io.parse_example`.
        context_of: graph function from what `stored` names to a context.
        decode: graph function from features, outputs and context to answers.
        request: one small request, of one record, to try a model with and to
            warm it up.
        request_stored: what `stored` names of the request: name -> values.
        rows_at_once: how many rows of features go through the model at once,
            if `encode` may make many of few records.
    """

    inputs: Mapping[str, tf.TensorSpec]
    encode: Callable[..., tuple[dict[str, tf.Tensor], Any]]
    stored: Mapping[str, Any]
    context_of: Callable[[Mapping[str, Any]], Any]
    decode: Callable[..., dict[str, tf.Tensor]]
    request: Mapping[str, np.ndarray]
    request_stored: Mapping[str, Any]
    rows_at_once: int | None = None


def _map_chunks(
    function: Callable,
    inputs: dict[str, tf.Tensor],
    size: int,
    ranks: Mapping[str, int],
) -> dict[str, tf.Tensor]:
    """Calls a function with a few rows at a time; graph code.

    Args:
        function: from a dict of tensors to a dict of `<float32>` tensors, row
            by row.
        inputs: `[rows, ...]` each.
        size: number of rows of each call; the last ones are filled with zeros.
        ranks: name of each output -> its rank.

    Returns:
        The function's outputs, `[rows, ...]` each.
    """
    rows = tf.shape(next(iter(inputs.values())))[0]
    # At least one, which tells the outputs' sizes.
    chunks = tf.maximum(tf.math.floordiv(rows + size - 1, size), 1)

    def split(value):
        value = tf.pad(
            value,
            [[0, chunks * size - rows]] + [[0, 0]] * (value.shape.rank - 1),
        )
        # [chunks, size, ...]
        return tf.reshape(
            value, tf.concat([[chunks, size], tf.shape(value)[1:]], axis=0)
        )

    outputs = tf.map_fn(
        function,
        {name: split(value) for name, value in inputs.items()},
        fn_output_signature={
            name: tf.TensorSpec([size] + [None] * (rank - 1), tf.float32)
            for name, rank in ranks.items()
        },
        parallel_iterations=1,
    )
    # [rows, ...]
    return {
        name: tf.reshape(
            value, tf.concat([[chunks * size], tf.shape(value)[2:]], axis=0)
        )[:rows]
        for name, value in outputs.items()
    }


def make_text_module(
    model: tf.keras.Model, builder: tf.Module, task: TextTask
) -> tuple[ServingModule, dict[str, dict[str, np.ndarray]]]:
    """Makes the module that `export_saved_model` saves.

    Its signatures:

    *   `serving_default`: raw text in, answers out.
    *   `serialized_examples`: `examples` `<string>[batch]`, as `preprocess`
        writes them, in; answers and the model's outputs out.
    *   `features`: the nine EtcFeatures, `<int64>[batch, long]` and
        `<int64>[batch, global]`, of any lengths, in; the model's outputs out.

    Args:
        model: from a dict of EtcFeatures to a dict of outputs.
        builder: the task's feature builder.
        task: how the task reads and answers.

    Returns:
        Pair of the module and, by signature, the inputs of one small request.
    """
    config = builder.config

    def outputs_of(features):
        inputs = {
            name: tf.cast(features[name], tf.int32)
            for name in etc_features.FEATURES
        }
        return model(inputs, training=False)

    def serving_default(**inputs):
        features, context = task.encode(**inputs)
        if task.rows_at_once is None:
            outputs = outputs_of(features)
        else:
            outputs = _map_chunks(
                outputs_of,
                features,
                task.rows_at_once,
                {name: len(x.shape) for name, x in model.output.items()},
            )
        return task.decode(features, outputs, context)

    def serialized_examples(examples):
        features = etc_features.parse(
            examples,
            config.long_length,
            config.global_length,
            extra=dict(task.stored),
        )
        context = task.context_of(
            {name: features[name] for name in task.stored}
        )
        outputs = outputs_of(features)
        answers = task.decode(features, outputs, context)
        return {**outputs, **answers}

    def features(**inputs):
        return outputs_of(inputs)

    module = ServingModule(
        variables=model_variables(model),
        resources=[builder],
        functions={
            SERVING_DEFAULT: (serving_default, task.inputs),
            SERIALIZED_EXAMPLES: (
                serialized_examples,
                {"examples": tf.TensorSpec([None], tf.string)},
            ),
            FEATURES: (
                features,
                features_signature(list(etc_features.FEATURES)),
            ),
        },
    )
    made, _ = task.encode(
        **{name: tf.constant(value) for name, value in task.request.items()}
    )
    made = {name: value.numpy() for name, value in made.items()}
    (example,) = etc_features.serialize_batch(made, [task.request_stored])
    requests = {
        SERVING_DEFAULT: dict(task.request),
        SERIALIZED_EXAMPLES: {"examples": np.array([example], dtype=object)},
        FEATURES: {
            name: value.astype(np.int64) for name, value in made.items()
        },
    }
    return module, requests


def export_saved_model(
    module: ServingModule,
    output_dir: str,
    *,
    model_name: str,
    metadata: Mapping[str, object],
    warmup_inputs: Mapping[str, Mapping[str, np.ndarray]],
    overwrite: bool = False,
) -> None:
    """Writes a SavedModel; it appears under its name only when it is whole.

    Args:
        module: what to save.
        output_dir: the directory to make.
        model_name: the name that the model is served under.
        metadata: what `predict` has to know; saved as JSON in
            `assets.extra/etcmodel.json`.
        warmup_inputs: signature name -> inputs of one request, from which
            warm-up requests are made and with which every signature is tried
            before anything is written.
        overwrite: whether an existing directory may be replaced.

    Raises:
        UserError: the directory exists and is not empty, or cannot be written.
    """
    # A server may have XLA switched off, and it does not train.
    with inner_jit.inner_jit(False), own_gradients.forward_only():
        signatures = module.signatures()
    for name, inputs in warmup_inputs.items():
        signatures[name](
            **{key: tf.constant(value) for key, value in inputs.items()}
        )
    with atomic_directory(output_dir, overwrite=overwrite) as directory:
        tf.saved_model.save(module, directory, signatures=signatures)
        write_warmup_requests(directory, model_name, warmup_inputs.items())
        path = os.path.join(directory, METADATA_FILE)
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(metadata, stream, indent=2, sort_keys=True)
            stream.write("\n")


def read_export_metadata(saved_model_dir: str) -> dict:
    """What `export_saved_model` noted about a SavedModel.

    Args:
        saved_model_dir: its directory.

    Returns:
        The metadata.

    Raises:
        UserError: it is not a SavedModel of this package.
    """
    if not os.path.exists(os.path.join(saved_model_dir, "saved_model.pb")):
        raise UserError(
            f"{saved_model_dir} is not a SavedModel: it has no saved_model.pb. "
            "Give the --output_dir of `export`."
        )
    path = os.path.join(saved_model_dir, METADATA_FILE)
    if not os.path.exists(path):
        raise UserError(
            f"{saved_model_dir} is a SavedModel, but not one that `export` "
            f"wrote: it has no {METADATA_FILE}."
        )
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)
