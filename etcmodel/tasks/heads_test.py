"""The models of all tasks with their heads: what they have in common."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import EtcConfig
from etcmodel.tasks import registry
from etcmodel.tasks.nq.model import POSITIONS
from testing import model_inputs
from testing.models import set_random_weights

_NGRAMS = {"ngram_logits": [2, 5, 12]}
_FACTS = {"supporting_fact_logits": [2, 11], "answer_type_logits": [2, 3]}
# The options of the model, its features, the lengths without padding, and the
# logits with their shapes.
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
# What is noted of the records, where the model depends on it.
_SIZES = {"classify": {"kind": "single", "labels": ["a", "b", "c"]}}
# Which are of global tokens, and which of the whole input.
_GLOBAL = ("logits", "supporting_fact_logits")
_WHOLE = ("answer_type_logits",)
# Whose last axis is that of the input.
_LAST = ("ngram_logits",)


@functools.cache
def _make(name, dtype=None, **lengths):
    """A model whose weights are all its own, the same each time."""
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
            # Both records are the same.
            self.assertAllClose(value[0], value[1], 1e-5, 1e-5)

    @parameterized.parameters(*_MODELS)
    def test_padding_does_not_matter(self, name):
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
            # And it did not compute in single precision.
            self.assertNotAllClose(expected[key], value, 0.0, 1e-6, key)
            self.assertLess(np.abs(value).max(), 10001)


if __name__ == "__main__":
    tf.test.main()
