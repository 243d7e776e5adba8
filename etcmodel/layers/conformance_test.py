import unittest

import pytest
import tensorflow as tf

from etcmodel import layers
from etcmodel.layers import activations
from etcmodel.layers import normalization
from testing.conformance import cases
from testing.conformance import checks
from testing.conformance import suite
from testing.conformance.cases import Case
from testing.conformance.cases import bools
from testing.conformance.cases import floats
from testing.conformance.cases import ints

_KEY_BIAS = (
    "it adds the same value to the scores of all keys of a query, which does "
    "not change the softmax"
)
_HIDDEN = 8
_RADIUS = 2
_BAND = 2 * _RADIUS + 1
_LABELS = 6


def _normal():
    return tf.keras.initializers.RandomNormal(stddev=0.1)


# Inputs, masks and labels of both streams.
_STREAMS = dict(
    long_input=floats("batch", "long", _HIDDEN),
    global_input=floats("batch", "seq", _HIDDEN),
    l2l_att_mask=bools("batch", "long", _BAND),
    g2g_att_mask=bools("batch", "seq", "seq"),
    l2g_att_mask=bools("batch", "long", "seq"),
    g2l_att_mask=bools("batch", "seq", "long"),
    l2l_relative_att_ids=ints(_LABELS, "batch", "long", _BAND),
    g2g_relative_att_ids=ints(_LABELS, "batch", "seq", "seq"),
    l2g_relative_att_ids=ints(_LABELS, "batch", "long", "seq"),
    g2l_relative_att_ids=ints(_LABELS, "batch", "seq", "long"),
)
_STREAM_OUTPUTS = (("batch", "long", _HIDDEN), ("batch", "seq", _HIDDEN))
_MAIN = ("batch", "seq", _HIDDEN)

_SIDE_ATTENTION_VARIANTS = (
    lambda: dict(
        hidden_size=6,
        num_heads=3,
        att_dropout_prob=0.2,
        enable_default_side_input=True,
        initializer=_normal(),
        top_k_attention=2,
        pos_embed_mode="simple_relative",
        pos_embed_size=4,
        use_one_hot_embeddings=True,
    ),
)

CASES = {
    "dense_layers": Case(
        layers.DenseLayers,
        dict(hidden_sizes=[6, 4], activation="tanh"),
        dict(inputs=floats("batch", "seq", 3)),
        (("batch", "seq", 4),),
        variants=(
            dict(hidden_sizes=[3]),
            # The tanh form; Keras's gelu is the exact form.
            dict(hidden_sizes=[3, 2], activation=activations.gelu),
            lambda: dict(
                hidden_sizes=[6, 4, 2],
                activation="relu",
                use_bias=False,
                kernel_initializer=_normal(),
                bias_initializer=_normal(),
            ),
        ),
    ),
    "embedding_lookup": Case(
        layers.EmbeddingLookup,
        dict(vocab_size=11, embedding_size=6, projection_size=_HIDDEN),
        dict(
            input_ids=ints(11, "batch", "seq"),
            input_mask=ints(2, "batch", "seq"),
        ),
        (_MAIN,),
        variants=(
            dict(
                vocab_size=11,
                embedding_size=6,
                initializer_range=0.3,
                use_one_hot_lookup=True,
            ),
        ),
    ),
    "fused_global_local_att": Case(
        layers.FusedGlobalLocalAttention,
        dict(
            long_hidden_size=_HIDDEN,
            global_hidden_size=_HIDDEN,
            num_heads=2,
            local_radius=_RADIUS,
            relative_vocab_size=_LABELS,
            att_dropout_prob=0.5,
            share_kv_projections=True,
        ),
        _STREAMS,
        _STREAM_OUTPUTS,
        options=dict(att_implementation="streaming"),
        has_dropout=True,
        without_gradient={"key_projection/linear/bias": _KEY_BIAS},
        variants=(
            lambda: dict(
                long_hidden_size=9,
                global_hidden_size=6,
                num_heads=3,
                local_radius=_RADIUS,
                long_total_att_size=12,
                global_total_att_size=18,
                initializer=_normal(),
                use_one_hot_lookup=True,
            ),
            dict(
                long_hidden_size=9,
                global_hidden_size=9,
                num_heads=3,
                local_radius=_RADIUS,
                share_qkv_projections=True,
                share_att_output_projection=True,
            ),
        ),
    ),
    "fused_side_attention": Case(
        layers.FusedSideAttention,
        dict(
            hidden_size=_HIDDEN,
            num_heads=2,
            att_dropout_prob=0.5,
            share_kv_projections=False,
        ),
        dict(
            main_input=floats(*_MAIN),
            side_input=floats("batch", "side", _HIDDEN),
            att_mask=bools("batch", "seq", "seq"),
            side_att_mask=bools("batch", "side"),
        ),
        (_MAIN,),
        has_dropout=True,
        variants=(
            lambda: dict(hidden_size=6, num_heads=3, initializer=_normal()),
        ),
    ),
    "global_local_transformer_layers": Case(
        layers.GlobalLocalTransformerLayers,
        dict(
            long_hidden_size=_HIDDEN,
            global_hidden_size=_HIDDEN,
            num_hidden_layers=2,
            num_attention_heads=2,
            local_radius=_RADIUS,
            long_intermediate_size=12,
            global_intermediate_size=12,
            initializer_range=0.2,
            relative_vocab_size=_LABELS,
            share_feed_forward_params=False,
            share_qkv_projections=False,
            use_pre_activation_order=True,
            grad_checkpointing_period=1,
        ),
        _STREAMS,
        _STREAM_OUTPUTS,
        has_dropout=True,
        variants=(
            dict(
                long_hidden_size=9,
                global_hidden_size=9,
                num_hidden_layers=2,
                num_attention_heads=2,
                local_radius=_RADIUS,
                att_size_per_head=3,
                hidden_act="relu",
                hidden_dropout_prob=0.2,
                attention_probs_dropout_prob=0.3,
                share_kv_projections=True,
                share_att_output_projection=True,
                use_one_hot_lookup=True,
            ),
        ),
    ),
    "layer_norm": Case(
        normalization.LayerNormalization,
        dict(epsilon=0.01),
        dict(inputs=floats(*_MAIN)),
        (_MAIN,),
    ),
    "attention_head_projection": Case(
        layers.ProjectAttentionHeads,
        dict(num_heads=3, size_per_head=4),
        dict(inputs=floats(*_MAIN)),
        (("batch", "seq", 3, 4),),
        variants=(
            lambda: dict(
                num_heads=3,
                size_per_head=4,
                use_bias=False,
                initializer=_normal(),
            ),
        ),
    ),
    "qkv_relative_attention": Case(
        layers.QkvRelativeAttention,
        dict(relative_vocab_size=_LABELS, att_dropout_prob=0.5),
        dict(
            queries=floats("batch", "seq", 2, 4),
            keys=floats("batch", "side", 2, 4),
            values=floats("batch", "side", 2, 6),
            att_mask=bools("batch", "seq", "side"),
            relative_att_ids=ints(_LABELS, "batch", "seq", "side"),
        ),
        (("batch", "seq", 2, 6),),
        has_dropout=True,
        variants=(
            lambda: dict(initializer=_normal(), use_one_hot_lookup=True),
        ),
    ),
    "qkv_relative_local_att": Case(
        layers.QkvRelativeLocalAttention,
        dict(
            local_radius=_RADIUS,
            relative_vocab_size=_LABELS,
            att_dropout_prob=0.5,
        ),
        dict(
            queries=floats("batch", "long", 2, 4),
            keys=floats("batch", "long", 2, 4),
            values=floats("batch", "long", 2, 6),
            att_mask=bools("batch", "long", _BAND),
            relative_att_ids=ints(_LABELS, "batch", "long", _BAND),
            side_keys=floats("batch", "side", 2, 4),
            side_values=floats("batch", "side", 2, 6),
            side_att_mask=bools("batch", "long", "side"),
            side_relative_att_ids=ints(_LABELS, "batch", "long", "side"),
        ),
        (("batch", "long", 2, 6),),
        options=dict(att_implementation="sparse"),
        has_dropout=True,
        variants=(
            lambda: dict(
                local_radius=3, initializer=_normal(), use_one_hot_lookup=True
            ),
        ),
    ),
    "recomputing_dropout": Case(
        layers.RecomputingDropout,
        dict(rate=0.5),
        dict(inputs=floats(*_MAIN)),
        (_MAIN,),
        has_dropout=True,
        variants=(
            dict(
                rate=0.25,
                noise_shape=[None, 1, 8],
                seed=3,
                force_recomputation=True,
            ),
        ),
    ),
    "relative_attention": Case(
        layers.RelativeAttention,
        dict(
            hidden_size=_HIDDEN,
            num_heads=2,
            total_key_size=6,
            total_value_size=10,
            relative_vocab_size=_LABELS,
            att_dropout_prob=0.5,
        ),
        dict(
            from_seq=floats(*_MAIN),
            to_seq=floats("batch", "side", 5),
            att_mask=bools("batch", "seq", "side"),
            relative_att_ids=ints(_LABELS, "batch", "seq", "side"),
        ),
        (_MAIN,),
        has_dropout=True,
        without_gradient={"key_projection/linear/bias": _KEY_BIAS},
        variants=(
            lambda: dict(
                hidden_size=6,
                num_heads=3,
                initializer=_normal(),
                use_one_hot_lookup=True,
                query_projection=layers.ProjectAttentionHeads(3, 2),
                key_projection=layers.ProjectAttentionHeads(3, 2),
                value_projection=layers.ProjectAttentionHeads(3, 2),
                qkv_relative_attention=layers.QkvRelativeAttention(4),
                output_projection=tf.keras.layers.Dense(6, use_bias=False),
            ),
        ),
    ),
    "relative_transformer_layers": Case(
        layers.RelativeTransformerLayers,
        dict(
            hidden_size=_HIDDEN,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=12,
            initializer_range=0.2,
            relative_vocab_size=_LABELS,
        ),
        dict(
            inputs=floats(*_MAIN),
            att_mask=bools("batch", "seq", "seq"),
            relative_att_ids=ints(_LABELS, "batch", "seq", "seq"),
        ),
        (_MAIN,),
        has_dropout=True,
        without_gradient={"key_projection/linear/bias": _KEY_BIAS},
        variants=(
            dict(
                hidden_size=6,
                num_hidden_layers=1,
                num_attention_heads=3,
                hidden_act="relu",
                hidden_dropout_prob=0.2,
                attention_probs_dropout_prob=0.3,
                use_pre_activation_order=True,
                use_one_hot_lookup=True,
            ),
        ),
    ),
    "residual_block": Case(
        layers.ResidualBlock,
        dict(
            dropout_probability=0.5,
            inner_intermediate_size=6,
            inner_activation="tanh",
        ),
        dict(inputs=floats(*_MAIN)),
        (_MAIN,),
        has_dropout=True,
        variants=(
            lambda: dict(
                inner_layer=layers.DenseLayers([8]),
                normalization_layer=[
                    normalization.LayerNormalization(epsilon=0.1)
                ],
                use_pre_activation_order=True,
            ),
            lambda: dict(inner_kernel_initializer=_normal()),
        ),
    ),
    "side_attention": Case(
        layers.SideAttention,
        dict(
            hidden_size=_HIDDEN,
            num_heads=2,
            att_dropout_prob=0.5,
            enable_default_side_input=True,
            pos_embed_mode="absolute_add_ln",
            pos_embed_size=3,
            use_one_hot_embeddings=True,
        ),
        dict(
            main_input=floats(*_MAIN),
            side_input=floats("side", _HIDDEN),
            att_mask=bools("batch", "side"),
            main_pos=ints(5, "batch"),
            side_pos=ints(5, "side"),
            att_value_mask=bools("batch", "seq"),
        ),
        (_MAIN,),
        has_dropout=True,
        variants=_SIDE_ATTENTION_VARIANTS,
    ),
    "side_attention_without_projections": Case(
        layers.SideAttention,
        dict(
            hidden_size=_HIDDEN,
            num_heads=0,
            top_k_attention=2,
            pos_embed_mode="query_dot_relative",
            pos_embed_size=3,
            use_one_hot_embeddings=False,
        ),
        dict(
            main_input=floats(*_MAIN),
            side_input=floats("batch", "side", _HIDDEN),
            att_mask=bools("batch", "seq", "side"),
            main_pos=ints(5, "batch"),
            side_pos=ints(5, "batch", "side"),
        ),
        (_MAIN,),
        variants=_SIDE_ATTENTION_VARIANTS,
    ),
    "transformer_layers": Case(
        layers.TransformerWithSideInputLayers,
        dict(
            hidden_size=_HIDDEN,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=12,
            initializer_range=0.2,
            num_cross_attention_heads=4,
            enable_default_side_input=True,
            grad_checkpointing_period=1,
        ),
        dict(
            main_input=floats(*_MAIN),
            side_input=floats("batch", "side", _HIDDEN),
            att_mask=bools("batch", "seq", "seq"),
            side_att_mask=bools("batch", "seq", "side"),
        ),
        (_MAIN,),
        has_dropout=True,
        # The default side input's key has no bias, so the bias of
        # cross-attention keys has a gradient.
        without_gradient={"main_key_projection/linear/bias": _KEY_BIAS},
        variants=(
            dict(
                hidden_size=6,
                num_hidden_layers=1,
                num_attention_heads=3,
                hidden_act="relu",
                hidden_dropout_prob=0.2,
                attention_probs_dropout_prob=0.3,
                share_kv_projections=True,
            ),
        ),
    ),
}
SUITE = suite.Suite(__name__, CASES, whole=["transformer_layers"])


@pytest.mark.both_kerases
class LayersConformanceTest(checks.make_test_case(SUITE)):
    def test_every_layer_is_in_the_table(self):
        public = {getattr(layers, name) for name in layers.__all__}
        registered = cases.serializable_classes("etcmodel.layers")
        self.assertLessEqual(public, registered)
        self.assertEqual(
            registered, {case.layer_class for case in CASES.values()}
        )


class LayersOneKerasTest(checks.make_test_case(SUITE, checks.ONE_KERAS_CHECKS)):
    """Slow checks that do not depend on the Keras version."""


@pytest.mark.both_kerases
class LayersOtherKerasTest(unittest.TestCase):
    def test_gives_the_same(self):
        # The two Keras versions can read each other's `.weights.h5` files,
        # except those of layers with lists of sublayers, such as
        # `transformer_layers`.
        files = ["residual_block", "transformer_layers"]
        checks.check_other_keras(SUITE, files)


if __name__ == "__main__":
    unittest.main()
