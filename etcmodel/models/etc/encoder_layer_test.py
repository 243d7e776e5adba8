import tensorflow as tf

from etcmodel.models import ReadTwiceConfig
from etcmodel.models.etc import encoder_layer


class _Layer(encoder_layer.EncoderLayer):
    config_class = ReadTwiceConfig

    def __init__(self, config, factor=2, **kwargs):
        super().__init__(config, **kwargs)
        self.factor = factor

    def call(self, x):
        return self.factor * x

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


class EncoderLayerTest(tf.test.TestCase):
    def test_config(self):
        config = ReadTwiceConfig.from_preset("tiny")
        layer = _Layer(config, factor=3, name="a")
        config.hidden_size = 0
        # The layer copies its configuration.
        self.assertEqual(32, layer.config.hidden_size)
        copy = _Layer.from_config(layer.get_config())
        self.assertEqual(layer.config, copy.config)
        self.assertEqual(("a", 3), (copy.name, copy.factor))
        with self.assertRaisesRegex(ValueError, "hidden_size is 0"):
            _Layer(config)

    def test_no_embedding_table_before_build(self):
        layer = _Layer(ReadTwiceConfig.from_preset("tiny"))
        with self.assertRaisesRegex(ValueError, "once the model is built"):
            layer.get_token_embedding_table()


if __name__ == "__main__":
    tf.test.main()
