"""Compares `EtcModel` with plain NumPy in float64.

The reference implements section 3 of the ETC paper (Ainslie et al., 2020) and
BERT's embeddings.
"""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import EtcConfig
from etcmodel.models import EtcModel
from etcmodel.ops.attention import dispatch
from etcmodel.ops.attention import streaming
from testing import references

BATCH, LONG, GLOBAL, RADIUS, HIDDEN, VOCAB, TYPES = 2, 7, 3, 2, 4, 9, 3
LABELS, POSITIONS = 8, 10

CASES = {
    # Like the paper's base model, which shares only the feed-forward layers.
    "base": dict(share_qkv_projections=False),
    # The original code's defaults, but with narrow heads and no labels.
    "shared": dict(
        share_att_output_projection=True,
        att_size_per_head=3,
        relative_pos_max_distance=0,
        relative_vocab_size=None,
        hidden_act="relu",
    ),
    # All options that the other two leave out.
    "pre_activation": dict(
        share_qkv_projections=False,
        share_kv_projections=True,
        share_feed_forward_params=False,
        use_pre_activation_order=True,
        embedding_size=5,
        max_absolute_position_embeddings=POSITIONS,
    ),
}


def _embed(model, stream, prefix, call, adder):
    lookup = model.token_emb_lookup
    x = np.array(lookup.embedding_table)[call[f"{prefix}token_ids"]]
    if lookup.projection is not None:
        x = references.dense(lookup.projection, x)
    types = np.array(model.segment_emb_lookup.embedding_table)
    x = x + types[call[f"{prefix}token_type_ids"]] + adder
    if model.config.max_absolute_position_embeddings:
        lookup = getattr(model, f"position_emb_lookup_{stream}")
        x = x + np.array(lookup.embedding_table)[call[f"{prefix}position_ids"]]
    return references.normalize(getattr(model, f"{stream}_emb_layer_norm"), x)


def reference(model, call, adders):
    """Returns the long and global outputs, `<float64>[batch, length, hidden]`.

    Args:
        model: the model whose weights are used.
        call: arrays, keyed by the argument names of `EtcModel.call`.
        adders: values added to the long and to the global embeddings.
    """
    config = model.config
    return references.transformer(
        model.global_local_transformer_layers,
        [
            _embed(model, "long", "", call, adders[0]),
            _embed(model, "global", "global_", call, adders[1]),
        ],
        call,
        config.use_pre_activation_order,
        {"gelu": references.gelu, "relu": lambda x: np.maximum(x, 0)}[
            config.hidden_act
        ],
    )


def _make_model(**options):
    """Returns a model of two layers with large random weights."""
    config = dict(
        vocab_size=VOCAB,
        segment_vocab_size=TYPES,
        hidden_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=2,
        local_radius=RADIUS,
        relative_pos_max_distance=2,
        relative_vocab_size=LABELS,
        intermediate_size=5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = EtcModel(EtcConfig(**(config | options)), dtype="float64")
    model.build((None, None))
    rng = np.random.default_rng(1)
    model.set_weights(
        [w + 0.5 * rng.normal(size=w.shape) for w in model.get_weights()]
    )
    return model


def _make_call(config):
    """Returns arguments of a call; global token 0 sees no global token."""
    rng = np.random.default_rng(2)
    call = {
        "token_ids": rng.integers(VOCAB, size=[BATCH, LONG]),
        "global_token_ids": rng.integers(VOCAB, size=[BATCH, GLOBAL]),
        "token_type_ids": rng.integers(TYPES, size=[BATCH, LONG]),
        "global_token_type_ids": rng.integers(TYPES, size=[BATCH, GLOBAL]),
    }
    if config.max_absolute_position_embeddings:
        for prefix, length in (("", LONG), ("global_", GLOBAL)):
            call[f"{prefix}position_ids"] = rng.integers(
                POSITIONS, size=[BATCH, length]
            )
    for piece, shape in (
        ("l2l", [BATCH, LONG, 2 * RADIUS + 1]),
        ("g2g", [BATCH, GLOBAL, GLOBAL]),
        ("l2g", [BATCH, LONG, GLOBAL]),
        ("g2l", [BATCH, GLOBAL, LONG]),
    ):
        call[f"{piece}_att_mask"] = rng.binomial(1, 0.7, size=shape)
        if config.relative_vocab_size:
            call[f"{piece}_relative_att_ids"] = rng.integers(LABELS, size=shape)
    call["g2g_att_mask"][0, 0] = 0
    return {name: x.astype(np.int32) for name, x in call.items()}


class EtcModelReferenceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("base", "streaming"),
        ("shared", "full"),
        ("pre_activation", "streaming"),
        ("pre_activation", "full"),
    )
    @pytest.mark.both_kerases
    def test_outputs(self, case, implementation):
        model = _make_model(**CASES[case])
        call = _make_call(model.config)
        rng = np.random.default_rng(3)
        adders = [
            rng.normal(size=[BATCH, length, HIDDEN])
            for length in (LONG, GLOBAL)
        ]
        expected = reference(model, call, adders)
        with (
            # Makes `auto` use the implementation for long texts, in several
            # chunks.
            mock.patch.object(
                dispatch,
                "MAX_AUTO_FULL_LENGTH",
                {"full": LONG, "streaming": 0}[implementation],
            ),
            mock.patch.object(streaming, "CHUNK_ELEMENTS", 64),
        ):
            outputs = model(
                **{name: tf.constant(x) for name, x in call.items()},
                long_embedding_adder=tf.constant(adders[0]),
                global_embedding_adder=tf.constant(adders[1]),
                training=True,
            )
        for output, values in zip(outputs, expected, strict=True):
            self.assertAllClose(output, values, 1e-9, 1e-9)


if __name__ == "__main__":
    tf.test.main()
