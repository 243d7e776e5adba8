"""ReadTwice's answers (Appendix C): the best span of all segments."""

from typing import ClassVar

import tensorflow as tf

from etcmodel.feature_utils.text import word_cuts
from etcmodel.models import heads
from etcmodel.models import span_loss
from etcmodel.models import span_prediction
from etcmodel.models.read_twice.config import ReadTwiceConfig
from etcmodel.models.read_twice.read_twice_model import ReadTwiceModel
from etcmodel.ops import shapes
from etcmodel.pipeline.example_schema import EXAMPLE_ID
from etcmodel.pipeline.record_keys import record_keys
from etcmodel.pipeline.task_model import AnswerModel
from etcmodel.pipeline.task_model import Term
from etcmodel.tasks.documents import span_decoding
from etcmodel.tasks.read_twice_qa import passages
from etcmodel.tasks.read_twice_qa import preprocessor
from etcmodel.tasks.read_twice_qa.labels import ANSWER_TYPES

# Maximum number of a document's spans whose texts are compared.
_MAX_TEXTS = 64
# Number of best places before equal ones are merged: overlapping segments find
# the same places.
_MAX_PLACES = 2 * _MAX_TEXTS
# Scores of spans are above this, scores of padding below.
_LEAST_SCORE = span_prediction.MASKED_LOGIT / 2
# Penalty for spans that begin or end inside a word: they rank below all spans
# of whole words.
_CUT = -1e4


class ReadTwiceQA(AnswerModel):
    """Answers with a span of a document; each row is a segment.

    Losses and selection depend on the whole batch, over all replicas. Raises a
    ValueError if an option is invalid.

    Attributes:
        HAS_OPTIONS: whether an answer may be "yes" or "no".
    """

    HAS_OPTIONS: ClassVar[bool] = False
    GROUPS = {
        "_multi_blocks": lambda rows: rows > 1,
        "_single_blocks": lambda rows: rows == 1,
    }

    def __init__(self, model_options, options, sizes=None):
        super().__init__(model_options, options, sizes or {})
        mode = model_options.cross_block_attention_mode
        # In other modes, an answer would depend on other documents of the
        # batch.
        if mode not in ("doc", "block"):
            raise ValueError(
                f"cross_block_attention_mode is {mode!r}, expected 'doc' or "
                "'block'."
            )
        for name in ("decode_top_k", "decode_max_size"):
            if getattr(options, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(options, name)}, expected at least 1."
                )
        if options.combine not in ("max", "sum"):
            raise ValueError(
                f"combine is {options.combine!r}, expected 'max' or 'sum'."
            )

    def build(
        self,
        config: ReadTwiceConfig,
        block_length: int | None = None,
        num_annotations: int | None = None,
        **options,
    ) -> tf.keras.Model:
        """Builds the Keras model; a size of None allows any number.

        Args:
            config: configuration of the encoder.
            block_length: number of tokens of a segment.
            num_annotations: number of mentions of a segment.
            **options: further arguments of `ReadTwiceModel`.

        Returns:
            A `tf.keras.Model` from `<int32>` tensors (`token_ids`
            `[segments, block_length]`, `block_ids`, `block_pos` and
            `prefix_length` `[segments]`, `annotation_begins`, `annotation_ends`
            and `annotation_labels` `[segments, annotations]`) to `span_logits`
            `<float32>[segments, block_length, 2]` and, if answers may be yes or
            no, `option_logits` `<float32>[segments, 3]`.
        """
        inputs = {
            name: tf.keras.Input(shape, dtype=tf.int32, name=name)
            for name, shape in (
                ("token_ids", [block_length]),
                *((x, []) for x in preprocessor.BLOCK_FIELDS),
                *(
                    (x, [num_annotations])
                    for x in preprocessor.ANNOTATION_FIELDS
                ),
            )
        }
        encoder = ReadTwiceModel(config, name="read_twice", **options)
        read = {x: y for x, y in inputs.items() if x != "prefix_length"}
        hidden = encoder(
            **read,
            cross_block_attention_mode=(
                self.model_options.cross_block_attention_mode
            ),
        ).final_hidden_states
        outputs = {
            "span_logits": span_prediction.SpanPredictionHead(
                config.intermediate_size,
                config.hidden_act,
                config.hidden_dropout_prob,
                config.initializer_range,
                name="span_prediction",
            )(
                hidden,
                token_ids=inputs["token_ids"],
                padding_token_id=config.summary_padding_token_id,
                ignore_prefix_length=inputs["prefix_length"],
            )
        }
        if self.HAS_OPTIONS:
            # Computed from each segment's CLS (Appendix C.2).
            pooled = tf.keras.layers.Dense(
                config.hidden_size,
                activation="tanh",
                kernel_initializer=heads.make_kernel_initializer(
                    config.initializer_range
                ),
                name="option_pooler",
            )(hidden[:, 0])
            outputs["option_logits"] = heads.make_logits_layer(
                len(ANSWER_TYPES),
                config.initializer_range,
                "option_logits",
            )(pooled)
        return tf.keras.Model(inputs, outputs, name=type(self).__name__.lower())

    def lengths(self):
        """Returns the static lengths of the inputs."""
        return {
            "block_length": self.sizes["block_length"],
            "num_annotations": self.sizes["max_num_annotations"],
        }

    def encoder(self, model):
        """Returns the encoder of a model."""
        return model.get_layer("read_twice")

    def pretrained_heads(self, model):
        """Returns the span head, which runs of other tasks can initialize."""
        return [model.get_layer("span_prediction")]

    def inputs_and_labels(self, inputs, fields, data):
        """Makes inputs and labels; the weights of each document sum to 1."""
        del data
        labels = dict(fields)
        # [records, 2]
        keys = record_keys(labels.pop(EXAMPLE_ID))
        # [segments]
        owner = passages.count_documents(inputs["block_pos"]) - 1
        return dict(inputs), {
            **labels,
            # [segments, 2]
            "record": tf.gather(keys, tf.maximum(owner, 0)),
            "block_ids": inputs["block_ids"],
            "weight": tf.math.divide_no_nan(
                1.0, tf.cast(labels["num_blocks"], tf.float32)
            ),
        }

    def metric_names(self):
        """Adds the span losses of one-segment documents and of longer ones."""
        return [
            *super().metric_names(),
            "span_loss_multi_blocks",
            "span_loss_single_blocks",
        ]

    def terms(self, outputs, labels):
        """Computes the losses of `metric_names`."""
        terms = super().terms(outputs, labels)
        values, weights = terms["span_loss"]
        is_multi = tf.cast(labels["num_blocks"] > 1, tf.float32)
        return {
            **terms,
            "span_loss_multi_blocks": Term(values, weights * is_multi),
            "span_loss_single_blocks": Term(values, weights * (1.0 - is_multi)),
        }

    def loss_names(self):
        """Returns the names of the losses; only HotpotQA has option losses."""
        return ("span", "option") if self.HAS_OPTIONS else ("span",)

    def losses(self, outputs, labels):
        """Computes the loss of each segment's document; see `span_loss`.

        The mean weighted by `weight` counts every document once. A document
        without an answer has a loss of 0.
        """
        found = {
            "span": span_loss.batch_span_cross_entropy_loss(
                outputs["span_logits"],
                *(labels[x] for x in preprocessor.LABEL_FIELDS),
                labels["block_ids"],
            )
        }
        if self.HAS_OPTIONS:
            found["option"] = span_loss.choice_losses(
                outputs["option_logits"],
                labels["option"],
                labels["is_supporting"],
                labels["block_ids"],
            )
        number = tf.cast(labels["num_blocks"], tf.float32)
        return {name: x.losses * number for name, x in found.items()}

    def select_candidates(self, outputs, features, context):
        """Finds each segment's best spans of whole words, as bytes."""
        options = self.options
        cuts = context["word_cuts"]
        # [segments, block_length, 2]
        is_cut = tf.stack(
            [word_cuts.begins_inside(cuts), word_cuts.ends_inside(cuts)], axis=2
        )
        best = span_prediction.best_spans(
            outputs["span_logits"] + tf.where(is_cut, _CUT, 0.0),
            options.decode_max_size,
            options.decode_top_k,
        )
        candidates = {
            "span_scores": best.scores,
            # [segments, spans, 2]
            "span_bytes": tf.stack(
                [
                    tf.gather(
                        context["token_starts"], best.begins, batch_dims=1
                    ),
                    tf.gather(context["token_ends"], best.ends, batch_dims=1),
                ],
                axis=2,
            ),
        }
        if self.HAS_OPTIONS:
            candidates["option_logits"] = outputs["option_logits"]
        return candidates

    def decode(self, candidates, owner, text):
        """Finds the most confident answer of each document.

        A softmax over the best spans of the document gives their confidence.
        Confidences of spans with equal text, ignoring case and punctuation, are
        combined as `combine` says.
        """
        document = tf.convert_to_tensor(text["document"])
        batch = tf.size(document)
        # [batch]: first byte of the text; 0 unless it is a part of a document.
        first = text.get("document_start", tf.zeros([batch], tf.int32))
        nothing = 4 * span_prediction.MASKED_LOGIT
        # [batch, spans]: padded, since `top_k` needs enough columns.
        scores = tf.pad(
            _of_each(candidates["span_scores"], owner, batch, nothing),
            [[0, 0], [0, _MAX_PLACES]],
            constant_values=nothing,
        )
        # [batch, spans, 2]
        places = tf.pad(
            _of_each(candidates["span_bytes"], owner, batch, 0),
            [[0, 0], [0, _MAX_PLACES], [0, 0]],
        )

        def keep(number, scores, places):
            """Keeps the best scores, `[batch, number]`, and their places."""
            scores, best = tf.math.top_k(scores, number)
            return scores, tf.gather(places, best, batch_dims=1)

        scores, places = keep(_MAX_PLACES, scores, places)
        # [batch, places, places]: equal places are merged.
        is_same = tf.reduce_all(
            tf.equal(places[:, :, tf.newaxis], places[:, tf.newaxis]), axis=3
        )
        is_repeated = tf.reduce_any(
            tf.linalg.band_part(is_same, -1, 0)
            & tf.logical_not(tf.eye(_MAX_PLACES, dtype=tf.bool)),
            axis=2,
        )
        scores, places = keep(
            _MAX_TEXTS, tf.where(is_repeated, nothing, scores), places
        )
        is_span = (scores > _LEAST_SCORE) & (places[..., 0] < places[..., 1])
        places = tf.where(is_span[..., tf.newaxis], places, 0)
        # Cuts out one span at a time, so that memory holds one copy of a
        # document.
        texts = tf.map_fn(
            lambda x: tf.strings.substr(
                tf.gather(document, x[0]),
                tf.maximum(x[1][0] - tf.gather(first, x[0]), 0),
                x[1][1] - x[1][0],
            ),
            (
                tf.repeat(tf.range(batch), _MAX_TEXTS),
                tf.reshape(places, [-1, 2]),
            ),
            parallel_iterations=1,
            fn_output_signature=tf.TensorSpec([], tf.string),
        )
        # [batch, texts]
        texts = tf.reshape(texts, [batch, _MAX_TEXTS])
        confidence = tf.where(is_span, tf.nn.softmax(scores), 0.0)
        confidence = self._of_equal_texts(texts, confidence)
        # [batch]
        best = tf.argmax(confidence, axis=1, output_type=tf.int32)

        def pick(values):
            return tf.gather(values, best, batch_dims=1)

        has_any = tf.reduce_any(is_span, axis=1, keepdims=True)
        start, end = tf.unstack(tf.where(has_any, pick(places), -1), axis=1)
        answers = {
            "answer": pick(texts),
            "answer_score": pick(confidence),
            "answer_start": start,
            "answer_end": end,
        }
        if self.HAS_OPTIONS:
            answers = self._with_options(candidates, owner, answers, batch)
        return answers

    def _of_equal_texts(self, texts, confidence):
        """Combines confidences of equal texts, `<float32>[batch, texts]`."""
        # [batch, texts]
        words = tf.strings.strip(
            tf.strings.regex_replace(
                tf.strings.lower(texts, encoding="utf-8"),
                r"[^\pL\pM\pN]+",
                " ",
            )
        )
        # Texts of only punctuation are compared unchanged.
        words = tf.where(tf.equal(words, ""), texts, words)
        # [batch, texts, texts]
        is_same = tf.equal(words[:, :, tf.newaxis], words[:, tf.newaxis])
        each = tf.where(is_same, confidence[:, tf.newaxis], 0.0)
        reduce = (
            tf.reduce_sum if self.options.combine == "sum" else tf.reduce_max
        )
        return reduce(each, axis=2)

    def _with_options(self, candidates, owner, answers, batch):
        """Replaces answers by "yes" or "no" where these are more probable."""
        number = len(ANSWER_TYPES)
        # [batch, segments * 3]: all options in all segments, as in training.
        probs = tf.nn.softmax(
            _of_each(
                candidates["option_logits"],
                owner,
                batch,
                span_prediction.MASKED_LOGIT,
            )
        )
        # [batch, 3]
        probs = tf.reduce_max(
            tf.reshape(probs, [batch, tf.shape(probs)[1] // number, number]),
            axis=1,
        )
        option = tf.argmax(probs, axis=1, output_type=tf.int32)
        is_span = tf.equal(option, 0)
        word = tf.gather(tf.constant(["", *ANSWER_TYPES[1:]]), option)
        answer = tf.where(is_span, answers["answer"], word)
        return {
            "answer": answer,
            "answer_score": tf.where(
                is_span, answers["answer_score"], tf.reduce_max(probs, axis=1)
            ),
            **{
                name: tf.where(is_span, answers[name], -1)
                for name in ("answer_start", "answer_end")
            },
            "answer_type": tf.where(
                tf.equal(answer, ""), span_decoding.NONE, option
            ),
        }

    def to_prediction(self, answers, text):
        """Returns the answer's text."""
        del text
        return bytes(answers["answer"]).decode("utf-8", "replace")


def _of_each(rows, owner, batch, fill):
    """Groups rows by document, padded: `[batch, most segments * n, ...]`."""
    # [batch, (segments), number, ...]
    ragged = tf.RaggedTensor.from_value_rowids(
        rows, owner, nrows=batch, validate=False
    )
    return shapes.flatten_dims(ragged.to_tensor(fill), 1, 2)


class HotpotQA(ReadTwiceQA):
    """Answers with spans, "yes" or "no"."""

    HAS_OPTIONS = True
