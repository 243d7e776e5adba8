"""Tests properties that all ETC tasks' models share."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import token_types
from etcmodel.models import EtcConfig
from etcmodel.tasks import registry
from etcmodel.tasks.nq.model import POSITIONS
from testing import model_inputs
from testing.models import set_random_weights

_CLS, _QUESTION, _CANDIDATE = (
    token_types.CLS_GLOBAL,
    token_types.QUESTION_GLOBAL,
    token_types.CANDIDATE_GLOBAL,
)
_NGRAMS = {"ngram_logits": [2, 5, 12]}
_FACTS = {"supporting_fact_logits": [2, 11], "answer_type_logits": [2, 3]}
# For each task: model options, features, lengths without padding, and shapes of
# the logits.
_MODELS = {
    "wikihop": (
        {},
        model_inputs.wikihop(),
        (7, 6),
        {"logits": [2, 8]},
    ),
    "hotpotqa_span": (
        {"answer_encoding": "span"},
        model_inputs.hotpotqa(),
        (10, 10),
        {
            **_FACTS,
            "answer_begin_logits": [2, 12],
            "answer_end_logits": [2, 12],
        },
    ),
    "hotpotqa_bio": (
        {"answer_encoding": "bio"},
        model_inputs.hotpotqa(),
        (10, 10),
        {**_FACTS, "answer_bio_logits": [2, 12, 3]},
    ),
    "nq": (
        {},
        model_inputs.nq(),
        (10, 5),
        {
            "answer_type_logits": [2, 5],
            **{f"{name}_logits": [2, 12] for name in POSITIONS},
        },
    ),
    "openkp": ({}, model_inputs.openkp(), (6, 2), _NGRAMS),
    "answer": (
        {"answer_encoding": "bio"},
        model_inputs.hotpotqa(),
        (10, 10),
        {
            **_FACTS,
            "answer_type_logits": [2, 4],
            "answer_bio_logits": [2, 12, 3],
        },
    ),
    "classify": (
        {"pooling": "max"},
        model_inputs.hotpotqa(),
        (10, 10),
        {"logits": [2, 3]},
    ),
    "select": ({}, model_inputs.hotpotqa(), (10, 10), {"logits": [2, 11]}),
}
# Preprocessing configurations, for tasks whose model depends on them.
_SIZES = {"classify": {"kind": "single", "labels": ["a", "b", "c"]}}
# Names of logits per global token, and of logits for the whole input.
_GLOBAL = ("logits", "supporting_fact_logits")
_WHOLE = ("answer_type_logits",)
# Names of logits whose last axis is the long input.
_LAST = ("ngram_logits",)


@functools.cache
def _make(name, dtype=None, **lengths):
    """Makes a model with reproducible random weights."""
    options, *_ = _MODELS[name]
    spec = registry.get(name.split("_")[0])
    config = EtcConfig.from_preset(
        "tiny", vocab_size=20, num_hidden_layers=1, initializer_range=0.3
    )
    model = spec.make_model(
        spec.model_options(**options), sizes=_SIZES.get(name)
    ).build(config, dtype=dtype, **lengths)
    set_random_weights(model, 0.2)
    return model


class ModelsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("answer", {}, (_CLS, _QUESTION)),
        ("answer", {"query_ignore_hard_g2l": False}, (_CLS,)),
        ("hotpotqa", {}, (_CLS,)),
        ("hotpotqa", {"query_ignore_hard_g2l": True}, (_CLS, _QUESTION)),
        ("select", {}, (_CLS, _QUESTION)),
        ("select", {"query_ignore_hard_g2l": False}, (_CLS,)),
        ("wikihop", {}, (_CANDIDATE, _QUESTION)),
        ("wikihop", {"query_ignore_hard_g2l": False}, (_CANDIDATE,)),
        ("wikihop", {"candidate_ignore_hard_g2l": False}, (_QUESTION,)),
        ("nq", {}, ()),
        ("openkp", {}, ()),
        ("classify", {}, ()),
    )
    def test_exempt_from_the_hard_mask(self, task, options, expected):
        spec = registry.get(task)
        made = spec.make_model(spec.model_options(**options)).encoder_options()
        self.assertEqual(expected, made.get("ignore_hard_g2l_types", ()))
        self.assertEqual(
            task in ("nq", "openkp"), made.get("flat_sequence", False)
        )

    @parameterized.parameters("hotpotqa", "wikihop")
    def test_flat_sequence_option(self, task):
        spec = registry.get(task)
        made = spec.make_model(spec.model_options(flat_sequence=True))
        self.assertTrue(made.encoder_options()["flat_sequence"])

    @parameterized.parameters(*_MODELS)
    def test_gradients_reach_all_weights_of_the_head(self, name):
        _, features, *_ = _MODELS[name]
        if name == "openkp":
            # Enough words for phrases of every length.
            features = {**features, "words": tf.constant([[*range(1, 13)]] * 2)}
        model = _make(name)
        layers = [x for x in model.layers if x.name != "etc_encoder"]
        heads = [x for layer in layers for x in layer.trainable_variables]
        weights = [
            *heads,
            model.get_layer("etc_encoder").trainable_variables[0],
        ]
        with tf.GradientTape() as tape:
            # An arbitrary function of all logits.
            loss = tf.add_n(
                [tf.reduce_sum(tf.sin(x)) for x in model(features).values()]
            )
        for weight, gradient in zip(
            weights, tape.gradient(loss, weights), strict=True
        ):
            self.assertIsNotNone(gradient, weight.name)
            self.assertTrue(np.any(tf.convert_to_tensor(gradient)), weight.name)

    @pytest.mark.both_kerases
    @parameterized.parameters(*_MODELS)
    def test_config_round_trip(self, name):
        _, features, _, shapes = _MODELS[name]
        model = _make(name)
        logits = model(features)
        self.assertEqual(
            shapes, {key: list(x.shape) for key, x in logits.items()}
        )
        copy = tf.keras.Model.from_config(model.get_config())
        self.assertEqual(model.get_config(), copy.get_config())
        head = copy.layers[-1]
        if hasattr(head, "initializer_range"):
            self.assertEqual(0.3, head.initializer_range)
        copy.set_weights(model.get_weights())
        for key, value in copy(features).items():
            self.assertEqual(tf.float32, value.dtype)
            self.assertAllEqual(logits[key], value)
            # Both records are equal.
            self.assertAllClose(value[0], value[1], 1e-5, 1e-5)

    @parameterized.parameters(*_MODELS)
    def test_logits_do_not_depend_on_padding(self, name):
        _, features, (num_long, num_global), _ = _MODELS[name]
        length = features["long_token_ids"].shape[1]
        shorter = {
            key: x[:, : num_long if x.shape[1] == length else num_global]
            for key, x in features.items()
        }
        expected = _make(name)(features)
        for key, value in _make(name)(shorter).items():
            whole = expected[key]
            if key in _LAST:
                whole = whole[..., :num_long]
            elif key not in _WHOLE and name != "classify":
                whole = whole[:, : num_global if key in _GLOBAL else num_long]
            self.assertAllClose(whole, value, 1e-4, 1e-4, key)

    @parameterized.parameters(
        ("wikihop", "mixed_bfloat16"),
        ("hotpotqa_span", "mixed_float16"),
        ("hotpotqa_bio", "mixed_bfloat16"),
        ("nq", "mixed_float16"),
        ("openkp", "mixed_bfloat16"),
        ("classify", "mixed_float16"),
        ("select", "mixed_bfloat16"),
    )
    def test_mixed_precision_and_static_lengths(self, name, policy):
        _, features, *_ = _MODELS[name]
        lengths = {
            f"{kind}_length": features[f"{kind}_token_ids"].shape[1]
            for kind in ("long", "global")
        }
        model = _make(name, policy, **lengths)
        for kind in ("long", "global"):
            self.assertEqual(
                [None, lengths[f"{kind}_length"]],
                list(model.input[f"{kind}_token_ids"].shape),
            )
        for weight in model.trainable_variables:
            self.assertEqual("float32", tf.as_dtype(weight.dtype).name)
        expected = _make(name)(features)
        tolerance = 0.1 if policy == "mixed_bfloat16" else 0.02
        for key, value in model(features).items():
            self.assertEqual(tf.float32, value.dtype)
            self.assertAllClose(expected[key], value, 0.0, tolerance, key)
            # The outputs differ, so half precision was really used.
            self.assertNotAllClose(expected[key], value, 0.0, 1e-6, key)
            self.assertLess(np.abs(value).max(), 10001)


if __name__ == "__main__":
    tf.test.main()
