import math
import os
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import EtcConfig
from etcmodel.models import EtcModel
from etcmodel.models import build_encoder
from etcmodel.models.etc import structured_etc_model as encoder_lib
from etcmodel.models.etc.side_inputs import SideInputs
from etcmodel.ops.attention import dispatch
from etcmodel.ops.attention import streaming
from etcmodel.weight_paths import get_weight_paths
from testing import model_inputs

_HARD_MASKS = {"use_hard_g2l_mask": True, "use_hard_l2g_mask": True}
_IGNORED = {"ignore_hard_g2l_types": (6, 7), "ignore_hard_l2g_types": (3,)}


def _make_config(**kwargs):
    return EtcConfig.from_preset(
        "tiny", **({"vocab_size": 20, "num_hidden_layers": 1} | kwargs)
    )


def _pad(batch, num):
    """Returns the batch with more padding."""
    return {
        name: np.pad(
            x,
            [[0, 0], [0, num]],
            constant_values=-1 if name.endswith("_ids") and x.min() < 0 else 0,
        )
        for name, x in batch.items()
    }


class OutputsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        used=encoder_lib.OUTPUTS,
        options=(
            {},
            {"share_feed_forward_params": False},
            {
                "share_feed_forward_params": False,
                "share_kv_projections": True,
                "share_att_output_projection": True,
            },
            {"share_qkv_projections": True, "use_pre_activation_order": True},
        ),
    )
    @pytest.mark.both_kerases
    def test_trainable_weights_have_a_gradient(self, used, options):
        """Checks that weights have a gradient if, and only if, they train."""
        config = _make_config(**options)
        both, one = (
            encoder_lib.StructuredEtcModel(config, outputs=x)
            for x in (encoder_lib.OUTPUTS, [used])
        )
        batch = model_inputs.make_sentences()
        with tf.GradientTape() as tape:
            output = both(batch)[encoder_lib.OUTPUTS.index(used)]
        paths = get_weight_paths(both)
        gradients = tape.gradient(output, list(paths.values()))
        one(batch)
        trained = [id(x) for x in one.trainable_weights]
        self.assertEqual(
            {
                path
                for path, gradient in zip(paths, gradients, strict=True)
                if gradient is not None
            },
            {x for x, y in get_weight_paths(one).items() if id(y) in trained},
        )
        self.assertLess(len(trained), len(paths))
        again = type(one).from_config(one.get_config())
        again(batch)
        self.assertLen(again.trainable_weights, len(trained))

    @pytest.mark.both_kerases
    @parameterized.parameters(*encoder_lib.OUTPUTS)
    def test_freezing_and_unfreezing(self, used):
        """Weights without a gradient stay untrainable after unfreezing."""
        encoder = build_encoder(_make_config(), outputs=[used])
        model = encoder.get_layer("etc_document_bert")
        stack = model.global_local_transformer_layers
        block = stack.fused_att_layers[-1]
        expected = [id(x) for x in encoder.trainable_weights]
        for part in (encoder, model, stack, block, block.inner_layer):
            part.trainable = False
            self.assertLess(len(encoder.trainable_weights), len(expected))
            part.trainable = True
            self.assertCountEqual(expected, map(id, encoder.trainable_weights))
        with tf.GradientTape() as tape:
            output = encoder(model_inputs.make_sentences())[used]
        self.assertNotIn(None, tape.gradient(output, encoder.trainable_weights))

    def test_build_encoder(self):
        encoder = build_encoder(_make_config(), outputs=["global_output"])
        self.assertEqual(["global_output"], [*encoder.output])
        with self.assertRaisesRegex(ValueError, "outputs is .*Expected one or"):
            build_encoder(_make_config(), outputs=["global"])


class StructuredEtcModelTest(tf.test.TestCase, parameterized.TestCase):
    def check_inputs(self, batch, structure="paragraphs", **expected):
        """Checks the arguments that the inner model is called with."""
        config = _make_config(
            max_absolute_position_embeddings=8, **expected.pop("config")
        )
        model = encoder_lib.StructuredEtcModel(config, structure=structure)
        with mock.patch.object(
            encoder_lib.etc_model.EtcModel,
            "call",
            side_effect=encoder_lib.etc_model.EtcModel.call,
            autospec=True,
        ) as call:
            model(batch)
        given = call.call_args.kwargs
        given["global_token_ids"] = call.call_args.args[2]
        for name, value in expected.items():
            self.assertAllEqual(value, given[name][0])

    def test_positions_of_paragraphs(self):
        # The question comes first and has one token.
        batch = model_inputs.make_paragraphs()
        first = {name: x.copy() for name, x in batch.items()}
        first["global_token_type_ids"][:, 0] = 5
        for inputs in (batch, first):
            self.check_inputs(
                inputs,
                config={"absolute_positions": "paragraph"},
                position_ids=[1, 2, 3, 4, 5, 2, 3],
                # The question has the third global token.
                global_position_ids=[0, 0, 1, 0, 0, 0, 0],
            )
        self.check_inputs(
            model_inputs.make_sentences(),
            "sentences",
            config={"absolute_positions": "paragraph"},
            position_ids=[1, 2, 3, 4, 5, 1, 2],
            global_position_ids=[0] * 3,
        )

    def test_question_words_in_global(self):
        batch = model_inputs.make_paragraphs()
        expected = batch["global_token_ids"][0]
        self.check_inputs(batch, config={}, global_token_ids=expected)
        # The question's token, 3, has the third global token.
        batch["long_token_ids"][:, 0] = 9
        self.check_inputs(
            batch,
            config={"question_words_in_global": True},
            global_token_ids=[4, 4, 9, 5, 1, 1, 0],
        )
        with self.assertRaisesRegex(ValueError, "question_words_in_global"):
            encoder_lib.StructuredEtcModel(
                _make_config(question_words_in_global=True)
            )

    @parameterized.parameters(
        ("sentences", _HARD_MASKS, {}),
        ("paragraphs", _HARD_MASKS, _IGNORED),
        ("paragraphs", {}, {"use_links": False}),
        ("paragraphs", {"use_hard_g2l_mask": True}, {"flat_sequence": True}),
    )
    def test_descriptions_give_the_same_as_tensors(
        self, structure, hard_masks, options
    ):
        batch = (
            model_inputs.make_sentences()
            if structure == "sentences"
            else model_inputs.make_paragraphs()
        )
        batch = {k: tf.constant(v) for k, v in batch.items()}
        # The weights are large, so that every pair matters.
        config = _make_config(initializer_range=0.2, **hard_masks)
        encoder = encoder_lib.StructuredEtcModel(config, structure, **options)
        encoder.build(None)
        plain = EtcModel(config)
        plain.build((None, None))
        plain.set_weights(encoder.get_weights())

        def call_plain(hard_masks, options):
            side_inputs = SideInputs(
                config.local_radius,
                config.relative_pos_max_distance,
                structure=structure,
                **hard_masks,
                **options,
            )(batch)
            if structure == "paragraphs":
                side_inputs |= {
                    "token_type_ids": batch["long_token_type_ids"],
                    "global_token_type_ids": batch["global_token_type_ids"],
                }
            return plain(
                batch["long_token_ids"],
                batch["global_token_ids"],
                **side_inputs,
            )

        expected = call_plain(hard_masks, options)
        others = call_plain({}, {})
        for a, b in zip(expected, others, strict=True):
            self.assertNotAllClose(a, b, 1e-3, 1e-3)
            # Uses `full` attention, and then the implementation for long texts.
        for longest in (256, 0):
            with mock.patch.object(dispatch, "MAX_AUTO_FULL_LENGTH", longest):
                actual = encoder(batch)
            for a, b in zip(expected, actual, strict=True):
                self.assertAllClose(a, b, 1e-5, 1e-5)

    def test_no_tensor_has_the_size_of_a_mask(self):
        long, global_, radius = 4096, 32, 20
        config = _make_config(
            hidden_size=8,
            num_attention_heads=1,
            intermediate_size=16,
            local_radius=radius,
            **_HARD_MASKS,
        )
        encoder = build_encoder(config, "paragraphs", **_IGNORED)
        features = {
            name: tf.TensorSpec(
                [1, global_ if name.startswith("global") else long], tf.int32
            )
            for name in encoder.input
        }
        weights = [
            # Keras 3 wraps variables, Keras 2 does not.
            weight if isinstance(weight, tf.Variable) else weight.value
            for weight in encoder.trainable_weights
        ]

        def encode(features):
            with tf.GradientTape() as tape:
                outputs = encoder(features, training=True)
                loss = tf.add_n([tf.reduce_sum(x) for x in outputs.values()])
            return tape.gradient(loss, weights)

        # Each chunk holds a quarter of the global queries' scores.
        with mock.patch.object(streaming, "CHUNK_ELEMENTS", 2**15):
            shapes = _all_shapes(encode, features)
        smallest_mask = long * min(global_, 2 * radius + 1)
        self.assertIn([1, long, 16], shapes)
        self.assertLess(max(map(math.prod, shapes)), smallest_mask)
        # `_all_shapes` finds a tensor of that size where one exists.
        shapes = _all_shapes(SideInputs(radius, 4, "paragraphs"), features)
        for sizes in ((long, 2 * radius + 1), (long, global_), (global_, long)):
            self.assertIn([1, *sizes], shapes)

    @pytest.mark.both_kerases
    def test_weights_are_those_of_etc_model(self):
        config = _make_config(max_absolute_position_embeddings=9)
        plain = EtcModel(config)
        plain.build((None, None))
        encoder = build_encoder(config)
        structured = encoder.get_layer("etc_document_bert")
        self.assertEqual(
            [w.shape for w in plain.get_weights()],
            [w.shape for w in encoder.get_weights()],
        )
        # Checkpoints use the paths of attributes.
        path = os.path.join(self.get_temp_dir(), "checkpoint")
        tf.train.Checkpoint(model=plain).write(path)
        tf.train.Checkpoint(model=structured).read(path).assert_consumed()
        for a, b in zip(
            plain.get_weights(), encoder.get_weights(), strict=True
        ):
            self.assertAllEqual(a, b)


def _all_shapes(function, *inputs):
    """Returns the static shapes of a function's tensors, even in its loops."""
    graph = tf.function(function).get_concrete_function(*inputs).graph
    graph = graph.as_graph_def(add_shapes=True)
    nodes = [*graph.node]
    for inner in graph.library.function:
        nodes += inner.node_def
    shapes = []
    for node in nodes:
        # This operation returns indices of axes; its outputs are small although
        # their static shapes are unknown.
        if node.op == "BroadcastGradientArgs":
            continue
        for shape in node.attr["_output_shapes"].list.shape:
            shapes.append([dim.size for dim in shape.dim])
            assert not shape.unknown_rank and -1 not in shapes[-1], node
    return shapes


class BuildEncoderTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("sentences", model_inputs.make_sentences),
        ("paragraphs", model_inputs.make_paragraphs),
    )
    @pytest.mark.both_kerases
    def test_inputs_and_outputs(self, structure, make_batch):
        model = build_encoder(_make_config(), structure)
        batch = make_batch()
        self.assertCountEqual(batch, model.input)
        for name, tensor in model.input.items():
            self.assertEqual("int32", tf.as_dtype(tensor.dtype).name)
            self.assertEqual((None, None), tuple(tensor.shape))
            self.assertEqual(name, tensor.name.split(":")[0])
        outputs = model(batch)
        for stream in ("long", "global"):
            self.assertEqual(
                (*batch[f"{stream}_token_ids"].shape, 32),
                outputs[f"{stream}_output"].shape,
            )
        for name, output in model(batch, training=True).items():
            self.assertNotAllClose(outputs[name], output)
        # Other int dtypes give the same outputs.
        as_int64 = {k: tf.constant(v, tf.int64) for k, v in batch.items()}
        self.assertAllClose(
            outputs["long_output"], model(as_int64)["long_output"], 1e-5
        )

    def test_keras_export(self):
        """Runs in Keras 3, since Keras 2 would export the inputs as a list."""
        model = build_encoder(_make_config())
        path = os.path.join(self.get_temp_dir(), "exported")
        model.export(path)
        loaded = tf.saved_model.load(path)
        batch = _pad(model_inputs.make_sentences(3), 2)
        self.assertAllClose(
            model(batch)["long_output"],
            loaded.serve({k: tf.constant(v) for k, v in batch.items()})[
                "long_output"
            ],
            1e-5,
            1e-5,
        )

    @pytest.mark.both_kerases
    def test_fitting_with_xla_and_a_last_batch_of_one(self):
        features = {
            name: np.concatenate([x[:1]] * 3)
            for name, x in model_inputs.make_sentences().items()
        }
        encoder = build_encoder(
            _make_config(num_hidden_layers=1, grad_checkpointing_period=1)
        )
        logits = tf.keras.layers.Dense(1)(
            encoder(encoder.input)["global_output"][:, 0]
        )
        model = tf.keras.Model(encoder.input, logits)
        model.compile("sgd", "mse", jit_compile=True)
        dataset = tf.data.Dataset.from_tensor_slices(
            (features, np.ones([3, 1], np.float32))
        )
        # Deleting an autotuned iterator can block for as long as `fit` ran.
        options = tf.data.Options()
        options.autotune.enabled = False
        model.fit(dataset.batch(2).with_options(options), verbose=0)
        for weight in model.get_weights():
            self.assertAllEqual(np.isfinite(weight), np.ones(weight.shape))


if __name__ == "__main__":
    tf.test.main()
