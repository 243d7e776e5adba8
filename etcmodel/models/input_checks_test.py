import functools

import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import models
from etcmodel.feature_utils.layout import spec

# The first example of the README: nine tokens in three sentences.
TEXT = {
    "long_token_ids": [[23, 24, 9, 25, 26, 9, 27, 28, 9]],
    "sentence_ids": [[0, 0, 0, 1, 1, 1, 2, 2, 2]],
    "long_breakpoints": [[0, 0, 0, 0, 0, 0, 0, 0, 1]],
    "global_token_ids": [[1, 1, 1]],
    "global_breakpoints": [[0, 0, 1]],
}
# A wrong input, the input that the error names, and the value it shows.
WRONG_TEXTS = (
    ({"long_breakpoints": [[0] * 9]}, "long_breakpoints", 0),
    (
        {"long_breakpoints": [[0] * 9], "global_breakpoints": [[0] * 3]},
        "long_breakpoints",
        0,
    ),
    ({"sentence_ids": [[-1] * 9]}, "sentence_ids", -1),
    ({"sentence_ids": [[1, 1, 1, 2, 2, 2, 3, 3, 3]]}, "sentence_ids", 3),
    (
        {"sentence_ids": [[10, 10, 10, 11, 11, 11, 12, 12, 12]]},
        "sentence_ids",
        12,
    ),
    ({"long_token_ids": [[23, 24, 9, 25, 26, 9, 30, 9, 9]]}, "long_tok.*", 30),
    ({"global_token_ids": [[1, -1, 1]]}, "global_token_ids", -1),
)
SEGMENTS = {
    "token_ids": [[11, 12, 13], [11, 14, 0]],
    "block_ids": [1, 1],
    "block_pos": [1, 2],
    "annotation_begins": [[1], [0]],
    "annotation_ends": [[2], [0]],
    "annotation_labels": [[7], [0]],
}
WRONG_SEGMENTS = (
    ({"token_ids": [[11, 12, 13], [11, 14, 30]]}, "token_ids", 30, 1),
    ({"block_ids": [1, -1]}, "block_ids", -1, 1),
    ({"block_pos": [0, 1]}, "block_pos", 0, 0),
    ({"annotation_begins": [[3], [0]]}, "annotation_begins", 3, 0),
    ({"annotation_ends": [[0], [0]]}, "annotation_ends", 0, 0),
    ({"annotation_labels": [[7], [-1]]}, "annotation_labels", -1, 1),
)


def _tensors(features):
    return {name: tf.constant(x) for name, x in features.items()}


@functools.cache
def _config(**options):
    return models.EtcConfig.from_preset(
        "tiny", vocab_size=30, num_hidden_layers=1, **options
    )


@functools.cache
def _encoder(**options):
    return models.build_encoder(_config(**options))


@functools.cache
def _read_twice():
    config = models.ReadTwiceConfig.from_preset(
        "tiny",
        vocab_size=30,
        max_seq_length=4,
        num_hidden_layers=1,
        summary_mode="entity",
    )
    return config, models.build_read_twice_encoder(config)


class CheckedTest(tf.test.TestCase, parameterized.TestCase):
    def _assert_refused(self, error, pattern, function, *args):
        with self.assertRaisesRegex(error, f"(?s){pattern}.*Example"):
            function(*args)

    def _check(self, config, encoder, features, name, value, row):
        wrong = _tensors(features)
        told = f"{name} is {value} in row {row}"
        ran = rf"{name}: expected .* \[{row}\] .* \[{value}\]"
        eager = functools.partial(models.check_inputs, wrong, config)
        self._assert_refused(ValueError, told, encoder, wrong)
        self._assert_refused(ValueError, told, eager)
        data = tf.data.Dataset.from_tensors((wrong, 1))
        data = models.check_inputs(data, config)
        ran_error = tf.errors.InvalidArgumentError
        self._assert_refused(ran_error, ran, lambda: list(data))
        self._assert_refused(ran_error, ran, tf.function(encoder), wrong)

    @parameterized.parameters(*WRONG_TEXTS)
    def test_wrong_texts(self, changes, name, value):
        self._check(_config(), _encoder(), TEXT | changes, name, value, row=0)

    @parameterized.parameters(*WRONG_SEGMENTS)
    def test_wrong_segments(self, changes, name, value, row):
        self._check(*_read_twice(), SEGMENTS | changes, name, value, row)

    @pytest.mark.both_kerases
    def test_fit_reads_checked_data(self):
        wrong = TEXT | {"sentence_ids": [[1, 1, 1, 2, 2, 2, 3, 3, 3]]}
        model = models.build_encoder(_config(), outputs=["global_output"])
        # XLA ignores the model's own checks.
        model.compile("sgd", "mse", jit_compile=True)
        for features in (TEXT, wrong):
            x = {k: tf.constant(v) for k, v in features.items()}
            y = {"global_output": tf.zeros([1, 3, 32])}
            data = tf.data.Dataset.from_tensors((x, y))
            model.fit(data, verbose=0)
            data = models.check_inputs(data, _config())
            if features is TEXT:
                model.fit(data, verbose=0)
            else:
                with self.assertRaisesRegex(Exception, "sentence_ids: exp"):
                    model.fit(data, verbose=0)

    def test_inputs_are_returned(self):
        for config, features, name in (
            (None, TEXT | {"other": [b"x"]}, "sentence_ids"),
            (_config(), TEXT, "sentence_ids"),
            (_read_twice()[0], SEGMENTS, "block_ids"),
        ):
            checked = models.check_inputs(features, config)
            self.assertEqual(list(features), list(checked))
            self.assertAllEqual(features[name], checked[name])

    @parameterized.parameters(
        ("token_type_ids", [[0, 16]], 16),
        ("position_ids", [[0, 5]], 5),
        ("global_position_ids", [[-1]], -1),
        ("l2g_att_mask", [[[1], [2]]], 2),
        ("g2g_relative_att_ids", [[[16]]], 16),
    )
    def test_arguments_of_the_model(self, name, value, found):
        model = models.EtcModel(_config(max_absolute_position_embeddings=5))
        self._assert_refused(
            ValueError,
            f"{name} is {found} in row 0",
            functools.partial(model, **{name: tf.constant(value)}),
            tf.constant([[1, 2]]),
            tf.constant([[1]]),
        )

    def test_ids_of_paragraphs_and_links(self):
        ids = [[0, 0, 1]]
        features = _tensors(
            {
                "long_token_ids": [[3, 4, 5]],
                "long_token_type_ids": ids,
                "long_sentence_ids": ids,
                "long_paragraph_ids": [[-1, -1, -1]],
                "long_paragraph_breakpoints": [[0, 0, 1]],
                "l2g_linked_ids": [[-1, -1, 1]],
                "mention": [[-1, -1, 0]],
                "global_token_ids": [[1, 1]],
                "global_token_type_ids": [[0, 0]],
                "global_paragraph_breakpoints": [[0, 1]],
            }
        )
        inputs = spec.EncoderInputs(
            links=(spec.LinkFeature("mention", "long"),)
        )
        encoder = models.build_encoder(_config(), inputs)
        encoder(features)
        for name in ("mention", "long_sentence_ids", "long_paragraph_ids"):
            wrong = features | {name: tf.constant([[0, 0, 2]])}
            with self.assertRaisesRegex(ValueError, "is 2 in row 0"):
                encoder(wrong)


class LengthTest(tf.test.TestCase, parameterized.TestCase):
    """Tests inputs that are longer than the position table."""

    @pytest.mark.both_kerases
    def test_static_lengths(self):
        config = _config(max_absolute_position_embeddings=4)
        for lengths in (dict(long_length=5), dict(global_length=5)):
            with self.assertRaisesRegex(ValueError, "5 tokens .* 4 positions"):
                models.build_encoder(config, **lengths)
        models.build_encoder(config, long_length=4, global_length=4)

    @parameterized.parameters((False, "expected at most 4"), (True, "within"))
    @pytest.mark.both_kerases
    def test_unknown_lengths(self, jit_compile, expected):
        for model, limit in (
            (
                models.EtcModel(_config(max_absolute_position_embeddings=4)),
                "max_absolute_position_embeddings",
            ),
            (
                models.ReadTwiceModel(
                    models.ReadTwiceConfig.from_preset(
                        "tiny",
                        vocab_size=9,
                        max_seq_length=4,
                        summary_mode="cls",
                    )
                ),
                "max_seq_length",
            ),
        ):

            @tf.function(
                input_signature=[tf.TensorSpec([None, None], tf.int32)],
                jit_compile=jit_compile,
            )
            def call(ids, model=model):
                if isinstance(model, models.EtcModel):
                    return model(ids, ids[:, :1])[0]
                return model(ids).final_hidden_states

            self.assertEqual(4, call(tf.ones([1, 4], tf.int32)).shape[1])
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, f"(?s){expected}.*{limit}"
            ):
                call(tf.ones([1, 5], tf.int32))


if __name__ == "__main__":
    tf.test.main()
