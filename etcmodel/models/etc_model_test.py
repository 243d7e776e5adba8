import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import EtcConfig
from etcmodel.models import EtcModel


def _make_config(**kwargs):
    return EtcConfig.from_preset(
        "tiny", **({"vocab_size": 20, "num_hidden_layers": 1} | kwargs)
    )


def _make_ids(batch=2, long=7, global_=3):
    rng = np.random.default_rng(0)
    return [
        tf.constant(rng.integers(0, 20, size=[batch, n]), tf.int32)
        for n in (long, global_)
    ]


def _count(config):
    """Number of weights; a graph's variables take no memory."""
    with tf.Graph().as_default():
        model = EtcModel(config)
        model.build((None, None))
        return sum(int(np.prod(v.shape)) for v in model.trainable_variables)


class ParameterCountTest(tf.test.TestCase, parameterized.TestCase):
    # ETC paper, Table 8: 109 M, 166 M, 558 M.
    @parameterized.parameters(
        ("base_shared", 109_128_192),
        ("base", 165_825_024),
        ("large", 558_568_448),
    )
    def test_presets(self, preset, expected):
        self.assertEqual(expected, _count(EtcConfig.from_preset(preset)))

    def test_defaults_of_the_original(self):
        self.assertEqual(116_215_296, _count(EtcConfig(vocab_size=30522)))

    def test_count_in_a_graph_is_that_of_a_real_model(self):
        config = _make_config()
        model = EtcModel(config)
        model(*_make_ids())
        self.assertEqual(_count(config), model.count_params())


class EtcModelTest(tf.test.TestCase, parameterized.TestCase):
    def test_output_shapes(self):
        model = EtcModel(_make_config())
        long_output, global_output = model(*_make_ids())
        self.assertEqual([2, 7, 32], long_output.shape)
        self.assertEqual([2, 3, 32], global_output.shape)

    def test_names(self):
        model = EtcModel(_make_config(max_absolute_position_embeddings=9))
        self.assertEqual("etc_document_bert", model.name)
        for name in (
            "token_emb_lookup",
            "segment_emb_lookup",
            "position_emb_lookup_long",
            "position_emb_lookup_global",
            "long_emb_layer_norm",
            "global_emb_layer_norm",
            "global_local_transformer_layers",
        ):
            self.assertEqual(name, getattr(model, name).name)

    def test_embeddings(self):
        model = EtcModel(_make_config(max_absolute_position_embeddings=9))
        long_ids, global_ids = _make_ids()
        rng = np.random.default_rng(1)
        segment_ids = rng.integers(0, 16, size=[2, 7])
        position_ids = rng.integers(0, 9, size=[2, 7])
        adder = rng.normal(size=[2, 3, 32])
        streams = []
        transformer = model.global_local_transformer_layers
        original_call = transformer.call
        object.__setattr__(
            transformer,
            "call",
            lambda *args, **kwargs: (
                streams.append(args) or original_call(*args, **kwargs)
            ),
        )
        model.build((None, None))
        model.call(
            long_ids,
            global_ids,
            segment_ids=tf.constant(segment_ids),
            position_ids=tf.constant(position_ids),
            global_embedding_adder=tf.constant(adder, tf.float32),
        )

        def norm(x):
            x = x - x.mean(-1, keepdims=True)
            return x / x.std(-1, keepdims=True)

        tokens = model.token_emb_lookup.get_weights()[0]
        segments = model.segment_emb_lookup.get_weights()[0]
        long_positions = model.position_emb_lookup_long.get_weights()[0]
        global_positions = model.position_emb_lookup_global.get_weights()[0]
        expected_long = norm(
            tokens[np.array(long_ids)]
            + segments[segment_ids]
            + long_positions[position_ids]
        )
        # Global tokens have type 0 and positions 0, 1, 2 by default.
        expected_global = norm(
            tokens[np.array(global_ids)]
            + segments[0]
            + global_positions[:3]
            + adder
        )
        self.assertAllClose(expected_long, streams[0][0], 1e-4, 1e-4)
        self.assertAllClose(expected_global, streams[0][1], 1e-4, 1e-4)

    def test_default_types(self):
        model = EtcModel(_make_config())
        ids = _make_ids()
        expected = model(
            *ids,
            segment_ids=tf.ones_like(ids[0]),
            global_segment_ids=tf.zeros_like(ids[1]),
        )
        self.assertAllClose(expected, model(*ids))
        other = model(*ids, segment_ids=tf.zeros_like(ids[0]))
        self.assertNotAllClose(expected[0], other[0])

    def test_one_hot_lookups_give_the_same(self):
        config = _make_config(embedding_size=8)
        model = EtcModel(config)
        other = EtcModel(
            config,
            use_one_hot_embeddings=True,
            use_one_hot_relative_embeddings=True,
        )
        ids = _make_ids()
        labels = {
            "g2g_relative_att_ids": tf.ones([2, 3, 3], tf.int32),
            "g2l_relative_att_ids": tf.ones([2, 3, 7], tf.int32),
        }
        expected = model(*ids, **labels)
        other.build((None, None))
        other.set_weights(model.get_weights())
        actual = other(*ids, **labels)
        for a, b in zip(expected, actual, strict=True):
            self.assertAllClose(a, b, 1e-5, 1e-5)

    def test_factorised_embeddings(self):
        model = EtcModel(_make_config(embedding_size=8))
        with self.assertRaisesRegex(ValueError, "built"):
            model.get_token_embedding_table()
        model(*_make_ids())
        self.assertEqual(
            (20, 8), tuple(model.get_token_embedding_table().shape)
        )
        self.assertEqual(
            (8, 32), tuple(model.token_emb_lookup.projection.kernel.shape)
        )

    def test_is_training(self):
        ids = _make_ids()
        config = _make_config(hidden_dropout_prob=0.3)
        model = EtcModel(config, is_training=True)
        self.assertNotAllClose(model(*ids)[0], model(*ids)[0])
        with self.assertRaisesRegex(ValueError, "is_training=True"):
            model(*ids, training=True)
        model = EtcModel(config, is_training=False)
        self.assertAllEqual(model(*ids)[0], model(*ids)[0])
        with self.assertRaisesRegex(ValueError, "is_training=False"):
            model(*ids, training=False)
        model = EtcModel(config)
        self.assertAllEqual(model(*ids)[0], model(*ids)[0])
        self.assertNotAllClose(
            model(*ids, training=True)[0], model(*ids, training=True)[0]
        )

    @parameterized.parameters(False, True)
    def test_is_training_decides_in_a_functional_model(self, is_training):
        inputs = [tf.keras.Input([None], dtype="int32") for _ in range(2)]
        encoder = EtcModel(
            _make_config(hidden_dropout_prob=0.3), is_training=is_training
        )
        model = tf.keras.Model(inputs, encoder(*inputs))
        ids = _make_ids()
        for options in ({}, {"training": True}, {"training": False}):
            first, second = model(ids, **options), model(ids, **options)
            same = np.array_equal(first[0], second[0])
            self.assertEqual(not is_training, same, options)

    def test_the_config_is_a_copy(self):
        config = _make_config()
        model = EtcModel(config)
        config.hidden_size = 5
        self.assertEqual(32, model.config.hidden_size)

    def test_config_round_trip(self):
        model = EtcModel(
            _make_config(hidden_act="relu"),
            is_training=False,
            use_one_hot_embeddings=True,
            name="x",
            dtype="mixed_bfloat16",
        )
        config = model.get_config()
        other = EtcModel.from_config(config)
        self.assertEqual(config, other.get_config())
        self.assertEqual("relu", other.config.hidden_act)

    def test_errors(self):
        ids = _make_ids()
        with self.assertRaisesRegex(ValueError, "positions? ids .* long"):
            EtcModel(_make_config())(*ids, position_ids=ids[0])
        with self.assertRaisesRegex(ValueError, "positions? ids .* global"):
            EtcModel(_make_config())(*ids, global_position_ids=ids[1])
        with self.assertRaisesRegex(ValueError, "relative_vocab_size"):
            EtcModel(_make_config(relative_vocab_size=11))
        with self.assertRaisesRegex(ValueError, "relative_vocab_size"):
            EtcModel(_make_config(relative_vocab_size=None))

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    def test_mixed_precision(self, policy):
        model = EtcModel(_make_config(), dtype=policy)
        for output in model(*_make_ids(), training=True):
            self.assertEqual(policy.split("_")[1], output.dtype.name)
            self.assertTrue(np.all(np.isfinite(np.array(output, np.float32))))

    def test_no_two_matrices_are_equal(self):
        model = EtcModel(_make_config(max_absolute_position_embeddings=16))
        model(*_make_ids())
        matrices = [w for w in model.get_weights() if w.ndim > 1 and np.any(w)]
        for i, first in enumerate(matrices):
            for second in matrices[:i]:
                if first.shape == second.shape:
                    self.assertNotAllClose(first, second)


if __name__ == "__main__":
    tf.test.main()
