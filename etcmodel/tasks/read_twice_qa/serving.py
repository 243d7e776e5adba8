"""What an exported model answers: documents of any length."""

import numpy as np
import tensorflow as tf

from etcmodel.pipeline import example_writer
from etcmodel.pipeline import preprocessor
from etcmodel.serving import signatures
from etcmodel.serving.saved_model import ServingModule
from etcmodel.serving.saved_model import model_variables
from etcmodel.tasks.read_twice_qa import encoding
from etcmodel.tasks.read_twice_qa import features as features_lib
from etcmodel.tasks.read_twice_qa.model import ReadTwiceQA


def number_blocks(
    documents: tf.Tensor, block_pos: tf.Tensor, most: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Divides documents into parts that can be read together; graph code.

    Example: with at most 2 segments, a document of 3 and one of 1 have the
    parts `[1, 1, 2, 3]`, and their segments the numbers `[1, 2, 1, 1]`.

    Args:
        documents: `<int32>[segments]`, ascending.
        block_pos: `<int32>[segments]` number in the document, from 1.
        most: the most segments of a part.

    Returns:
        `block_ids` `<int32>[segments]` the part of each, from 1, and
        `block_pos` `<int32>[segments]` its number there, from 1. See
        `encoding.part_size`.
    """
    # [segments]
    number = tf.gather(tf.math.segment_max(block_pos, documents), documents)
    own_pos = (block_pos - 1) % encoding.part_size(number, most) + 1
    return tf.cumsum(tf.cast(tf.equal(own_pos, 1), tf.int32)), own_pos


def _in_blocks(made: features_lib.Passages, most: int) -> dict[str, tf.Tensor]:
    """What the model reads of segments; see `number_blocks`."""
    ids, pos = number_blocks(made.documents, made.block_pos, most)
    return made._asdict() | {"block_ids": ids, "block_pos": pos}


def _stops(block_ids: tf.Tensor) -> tf.Tensor:
    """Behind which segments a document ends, `<int32>[documents]`."""
    ends = tf.cast(tf.where(block_ids[1:] > block_ids[:-1])[:, 0], tf.int32)
    return tf.concat([ends + 1, [tf.size(block_ids)]], axis=0)


def make_serving_module(
    model: tf.keras.Model,
    builder: features_lib.QuestionBuilder,
    task_model: ReadTwiceQA,
) -> tuple[ServingModule, dict[str, dict[str, np.ndarray]]]:
    """Makes the module that `export_saved_model` saves.

    Its signatures:

    *   `serving_default`: `question` and `document` `<string>[batch]`, of any
        length (HotpotQA's paragraphs with an empty line, two line feeds,
        between them), in; answers out: `answer` `<string>[batch]`, empty if the
        document has no text, `answer_score` `<float32>[batch]`, `answer_start`
        and `answer_end` `<int32>[batch]`, bytes of the document (of
        `tokenizers.sanitize` of it, if it was not valid UTF-8), -1 for an
        answer that is not from there; `answer_type` `<int32>[batch]`, if it
        may be "yes" or "no"; and `tokens_cut` `<int32>[batch]`, tokens of the
        question that were too many.
    *   `serialized_examples`: `examples` `<string>[n]`, as `preprocess` writes
        them, in; the same out, but for `tokens_cut`, for each record in them,
        with its `example_id`. A record that was divided has an answer of each
        part.
    *   `features`: what the model reads (see `ReadTwiceQA.build`), integers as
        int64, out its outputs.

    Args:
        model: from `ReadTwiceQA.build`.
        builder: makes segments of raw text, as in `preprocess`.
        task_model: the model's parts, with the options to answer with.

    Returns:
        Pair of the module and, by signature, the inputs of one small request.
    """
    config = builder.config
    specs = {
        name: tf.TensorSpec([None] * len(x.shape), tf.int32, name=name)
        for name, x in model.input.items()
    }
    compute = tf.function(
        lambda inputs: model(inputs, training=False),
        input_signature=[specs],
        autograph=False,
    )

    def choose(inputs):
        outputs = compute({name: inputs[name] for name in specs})
        return task_model.choose(outputs, inputs, inputs)

    read_specs = specs | {
        name: tf.TensorSpec([None, None], tf.int32)
        for name in encoding.OFFSET_FEATURES
    }
    choose = tf.function(choose, input_signature=[read_specs], autograph=False)

    def answers(inputs, owner, texts):
        chosen = signatures.read_in_parts(
            choose,
            {name: inputs[name] for name in read_specs},
            config.num_blocks_per_example,
            # Traced here, as all else by whoever exports: without gradients.
            choose.get_concrete_function().structured_outputs,
            _stops(inputs["block_ids"]),
        )
        return task_model.answer(chosen, owner, texts)

    def serving_default(question, document):
        made = builder.build(question=question, document=document)
        inputs = _in_blocks(made, config.num_blocks_per_example)
        return {
            **answers(inputs, made.documents, builder.texts(document)),
            "tokens_cut": made.tokens_cut,
        }

    def serialized_examples(examples):
        # [n, segments, ...]
        fields = tf.map_fn(
            lambda x: encoding.parse(x, config),
            examples,
            fn_output_signature=encoding.parsed_specs(config),
        )
        texts = tf.io.parse_example(
            examples,
            {
                name: tf.io.RaggedFeature(tf.string)
                for name in ("example_id", "document")
            },
        )
        # [n, segments]
        block_ids = fields["block_ids"]
        is_real = block_ids > 0
        is_first = tf.equal(fields["block_pos"], 1)
        # [all segments], documents numbered from 1
        numbers = tf.cumsum(tf.cast(tf.reshape(is_first, [-1]), tf.int32))
        rows = tf.reshape(tf.where(tf.reshape(is_real, [-1])), [-1])
        flat = {
            name: tf.gather(
                tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], axis=0)), rows
            )
            for name, x in fields.items()
        }
        flat["block_ids"] = tf.gather(numbers, rows)
        return {
            "example_id": texts["example_id"].values,
            **answers(
                flat,
                flat["block_ids"] - 1,
                {"document": texts["document"].values},
            ),
        }

    axes = {
        name: ("segments", *("tokens",) * (len(x.shape) - 1))
        for name, x in specs.items()
    } | dict.fromkeys(encoding.ANNOTATION_FEATURES, ("segments", "mentions"))

    def outputs(**inputs):
        with tf.control_dependencies(
            preprocessor.assert_same_sizes(inputs, axes)
        ):
            return compute({x: tf.cast(y, tf.int32) for x, y in inputs.items()})

    module = ServingModule(
        variables=model_variables(model),
        resources=[builder],
        functions={
            signatures.SERVING_DEFAULT: (serving_default, builder.INPUTS),
            signatures.SERIALIZED_EXAMPLES: (
                serialized_examples,
                {"examples": tf.TensorSpec([None], tf.string)},
            ),
            signatures.FEATURES: (
                outputs,
                {
                    name: tf.TensorSpec(x.shape, tf.int64)
                    for name, x in specs.items()
                },
            ),
        },
    )
    return module, _requests(builder)


def _requests(
    builder: features_lib.QuestionBuilder,
) -> dict[str, dict[str, np.ndarray]]:
    """The same small request for each signature."""
    request = {
        name: np.array([preprocessor.to_bytes(x) for x in values], object)
        for name, values in builder.REQUEST.items()
    }
    made = builder.build(**{x: tf.constant(y) for x, y in request.items()})
    # Its first segment does.
    made = features_lib.Passages(*(x[:1] for x in made))
    inputs = _in_blocks(made, 1)
    example = {}
    for name, spec in encoding.parsed_specs(builder.config).items():
        values = np.zeros(spec.shape, np.int64)
        if name in inputs:
            values[: len(inputs[name])] = inputs[name]
        example[name] = values.reshape(-1)
    example["example_id"] = [b""]
    example["document"] = list(request["document"])
    return {
        signatures.SERVING_DEFAULT: request,
        signatures.SERIALIZED_EXAMPLES: {
            "examples": np.array([example_writer.serialize(example)], object)
        },
        signatures.FEATURES: {
            name: inputs[name].numpy().astype(np.int64)
            for name in encoding.MODEL_FEATURES
        },
    }
