"""Tests `fit`, attention scores, saving and loading of encoders."""

import inspect
import os

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import models

_ETC = models.EtcConfig.from_preset("tiny", vocab_size=9, num_hidden_layers=1)
_CLS = models.ReadTwiceConfig.from_preset(
    "tiny", vocab_size=9, num_hidden_layers=1, summary_mode="cls"
)
_MENTIONS = models.ReadTwiceConfig.from_preset(
    "tiny", vocab_size=9, num_hidden_layers=1
)
_LONG = np.array([[3, 4, 5, 6, 0], [7, 8, 3, 0, 0]], np.int32)
_GLOBAL = np.array([[1, 1], [1, 2]], np.int32)
_TOKENS = {"token_ids": _LONG}
_SEGMENTS = _TOKENS | {
    "block_ids": np.array([1, 1], np.int32),
    "block_pos": np.array([1, 2], np.int32),
}
# The second entity is known only in the first segment.
_ANNOTATIONS = {
    "annotation_begins": np.array([[0, 2], [1, 0]], np.int32),
    "annotation_ends": np.array([[1, 2], [2, 0]], np.int32),
    "annotation_labels": np.array([[2, 3], [2, 0]], np.int32),
}


def _zeros(length):
    return np.zeros([2, length, 32], np.float32)


@pytest.mark.both_kerases
class KerasModelTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        (
            "etc",
            lambda: models.EtcModel(_ETC),
            _TOKENS | {"global_token_ids": _GLOBAL},
            [_zeros(5), _zeros(2)],
        ),
        (
            "read_twice",
            lambda: models.ReadTwiceModel(_CLS),
            _TOKENS,
            _zeros(5),
        ),
        (
            "read_twice_encoder",
            lambda: models.build_read_twice_encoder(_MENTIONS),
            _SEGMENTS | _ANNOTATIONS,
            {"final_hidden_states": _zeros(5), "first_read": _zeros(5)},
        ),
    )
    def test_fit_and_save(self, make, inputs, targets):
        model = make()
        model.compile("adam", tf.nest.map_structure(lambda _: "mse", targets))
        history = model.fit(inputs, targets, batch_size=2, verbose=0).history
        # The outputs are normalized, so their mean square is 1.
        outputs = len(tf.nest.flatten(targets))
        self.assertAllClose(history["loss"], [float(outputs)], atol=0.1)
        lines = []
        model.summary(print_fn=lambda line, **_: lines.append(line))
        number = sum(x.size for x in model.get_weights())
        self.assertIn(str(number), "".join(lines).replace(",", ""))
        expected = tf.nest.flatten(model(inputs))
        path = os.path.join(self.get_temp_dir(), f"{model.name}.keras")
        model.save(path)
        loaded = tf.keras.models.load_model(path)
        for x, y in zip(tf.nest.flatten(loaded(inputs)), expected, strict=True):
            self.assertAllClose(x, y)

    def test_functions_that_build_encoders_take_the_same_arguments(self):
        own = {
            "structure",
            "global_length",
            "enable_side_inputs",
            "cross_block_attention_mode",
            "num_mentions",
        }
        for build in (models.build_encoder, models.build_read_twice_encoder):
            names = [x for x in inspect.signature(build).parameters]
            self.assertEqual(
                ["config", "long_length", "outputs", "name", "options"],
                [x for x in names if x not in own],
            )

    def test_outputs_of_encoders_are_named(self):
        inputs = _SEGMENTS | _ANNOTATIONS
        encoder = models.build_read_twice_encoder(
            _MENTIONS, outputs=["first_read"]
        )
        self.assertEqual(["first_read"], list(encoder(inputs)))
        with self.assertRaisesRegex(ValueError, "Expected one or more of"):
            models.build_read_twice_encoder(_MENTIONS, outputs=["long_output"])
        model = models.EtcModel(_ETC)
        long_output, global_output = output = model(_LONG, _GLOBAL)
        self.assertIsInstance(output, models.EtcOutput)
        self.assertIs(output.long_output, long_output)
        self.assertIs(output.global_output, global_output)
        shapes = model.compute_output_shape(_LONG.shape, _GLOBAL.shape)
        self.assertEqual(((2, 5, 32), (2, 2, 32)), shapes)
        self.assertIsInstance(shapes, models.EtcOutput)

    def test_read_twice_encoder_is_the_model_inside(self):
        encoder = models.build_read_twice_encoder(_MENTIONS)
        inputs = _SEGMENTS | _ANNOTATIONS
        expected = encoder.get_layer("read_twice")(**inputs)
        outputs = encoder(inputs)
        for name in ("final_hidden_states", "first_read"):
            self.assertAllClose(outputs[name], getattr(expected, name))

    def test_attention_implementations_give_the_same(self):
        model = models.EtcModel(_ETC)
        expected = model(_LONG, _GLOBAL, att_implementation="full")
        for way in ("sparse", "streaming"):
            self.assertAllClose(
                model(_LONG, _GLOBAL, att_implementation=way), expected
            )
        with self.assertRaisesRegex(ValueError, "att_implementation"):
            model(_LONG, _GLOBAL, att_implementation="other")

    def test_attention_scores_of_an_encoder_of_compact_features(self):
        encoder = models.build_encoder(_ETC)
        features = {
            "long_token_ids": _LONG,
            "long_breakpoints": np.array([[0, 0, 0, 1, 0], [0, 0, 1, 0, 0]]),
            "sentence_ids": np.array([[0, 0, 1, 1, 2], [0, 0, 1, 2, 2]]),
            "global_token_ids": _GLOBAL,
            "global_breakpoints": np.array([[0, 1], [0, 1]]),
        }
        expected = encoder(features)
        model = encoder.get_layer("etc_document_bert")
        outputs, (scores,) = model(
            features,
            return_attention_scores=True,
            long_query_positions=[0, 2],
            global_query_positions=[1],
        )
        self.assertAllClose(expected["long_output"], outputs[0])
        self.assertAllClose(expected["global_output"], outputs[1])
        # Tokens of the text see each other and both global tokens.
        radius = _ETC.local_radius
        row = scores["l2l"][0, 0, 0]
        self.assertAllEqual(row[radius : radius + 5] > 0, [1, 1, 1, 1, 0])
        self.assertAllClose(
            np.sum(scores["l2l"], -1) + np.sum(scores["l2g"], -1),
            np.ones([2, _ETC.num_attention_heads, 2]),
        )
        self.assertEqual(1, scores["g2l"].shape[2])

    def test_inputs_by_name_or_as_arguments(self):
        model = models.EtcModel(_ETC)
        with self.assertRaisesRegex(ValueError, "global_token_ids"):
            model(_LONG)
        self.assertAllClose(
            model(_LONG, _GLOBAL),
            model({"token_ids": _LONG, "global_token_ids": _GLOBAL}),
        )
        token_type_ids = np.zeros_like(_LONG)
        self.assertAllClose(
            model(_LONG, _GLOBAL, token_type_ids),
            model(
                {"token_ids": _LONG},
                global_token_ids=_GLOBAL,
                token_type_ids=token_type_ids,
            ),
        )


if __name__ == "__main__":
    tf.test.main()
