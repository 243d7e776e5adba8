"""Makes an exported task's signatures: raw text, stored examples, features."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.pipeline import example_schema
from etcmodel.pipeline.preprocessor import EtcPreprocessor
from etcmodel.pipeline.preprocessor import Preprocessor
from etcmodel.pipeline.raw_inputs import assert_same_sizes
from etcmodel.pipeline.task_model import TaskModel
from etcmodel.serving.saved_model import ServingModule
from etcmodel.serving.saved_model import model_variables
from etcmodel.serving.small_weights import SmallWeights

SERVING_DEFAULT = "serving_default"
SERIALIZED_EXAMPLES = "serialized_examples"
FEATURES = "features"
TEXT = "text"


def run_in_parts(
    function: Callable[[Any], Mapping[str, tf.Tensor]],
    inputs: Any,
    size: int | None,
    stops: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Calls a function on a few rows at a time; graph code.

    Example: with 5 rows, the stops 2, 3 and 5, and at most 3 rows per call, the
    function is called on the rows `[0, 1, 2]`, then on `[3, 4]`.

    Args:
        function: maps a nest of tensors, `[rows, ...]`, to a dict of tensors.
        inputs: the nest of tensors, `[rows, ...]`.
        size: the maximum number of rows per call; None for all.
        stops: row counts after which a call may end, `<int32>[stops]`: they
            ascend, are at most `size` apart, and end with the number of rows.
            None allows any.

    Returns:
        The concatenated outputs, `[rows, ...]`.
    """
    if size is None:
        return function(inputs)
    function = tf.function(
        function,
        input_signature=[
            tf.nest.map_structure(
                lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), inputs
            )
        ],
        autograph=False,
    )
    outputs = function.get_concrete_function().structured_outputs
    rows = tf.shape(tf.nest.flatten(inputs)[0])[0]
    if stops is None:
        stops = tf.range(tf.maximum(rows, 1)) + 1

    def step(call, start, arrays):
        last = tf.searchsorted(stops, [start + size], side="right")[0] - 1
        stop = tf.gather(stops, last)
        made = function(tf.nest.map_structure(lambda x: x[start:stop], inputs))
        return (
            call + 1,
            stop,
            {name: x.write(call, made[name]) for name, x in arrays.items()},
        )

    # Runs at least once, because even empty outputs need a shape.
    *_, arrays = tf.while_loop(
        lambda call, start, _: tf.logical_or(start < rows, tf.equal(call, 0)),
        step,
        (
            0,
            0,
            {
                name: tf.TensorArray(
                    spec.dtype,
                    size=0,
                    dynamic_size=True,
                    infer_shape=False,
                    element_shape=[None, *spec.shape[1:]],
                )
                for name, spec in outputs.items()
            },
        ),
        parallel_iterations=1,
    )
    # [rows, ...]
    return {name: x.concat() for name, x in arrays.items()}


def request_axes(
    preprocessor: Preprocessor, task_model: TaskModel
) -> dict[str, dict[str, Any]]:
    """Returns the axes of signatures whose requests a server may join.

    The result maps signature -> "inputs" or "outputs" -> name -> axes; see
    `batching.Axes`.
    """
    texts = dict.fromkeys(preprocessor.TEXT_REQUEST, ["records"])
    inputs = {
        SERVING_DEFAULT: {x: y.axes for x, y in preprocessor.INPUTS.items()},
        **({TEXT: texts} if texts else {}),
    }
    return {
        name: {"inputs": x, "outputs": task_model.ANSWER_AXES}
        for name, x in inputs.items()
    }


def make_serving_module(
    model: tf.keras.Model,
    preprocessor: Preprocessor,
    task_model: TaskModel,
    weights: str = "float32",
) -> tuple[ServingModule, dict[str, dict[str, np.ndarray]]]:
    """Returns the module to export, and a small request for each signature."""
    module = make_module(model, preprocessor, task_model, weights)
    return module, _requests(preprocessor)


def make_module(
    model: tf.keras.Model,
    preprocessor: Preprocessor,
    task_model: TaskModel,
    weights: str = "float32",
) -> ServingModule:
    """Makes the module that `export_saved_model` saves.

    `weights` says how large weights are stored; see `SmallWeights`. The
    signatures are:

    *   `serving_default`: maps raw text to answers; see the task's
        `Preprocessor.INPUTS` and `TaskModel.decode`. The output `tokens_cut`,
        `<int32>[batch]`, counts truncated tokens.
    *   `text`, if the task has it: maps one string a record to the same
        answers; see `Preprocessor.of_text`.
    *   `serialized_examples`: maps `examples` that `preprocess` stored,
        `<string>[batch]`, to answers. It also returns the model's outputs,
        unless the model processes an example in parts.
    *   `features`: maps the model's inputs (see `ExampleSchema.input_specs`) to
        its outputs. Integers are int64; lengths are arbitrary.
    """
    specs = preprocessor.SCHEMA.input_specs()
    small = SmallWeights(model_variables(model), weights)
    outputs_of = _make_outputs_of(model, specs, small)
    serving_default, text, serialized_examples = _make_answering(
        outputs_of, preprocessor, task_model
    )
    axes = {name: _axes(preprocessor.SCHEMA.fields[name]) for name in specs}

    def features(**inputs):
        inputs = {x: _with_rank(x, y, axes[x]) for x, y in inputs.items()}
        with tf.control_dependencies(assert_same_sizes(inputs, axes)):
            return outputs_of(inputs)

    texts = {
        name: tf.TensorSpec([None], tf.string)
        for name in preprocessor.TEXT_REQUEST
    }
    return ServingModule(
        variables=small.variables,
        resources=[preprocessor],
        functions={
            SERVING_DEFAULT: (serving_default, preprocessor.INPUTS),
            **({TEXT: (text, texts)} if texts else {}),
            SERIALIZED_EXAMPLES: (
                serialized_examples,
                {"examples": tf.TensorSpec([None], tf.string)},
            ),
            FEATURES: (
                features,
                {
                    name: tf.TensorSpec(spec.shape, _served(spec.dtype))
                    for name, spec in specs.items()
                },
            ),
        },
    )


def make_preprocessing_module(preprocessor: Preprocessor) -> ServingModule:
    """Makes the module that converts raw text to the inputs of the model.

    Its signature `serving_default` takes the same raw text as `serving_default`
    of `make_module`. It returns the inputs, `[rows, ...]` with the model's
    lengths and dtypes, the index of each row's record as `record`,
    `<int32>[rows]`, and other values of the records, such as `tokens_cut`.
    """
    specs = preprocessor.SCHEMA.input_specs()

    def serving_default(**inputs):
        raw = {
            name: _with_rank(name, x, preprocessor.INPUTS[name].axes)
            for name, x in inputs.items()
        }
        if isinstance(preprocessor, EtcPreprocessor):
            # `batch_of_raw` would make the inputs shorter than the model's
            # lengths.
            made = preprocessor(**raw).layout
            given, owner = {**made.features, **made.values}, made.owner
            cut = [x.tokens - x.kept_tokens for x in made.counts.values()]
            others = {"tokens_cut": tf.add_n(cut)}
        else:
            batch = preprocessor.batch_of_raw(**raw)
            given, owner, others = batch.inputs, batch.owner, batch.outputs
        return {
            **{x: tf.cast(given[x], spec.dtype) for x, spec in specs.items()},
            **others,
            "record": owner,
        }

    return ServingModule(
        variables=[],
        resources=[preprocessor],
        functions={SERVING_DEFAULT: (serving_default, preprocessor.INPUTS)},
    )


def static_request(preprocessor: Preprocessor) -> dict[str, np.ndarray]:
    """Returns a small request with the model's own lengths and dtypes.

    It has one row. For ReadTwice, it has as many segments as the model reads
    together; the last ones are padding.
    """
    packing = preprocessor.SCHEMA.packing
    rows = getattr(preprocessor.config, packing.blocks) if packing else 1
    specs = preprocessor.SCHEMA.input_specs()
    made = {}
    for name, x in _stored_request(preprocessor)[1].items():
        x = x[:rows].numpy().astype(specs[name].dtype.as_numpy_dtype)
        made[name] = np.pad(x, [(0, rows - len(x))] + [(0, 0)] * (x.ndim - 1))
    return made


def _make_outputs_of(
    model: tf.keras.Model,
    specs: Mapping[str, tf.TensorSpec],
    small: SmallWeights,
) -> Callable[[Mapping], dict[str, tf.Tensor]]:
    """Returns a function that casts inputs and calls the model."""

    def call(inputs):
        with small.in_use():
            return model(inputs, training=False)

    # Traced once for all signatures. Dynamic lengths cost no speed.
    compute = tf.function(
        call,
        input_signature=[
            {
                name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
                for name, spec in specs.items()
            }
        ],
        autograph=False,
    )

    def outputs_of(inputs):
        return compute(
            {
                name: tf.cast(inputs[name], spec.dtype)
                for name, spec in specs.items()
            }
        )

    return outputs_of


def _make_answering(
    outputs_of: Callable,
    preprocessor: Preprocessor,
    task_model: TaskModel,
) -> tuple[Callable, Callable, Callable]:
    """Returns the functions of three signatures.

    They are `serving_default`, `text` and `serialized_examples`.
    """

    def candidates_of(values):
        inputs, context = values
        return task_model.select_candidates(outputs_of(inputs), inputs, context)

    def answers(batch):
        candidates = run_in_parts(
            candidates_of,
            (batch.inputs, batch.context),
            preprocessor.rows_at_once,
            batch.stops,
        )
        return {
            **task_model.decode(candidates, batch.owner, batch.text),
            **batch.outputs,
        }

    def serving_default(**inputs):
        return answers(
            preprocessor.batch_of_raw(
                **{
                    name: _with_rank(name, x, preprocessor.INPUTS[name].axes)
                    for name, x in inputs.items()
                }
            )
        )

    def text(**inputs):
        axes = dict.fromkeys(inputs, ("records",))
        inputs = {x: _with_rank(x, y, axes[x]) for x, y in inputs.items()}
        with tf.control_dependencies(assert_same_sizes(inputs, axes)):
            raw, parts = preprocessor.of_text(**inputs)
        return {**answers(preprocessor.batch_of_raw(**raw)), **parts}

    def serialized_examples(examples):
        examples = _with_rank("examples", examples, ["examples"])
        batch = preprocessor.batch_of_stored(examples)
        if batch.stops is not None:
            return answers(batch)
        outputs = outputs_of(batch.inputs)
        candidates = task_model.select_candidates(
            outputs, batch.inputs, batch.context
        )
        return {
            **outputs,
            **task_model.decode(candidates, batch.owner, batch.text),
        }

    return serving_default, text, serialized_examples


def _with_rank(name, x, axes) -> tf.Tensor:
    """Asserts the rank of an input, and returns the input."""
    # TensorFlow does not check a request against the signature's shapes, but
    # assumes them: it would replace the rank of `x` by a constant. An optional
    # hides the static shape.
    (given,) = tf.raw_ops.OptionalGetValue(
        optional=tf.raw_ops.OptionalFromValue(components=[x]),
        output_types=[x.dtype],
        output_shapes=[tf.TensorShape(None)],
    )
    example = {tf.string: "'...'", tf.bool: "false"}.get(x.dtype, "0")
    for axis in reversed(axes):
        ellipsis = ", ..." if isinstance(axis, int) else ""
        example = f"[{example}{ellipsis}]"
    check = tf.debugging.Assert(
        tf.equal(tf.rank(given), len(axes)),
        [
            f"The input {name} must have the dimensions "
            f"({', '.join(map(str, axes))}), such as {example}. The request's "
            "value has the shape:",
            tf.shape(given),
        ],
    )
    with tf.control_dependencies([check]):
        return tf.ensure_shape(x, x.shape, name=name)


def _axes(field: example_schema.Field) -> tuple[str | int, ...]:
    """Returns the names of an input's axes, for error messages."""
    if field.axis == "block":
        # Inputs with a value per token, or per mention, share the axis name.
        inner = {"block_length": "tokens", "max_num_annotations": "mentions"}
        return ("segments", *([inner[field.size]] if field.size else []))
    size = [] if field.size is None else [field.size]
    return ("records", f"{field.axis} tokens", *size)


def _requests(preprocessor: Preprocessor) -> dict[str, dict[str, Any]]:
    """Returns the same small request in the format of each signature."""
    request = dict(preprocessor.REQUEST)
    example, inputs = _stored_request(preprocessor)
    text = dict(preprocessor.TEXT_REQUEST)
    return {
        SERVING_DEFAULT: request,
        **({TEXT: text} if text else {}),
        SERIALIZED_EXAMPLES: {"examples": np.array([example], dtype=object)},
        FEATURES: {
            # Keeps only the first row, which is enough.
            name: inputs[name][:1]
            .numpy()
            .astype(_served(spec.dtype).as_numpy_dtype)
            for name, spec in preprocessor.SCHEMA.input_specs().items()
        },
    }


def _stored_request(
    preprocessor: Preprocessor,
) -> tuple[bytes, dict[str, tf.Tensor]]:
    """Returns the small request as a stored example and as model inputs."""
    raw = {name: tf.constant(x) for name, x in preprocessor.REQUEST.items()}
    example = preprocessor.example_of_raw(**raw)
    # Parsing pads the features to the lengths of the model.
    batch = preprocessor.batch_of_stored(tf.constant([example]))
    return example, {
        x: batch.inputs[x] for x in preprocessor.SCHEMA.input_specs()
    }


def _served(dtype: tf.DType) -> tf.DType:
    """Returns the dtype in the `features` signature: int64 for integers."""
    return tf.int64 if dtype == tf.int32 else dtype
