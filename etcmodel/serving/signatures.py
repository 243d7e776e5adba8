"""What an exported task answers: raw text, stored examples, features."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import etc_features
from etcmodel.pipeline import example_schema
from etcmodel.pipeline.preprocessor import Encoded
from etcmodel.pipeline.preprocessor import FeatureBuilder
from etcmodel.pipeline.preprocessor import RecordView
from etcmodel.pipeline.preprocessor import assert_same_sizes
from etcmodel.pipeline.preprocessor import on_host
from etcmodel.pipeline.task_model import TaskModel
from etcmodel.serving.saved_model import ServingModule
from etcmodel.serving.saved_model import model_variables

SERVING_DEFAULT = "serving_default"
SERIALIZED_EXAMPLES = "serialized_examples"
FEATURES = "features"

# Lengths of requests are rounded up to its multiples.
LENGTH_STEP = 64


def read_in_parts(
    function: Callable[[Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]],
    inputs: Mapping[str, tf.Tensor],
    size: int,
    outputs: Mapping[str, tf.TensorSpec],
    stops: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Calls a function with a few rows at a time; graph code.

    Example: of 5 rows where one can stop behind the second, the third and the
    fifth, calls of at most 3 have the rows `[0, 1, 2]` and `[3, 4]`.

    Args:
        function: from a dict of tensors `[rows, ...]` to another.
        inputs: `[rows, ...]` each.
        size: the most rows of a call.
        outputs: what the function returns: name -> type and shape, `[None,
            ...]`.
        stops: `<int32>[stops]` rows behind which a call can end, ascending, at
            most `size` apart, the last one the number of rows; None for any.

    Returns:
        The function's outputs for all rows.
    """
    rows = tf.shape(next(iter(inputs.values())))[0]
    if stops is None:
        stops = tf.range(tf.maximum(rows, 1)) + 1

    def step(call, start, arrays):
        last = tf.searchsorted(stops, [start + size], side="right")[0] - 1
        stop = tf.gather(stops, last)
        made = function({name: x[start:stop] for name, x in inputs.items()})
        return (
            call + 1,
            stop,
            {name: x.write(call, made[name]) for name, x in arrays.items()},
        )

    # At least once, which tells the outputs' sizes.
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
                    element_shape=spec.shape,
                )
                for name, spec in outputs.items()
            },
        ),
        parallel_iterations=1,
    )
    # [rows, ...]
    return {name: x.concat() for name, x in arrays.items()}


def _tokens_cut(made: Encoded) -> tf.Tensor:
    """How many tokens of each record did not fit, `<int32>[batch]`."""
    return tf.add_n(
        [x.tokens - x.kept_tokens for x in made.layout.counts.values()]
    )


def _without_padding(
    fields: example_schema.Schema,
    features: Mapping[str, tf.Tensor],
    context: Mapping[str, tf.Tensor],
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Cuts padding that all rows have off the ends; graph code.

    A short text then costs what it costs in a model of its own length. Lengths
    are multiples of `LENGTH_STEP`, so that there are few different ones.

    Args:
        fields: tells what the context is of.
        features: what the encoder reads, `[rows, long, ...]` or
            `[rows, global, ...]`.
        context: the schema's context, `[rows, ...]`.

    Returns:
        The same, shorter.
    """

    def needed(breakpoints):
        # The last token of an input always ends a paragraph.
        is_last = tf.cast(breakpoints > 0, tf.int32)
        ends = is_last * tf.range(1, tf.shape(breakpoints)[1] + 1)
        used = tf.reduce_max(tf.concat([tf.reshape(ends, [-1]), [1]], axis=0))
        return LENGTH_STEP * tf.math.floordiv(
            used + LENGTH_STEP - 1, LENGTH_STEP
        )

    sizes = {
        axis: needed(features[f"{axis}_paragraph_breakpoints"])
        for axis in ("long", "global")
    }
    return tuple(
        {
            name: x[:, : sizes[axis]]
            if (axis := fields.axis(name)) in sizes
            else x
            for name, x in values.items()
        }
        for values in (features, context)
    )


def make_serving_module(
    model: tf.keras.Model, builder: FeatureBuilder, task_model: TaskModel
) -> tuple[ServingModule, dict[str, dict[str, np.ndarray]]]:
    """Makes the module that `export_saved_model` saves.

    Its signatures:

    *   `serving_default`: raw text in, answers out; see `FeatureBuilder.INPUTS`
        and `TaskModel.answer` of the task. `tokens_cut` `<int32>[batch]` tells
        how many tokens were too many for the lengths of the model.
    *   `serialized_examples`: `examples` `<string>[batch]`, as `preprocess`
        writes them, in; answers and the model's outputs out. Every example has
        an answer of its own.
    *   `features`: what the encoder reads (see `Schema.input_specs`), integers
        as int64, of any lengths, in; the model's outputs out.

    Args:
        model: from `TaskModel.build`.
        builder: makes features of raw text, as in `preprocess`.
        task_model: the model's parts, with the options to answer with.

    Returns:
        Pair of the module and, by signature, the inputs of one small request.
    """
    config, fields = builder.config, builder.SCHEMA
    specs = fields.input_specs()

    # Traced once for all signatures; any lengths are as fast as static ones.
    compute = tf.function(
        lambda inputs: model(inputs, training=False),
        input_signature=[
            {
                name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
                for name, spec in specs.items()
            }
        ],
        autograph=False,
    )

    def outputs_of(features):
        return compute(
            {
                name: tf.cast(features[name], spec.dtype)
                for name, spec in specs.items()
            }
        )

    def serving_default(**inputs):
        made = builder.build(
            **{
                # A wrong rank is told by the input's name.
                name: tf.ensure_shape(x, builder.INPUTS[name].shape, name=name)
                for name, x in inputs.items()
            }
        )
        given = {**made.layout.features, **made.layout.values}
        features = {name: given[name] for name in specs}
        features, context = _without_padding(fields, features, made.context)
        if builder.ROWS_AT_ONCE is None:
            outputs = outputs_of(features)
        else:
            outputs = read_in_parts(
                outputs_of,
                features,
                builder.ROWS_AT_ONCE,
                {
                    name: tf.TensorSpec([None] * len(x.shape), x.dtype)
                    for name, x in model.output.items()
                },
            )
        chosen = task_model.choose(outputs, features, context)
        answers = task_model.answer(
            chosen, made.owner, {**made.text, **made.request}
        )
        return {**answers, "tokens_cut": _tokens_cut(made)}

    def serialized_examples(examples):
        features, values = fields.parse(
            examples,
            config.long_length,
            config.global_length,
            (example_schema.CONTEXT, example_schema.TEXT),
        )
        outputs = outputs_of(features)
        chosen = task_model.choose(outputs, features, values)
        rows = tf.range(tf.size(examples))
        return {**outputs, **task_model.answer(chosen, rows, values)}

    axes = {
        name: ("records", f"{fields.axis(name)} tokens", *spec.shape[2:])
        for name, spec in specs.items()
    }

    def features(**inputs):
        with tf.control_dependencies(assert_same_sizes(inputs, axes)):
            return outputs_of(inputs)

    module = ServingModule(
        variables=model_variables(model),
        resources=[builder],
        functions={
            SERVING_DEFAULT: (serving_default, builder.INPUTS),
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
    return module, _requests(builder)


def _requests(builder: FeatureBuilder) -> dict[str, dict[str, Any]]:
    """The same small request for each signature."""
    made = builder.build(
        **{name: tf.constant(x) for name, x in builder.REQUEST.items()}
    )
    view = RecordView(on_host(made), 0)
    row = {name: x[0] for name, x in view.features.items()}
    features = {
        name: row[name][np.newaxis].astype(_served(spec.dtype).as_numpy_dtype)
        for name, spec in builder.SCHEMA.input_specs().items()
    }
    example = builder.SCHEMA.serialize(
        {name: row.pop(name) for name in etc_features.FEATURES},
        {"example_id": "warm-up", **view.text, **row},
    )
    return {
        SERVING_DEFAULT: dict(builder.REQUEST),
        SERIALIZED_EXAMPLES: {"examples": np.array([example], dtype=object)},
        FEATURES: features,
    }


def _served(dtype: tf.DType) -> tf.DType:
    """The type of the `features` signature: most clients send int64."""
    return tf.int64 if dtype == tf.int32 else dtype
