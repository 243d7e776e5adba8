import os
import re

import numpy as np
import tensorflow as tf

from etcmodel import models
from etcmodel.checkpoints import load_checkpoint
from etcmodel.checkpoints import load_head
from etcmodel.checkpoints import save_etc
from etcmodel.feature_utils.layout import spec as spec_lib
from etcmodel.models.etc.pretraining import EtcPretrainModel
from etcmodel.tasks.documents.span_model import SpanAnswerHead
from testing.models import set_random_weights

_TOKENS = np.array([[3, 4, 5, 6, 0], [7, 8, 3, 0, 0]], np.int32)
_GLOBAL = np.array([[1, 1], [1, 2]], np.int32)


def _config(**options):
    return models.EtcConfig.from_preset(
        "tiny", **({"vocab_size": 9, "num_hidden_layers": 1} | options)
    )


def _with_head(encoder):
    scores = tf.keras.layers.Dense(1)(encoder.output["global_output"])
    return tf.keras.Model(encoder.input, scores)


class LoadCheckpointTest(tf.test.TestCase):
    def _write(self, **parts):
        checkpoint = tf.train.Checkpoint(**parts)
        return checkpoint.write(os.path.join(self.get_temp_dir(), "it"))

    def _assert_same_weights(self, *models):
        for x, y in zip(*(x.get_weights() for x in models), strict=True):
            self.assertAllEqual(x, y)

    def test_encoder_from_a_trained_model_with_a_head(self):
        encoder = models.build_encoder(_config(share_feed_forward_params=False))
        model = _with_head(encoder)
        model.compile("adam", "mse")
        inputs = {
            name: _GLOBAL if "global" in name else _TOKENS
            for name in encoder.input
        }
        for name in ("long_breakpoints", "global_breakpoints"):
            # Each row holds one text.
            inputs[name] = np.zeros_like(inputs[name])
            inputs[name][:, -1] = 1
        inputs["sentence_ids"] = np.zeros_like(_TOKENS)
        model.fit(inputs, np.zeros([2, 2, 1]), verbose=0)
        path = self._write(trained=model, step=tf.Variable(7))
        other = models.EtcModel(_config(share_feed_forward_params=False))
        load_checkpoint(other, path)
        self._assert_same_weights(other, encoder)
        # The head is outside of the encoder.
        around = _with_head(models.build_encoder(other.config))
        before = around.layers[-1].get_weights()[0]
        load_checkpoint(around, path)
        self.assertAllEqual(around.layers[-1].get_weights()[0], before)
        self._assert_same_weights(around.layers[-2], encoder)

    def test_encoder_trained_alone(self):
        model = models.EtcModel(_config())
        model.compile("adam", ["mse", None])
        model.fit(
            {"token_ids": _TOKENS, "global_token_ids": _GLOBAL},
            [np.zeros([2, 5, 32]), np.zeros([2, 2, 32])],
            verbose=0,
        )
        path = self._write(model=model)
        other = models.EtcModel(_config())
        load_checkpoint(other, path)
        self._assert_same_weights(other, model)

    def test_lists_all_differences_and_loads_nothing(self):
        saved = models.EtcModel(_config(vocab_size=8, num_hidden_layers=2))
        saved.build(None)
        path = self._write(model=saved)
        model = models.EtcModel(_config(max_absolute_position_embeddings=5))
        model.build(None)
        before = model.get_weights()
        with self.assertRaises(ValueError) as raised:
            load_checkpoint(model, path)
        message = str(raised.exception)
        for text in (
            path,
            "missing in the checkpoint:\n  position_emb_lookup_long/"
            "embedding_table\n  position_emb_lookup_global/embedding_table\n",
            "shapes differ:\n  token_emb_lookup/embedding_table [8, 32], in "
            "the model [9, 32]",
        ):
            self.assertIn(text, message)
        # A layer has 38 weights: 28 in attention, 4 in its normalizations, 6 in
        # the feed-forward block.
        self.assertLen(
            re.findall(
                r"\n  global_local_transformer_layers/\w+_layers_1/", message
            ),
            38,
        )
        self.assertAllEqual(model.get_weights()[0], before[0])

    def test_checkpoint_may_lack_layers_that_embed_values(self):
        """Accepts a checkpoint (in both formats) that lacks an entire layer."""
        spec = spec_lib.LayoutSpec(
            [spec_lib.Section("text")],
            values=[spec_lib.Value("place", "text", shape=(2,), embed=True)],
        )
        plain = models.build_encoder(_config(), "paragraphs")
        original = os.path.join(self.get_temp_dir(), "original")
        save_etc(plain, original)
        for path in (self._write(model=plain), original):
            encoder = models.build_encoder(_config(), spec)
            *_, place = encoder.get_weights()
            load_checkpoint(encoder, path)
            for x, y in zip(
                [*plain.get_weights(), place],
                encoder.get_weights(),
                strict=True,
            ):
                self.assertAllEqual(x, y)
        path = self._write(model=encoder)
        other = models.build_encoder(_config(), spec)
        load_checkpoint(other, path)
        self._assert_same_weights(other, encoder)
        with self.assertRaisesRegex(
            ValueError, r"but not in the model:\s+.*place_projection/_?kernel"
        ):
            load_checkpoint(plain, path)
        # A checkpoint must have all weights of an added layer, or none.
        layer = tf.keras.layers.Dense(32)
        other = models.build_encoder(
            _config(), spec, value_layers={"place": layer}
        )
        with self.assertRaisesRegex(
            ValueError, r"missing in the checkpoint:\s+place_projection/bias"
        ):
            load_checkpoint(other, path)

    def test_lora(self):
        """LoRA is merged, and starts anew in an encoder that has it."""
        inputs = {"token_ids": _TOKENS, "global_token_ids": _GLOBAL}
        trained = models.EtcModel(_config())
        models.add_lora(trained, 2)
        expected_without = trained(inputs)
        set_random_weights(trained, 0.2)
        path = self._write(model=trained)
        expected = trained(inputs)
        self.assertNotAllClose(expected_without[0], expected[0], 0.1, 0.1)
        for has_lora in (False, True):
            other = models.EtcModel(_config())
            if has_lora:
                models.add_lora(other, 3)
                set_random_weights(other, 0.2, seed=1)
            load_checkpoint(other, path)
            for x, y in zip(expected, other(inputs), strict=True):
                self.assertAllClose(x, y, 1e-5, 1e-5)
        # The original format has the sums, too.
        save_etc(trained, directory := f"{self.get_temp_dir()}/lora")
        for encoder in (models.EtcModel(_config()), other):
            encoder.build(None)
            set_random_weights(encoder, 0.2, seed=2)
            load_checkpoint(encoder, directory)
            for x, y in zip(expected, encoder(inputs), strict=True):
                self.assertAllClose(x, y, 1e-5, 1e-5)

    def test_another_encoder_class(self):
        for saved, message in (
            (
                models.build_read_twice_encoder(
                    models.ReadTwiceConfig.from_preset("tiny", vocab_size=9)
                ),
                r"is of a ReadTwiceModel, but \w+ is an EtcModel.*build a Re",
            ),
            (
                # Names as in the Model Garden's encoders.
                tf.train.Checkpoint(
                    _embedding_layer=tf.train.Checkpoint(
                        embeddings=tf.Variable([0.0])
                    )
                ),
                "is of a BERT.* lift",
            ),
            (tf.train.Checkpoint(x=tf.Variable(0.0)), r"has 0 .none."),
        ):
            path = self._write(model=saved)
            with self.assertRaisesRegex(ValueError, message):
                load_checkpoint(models.EtcModel(_config()), path)

    def test_several_encoders(self):
        first, second = (models.EtcModel(_config()) for _ in range(2))
        for model in (first, second):
            model.build(None)
        path = self._write(first=first, second=second)
        model = models.EtcModel(_config())
        with self.assertRaisesRegex(ValueError, "'first', 'second'.*prefix"):
            load_checkpoint(model, path)
        load_checkpoint(model, path, prefix="second")
        self.assertAllEqual(model.weights[0], second.weights[0])
        with self.assertRaisesRegex(ValueError, "at 'third'"):
            load_checkpoint(model, path, prefix="third")

    def test_no_encoder_in_the_model(self):
        dense = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        with self.assertRaisesRegex(ValueError, "EtcModel or ReadTwiceModel"):
            load_checkpoint(dense, "/nothing")

    def _pretraining(self, **options):
        model = EtcPretrainModel(_config(**options))
        for weight in model.trainable_variables:
            weight.assign(tf.random.normal(weight.shape))
        return model

    def test_heads(self):
        source, target = self._pretraining(), self._pretraining()
        path = self._write(model=source)
        encoder = [x.numpy() for x in target.encoder.weights]
        for name in ("head", "contrast"):
            self.assertTrue(load_head(getattr(target, name), path))
            self._assert_same_weights(
                getattr(source, name), getattr(target, name)
            )
        for x, y in zip(encoder, target.encoder.weights, strict=True):
            self.assertAllEqual(x, y)
        other = self._pretraining(vocab_size=8).head
        with self.assertRaisesRegex(ValueError, r"shapes differ:\s+output_b"):
            load_head(other, path)
        self.assertFalse(load_head(target.head, self._write(x=source.encoder)))

    def test_heads_with_the_same_names(self):
        """Distinguishes two dense layers by their shapes."""
        encoder = models.EtcModel(_config())
        encoder.build(None)
        source, target = (
            [tf.keras.layers.Dense(x) for x in (3, 2)] for _ in range(2)
        )
        for layer in (*source, *target):
            layer.build((None, 5))
        path = self._write(first=source[0], model=encoder, second=source[1])
        for x, y in zip(source, target, strict=True):
            self.assertTrue(load_head(y, path))
            self._assert_same_weights(x, y)
        path = self._write(first=source[0], second=source[0])
        self.assertTrue(load_head(target[0], path))
        twin = tf.keras.layers.Dense(3)
        twin.build((None, 5))
        path = self._write(first=source[0], second=twin)
        self.assertFalse(load_head(target[0], path))

    def test_parts_that_a_head_may_lack(self):
        """Loads a head without "no answer" into a head that has this part."""
        source, target = (
            SpanAnswerHead(has_no_answer=x) for x in (False, True)
        )
        for head in (source, target):
            head.build((None, 3, 8))
        path = self._write(head=source)
        new = [x.numpy() for x in target.no_answer.weights]
        self.assertFalse(load_head(target, path))
        self.assertTrue(load_head(target, path, optional=["no_answer"]))
        for name in ("supporting_facts", "answer_type", "answer"):
            self._assert_same_weights(
                getattr(source, name), getattr(target, name)
            )
        self.assertAllClose(new, target.no_answer.weights)
        # An optional part that the checkpoint has is loaded.
        path = self._write(head=target)
        other = SpanAnswerHead(has_no_answer=True)
        other.build((None, 3, 8))
        self.assertTrue(load_head(other, path, optional=["no_answer"]))
        self._assert_same_weights(target.no_answer, other.no_answer)

    def test_head_of_an_original_checkpoint(self):
        source, target = self._pretraining(), self._pretraining()
        folder = os.path.join(self.get_temp_dir(), "with")
        save_etc(source.encoder, folder, source.head)
        load_checkpoint(target.encoder, folder)
        self.assertTrue(load_head(target.head, folder))
        self._assert_same_weights(source.encoder, target.encoder)
        self._assert_same_weights(source.head, target.head)
        self.assertFalse(load_head(target.contrast, folder))
        folder = os.path.join(self.get_temp_dir(), "without")
        save_etc(source.encoder, folder)
        self.assertFalse(load_head(target.head, folder))


if __name__ == "__main__":
    tf.test.main()
