import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import feature_utils
from etcmodel.models import EtcConfig
from etcmodel.models import build_encoder
from etcmodel.models import encoder as encoder_lib


def _make_config(**kwargs):
    return EtcConfig.from_preset(
        "tiny", **({"vocab_size": 20, "num_hidden_layers": 1} | kwargs)
    )


def _make_sentences(batch=2):
    """Two sentences and padding."""
    row = {
        "long_token_ids": [5, 6, 7, 8, 9, 0, 0],
        "long_breakpoints": [0, 0, 0, 0, 1, 0, 0],
        "sentence_ids": [0, 0, 1, 1, 1, 0, 0],
        "global_token_ids": [1, 1, 0],
        "global_breakpoints": [0, 1, 0],
    }
    return {k: np.array([v] * batch, np.int32) for k, v in row.items()}


def _make_paragraphs(batch=2):
    """A question of one token, two candidates, a paragraph, padding."""
    row = {
        "long_token_ids": [3, 6, 7, 8, 9, 0, 0],
        "long_token_type_ids": [3, 1, 1, 1, 1, 0, 0],
        "long_sentence_ids": [2, 4, 4, 5, 5, -1, -1],
        "long_paragraph_ids": [-1, 3, 3, 3, 3, -1, -1],
        "long_paragraph_breakpoints": [1, 0, 0, 0, 1, 0, 0],
        "l2g_linked_ids": [-1, 0, -1, 1, -1, -1, -1],
        "global_token_ids": [4, 4, 3, 5, 1, 1, 0],
        "global_token_type_ids": [6, 6, 5, 7, 1, 1, 0],
        "global_paragraph_breakpoints": [0, 1, 1, 0, 0, 1, 0],
    }
    return {k: np.array([v] * batch, np.int32) for k, v in row.items()}


def _pad(batch, num):
    """The same batch with more padding."""
    return {
        name: np.pad(
            x,
            [[0, 0], [0, num]],
            constant_values=-1 if name.endswith("_ids") and x.min() < 0 else 0,
        )
        for name, x in batch.items()
    }


class SideInputsTest(tf.test.TestCase):
    def test_sentences(self):
        layer = encoder_lib.SideInputs(4, 4, use_hard_g2l_mask=True)
        batch = _make_sentences()
        actual = layer({k: tf.constant(v) for k, v in batch.items()})
        expected = feature_utils.make_global_local_transformer_side_inputs(
            batch["long_breakpoints"],
            batch["global_breakpoints"],
            batch["sentence_ids"],
            local_radius=4,
            relative_pos_max_distance=4,
            use_hard_g2l_mask=True,
        ).to_dict()
        self.assertCountEqual(expected, actual)
        for name in expected:
            self.assertAllEqual(expected[name], actual[name])
        # The first global token sees the first sentence only.
        self.assertAllEqual([1, 1, 0, 0, 0, 0, 0], actual["g2l_att_mask"][0, 0])

    def test_paragraphs(self):
        batch = {k: tf.constant(v) for k, v in _make_paragraphs().items()}
        side_inputs = encoder_lib.SideInputs(
            4,
            4,
            structure="paragraphs",
            use_hard_g2l_mask=True,
            use_hard_l2g_mask=True,
            ignore_hard_g2l_types=(6, 7),
            ignore_hard_l2g_types=(3,),
        )(batch)
        # Rows: 2 candidates, question, paragraph, 2 sentences, padding.
        self.assertAllEqual(
            [
                [1, 1, 1, 1, 1, 0, 0],
                [1, 1, 1, 1, 1, 0, 0],
                [1, 0, 0, 0, 0, 0, 0],
                [1, 1, 1, 1, 1, 0, 0],
                [0, 1, 1, 0, 0, 0, 0],
                [0, 0, 0, 1, 1, 0, 0],
                [0, 0, 0, 0, 0, 0, 0],
            ],
            side_inputs["g2l_att_mask"][0],
        )
        # Question tokens see all global tokens, others their own.
        self.assertAllEqual(
            [[1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 0, 0]],
            side_inputs["l2g_att_mask"][0, :2],
        )
        # 9 distances; then 9 is "not linked" and 10 "linked".
        self.assertAllEqual(
            [10, 9, 9, 10, 10, 9, 9],
            side_inputs["l2g_relative_att_ids"][0, 1],
        )
        no_links = encoder_lib.SideInputs(
            4, 4, structure="paragraphs", use_links=False
        )(batch)
        self.assertAllEqual(
            [9, 9, 9, 10, 10, 9, 9], no_links["l2g_relative_att_ids"][0, 1]
        )
        flat = encoder_lib.SideInputs(
            4, 4, structure="paragraphs", flat_sequence=True
        )(batch)
        self.assertAllEqual(
            [0, 0, 0, 0, 1, 1, 1, 1, 1], flat["l2l_att_mask"][0, 0]
        )

    def test_without_labels(self):
        batch = {k: tf.constant(v) for k, v in _make_sentences().items()}
        self.assertCountEqual(
            ["l2l_att_mask", "g2g_att_mask", "l2g_att_mask", "g2l_att_mask"],
            encoder_lib.SideInputs(4, 0)(batch),
        )

    def test_config_round_trip_and_errors(self):
        layer = encoder_lib.SideInputs(
            4,
            3,
            structure="paragraphs",
            use_hard_l2g_mask=True,
            flat_sequence=True,
            use_links=False,
            ignore_hard_g2l_types=[6, 5],
        )
        config = layer.get_config()
        other = encoder_lib.SideInputs.from_config(config)
        self.assertEqual(config, other.get_config())
        with self.assertRaisesRegex(ValueError, "'trees'"):
            encoder_lib.SideInputs(4, 3, structure="trees")
        with self.assertRaisesRegex(ValueError, "flat_sequence"):
            encoder_lib.SideInputs(4, 3, flat_sequence=True)


class BuildEncoderTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("sentences", _make_sentences), ("paragraphs", _make_paragraphs)
    )
    def test_inputs_and_outputs(self, structure, make_batch):
        model = build_encoder(_make_config(), structure)
        batch = make_batch()
        self.assertCountEqual(batch, model.input)
        for name, tensor in model.input.items():
            self.assertEqual("int32", tf.as_dtype(tensor.dtype).name)
            self.assertEqual((None, None), tuple(tensor.shape))
            self.assertEqual(name, tensor.name.split(":")[0])
        outputs = model(batch)
        self.assertEqual(
            batch["long_token_ids"].shape + (32,), outputs["long_output"].shape
        )
        self.assertEqual(
            batch["global_token_ids"].shape + (32,),
            outputs["global_output"].shape,
        )
        # More padding does not change what is there.
        padded = model(_pad(batch, 4))
        self.assertAllClose(
            outputs["long_output"][:, :5], padded["long_output"][:, :5], 1e-5
        )
        self.assertAllClose(
            outputs["global_output"][:, :2],
            padded["global_output"][:, :2],
            1e-5,
        )
        # Other dtypes of ints do not change anything.
        as_int64 = {k: tf.constant(v, tf.int64) for k, v in batch.items()}
        self.assertAllClose(
            outputs["long_output"], model(as_int64)["long_output"], 1e-5
        )

    def test_packed_examples_do_not_see_each_other(self):
        model = build_encoder(_make_config())
        rng = np.random.default_rng(0)
        parts = []
        for long, global_ in ((4, 2), (3, 1)):
            parts.append(
                {
                    "long_token_ids": rng.integers(1, 20, [1, long]),
                    "long_breakpoints": np.eye(long)[-1:],
                    "sentence_ids": np.arange(long)[None] % global_,
                    "global_token_ids": rng.integers(1, 20, [1, global_]),
                    "global_breakpoints": np.eye(global_)[-1:],
                }
            )
        packed = {
            k: np.concatenate([parts[0][k], parts[1][k]], axis=1)
            for k in parts[0]
        }
        packed["sentence_ids"][0, 4:] += 2

        def encode(batch):
            return model(
                {k: tf.constant(v, tf.int32) for k, v in batch.items()}
            )

        together = encode(packed)
        first, second = encode(parts[0]), encode(parts[1])
        for name in ("long_output", "global_output"):
            expected = tf.concat([first[name], second[name]], axis=1)
            self.assertAllClose(expected, together[name], 1e-5, 1e-5)

    def test_token_types_are_segment_ids(self):
        model = build_encoder(_make_config(), "paragraphs")
        batch = _make_paragraphs()
        expected = model(batch)
        for name in ("long_token_type_ids", "global_token_type_ids"):
            changed = dict(batch, **{name: batch[name] + 1})
            self.assertNotAllClose(
                expected["global_output"], model(changed)["global_output"]
            )

    def test_static_lengths(self):
        model = build_encoder(_make_config(), long_length=7, global_length=3)
        self.assertEqual((None, 7), tuple(model.input["sentence_ids"].shape))
        self.assertEqual(
            (None, 3, 32), tuple(model.output["global_output"].shape)
        )

    def test_saving(self):
        model = build_encoder(
            _make_config(embedding_size=8, use_hard_g2l_mask=True),
            "paragraphs",
            ignore_hard_g2l_types=(6, 5),
        )
        batch = _make_paragraphs()
        expected = model(batch)
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = tf.keras.models.load_model(path)
        self.assertAllClose(
            expected["long_output"], loaded(batch)["long_output"], 1e-6, 1e-6
        )
        self.assertEqual(
            (6, 5),
            tuple(loaded.get_layer("side_inputs").ignore_hard_g2l_types),
        )

    def test_saved_model_with_lengths_unknown(self):
        model = build_encoder(_make_config())
        module = tf.Module()
        module.model = model
        specs = {
            name: tf.TensorSpec([None, None], tf.int32, name=name)
            for name in model.input
        }
        module.serve = tf.function(
            lambda features: model(features, training=False),
            input_signature=[specs],
        )
        path = os.path.join(self.get_temp_dir(), "saved_model")
        tf.saved_model.save(
            module, path, signatures={"serving_default": module.serve}
        )
        signature = tf.saved_model.load(path).signatures["serving_default"]
        _, inputs = signature.structured_input_signature
        self.assertCountEqual(_make_sentences(), inputs)
        for batch in (_make_sentences(1), _pad(_make_sentences(3), 5)):
            actual = signature(**{k: tf.constant(v) for k, v in batch.items()})
            expected = model(batch)
            for name in ("long_output", "global_output"):
                self.assertAllClose(expected[name], actual[name], 1e-5, 1e-5)

    def test_keras_export(self):
        if not hasattr(tf.keras, "__version__"):
            self.skipTest("Keras 2 exports its inputs as a list")
        model = build_encoder(_make_config())
        path = os.path.join(self.get_temp_dir(), "exported")
        model.export(path)
        loaded = tf.saved_model.load(path)
        batch = _pad(_make_sentences(3), 2)
        self.assertAllClose(
            model(batch)["long_output"],
            loaded.serve({k: tf.constant(v) for k, v in batch.items()})[
                "long_output"
            ],
            1e-5,
            1e-5,
        )

    def test_composing_and_fitting(self):
        encoder = build_encoder(
            _make_config(num_hidden_layers=2, grad_checkpointing_period=1)
        )
        inputs = {
            name: tf.keras.Input(tensor.shape[1:], dtype="int32", name=name)
            for name, tensor in encoder.input.items()
        }
        outputs = tf.keras.layers.Dense(2)(encoder(inputs)["global_output"])
        model = tf.keras.Model(inputs, outputs)
        model.compile(
            # Adam takes three times as long to trace.
            tf.keras.optimizers.SGD(0.1),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        before = [np.array(w) for w in model.get_weights()]
        labels = np.array([[0, 1, 0], [1, 0, 0]])
        history = model.fit(
            _make_sentences(), labels, batch_size=2, epochs=2, verbose=0
        )
        self.assertTrue(np.all(np.isfinite(history.history["loss"])))
        num_changed = sum(
            not np.array_equal(a, b)
            for a, b in zip(before, model.get_weights(), strict=True)
        )
        # The loss does not see the last layer's long output: its queries, the
        # local and the global-to-long keys and values, labels, output
        # projection (kernel and bias or two tables each) and norm stay.
        self.assertEqual(len(before) - 8 * 2, num_changed)

    def test_mixed_precision(self):
        model = build_encoder(_make_config(), dtype="mixed_bfloat16")
        outputs = model(_make_sentences())
        self.assertEqual(tf.bfloat16, outputs["global_output"].dtype)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "'trees'"):
            build_encoder(_make_config(), "trees")
        with self.assertRaisesRegex(ValueError, "vocab_size"):
            build_encoder(_make_config(vocab_size=0))


if __name__ == "__main__":
    tf.test.main()
