"""HotpotQA's SavedModel: its signatures."""

import numpy as np
import tensorflow as tf

from etcmodel.tasks import export_lib
from etcmodel.tasks.hotpotqa import examples
from etcmodel.tasks.hotpotqa.decoding import decode_answers
from etcmodel.tasks.hotpotqa.features import HotpotQAFeatureBuilder

# One small request, to try a model and to warm it up.
_REQUEST = {
    "question": np.array([b"Where does Jan Novak live?"], dtype=object),
    "titles": np.array([[b"Jan Novak", b"Krakow"]], dtype=object),
    "sentences": np.array(
        [
            [
                [b"Jan Novak is a cook.", b" He lives in Krakow."],
                [b"Krakow is a city in Poland.", b""],
            ]
        ],
        dtype=object,
    ),
}


def build_serving_module(
    model: tf.keras.Model,
    builder: HotpotQAFeatureBuilder,
    supporting_fact_threshold: float = 0.5,
    max_answer_length: int = 30,
) -> tuple[export_lib.ServingModule, dict[str, dict[str, np.ndarray]]]:
    """Makes the module that `export_lib.export_saved_model` saves.

    `serving_default` takes `question` `<string>[batch]`, `titles`
    `<string>[batch, paragraphs]` and `sentences`
    `<string>[batch, paragraphs, sentences]`; all are padded with empty strings
    at the end. It gives what `decode_answers` describes. For the other
    signatures see `export_lib.make_text_module`.

    Args:
        model: from `build_hotpotqa_model`.
        builder: makes features of raw text, as in `preprocess`.
        supporting_fact_threshold: answers are taken from sentences that are a
            supporting fact with at least this probability.
        max_answer_length: greatest length of an answer, in tokens.

    Returns:
        Pair of the module and, by signature, the inputs of one small request.
    """
    config = builder.config

    def encode(question, titles, sentences):
        made, context = builder.build(question, titles, sentences)
        return made.features, (context, tf.shape(sentences)[1:])

    def context_of(stored):
        context = examples.parse_context(
            stored, config.long_length, config.global_length
        )
        return context, None

    def decode(features, outputs, context_and_shape):
        context, shape = context_and_shape
        return decode_answers(
            outputs,
            tf.cast(features["long_token_type_ids"], tf.int32),
            tf.cast(features["long_sentence_ids"], tf.int32),
            context,
            supporting_fact_threshold,
            max_answer_length,
            shape,
        )

    request = {name: tf.constant(value) for name, value in _REQUEST.items()}
    _, context = builder.build(**request)
    return export_lib.make_text_module(
        model,
        builder,
        export_lib.TextTask(
            inputs={
                "question": tf.TensorSpec([None], tf.string),
                "titles": tf.TensorSpec([None, None], tf.string),
                "sentences": tf.TensorSpec([None, None, None], tf.string),
            },
            encode=encode,
            stored=examples.CONTEXT_SPEC,
            context_of=context_of,
            decode=decode,
            request=_REQUEST,
            request_stored=examples.context_values(
                examples.on_host(context), 0
            ),
        ),
    )
