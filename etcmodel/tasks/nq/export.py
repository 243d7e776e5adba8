"""Natural Questions' SavedModel: its signatures."""

import numpy as np
import tensorflow as tf

from etcmodel.tasks import export_lib
from etcmodel.tasks.nq import decoding
from etcmodel.tasks.nq import examples
from etcmodel.tasks.nq.features import NQFeatureBuilder

# How many windows go through the model at once: memory does not grow with the
# length of a page.
_WINDOWS_AT_ONCE = 4

_TOKENS = (
    b"<P> Jan Novak lives in Krakow . </P> <P> He is a cook . </P>".split()
)

# One small request, to try a model and to warm it up.
_REQUEST = {
    "question": np.array([b"where does jan novak live"], dtype=object),
    "tokens": np.array([_TOKENS], dtype=object),
    "is_html": np.array([[token.startswith(b"<") for token in _TOKENS]]),
    "candidate_starts": np.array([[0, 8]], np.int32),
    "candidate_ends": np.array([[8, 15]], np.int32),
}

INPUTS = {
    "question": tf.TensorSpec([None], tf.string),
    "tokens": tf.TensorSpec([None, None], tf.string),
    "is_html": tf.TensorSpec([None, None], tf.bool),
    "candidate_starts": tf.TensorSpec([None, None], tf.int32),
    "candidate_ends": tf.TensorSpec([None, None], tf.int32),
}


def build_serving_module(
    model: tf.keras.Model,
    builder: NQFeatureBuilder,
    null_threshold: float = 0.0,
    max_short_answer_words: int = decoding.MAX_SHORT_ANSWER_WORDS,
) -> tuple[export_lib.ServingModule, dict[str, dict[str, np.ndarray]]]:
    """Makes the module that `export_lib.export_saved_model` saves.

    `serving_default` takes `question` `<string>[batch]`, the words and HTML
    tags of the page as `tokens` `<string>[batch, words]` (padded with ""),
    `is_html` `<bool>[batch, words]`, and the long-answer candidates as
    `candidate_starts` and `candidate_ends` `<int32>[batch, candidates]` (words,
    end exclusive, padded with -1). Pages of any length are cut into windows
    inside. It gives what `decoding.decode_pages` describes. In
    `serialized_examples`, every example is a window and has answers of its own.
    For more see `export_lib.make_text_module`.

    Args:
        model: from `build_nq_model`.
        builder: makes features of pages, as in `preprocess`.
        null_threshold: answers of a score that is not greater are not given.
        max_short_answer_words: greatest length of a short answer.

    Returns:
        Pair of the module and, by signature, the inputs of one small request.
    """
    config = builder.config

    def encode(question, tokens, is_html, candidate_starts, candidate_ends):
        made, windows = builder.build(
            question, tokens, is_html, candidate_starts, candidate_ends
        )
        context = {
            "words": windows.words,
            "record": windows.record,
            "candidate_starts": candidate_starts,
            "candidate_ends": candidate_ends,
        }
        return made.features, context

    def context_of(stored):
        # [windows, long] and [windows, candidates]
        dense = {
            name: tf.cast(
                value.to_tensor(
                    default_value=-1,
                    shape=[
                        None,
                        config.long_length if name == "words" else None,
                    ],
                ),
                tf.int32,
            )
            for name, value in stored.items()
        }
        return {**dense, "record": tf.range(tf.shape(dense["words"])[0])}

    def decode(features, outputs, context):
        del features
        answers = decoding.answer_windows(
            outputs, context["words"], max_short_answer_words
        )
        return decoding.decode_pages(
            answers,
            context["record"],
            context["candidate_starts"],
            context["candidate_ends"],
            null_threshold,
        )

    request = {name: tf.constant(value) for name, value in _REQUEST.items()}
    _, windows = builder.build(**request)
    return export_lib.make_text_module(
        model,
        builder,
        export_lib.TextTask(
            inputs=INPUTS,
            encode=encode,
            stored=examples.CONTEXT_SPEC,
            context_of=context_of,
            decode=decode,
            request=_REQUEST,
            request_stored={
                **examples.window_values(windows.words[0].numpy(), 0, None),
                "candidate_starts": _REQUEST["candidate_starts"][0],
                "candidate_ends": _REQUEST["candidate_ends"][0],
            },
            rows_at_once=_WINDOWS_AT_ONCE,
        ),
    )
