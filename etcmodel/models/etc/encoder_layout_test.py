"""Tests encoders of layouts that define links and embedded values."""

import json
import os
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from etcmodel.feature_utils.layout import spec
from etcmodel.models import EtcConfig
from etcmodel.models import EtcModel
from etcmodel.models import build_encoder
from etcmodel.models.etc import structured_etc_model as encoder_lib
from etcmodel.models.etc.side_inputs import SideInputs
from etcmodel.ops.attention import dispatch

_HARD_MASKS = {"use_hard_g2l_mask": True, "use_hard_l2g_mask": True}
_TOKEN = spec.GlobalToken(1)
# Documents consist of sentences and mention candidates; some tokens have visual
# values.
_LAYOUT = spec.LayoutSpec(
    sections=[
        spec.Section("candidates", unit_global=_TOKEN, in_long=False),
        spec.Section("documents", unit_global=_TOKEN, group_global=_TOKEN),
    ],
    links=[
        spec.Link(
            "mention",
            "documents",
            "candidates",
            label="mention",
            opens_hard_masks=True,
        ),
        spec.Link(
            "document",
            "documents",
            "documents",
            target_level="group",
            level="unit",
            source="global",
            label="part",
            back_label="whole",
        ),
    ],
    values=[
        spec.Value("place", "documents", shape=(2,), embed=True),
        spec.Value("word", "documents"),
        spec.Value(
            "visual",
            "documents",
            "unit",
            "global",
            dtype=tf.float32,
            shape=(3,),
            embed=True,
        ),
        spec.Value(
            "color", "documents", dtype=tf.float32, shape=(1,), embed=True
        ),
    ],
)


def _make_config(**kwargs):
    return EtcConfig.from_preset(
        "tiny", **({"vocab_size": 20, "num_hidden_layers": 1} | kwargs)
    )


def _make_batch():
    """Returns two rows: 2 candidates, a document of 2 sentences, padding."""
    rng = np.random.default_rng(0)
    rows = {
        "long_token_ids": [6, 7, 8, 9, 0],
        "long_token_type_ids": [1, 1, 1, 1, 0],
        "long_sentence_ids": [3, 3, 4, 4, -1],
        "long_paragraph_ids": [2, 2, 2, 2, -1],
        "long_paragraph_breakpoints": [0, 0, 0, 1, 0],
        "l2g_linked_ids": [-1, 0, -1, 1, -1],
        "mention": [-1, 1, 0, -1, -1],
        "global_token_ids": [4, 4, 5, 1, 1, 0],
        "global_token_type_ids": [6, 6, 7, 1, 1, 0],
        "global_paragraph_breakpoints": [0, 1, 0, 0, 1, 0],
        "document": [-1, -1, -1, 2, 2, -1],
    }
    return {
        **{k: np.array([v] * 2, np.int32) for k, v in rows.items()},
        "place": rng.integers(9, size=[2, 5, 2], dtype=np.int32),
        "visual": rng.standard_normal([2, 6, 3], np.float32),
        "color": rng.standard_normal([2, 5, 1], np.float32),
    }


class LayoutTest(tf.test.TestCase):
    def test_side_inputs(self):
        batch = _make_batch()
        side_inputs = SideInputs(4, 4, structure=_LAYOUT, **_HARD_MASKS)(batch)
        # Links: to the mentioned candidate, to the document, to the sentence.
        self.assertAllEqual(
            [0, 1, 1, 1, 0, 0], side_inputs["l2g_att_mask"][0, 1]
        )
        self.assertAllEqual([0, 1, 0, 0, 0], side_inputs["g2l_att_mask"][0, 1])
        for options, expected in (
            # 9 is "not linked", 10 "linked", and 12 to 14 are the links' own
            # labels: mention, part, whole.
            ({}, [10, 12, 10, 10, 9, 9]),
            # In a flat sequence, only links with their own labels are used.
            ({"flat_sequence": True}, [9, 12, 9, 10, 9, 9]),
        ):
            layer = SideInputs(4, 4, structure=_LAYOUT, **options)
            # A configuration file stores tuples as lists.
            config = json.loads(json.dumps(layer.get_config()))
            layer = SideInputs.from_config(config)
            self.assertEqual(layer.structure, _LAYOUT.encoder_inputs)
            side_inputs = layer(batch)
            self.assertAllEqual(
                expected, side_inputs["l2g_relative_att_ids"][0, 1]
            )
            self.assertAllEqual(
                [[0, 14, 14], [13, 0, 1], [13, 5, 0]],
                side_inputs["g2g_relative_att_ids"][0, 2:5, 2:5],
            )
        layer = SideInputs(4, 4, _LAYOUT, use_links=False)
        side_inputs = layer(batch)
        self.assertAllEqual(
            [9, 9, 10, 10, 9, 9], side_inputs["l2g_relative_att_ids"][0, 1]
        )
        self.assertAllEqual(
            [0, 1, 2], side_inputs["g2g_relative_att_ids"][0, 2, 2:5]
        )

    def test_the_last_link_of_a_pair_wins(self):
        batch = _make_batch()
        batch["mention"] = batch["l2g_linked_ids"]
        mention = spec.LinkFeature("mention", label="mention")
        for links, label in (
            ([mention, spec.DEFAULT_LINK], 10),
            ([spec.DEFAULT_LINK, mention], 12),
        ):
            layer = SideInputs(4, 4, structure=[links, []])
            labels = layer(batch)["l2g_relative_att_ids"]
            self.assertEqual(label, labels[0, 1, 0])

    def test_model(self):
        batch = _make_batch()
        # The weights are large, so that every pair matters.
        config = _make_config(initializer_range=0.2, **_HARD_MASKS)
        encoder = encoder_lib.StructuredEtcModel(config, _LAYOUT)
        encoder.build(None)
        *weights, place, visual, color = encoder.get_weights()
        self.assertEqual(
            [(2, 32), (3, 32), (1, 32)],
            [place.shape, visual.shape, color.shape],
        )
        for projection in (place, visual):
            self.assertBetween(np.std(projection), 0.1, 0.3)
        plain = EtcModel(config)
        plain.build((None, None))
        plain.set_weights(weights)
        side_inputs = SideInputs(
            config.local_radius,
            config.relative_pos_max_distance,
            structure=_LAYOUT,
            **_HARD_MASKS,
        )(batch)
        expected = plain(
            batch["long_token_ids"],
            batch["global_token_ids"],
            token_type_ids=batch["long_token_type_ids"],
            global_token_type_ids=batch["global_token_type_ids"],
            long_embedding_adder=tf.constant(
                batch["place"] @ place + batch["color"] @ color, tf.float32
            ),
            global_embedding_adder=batch["visual"] @ visual,
            **side_inputs,
        )
        # Uses `full` attention, and then the implementation for long texts.
        for longest in (256, 0):
            with mock.patch.object(dispatch, "MAX_AUTO_FULL_LENGTH", longest):
                actual = encoder(batch)
            for a, b in zip(expected, actual, strict=True):
                self.assertAllClose(a, b, 1e-5, 1e-5)
        # Values of zero add nothing to the embeddings.
        without_values = encoder_lib.StructuredEtcModel(
            config, _LAYOUT.encoder_inputs._replace(values=())
        )
        without_values.build(None)
        without_values.set_weights(weights)
        zeros = {x: 0 * batch[x] for x in ("place", "visual", "color")}
        for a, b in zip(
            without_values(batch), encoder(batch | zeros), strict=True
        ):
            self.assertAllClose(a, b, 1e-6, 1e-6)

    def test_values_of_global_tokens_are_added_to_their_tokens(self):
        """Embeds one value with the user's layer; heads read all others."""
        layout = spec.LayoutSpec(
            sections=_LAYOUT.sections,
            values=[
                spec.Value(
                    *("visual", "documents", "unit", "global"),
                    dtype=tf.float32,
                    shape=(3,),
                    embed=("long", "global"),
                ),
                spec.Value("place", "documents", embed=()),
            ],
        )
        batch = _make_batch()
        batch["place"] = batch["place"][:, :, 0]
        config = _make_config()
        layer = tf.keras.layers.Dense(32, bias_initializer="ones")
        encoder = encoder_lib.StructuredEtcModel(
            config, layout, value_layers={"visual": layer}
        )
        with mock.patch.object(
            EtcModel, "call", side_effect=EtcModel.call, autospec=True
        ) as call:
            encoder(batch)
        given = call.call_args.kwargs
        added = batch["visual"] @ layer.get_weights()[0] + 1.0
        self.assertAllClose(added, given["global_embedding_adder"])
        # The tokens of the two sentences, and padding.
        expected = added[:, [3, 3, 4, 4, 4]]
        expected[:, 4] = 0
        self.assertAllClose(expected, given["long_embedding_adder"])
        model = build_encoder(config, layout)
        self.assertEqual((None, None), tuple(model.input["place"].shape))
        with self.assertRaisesRegex(
            ValueError, r"for \['place'\], but embedded values are \['visual'\]"
        ):
            build_encoder(config, layout, value_layers={"place": layer})

    def test_too_few_labels(self):
        config = _make_config(relative_vocab_size=14)
        with self.assertRaisesRegex(
            ValueError, "'mention', 'part', 'whole'.* relative_vocab_.* 15"
        ):
            encoder_lib.StructuredEtcModel(config, _LAYOUT)
        # A model without relative labels accepts links, too.
        config = _make_config(
            relative_pos_max_distance=0, relative_vocab_size=None
        )
        model = encoder_lib.StructuredEtcModel(config, _LAYOUT)
        self.assertEqual((2, 5, 32), model(_make_batch())[0].shape)

    @pytest.mark.both_kerases
    def test_build_encoder(self):
        model = build_encoder(
            _make_config(),
            _LAYOUT,
            long_length=5,
            global_length=6,
            dtype="mixed_bfloat16",
        )
        batch = _make_batch()
        self.assertCountEqual(batch, model.input)
        for name, tensor in model.input.items():
            self.assertEqual(batch[name].dtype, tf.as_dtype(tensor.dtype).name)
            self.assertEqual(
                (None, *batch[name].shape[1:]), tuple(tensor.shape)
            )
        outputs = model(batch)
        self.assertEqual(tf.bfloat16, outputs["long_output"].dtype)
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = tf.keras.models.load_model(path)
        for name, output in loaded(batch).items():
            self.assertAllEqual(outputs[name], output)
        copy = tf.keras.models.model_from_json(model.to_json())
        self.assertEqual(
            _LAYOUT.encoder_inputs,
            copy.get_layer("etc_document_bert").side_inputs.structure,
        )


if __name__ == "__main__":
    tf.test.main()
