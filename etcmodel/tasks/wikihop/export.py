"""WikiHop's SavedModel: its signatures."""

import numpy as np
import tensorflow as tf

from etcmodel.tasks import export_lib
from etcmodel.tasks.wikihop.decoding import decode_answers
from etcmodel.tasks.wikihop.features import WikiHopFeatureBuilder

# One small request, to try a model and to warm it up.
_REQUEST = {
    "query": np.array([b"country jan novak"], dtype=object),
    "candidates": np.array([[b"austria", b"poland"]], dtype=object),
    "supports": np.array(
        [[b"Jan Novak lives in Krakow.", b"Krakow is a city in Poland."]],
        dtype=object,
    ),
}


def build_serving_module(
    model: tf.keras.Model, builder: WikiHopFeatureBuilder
) -> tuple[export_lib.ServingModule, dict[str, dict[str, np.ndarray]]]:
    """Makes the module that `export_lib.export_saved_model` saves.

    `serving_default` takes `query` `<string>[batch]`, `candidates`
    `<string>[batch, candidates]` and `supports` `<string>[batch, documents]`;
    rows are padded with empty strings. It gives `answer` `<string>[batch]`,
    `answer_index` `<int32>[batch]` and `candidate_probabilities`
    `<float32>[batch, candidates]`. For the other signatures see
    `export_lib.make_text_module`.

    Args:
        model: from `build_wikihop_model`.
        builder: makes features of raw text, as in `preprocess`.

    Returns:
        Pair of the module and, by signature, the inputs of one small request.
    """
    return export_lib.make_text_module(
        model,
        builder,
        export_lib.TextTask(
            inputs={
                "query": tf.TensorSpec([None], tf.string),
                "candidates": tf.TensorSpec([None, None], tf.string),
                "supports": tf.TensorSpec([None, None], tf.string),
            },
            encode=lambda query, candidates, supports: (
                builder(query, candidates, supports),
                {"candidates": candidates},
            ),
            stored={"candidates": tf.io.RaggedFeature(tf.string)},
            context_of=lambda stored: {
                # [batch, candidates]
                "candidates": stored["candidates"].to_tensor(default_value="")
            },
            decode=lambda features, outputs, context: decode_answers(
                outputs["logits"], context["candidates"]
            ),
            request=_REQUEST,
            request_stored={"candidates": list(_REQUEST["candidates"][0])},
        ),
    )
