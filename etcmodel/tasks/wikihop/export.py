"""WikiHop's SavedModel: its three signatures."""

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import etc_features
from etcmodel.tasks import export_lib
from etcmodel.tasks.wikihop.decoding import decode_answers
from etcmodel.tasks.wikihop.features import WikiHopFeatureBuilder

_EXAMPLE_CANDIDATES = {"candidates": tf.io.RaggedFeature(tf.string)}

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

    Its signatures:

    *   `serving_default`: `query` `<string>[batch]`, `candidates`
        `<string>[batch, candidates]`, `supports` `<string>[batch, documents]`;
        rows are padded with empty strings. Gives `answer` `<string>[batch]`,
        `answer_index` `<int32>[batch]` and `candidate_probabilities`
        `<float32>[batch, candidates]`.
    *   `serialized_examples`: `examples` `<string>[batch]`, as `preprocess`
        writes them. Gives the same and `logits` `<float32>[batch, global]`.
    *   `features`: the nine EtcFeatures, `<int64>[batch, long]` and
        `<int64>[batch, global]`, of any lengths. Gives `logits`.

    Args:
        model: from `build_wikihop_model`.
        builder: makes features of raw text, as in `preprocess`.

    Returns:
        Pair of the module and, by signature, the inputs of one small request.
    """
    config = builder.config

    def logits_of(features):
        inputs = {
            name: tf.cast(features[name], tf.int32)
            for name in etc_features.FEATURES
        }
        return model(inputs, training=False)["logits"]

    def serving_default(query, candidates, supports):
        features = builder(query, candidates, supports)
        return decode_answers(logits_of(features), candidates)

    def serialized_examples(examples):
        features = etc_features.parse(
            examples,
            config.long_length,
            config.global_length,
            extra=_EXAMPLE_CANDIDATES,
        )
        # [batch, candidates]
        candidates = features["candidates"].to_tensor(default_value="")
        logits = logits_of(features)
        return dict(decode_answers(logits, candidates), logits=logits)

    def features(**inputs):
        return {"logits": logits_of(inputs)}

    module = export_lib.ServingModule(
        variables=export_lib.model_variables(model),
        resources=[builder],
        functions={
            export_lib.SERVING_DEFAULT: (
                serving_default,
                {
                    "query": tf.TensorSpec([None], tf.string),
                    "candidates": tf.TensorSpec([None, None], tf.string),
                    "supports": tf.TensorSpec([None, None], tf.string),
                },
            ),
            export_lib.SERIALIZED_EXAMPLES: (
                serialized_examples,
                {"examples": tf.TensorSpec([None], tf.string)},
            ),
            export_lib.FEATURES: (
                features,
                export_lib.features_signature(list(etc_features.FEATURES)),
            ),
        },
    )
    made = {
        name: value.numpy()
        for name, value in builder(
            *(tf.constant(_REQUEST[name]) for name in _REQUEST)
        ).items()
    }
    (example,) = etc_features.serialize_batch(
        made, [{"candidates": list(_REQUEST["candidates"][0])}]
    )
    requests = {
        export_lib.SERVING_DEFAULT: _REQUEST,
        export_lib.SERIALIZED_EXAMPLES: {
            "examples": np.array([example], dtype=object)
        },
        export_lib.FEATURES: {
            name: value.astype(np.int64) for name, value in made.items()
        },
    }
    return module, requests
