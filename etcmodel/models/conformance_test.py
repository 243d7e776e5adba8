import unittest

import pytest
import tensorflow as tf

from etcmodel import checkpoints
from etcmodel import models
from etcmodel.feature_utils.layout import spec
from etcmodel.models import heads
from etcmodel.models import pretraining_heads
from etcmodel.models import span_prediction
from etcmodel.models.etc import contrastive_loss
from etcmodel.models.etc import side_inputs
from etcmodel.models.etc import structured_etc_model
from etcmodel.models.read_twice import coreference_loss
from etcmodel.models.read_twice import memory_extraction
from testing.conformance import cases
from testing.conformance import checks
from testing.conformance import suite
from testing.conformance.cases import Case
from testing.conformance.cases import bools
from testing.conformance.cases import breakpoints
from testing.conformance.cases import floats
from testing.conformance.cases import ints

_HIDDEN = 8
_TOKENS = 11
_TYPES = 7
_RADIUS = 2
_BAND = 2 * _RADIUS + 1
_DISTANCE = 1
# Distances, 3 other labels, and 2 labels of links.
_LABELS = 2 * _DISTANCE + 4 + 2
_KEY_BIAS = (
    "it adds the same number to a query's scores of all keys, which does not "
    "change the softmax"
)
_SIZES = dict(
    vocab_size=_TOKENS,
    hidden_size=_HIDDEN,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    initializer_range=0.2,
)


def _etc_config(**options):
    return models.EtcConfig(
        segment_vocab_size=_TYPES,
        local_radius=_RADIUS,
        relative_pos_max_distance=_DISTANCE,
        relative_vocab_size=_LABELS,
        **_SIZES,
        **options,
    )


def _read_twice_config(**options):
    return models.ReadTwiceConfig(
        max_seq_length=9, max_num_blocks_per_document=4, **_SIZES, **options
    )


_PARAGRAPHS = dict(
    long_token_ids=ints(_TOKENS, "batch", "long"),
    long_token_type_ids=ints(_TYPES, "batch", "long"),
    long_sentence_ids=ints("seq", "batch", "long", min_value=-1),
    long_paragraph_ids=ints("seq", "batch", "long", min_value=-1),
    long_paragraph_breakpoints=breakpoints("batch", "long"),
    l2g_linked_ids=ints("seq", "batch", "long", min_value=-1),
    global_token_ids=ints(_TOKENS, "batch", "seq"),
    global_token_type_ids=ints(_TYPES, "batch", "seq"),
    global_paragraph_breakpoints=breakpoints("batch", "seq"),
)
_LAYOUT = spec.EncoderInputs(
    links=(
        spec.LinkFeature("mention", "long", "mention", None, True),
        spec.DEFAULT_LINK,
        spec.LinkFeature("parent", "global", None, "child"),
    ),
    values=(
        spec.ValueFeature(
            "visual", "global", (3,), "float32", ("global", "long")
        ),
        spec.ValueFeature("size", "long", (2,), "float32", ("long",)),
        spec.ValueFeature("place", "long", (3,), "int32", ("long",)),
    ),
)
_LAYOUT_FEATURES = dict(
    mention=ints("seq", "batch", "long", min_value=-1),
    parent=ints("seq", "batch", "seq", min_value=-1),
    visual=floats("batch", "seq", 3),
    size=floats("batch", "long", 2),
    place=ints(4, "batch", "long", 3),
)
_STREAM_OUTPUTS = (("batch", "long", _HIDDEN), ("batch", "seq", _HIDDEN))
_READ = ("batch", "seq", _HIDDEN)
# Shapes of states, processed states, documents, segments and labels.
_SUMMARY = ((None, _HIDDEN), (None, _HIDDEN), (None,), (None,), (None,))
_MENTIONS = dict(
    annotation_begins=ints(3, "batch", "mentions"),
    annotation_ends=ints(5, "batch", "mentions", min_value=2),
    annotation_labels=ints(4, "batch", "mentions"),
)

CASES = {
    "batch_contrastive_loss": Case(
        contrastive_loss.BatchContrastiveLoss,
        dict(initializer_range=0.2),
        dict(
            predictions=floats("side", _HIDDEN),
            encodings=floats("side", _HIDDEN),
            weights=ints(2, "side", min_value=1),
        ),
        (("side",), ("side",), ("side",)),
        never_empty=("side",),
        own_precision={"bilinear": "scores are float32"},
        float32_outputs=True,
    ),
    "batch_coreference_resolution_loss": Case(
        coreference_loss.BatchCoreferenceResolutionLoss,
        dict(apply_linear_layer=True, initializer_range=0.2),
        dict(
            item_states=floats("side", _HIDDEN),
            item_ids=ints(4, "side", min_value=2),
            global_item_states=floats("seq", _HIDDEN),
            global_item_ids=ints(4, "seq", min_value=2),
            labels_mask=bools("side", "seq"),
            labels_weight=ints(4, "side", "seq", min_value=1),
        ),
        (("side",),),
        variants=(dict(padding_id=-1, unknown_id=0),),
        never_empty=("seq",),
        own_precision={"linear": "scores are float32"},
        float32_outputs=True,
    ),
    "etc_document_bert": Case(
        models.EtcModel,
        lambda: dict(
            config=_etc_config(
                embedding_size=6,
                max_absolute_position_embeddings=11,
                share_feed_forward_params=False,
                share_qkv_projections=False,
            ),
            use_one_hot_relative_embeddings=True,
        ),
        dict(
            token_ids=ints(_TOKENS, "batch", "long"),
            global_token_ids=ints(_TOKENS, "batch", "seq"),
            token_type_ids=ints(_TYPES, "batch", "long"),
            global_position_ids=ints(11, "batch", "seq"),
            l2l_att_mask=bools("batch", "long", _BAND),
            l2l_relative_att_ids=ints(_LABELS, "batch", "long", _BAND),
            g2g_relative_att_ids=ints(_LABELS, "batch", "seq", "seq"),
            l2g_relative_att_ids=ints(_LABELS, "batch", "long", "seq"),
            g2l_relative_att_ids=ints(_LABELS, "batch", "seq", "long"),
            long_embedding_adder=floats("batch", "long", _HIDDEN),
        ),
        _STREAM_OUTPUTS,
        has_dropout=True,
        variants=(
            lambda: dict(
                config=_etc_config(use_hard_g2l_mask=True),
                is_training=False,
                use_one_hot_embeddings=True,
            ),
        ),
    ),
    "global_choice_head": Case(
        heads.GlobalChoiceHead,
        dict(
            choice_type_id=1,
            intermediate_size=12,
            hidden_dropout_prob=0.5,
            initializer_range=0.2,
        ),
        # No logit is masked: relative to -10,000, every error would be small.
        dict(
            global_output=floats(*_READ),
            global_token_type_ids=ints(2, "batch", "seq", min_value=1),
        ),
        (("batch", "seq"),),
        has_dropout=True,
        variants=(
            dict(
                choice_type_id=2,
                intermediate_size=3,
                hidden_act="relu",
                add_final_layer=False,
            ),
        ),
        own_precision={"logit": "a softmax follows"},
        float32_outputs=True,
    ),
    "language_model_head": Case(
        pretraining_heads.LanguageModelHead,
        dict(vocab_size=_TOKENS, embedding_size=6, layer_norm_epsilon=1e-12),
        dict(hidden_states=floats(*_READ), embedding_table=floats(_TOKENS, 6)),
        (("batch", "seq", _TOKENS),),
        variants=(
            dict(
                vocab_size=_TOKENS,
                embedding_size=6,
                hidden_act="relu",
                initializer_range=0.2,
            ),
        ),
        float32_outputs=True,
    ),
    "read_twice": Case(
        models.ReadTwiceModel,
        lambda: dict(
            config=_read_twice_config(
                embedding_size=6,
                use_sparse_memory_attention=True,
                cross_attention_pos_emb_mode="simple_relative",
                second_read_type="cross_attend_once",
                second_read_num_new_layers=1,
                second_read_num_cross_attention_heads=2,
                second_read_enable_default_side_input=True,
                summary_mode="entity",
                summary_postprocessing_type="linear",
            ),
            use_one_hot_embeddings=True,
        ),
        dict(
            token_ids=ints(_TOKENS, "batch", "seq"),
            block_ids=ints(3, "batch", min_value=1),
            block_pos=ints(4, "batch", min_value=1),
            **_MENTIONS,
        ),
        (_READ, _READ, *_SUMMARY, *_SUMMARY, ("batch", None)),
        never_empty=("seq",),
        has_dropout=True,
        without_gradient={
            "main_key_projection/linear/bias": _KEY_BIAS,
        },
    ),
    "read_twice_decoder": Case(
        models.ReadTwiceDecoderModel,
        lambda: dict(
            config=_read_twice_config(
                embedding_size=6, summary_padding_token_id=3
            ),
            num_layers_override=1,
            num_cross_attention_heads=2,
            enable_default_side_input=True,
            use_one_hot_embeddings=True,
        ),
        dict(
            token_ids=ints(_TOKENS, "batch", "seq"),
            side_input=floats("side", _HIDDEN),
            token2side_input_att_mask=bools("batch", "side"),
            position_ids=ints(9, "batch", "seq"),
        ),
        (_READ,),
        has_dropout=True,
        without_gradient={"main_key_projection/linear/bias": _KEY_BIAS},
        variants=(
            lambda: dict(
                config=_read_twice_config(),
                num_layers_override=None,
                num_cross_attention_heads=0,
            ),
        ),
    ),
    "side_inputs": Case(
        side_inputs.SideInputs,
        dict(
            local_radius=_RADIUS,
            relative_pos_max_distance=_DISTANCE,
            structure="paragraphs",
            use_hard_g2l_mask=True,
            use_hard_l2g_mask=True,
            ignore_hard_g2l_types=(1, 2),
            ignore_hard_l2g_types=(3,),
        ),
        _PARAGRAPHS,
        (
            *2 * [("batch", "seq", "seq")],
            *2 * [("batch", "seq", "long")],
            *2 * [("batch", "long", "seq")],
            *2 * [("batch", "long", _BAND)],
        ),
        packed=True,
        never_empty=("seq",),
        has_output_shape=False,
        variants=(
            dict(
                local_radius=3,
                relative_pos_max_distance=0,
                structure="paragraphs",
                flat_sequence=True,
                use_links=False,
                materialize=False,
            ),
            dict(
                local_radius=2,
                relative_pos_max_distance=1,
                structure=_LAYOUT,
            ),
        ),
    ),
    "etc_document_bert_structured": Case(
        structured_etc_model.StructuredEtcModel,
        lambda: dict(
            config=_etc_config(
                use_hard_g2l_mask=True,
                share_att_output_projection=True,
                use_pre_activation_order=True,
            ),
            structure=_LAYOUT,
            ignore_hard_g2l_types=(1, 2),
            value_layers={
                "visual": tf.keras.layers.Dense(_HIDDEN, "tanh", name="given")
            },
        ),
        _PARAGRAPHS | _LAYOUT_FEATURES,
        _STREAM_OUTPUTS,
        packed=True,
        never_empty=("seq",),
        has_dropout=True,
        without_gradient={"key_projection/linear/bias": _KEY_BIAS},
        own_precision={
            "side_inputs": "it makes only ints",
            "given": "the caller chooses the dtype of its own layer",
        },
        variants=(
            lambda: dict(
                config=_etc_config(),
                structure="paragraphs",
                flat_sequence=True,
                use_links=False,
                ignore_hard_l2g_types=(3,),
                outputs=("global_output",),
                is_training=True,
                use_one_hot_embeddings=True,
                use_one_hot_relative_embeddings=True,
            ),
        ),
    ),
    "span_prediction_head": Case(
        span_prediction.SpanPredictionHead,
        dict(
            intermediate_size=12,
            hidden_act="tanh",
            hidden_dropout_prob=0.5,
            initializer_range=0.2,
        ),
        # No logit is masked: relative to -1e6, every error would be small.
        dict(
            hidden_states=floats(*_READ),
            token_ids=ints(_TOKENS, "batch", "seq", min_value=1),
            ignore_prefix_length=ints(1, "batch"),
        ),
        (("batch", "seq", 2),),
        options=dict(padding_token_id=0),
        has_dropout=True,
        variants=(dict(intermediate_size=None),),
        own_precision={"span_logits": "a softmax follows"},
        float32_outputs=True,
    ),
    "summary_extraction": Case(
        memory_extraction.SummaryExtraction,
        lambda: dict(
            config=_read_twice_config(
                summary_mode="text_block",
                text_block_extract_every_x=2,
                summary_postprocessing_type="transformer",
                summary_postprocessing_num_layers=2,
                # Without it, `token_mask` is None, which Keras 3 rejects in a
                # model.
                use_sparse_memory_attention=True,
            ),
            use_one_hot_embeddings=True,
        ),
        dict(
            hidden_states=floats(*_READ),
            token_ids=ints(_TOKENS, "batch", "seq"),
            block_ids=ints(3, "batch", min_value=1),
            block_pos=ints(4, "batch", min_value=1),
        ),
        (*_SUMMARY, *_SUMMARY, ("batch", None), ("batch", "seq")),
        options=dict(cross_block_attention_mode="batch"),
        has_output_shape=False,
        has_dropout=True,
        without_gradient={"main_key_projection/linear/bias": _KEY_BIAS},
    ),
}
SUITE = suite.Suite(
    __name__, CASES, checkpoints.load_checkpoint, whole=["etc_document_bert"]
)


@pytest.mark.both_kerases
class ModelsConformanceTest(checks.make_test_case(SUITE)):
    def test_every_layer_is_in_the_table(self):
        public = {getattr(models, name) for name in models.__all__}
        registered = cases.serializable_classes("etcmodel.models")
        layers = {
            x
            for x in public
            if isinstance(x, type) and issubclass(x, tf.keras.layers.Layer)
        }
        self.assertLess(layers, registered)
        self.assertEqual(
            registered, {case.layer_class for case in CASES.values()}
        )


class ModelsOneKerasTest(checks.make_test_case(SUITE, checks.ONE_KERAS_CHECKS)):
    """Slow checks that do not depend on the Keras version."""


@pytest.mark.both_kerases
class ModelsOtherKerasTest(unittest.TestCase):
    def test_gives_the_same(self):
        checks.check_other_keras(SUITE, ["etc_document_bert", "read_twice"])


if __name__ == "__main__":
    unittest.main()
