"""Natural Questions' model: the encoder, two answer spans, the answer type."""

import tensorflow as tf

from etcmodel.feature_utils import token_types
from etcmodel.models import EtcConfig
from etcmodel.models import build_encoder
from etcmodel.models.heads import make_logits_layer
from etcmodel.models.heads import mask_logits

# Answer types, as numbered in records and in `answer_type_logits`.
NULL, YES, NO, LONG, SHORT = 0, 1, 2, 3, 4
NUM_ANSWER_TYPES = 5

# What is predicted for every long token.
POSITIONS = (
    "short_answer_start",
    "short_answer_end",
    "long_answer_start",
    "long_answer_end",
)


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class NQHead(tf.keras.layers.Layer):
    """Four logits of every long token, and the answer type from the first.

    Source: ETC paper, Appendix C (NQ, Fine-Tuning).
    """

    def __init__(self, initializer_range=0.02, name="nq_head", **kwargs):
        """Creates the layer.

        Args:
            initializer_range: float. Standard deviation of the initial weights.
            name: string. Name of the layer.
            **kwargs: passed to the base class.
        """
        super().__init__(name=name, **kwargs)
        self.initializer_range = initializer_range
        self.positions = make_logits_layer(
            len(POSITIONS), initializer_range, "positions"
        )
        self.answer_type = make_logits_layer(
            NUM_ANSWER_TYPES, initializer_range, "answer_type"
        )

    def build(self, input_shape):
        """Makes the weights.

        Args:
            input_shape: shape of `long_output`.
        """
        for layer in (self.positions, self.answer_type):
            if not layer.built:
                layer.build([None, None, input_shape[-1]])
        super().build(input_shape)

    def call(self, long_output, long_token_type_ids):
        """Calculates the logits.

        Args:
            long_output: <float>[batch, long, hidden].
            long_token_type_ids: <int>[batch, long].

        Returns:
            Dict of `answer_type_logits` <float32>[batch, 5] (null, yes, no,
            long, short) and, for each name of `POSITIONS`, `<name>_logits`
            <float32>[batch, long], about -10,000 for all but the CLS, which
            means that there is no answer, and the page.
        """
        long_output = tf.cast(long_output, tf.float32)
        # [batch, long, 4]
        positions = self.positions(long_output)
        can_be_chosen = tf.equal(long_token_type_ids, token_types.SENTENCE)
        logits = {
            f"{name}_logits": mask_logits(positions[..., i], can_be_chosen)
            for i, name in enumerate(POSITIONS)
        }
        # [batch, 1, 5] of the CLS.
        logits["answer_type_logits"] = self.answer_type(long_output[:, :1])[
            :, 0
        ]
        return logits

    def get_config(self):
        """The constructor's arguments."""
        config = super().get_config()
        config.update(initializer_range=self.initializer_range)
        return config


def build_nq_model(
    config: EtcConfig, name: str = "nq", **encoder_options
) -> tf.keras.Model:
    """Builds the model that finds answers in a window of a page.

    The page is a flat sequence: local attention does not stop anywhere, and
    the hard g2l mask has no exceptions. Source: ETC paper, section 4.1 and
    Appendix C.

    Args:
        config: sizes of the encoder and whether it uses the hard g2l mask.
        name: name of the model.
        **encoder_options: further arguments of `build_encoder`.

    Returns:
        A `tf.keras.Model` from a dict of the nine EtcFeatures, `<int32>[batch,
        long]` and `<int32>[batch, global]`, to the dict of logits that
        `NQHead` makes.
    """
    encoder = build_encoder(
        config, structure="paragraphs", flat_sequence=True, **encoder_options
    )
    inputs = {
        key: tf.keras.Input(shape=value.shape[1:], dtype="int32", name=key)
        for key, value in encoder.input.items()
    }
    logits = NQHead(config.initializer_range, name="output_layer")(
        encoder(inputs)["long_output"], inputs["long_token_type_ids"]
    )
    return tf.keras.Model(inputs=inputs, outputs=logits, name=name)


def example_losses(logits, labels) -> dict[str, tf.Tensor]:
    """The losses of every example; the total is their plain mean.

    Source: ETC paper, Appendix C (NQ), and the original code.

    Args:
        logits: as from the model.
        labels: dict of `answer_type` and every name of `POSITIONS`, all
            `<int>[batch]`.

    Returns:
        Dict of the same names, `<float32>[batch]` each.
    """
    return {
        name: tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels[name], logits=logits[f"{name}_logits"]
        )
        for name in (*POSITIONS, "answer_type")
    }
