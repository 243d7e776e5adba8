"""Natural Questions' model: the encoder, two answer spans, the answer type."""

import tensorflow as tf

from etcmodel.feature_utils import token_types
from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat
from etcmodel.models.heads import make_logits_layer
from etcmodel.models.heads import mask_logits
from etcmodel.pipeline.task_model import EtcTaskModel
from etcmodel.tasks.nq import decoding

# Null, yes, no, long and short; see `labels`.
NUM_ANSWER_TYPES = 5

# Every long token has a logit for each of these.
POSITIONS = (
    "short_answer_start",
    "short_answer_end",
    "long_answer_start",
    "long_answer_end",
)


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class NQHead(graph_layer.GraphLayer):
    """Computes four logits of every long token, and answer-type logits.

    Answer types are computed from the CLS. Source: ETC paper, Appendix C (NQ,
    Fine-Tuning).
    """

    def __init__(self, initializer_range=0.02, name="nq_head", **kwargs):
        super().__init__(name=name, **kwargs)
        self.initializer_range = initializer_range
        self.positions = make_logits_layer(
            len(POSITIONS), initializer_range, "positions"
        )
        self.answer_type = make_logits_layer(
            NUM_ANSWER_TYPES, initializer_range, "answer_type"
        )

    def build(self, input_shape):
        """Builds both layers from the width of `long_output`."""
        for layer in (self.positions, self.answer_type):
            keras_compat.build_once(layer, (None, None, input_shape[-1]))
        super().build(input_shape)

    def call(self, long_output, long_token_type_ids):
        """Computes the logits.

        Args:
            long_output: `<float>[batch, long, hidden]`.
            long_token_type_ids: `<int>[batch, long]`.

        Returns:
            `answer_type_logits` `<float32>[batch, 5]` (null, yes, no, long,
            short) and, for each name of `POSITIONS`, `<name>_logits`
            `<float32>[batch, long]`, about -10,000 for tokens other than the
            page's and the CLS. The CLS stands for no answer.
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
        """Returns the constructor's arguments."""
        config = super().get_config()
        config.update(initializer_range=self.initializer_range)
        return config


class NQ(EtcTaskModel):
    """Finds the long and the short answer to a question in a page.

    A page is a flat sequence: local attention crosses sentences, and the hard
    g2l mask has no exceptions (ETC paper, section 4.1 and Appendix C).
    """

    LOSSES = (*POSITIONS, "answer_type")
    METRICS = {"answer_type_accuracy": ("answer_type_logits", "answer_type")}
    # The signature `text` returns the words; positions in the answers are their
    # indices.
    ANSWER_AXES = {"tokens": ("words",)}

    def encoder_options(self):
        """Returns the options of flat sequences."""
        return {"flat_sequence": True}

    def head(self, config):
        """Makes an `NQHead`."""
        head = NQHead(config.initializer_range, name="output_layer")
        return lambda encoded, inputs: head(
            encoded["long_output"], inputs["long_token_type_ids"]
        )

    def losses(self, outputs, labels):
        """Computes each cross entropy (ETC paper, Appendix C)."""
        return {
            name: tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=labels[name], logits=outputs[f"{name}_logits"]
            )
            for name in self.LOSSES
        }

    def select_candidates(self, outputs, features, context):
        """Finds the best answers of each window."""
        return decoding.answer_windows(
            outputs, context["words"], self.options.max_short_answer_words
        )._asdict()

    def decode(self, candidates, owner, text):
        """Combines the answers of windows; see `decoding.decode_pages`."""
        return decoding.decode_pages(
            decoding.WindowAnswers(**candidates),
            owner,
            # [batch, candidates]
            *(
                text[f"candidate_{name}"].to_tensor(default_value=-1)
                for name in ("starts", "ends")
            ),
            self.options.null_threshold,
        )

    def to_prediction(self, answers, text):
        """Returns the best answers with any score; metrics set thresholds."""
        return decoding.make_prediction(
            *(answers[name].item() for name in decoding.DECODED)
        )
