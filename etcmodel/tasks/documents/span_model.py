"""Models that answer with a span, yes or no, and find supporting facts.

Source: ETC paper, Appendix C (HotpotQA).
"""

import math
from typing import ClassVar

import tensorflow as tf

from etcmodel.feature_utils import token_types
from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat
from etcmodel.models.heads import make_logits_layer
from etcmodel.models.heads import mask_logits
from etcmodel.pipeline.task_model import EtcTaskModel
from etcmodel.pipeline.task_model import exempt_from_hard_g2l
from etcmodel.tasks.documents import document_units
from etcmodel.tasks.documents import span_decoding

# Span, yes and no; see `span_decoding`.
NUM_ANSWER_TYPES = 3

NUM_BIO_LABELS = 3

ANSWER_ENCODINGS = ("span", "bio")


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class SpanAnswerHead(graph_layer.GraphLayer):
    """Computes logits of answers and supporting facts with dense layers.

    Source: ETC paper, Appendix C (Inference).

    Raises a ValueError if the encoding is unknown or the prior is not between
    0 and 1.

    Args:
        answer_encoding: "span" for the first and last token of an answer, "bio"
            for a label of every token.
        initializer_range: standard deviation of the initial weights.
        unit_prior: initial probability that a sentence is a supporting fact.
        has_no_answer: whether "no answer" is a fourth answer type.
    """

    def __init__(
        self,
        answer_encoding="span",
        initializer_range=0.02,
        unit_prior=0.5,
        has_no_answer=False,
        name="span_answer_head",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        if not 0 < unit_prior < 1:
            raise ValueError(
                f"unit_prior is {unit_prior}, expected a "
                "probability between 0 and 1."
            )
        if answer_encoding not in ANSWER_ENCODINGS:
            raise ValueError(
                f"answer_encoding is {answer_encoding!r}, expected one of "
                f"{ANSWER_ENCODINGS}."
            )
        self.answer_encoding = answer_encoding
        self.initializer_range = initializer_range
        self.unit_prior = unit_prior
        self.has_no_answer = has_no_answer
        self.no_answer = None
        if has_no_answer:
            # This type has its own layer, so that a checkpoint without it can
            # initialize the other types.
            self.no_answer = make_logits_layer(
                1, initializer_range, "no_answer"
            )
        self.supporting_facts = make_logits_layer(
            1,
            initializer_range,
            "supporting_facts",
            bias=math.log(unit_prior / (1 - unit_prior)),
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
        """Builds the dense layers from the width of the encoder."""
        layers = [self.supporting_facts, self.answer_type, self.answer]
        for layer in layers + [self.no_answer] * self.has_no_answer:
            keras_compat.build_once(layer, (None, None, input_shape[-1]))
        super().build(input_shape)

    def call(
        self, long_output, global_output, long_token_type_ids, long_sentence_ids
    ):
        """Computes the logits.

        The encoder's outputs are `<float>[batch, length, hidden]`, other inputs
        `<int>[batch, long]`.

        Returns:
            `supporting_fact_logits` `<float32>[batch, global]`,
            `answer_type_logits` `<float32>[batch, 3 or 4]` (span, yes, no, no
            answer) and, depending on the encoding, `answer_begin_logits` and
            `answer_end_logits` `<float32>[batch, long]`, about -10,000 for
            tokens outside of titles and sentences, or `answer_bio_logits`
            `<float32>[batch, long, 3]` (begin, inside, outside).
        """
        long_output = tf.cast(long_output, tf.float32)
        global_output = tf.cast(global_output, tf.float32)
        # [batch, 1, hidden] of the CLS.
        cls = global_output[:, :1]
        types = self.answer_type(cls)
        if self.no_answer is not None:
            types = tf.concat([types, self.no_answer(cls)], axis=2)
        logits = {
            "supporting_fact_logits": self.supporting_facts(global_output)[
                ..., 0
            ],
            "answer_type_logits": types[:, 0],
        }
        # [batch, long, 2 or 3]
        answer = self.answer(long_output)
        if self.answer_encoding == "bio":
            return {**logits, "answer_bio_logits": answer}
        can_be_chosen = span_decoding.is_answer_token(
            long_token_type_ids, long_sentence_ids
        )
        for index, name in enumerate(("begin", "end")):
            logits[f"answer_{name}_logits"] = mask_logits(
                answer[..., index], can_be_chosen
            )
        return logits

    def get_config(self):
        """Returns the constructor's arguments."""
        config = super().get_config()
        config.update(
            answer_encoding=self.answer_encoding,
            initializer_range=self.initializer_range,
            unit_prior=self.unit_prior,
            has_no_answer=self.has_no_answer,
        )
        return config


def bio_labels(
    begins: tf.Tensor, ends: tf.Tensor, length: int | tf.Tensor
) -> tf.Tensor:
    """Converts answer spans to token labels, `<int32>[batch, length]`.

    Labels are 0 (begin), 1 (inside) and 2 (outside). Example: in 6 tokens, the
    answers from token 1 to 2 and at token 4 give `[2, 0, 1, 2, 0, 2]`. `begins`
    and `ends` are first and last tokens, `<int>[batch, spans]`; -1 is padding.
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
        span_decoding.BEGIN,
        tf.where(
            tf.reduce_any(is_inside, axis=1),
            span_decoding.INSIDE,
            span_decoding.OUTSIDE,
        ),
    )


def different_places(places: tf.RaggedTensor, number: int) -> tf.Tensor:
    """Keeps the first `number` distinct places, `<int>[batch, number]`.

    Rows with fewer places are padded with -1. Example: with `number=2`, `[[4,
    4, 7], [5]]`, `<int>[batch, (places)]`, becomes `[[4, 7], [5, -1]]`.
    """
    # [batch, places]
    dense = places.to_tensor(default_value=-1)
    # [batch, places, places]
    is_same = tf.equal(dense[:, :, tf.newaxis], dense[:, tf.newaxis])
    # Counts equal places up to and including each one: 1 for the first.
    earlier = tf.linalg.band_part(tf.cast(is_same, tf.int32), -1, 0)
    is_first = tf.equal(tf.reduce_sum(earlier, axis=2), 1) & (dense >= 0)
    order = tf.argsort(tf.cast(~is_first, tf.int32), stable=True)
    dense = tf.gather(tf.where(is_first, dense, -1), order, batch_dims=1)
    # [batch, number]
    return tf.pad(dense, [[0, 0], [0, number]], constant_values=-1)[:, :number]


def place_losses(logits: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Computes the loss of predicting any of the places, `<float32>[batch]`.

    The loss is the negative logarithm of the places' total probability (Clark
    and Gardner, "Simple and Effective Multi-Paragraph Reading Comprehension",
    2018, section 3.3); 0 without a place. Example: with probabilities 1/2, 1/4,
    1/4, the places 0 and 2 have the loss -log(3/4). Logits are `[batch,
    length]`; places are `<int>[batch, places]`, distinct, padded with -1.
    """
    is_place = places >= 0
    # [batch, places]
    chosen = tf.gather(logits, tf.maximum(places, 0), batch_dims=1)
    chosen = tf.where(is_place, chosen, logits.dtype.min / 2)
    losses = tf.reduce_logsumexp(logits, axis=1) - tf.reduce_logsumexp(
        chosen, axis=1
    )
    return tf.where(tf.reduce_any(is_place, axis=1), losses, 0.0)


def example_losses(logits, labels) -> dict[str, tf.Tensor]:
    """Computes the losses of every example, each `<float32>[batch]`.

    The total loss is their mean; by default, their weights are equal. As in the
    original code, the loss of supporting facts is a sum over titles, sentences
    and paragraphs, and the loss of the "bio" encoding is a sum over the tokens
    of titles and sentences. Source: ETC paper, Appendix C.

    Args:
        logits: the model's outputs.
        labels: `supporting_facts` `<int>[batch, global]` (1, 0, or -1 for
            tokens without a loss), `answer_type` `<int>[batch]` and, depending
            on the encoding, `answer_begin` and `answer_end` `<int>[batch,
            places]` (see `place_losses`), or `answer_bio` `<int>[batch, long]`
            and `is_answer_token` `<bool>[batch, long]`.

    Returns:
        `supporting_facts`, `answer_type`, and `answer_begin` and `answer_end`
        or `answer_bio`.
    """
    losses = {
        "supporting_facts": document_units.unit_losses(
            logits["supporting_fact_logits"], labels["supporting_facts"]
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
            losses[name] = place_losses(logits[f"{name}_logits"], labels[name])
    return losses


class SpanAnswerModel(EtcTaskModel):
    """Answers a question from a document, and finds the supporting facts.

    Attributes:
        HAS_NO_ANSWER: whether a question may have no answer.
    """

    METRICS = {"answer_type_accuracy": ("answer_type_logits", "answer_type")}
    OPTIONAL = ("no_answer",)
    HAS_NO_ANSWER: ClassVar[bool] = False

    def encoder_options(self):
        """Exempts the CLS and optionally the question from the hard mask."""
        query = self.model_options.query_ignore_hard_g2l
        return exempt_from_hard_g2l(
            {token_types.CLS_GLOBAL: True, token_types.QUESTION_GLOBAL: query}
        )

    def head(self, config):
        """Makes a `SpanAnswerHead` with the task's options."""
        head = SpanAnswerHead(
            self.model_options.answer_encoding,
            config.initializer_range,
            self.model_options.unit_prior,
            self.HAS_NO_ANSWER,
            name="output_layer",
        )
        return lambda encoded, inputs: head(
            encoded["long_output"],
            encoded["global_output"],
            inputs["long_token_type_ids"],
            inputs["long_sentence_ids"],
        )

    def pretrained_heads(self, model):
        """Returns the head, whose weights all span-answer tasks can load."""
        return [model.get_layer("output_layer")]

    def labels(self, features, fields):
        """Converts stored labels to the labels of `example_losses`."""
        labels = dict(fields)
        # [batch, (spans)]
        begins, ends = (
            labels.pop(f"answer_{name}") for name in ("begins", "ends")
        )
        if self.model_options.answer_encoding == "bio":
            labels["answer_bio"] = bio_labels(
                begins.to_tensor(default_value=-1),
                ends.to_tensor(default_value=-1),
                tf.shape(features["long_token_ids"])[1],
            )
            labels["is_answer_token"] = span_decoding.is_answer_token(
                features["long_token_type_ids"], features["long_sentence_ids"]
            )
            return labels
        number = self.model_options.answer_places
        for name, places in (("begin", begins), ("end", ends)):
            labels[f"answer_{name}"] = different_places(places, number)
        return labels

    def loss_names(self):
        """Returns the names of the losses, which depend on the encoding."""
        is_bio = self.model_options.answer_encoding == "bio"
        answer = ("answer_bio",) if is_bio else ("answer_begin", "answer_end")
        return ("supporting_facts", "answer_type", *answer)

    def loss_factors(self):
        """Gives the losses equal weights by default, as the paper does."""
        return {
            **super().loss_factors(),
            "supporting_facts_loss": self.options.supporting_fact_weight,
        }

    def losses(self, outputs, labels):
        """Computes the losses of every example."""
        return example_losses(outputs, labels)

    def select_candidates(self, outputs, features, context):
        """Selects each unit's best span; see `span_decoding`."""
        return span_decoding.select_candidates(
            outputs, features, context, self.options.max_answer_length
        )
