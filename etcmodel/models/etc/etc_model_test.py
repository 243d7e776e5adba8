import numpy as np
import pytest
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


def _count(num_layers=1, preset="tiny", **kwargs):
    """Counts the weights of a model built in a graph, to use no memory."""
    config = EtcConfig.from_preset(preset, **kwargs)
    config.num_hidden_layers = num_layers
    with tf.Graph().as_default():
        model = EtcModel(config)
        model.build((None, None))
        return sum(int(np.prod(v.shape)) for v in model.trainable_variables)


class ParameterCountTest(tf.test.TestCase, parameterized.TestCase):
    # ETC paper, Table 8: 109 M, 166 M, 558 M.
    @parameterized.parameters(
        ("base_shared", {}, 109_128_192),
        ("base", {}, 165_825_024),
        ("large", {}, 558_568_448),
        # The original code's defaults.
        ("base", dict(share_qkv_projections=True), 116_215_296),
    )
    def test_presets(self, preset, kwargs, expected):
        layers = EtcConfig.from_preset(preset).num_hidden_layers
        # All layers have the same number of weights.
        one, two = (_count(n, preset, **kwargs) for n in (1, 2))
        self.assertEqual(expected, one + (layers - 1) * (two - one))

    def test_count_in_a_graph_equals_the_eager_count(self):
        model = EtcModel(EtcConfig.from_preset("tiny", num_hidden_layers=3))
        model.build((None, None))
        one, two = _count(1), _count(2)
        self.assertEqual(one + 2 * (two - one), model.count_params())


class EtcModelTest(tf.test.TestCase, parameterized.TestCase):
    def test_default_types_and_positions(self):
        model = EtcModel(_make_config(max_absolute_position_embeddings=9))
        ids = _make_ids()
        # [1, length]
        positions = [tf.range(x.shape[1])[tf.newaxis] for x in ids]
        given = dict(
            token_type_ids=tf.ones_like(ids[0]),
            global_token_type_ids=tf.zeros_like(ids[1]),
            position_ids=positions[0],
            global_position_ids=positions[1],
        )
        expected = model(*ids)
        self.assertAllClose(expected, model(*ids, **given))
        for name, value in given.items():
            other = model(*ids, **(given | {name: value + 1}))
            self.assertNotAllClose(expected[0], other[0])

    def test_one_hot_lookups_give_the_same_outputs(self):
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

    @pytest.mark.both_kerases
    def test_dict_with_options_that_are_not_tensors(self):
        model = EtcModel(_make_config())
        ids = _make_ids()
        by_name = {"token_ids": ids[0], "global_token_ids": ids[1]}
        options = {
            "att_implementation": "sparse",
            "return_attention_scores": True,
        }
        expected, (scores,) = model(*ids, **options)
        actual, (other,) = model(by_name | options)
        self.assertAllClose(expected, actual)
        self.assertAllClose(scores["l2l"], other["l2l"])

    @pytest.mark.both_kerases
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
    @pytest.mark.both_kerases
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

    def test_errors(self):
        ids = _make_ids()
        with self.assertRaisesRegex(ValueError, "positions? ids .* long"):
            EtcModel(_make_config())(*ids, position_ids=ids[0])
        with self.assertRaisesRegex(ValueError, "positions? ids .* global"):
            EtcModel(_make_config())(*ids, global_position_ids=ids[1])
        with self.assertRaisesRegex(ValueError, "relative_vocab_size"):
            EtcModel(_make_config(relative_vocab_size=11))


if __name__ == "__main__":
    tf.test.main()
