"""HotpotQA's model: the encoder, supporting facts, answer type and answer."""

import tensorflow as tf

from etcmodel.feature_utils import token_types
from etcmodel.models import EtcConfig
from etcmodel.models import build_encoder
from etcmodel.models.heads import make_logits_layer
from etcmodel.models.heads import mask_logits

# Answer types, as numbered in records and in `answer_type_logits`.
SPAN, YES, NO = 0, 1, 2
NUM_ANSWER_TYPES = 3

# Labels of tokens in the "bio" encoding of answers.
BEGIN, INSIDE, OUTSIDE = 0, 1, 2
NUM_BIO_LABELS = 3

ANSWER_ENCODINGS = ("span", "bio")


def is_answer_token(
    long_token_type_ids: tf.Tensor, long_sentence_ids: tf.Tensor
) -> tf.Tensor:
    """Whether a long token can be part of an answer: in a title or sentence.

    The CLS has the type of sentences, but no sentence.

    Example: types `[1, 3, 2, 1, 0]` and sentence ids `[-1, 1, 3, 4, -1]` of a
    CLS, a question token, a title, a sentence and padding give
    `[False, False, True, True, False]`.

    Args:
        long_token_type_ids: `<int>[batch, long]`.
        long_sentence_ids: `<int>[batch, long]`.

    Returns:
        `<bool>[batch, long]`.
    """
    is_text = tf.equal(long_token_type_ids, token_types.SENTENCE) | tf.equal(
        long_token_type_ids, token_types.TITLE
    )
    return is_text & (long_sentence_ids >= 0)


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class HotpotQAHead(tf.keras.layers.Layer):
    """A dense layer for each of the things that are predicted.

    Source: ETC paper, Appendix C (HotpotQA, Inference).
    """

    def __init__(
        self,
        answer_encoding="span",
        initializer_range=0.02,
        name="hotpotqa_head",
        **kwargs,
    ):
        """Creates the layer.

        Args:
            answer_encoding: "span" for the first and last token of the answer,
                "bio" for a label of every token.
            initializer_range: float. Standard deviation of the initial weights.
            name: string. Name of the layer.
            **kwargs: passed to the base class.

        Raises:
            ValueError: there is no such encoding.
        """
        super().__init__(name=name, **kwargs)
        if answer_encoding not in ANSWER_ENCODINGS:
            raise ValueError(
                f"answer_encoding is {answer_encoding!r}, expected one of "
                f"{ANSWER_ENCODINGS}."
            )
        self.answer_encoding = answer_encoding
        self.initializer_range = initializer_range
        self.supporting_facts = make_logits_layer(
            1, initializer_range, "supporting_facts"
        )
        self.answer_type = make_logits_layer(
            NUM_ANSWER_TYPES, initializer_range, "answer_type"
        )
        self.answer = make_logits_layer(
            2 if answer_encoding == "span" else NUM_BIO_LABELS,
            initializer_range,
            f"answer_{answer_encoding}",
        )

    def build(self, input_shape):
        """Makes the weights.

        Args:
            input_shape: shape of `long_output`.
        """
        for layer in (self.supporting_facts, self.answer_type, self.answer):
            if not layer.built:
                layer.build([None, None, input_shape[-1]])
        super().build(input_shape)

    def call(
        self, long_output, global_output, long_token_type_ids, long_sentence_ids
    ):
        """Calculates the logits.

        Args:
            long_output: <float>[batch, long, hidden].
            global_output: <float>[batch, global, hidden].
            long_token_type_ids: <int>[batch, long].
            long_sentence_ids: <int>[batch, long].

        Returns:
            Dict of `supporting_fact_logits` <float32>[batch, global],
            `answer_type_logits` <float32>[batch, 3] (span, yes, no) and, by
            the encoding, `answer_begin_logits` and `answer_end_logits`
            <float32>[batch, long], about -10,000 for tokens that are in no
            title or sentence, or `answer_bio_logits` <float32>[batch, long, 3]
            (begin, inside, outside).
        """
        long_output = tf.cast(long_output, tf.float32)
        global_output = tf.cast(global_output, tf.float32)
        logits = {
            "supporting_fact_logits": self.supporting_facts(global_output)[
                ..., 0
            ],
            # [batch, 1, 3] of the CLS.
            "answer_type_logits": self.answer_type(global_output[:, :1])[:, 0],
        }
        # [batch, long, 2 or 3]
        answer = self.answer(long_output)
        if self.answer_encoding == "bio":
            return {**logits, "answer_bio_logits": answer}
        can_be_chosen = is_answer_token(long_token_type_ids, long_sentence_ids)
        for index, name in enumerate(("begin", "end")):
            logits[f"answer_{name}_logits"] = mask_logits(
                answer[..., index], can_be_chosen
            )
        return logits

    def get_config(self):
        """The constructor's arguments."""
        config = super().get_config()
        config.update(
            answer_encoding=self.answer_encoding,
            initializer_range=self.initializer_range,
        )
        return config


def build_hotpotqa_model(
    config: EtcConfig,
    answer_encoding: str = "span",
    cls_ignores_hard_g2l: bool = True,
    name: str = "hotpotqa",
    **encoder_options,
) -> tf.keras.Model:
    """Builds the model that answers a question about paragraphs.

    Source: ETC paper, section 4.1 and Appendix C.

    Args:
        config: sizes of the encoder and whether it uses the hard g2l mask.
        answer_encoding: "span" or "bio"; see `HotpotQAHead`.
        cls_ignores_hard_g2l: whether the global CLS attends to all long tokens
            though the hard g2l mask is on.
        name: name of the model.
        **encoder_options: further arguments of `build_encoder`, such as
            `flat_sequence`, the paper's ablation "flat structure".

    Returns:
        A `tf.keras.Model` from a dict of the nine EtcFeatures, `<int32>[batch,
        long]` and `<int32>[batch, global]`, to the dict of logits that
        `HotpotQAHead` makes.
    """
    encoder = build_encoder(
        config,
        structure="paragraphs",
        ignore_hard_g2l_types=(
            (token_types.CLS_GLOBAL,) if cls_ignores_hard_g2l else ()
        ),
        **encoder_options,
    )
    inputs = {
        key: tf.keras.Input(shape=value.shape[1:], dtype="int32", name=key)
        for key, value in encoder.input.items()
    }
    encoded = encoder(inputs)
    logits = HotpotQAHead(
        answer_encoding, config.initializer_range, name="output_layer"
    )(
        encoded["long_output"],
        encoded["global_output"],
        inputs["long_token_type_ids"],
        inputs["long_sentence_ids"],
    )
    return tf.keras.Model(inputs=inputs, outputs=logits, name=name)


def bio_labels(
    begins: tf.Tensor, ends: tf.Tensor, length: int | tf.Tensor
) -> tf.Tensor:
    """Answer spans as a label for every token.

    Example: spans 1 to 2 and 4 to 4 of 6 tokens give `[2, 0, 1, 2, 0, 2]`.

    Args:
        begins: `<int>[batch, spans]`, first token of each span; -1 is padding.
        ends: `<int>[batch, spans]`, its last token.
        length: number of tokens.

    Returns:
        `<int32>[batch, length]`: 0 begin, 1 inside, 2 outside.
    """
    position = tf.range(length, dtype=begins.dtype)
    # [batch, spans, length]
    is_begin = tf.equal(position, begins[..., tf.newaxis])
    is_inside = (position > begins[..., tf.newaxis]) & (
        position <= ends[..., tf.newaxis]
    )
    is_inside &= begins[..., tf.newaxis] >= 0
    # [batch, length]
    return tf.where(
        tf.reduce_any(is_begin, axis=1),
        BEGIN,
        tf.where(tf.reduce_any(is_inside, axis=1), INSIDE, OUTSIDE),
    )


def _position_losses(logits: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Cross entropy over positions; 0 where there is none, <float32>[batch]."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.maximum(positions, 0), logits=logits
    )
    return tf.where(positions >= 0, losses, 0.0)


def example_losses(logits, labels) -> dict[str, tf.Tensor]:
    """The losses of every example; the total is their plain mean.

    Source: ETC paper, Appendix C, and the original code: the supporting facts'
    loss is a sum over the record's titles, sentences and paragraphs; that of
    the "bio" encoding a sum over the tokens of titles and sentences.

    Args:
        logits: as from the model.
        labels: dict of `supporting_facts` `<int>[batch, global]` (1, 0, or -1
            for global tokens that cannot be one), `answer_type` `<int>[batch]`
            and, by the encoding, `answer_begin` and `answer_end`
            `<int>[batch]` (-1 for answers that are no span), or `answer_bio`
            `<int>[batch, long]` and `is_answer_token` `<bool>[batch, long]`.

    Returns:
        Dict of `supporting_facts`, `answer_type`, and `answer_begin` and
        `answer_end` or `answer_bio`, all `<float32>[batch]`.
    """
    facts = labels["supporting_facts"]
    # [batch, global]
    fact_losses = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(tf.maximum(facts, 0), tf.float32),
        logits=logits["supporting_fact_logits"],
    )
    losses = {
        "supporting_facts": tf.reduce_sum(
            tf.where(facts >= 0, fact_losses, 0.0), axis=1
        ),
        "answer_type": tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels["answer_type"], logits=logits["answer_type_logits"]
        ),
    }
    if "answer_bio_logits" in logits:
        # [batch, long]
        token_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels["answer_bio"], logits=logits["answer_bio_logits"]
        )
        losses["answer_bio"] = tf.reduce_sum(
            tf.where(labels["is_answer_token"], token_losses, 0.0), axis=1
        )
    else:
        for name in ("answer_begin", "answer_end"):
            losses[name] = _position_losses(
                logits[f"{name}_logits"], labels[name]
            )
    return losses
