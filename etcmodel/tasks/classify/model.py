"""Classification: the head, its losses, and labels with probabilities."""

import itertools

import tensorflow as tf

from etcmodel.feature_utils import token_types
from etcmodel.layers import RecomputingDropout
from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat
from etcmodel.models.heads import make_logits_layer
from etcmodel.ops import shapes
from etcmodel.pipeline.task_model import EtcTaskModel
from etcmodel.tasks.classify.standardization import RunningStandardization
from etcmodel.tasks.classify.task import TASK

POOLINGS = ("cls", "mean", "max")
# How much faster than the encoder the head learns from standardized vectors.
# The size of Adam's steps depends on the rate, not on the gradient, so that a
# head with larger inputs learns faster.
_GAIN = 20.0


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class DocumentHead(graph_layer.GraphLayer):
    """Computes a document's logits from one vector; see `ClassifyModelOptions`.

    With `standardize`, the vector is standardized by those of the training
    documents. With a `vocab_size`, a linear function of `word_counts` is added
    to the logits.
    Raises a ValueError if the pooling is unknown or there is no label.
    """

    _FORMER_NAMES = {"dropout": "hidden_dropout_prob"}

    def __init__(
        self,
        num_outputs: int,
        pooling: str = "mean",
        hidden_dropout_prob: float = 0.1,
        initializer_range: float = 0.02,
        vocab_size: int | None = None,
        standardize: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        if pooling not in POOLINGS:
            raise ValueError(
                f"pooling is {pooling!r}, expected one of {POOLINGS}."
            )
        if num_outputs < 1:
            raise ValueError(
                "there are no labels. Train on records that `preprocess` "
                "wrote with `task=classify`; they name the labels."
            )
        self.num_outputs = num_outputs
        self.pooling = pooling
        self.hidden_dropout_prob = hidden_dropout_prob
        self.initializer_range = initializer_range
        self.vocab_size = vocab_size
        self.drop = RecomputingDropout(hidden_dropout_prob)
        self.standardize = standardize
        self.standardization = None
        if standardize:
            self.standardization = RunningStandardization(
                name="standardization", dtype="float32"
            )
            initializer_range /= _GAIN
        self.logits = make_logits_layer(
            num_outputs, initializer_range, "logits"
        )
        self.word_logits = None
        if vocab_size is not None:
            self.word_logits = tf.keras.layers.Dense(
                num_outputs,
                use_bias=False,
                kernel_initializer="zeros",
                name="word_logits",
                dtype="float32",
            )

    def build(self, input_shape):
        """Builds the layers from the width of `long_output`."""
        # [batch, hidden]
        shape = (None, input_shape[-1])
        if self.standardization is not None:
            keras_compat.build_once(self.standardization, shape)
        keras_compat.build_once(self.logits, shape)
        if self.word_logits is not None:
            keras_compat.build_once(self.word_logits, (None, self.vocab_size))
        super().build(input_shape)

    def call(
        self,
        long_output,
        global_output,
        long_token_type_ids,
        long_token_ids=None,
        training=None,
    ):
        """Computes `<float32>[batch, num_outputs]` logits.

        Outputs of the encoder are `<float>[batch, length, hidden]`, the CLS is
        the first global token; other inputs are `<int>[batch, long]`.
        `long_token_ids` are needed with a `vocab_size`.
        """
        is_text = tf.equal(long_token_type_ids, token_types.SENTENCE)
        if self.pooling == "cls":
            # [batch, hidden]
            pooled = tf.cast(global_output[:, 0], tf.float32)
        else:
            pooled = pool(
                tf.cast(long_output, tf.float32), is_text, self.pooling
            )
        if self.standardization is not None:
            pooled = _GAIN * self.standardization(
                pooled, tf.reduce_any(is_text, axis=1), training=training
            )
        # [batch, num_outputs]
        logits = self.logits(self.drop(pooled, training=training))
        if self.word_logits is None:
            return logits
        counts = word_counts(long_token_ids, is_text, self.vocab_size)
        return logits + self.word_logits(counts)

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "num_outputs": self.num_outputs,
            "pooling": self.pooling,
            "hidden_dropout_prob": self.hidden_dropout_prob,
            "initializer_range": self.initializer_range,
            "vocab_size": self.vocab_size,
            "standardize": self.standardize,
        }


def word_counts(
    token_ids: tf.Tensor, is_text: tf.Tensor, vocab_size: int
) -> tf.Tensor:
    """Counts a document's word pieces, `<float32>[batch, vocab_size]`.

    Returns log(1 + count), scaled to a mean square of 1 so that long and short
    documents have the same weight; zeros without text. Example: with a
    vocabulary of 4, the tokens `[1, 2, 1, 1]` have the counts `[0, 3, 1, 0]`.
    Their logarithms in base 2 are `[0, 2, 1, 0]`, with a mean square of 5/4,
    and the result is `[0, 1.79, 0.89, 0]`.

    `token_ids` and `is_text` are `[batch, long]`.
    """
    # The encoder refuses other ids with an error that names the input.
    token_ids = tf.clip_by_value(
        tf.cast(token_ids, tf.int32), 0, vocab_size - 1
    )
    batch, length = shapes.get_shape_list(token_ids)
    rows = tf.repeat(tf.range(batch), length)
    # LiteRT and ONNX have neither `bincount` with weights nor `log1p`.
    # [batch, vocab_size]
    counts = tf.tensor_scatter_nd_add(
        tf.zeros([batch, vocab_size]),
        tf.stack([rows, tf.reshape(token_ids, [-1])], axis=1),
        tf.reshape(tf.cast(is_text, tf.float32), [-1]),
    )
    logarithms = tf.math.log(1.0 + counts)
    mean = tf.reduce_mean(tf.square(logarithms), axis=1, keepdims=True)
    return tf.math.divide_no_nan(logarithms, tf.sqrt(mean))


def pool(values: tf.Tensor, is_text: tf.Tensor, kind: str) -> tf.Tensor:
    """Pools the vectors of a document's tokens, `<float32>[batch, hidden]`.

    Example: the vectors `[[1, 4], [3, 2], [9, 9]]` of two tokens and padding
    have the "mean" `[2, 3]` and the "max" `[3, 4]`; without tokens both are 0.
    `values` are `<float32>[batch, long, hidden]`, `is_text` `[batch, long]`.
    """
    # [batch, long, 1]
    counts = tf.cast(is_text, values.dtype)[..., tf.newaxis]
    if kind == "mean":
        return tf.math.divide_no_nan(
            tf.reduce_sum(values * counts, axis=1),
            tf.reduce_sum(counts, axis=1),
        )
    lowest = tf.where(counts > 0, values, values.dtype.min)
    return tf.where(
        tf.reduce_any(is_text, axis=1, keepdims=True),
        tf.reduce_max(lowest, axis=1),
        0.0,
    )


class Classify(EtcTaskModel):
    """Predicts the labels of a document, or a number (regression)."""

    OUTPUTS = ("kind", "labels", "label_mean", "label_deviation")
    LOSSES = ("label",)

    @property
    def kind(self) -> str:
        """Kind of the prediction: "single", "multiple" or "number"."""
        return self.sizes.get("kind", "")

    @property
    def names(self) -> list[str]:
        """The labels, in the order of the logits."""
        return list(self.sizes.get("labels", ()))

    def encoder_options(self):
        """Returns no options; the defaults suit paragraphs."""
        return {}

    def head(self, config):
        """Makes a head that computes `logits`, `<float32>[batch, labels]`."""
        head = DocumentHead(
            1 if self.kind == "number" else len(self.names),
            self.model_options.pooling,
            config.hidden_dropout_prob,
            config.initializer_range,
            config.vocab_size if self.model_options.word_counts else None,
            self.model_options.standardize,
            name="output_layer",
        )
        return lambda encoded, inputs: {
            "logits": head(
                encoded["long_output"],
                encoded["global_output"],
                inputs["long_token_type_ids"],
                inputs["long_token_ids"],
            )
        }

    def labels(self, features, fields):
        """Adds `targets`, `<float32>[batch, labels]`; numbers are scaled."""
        labels = dict(fields)
        ids, numbers = labels.pop("label_ids"), labels.pop("number")
        if self.kind == "number":
            numbers = numbers - self.sizes["label_mean"]
            # [batch, 1]
            labels["targets"] = (numbers / self.sizes["label_deviation"])[
                :, tf.newaxis
            ]
            return labels
        # [all labels, labels]
        each = tf.one_hot(ids.values, len(self.names))
        # [batch, labels]
        targets = tf.math.segment_sum(each, ids.value_rowids())
        missing = ids.nrows() - tf.shape(targets, tf.int64)[0]
        return {**labels, "targets": tf.pad(targets, [[0, missing], [0, 0]])}

    def losses(self, outputs, labels):
        """Computes cross entropy, or the squared error of numbers."""
        targets, logits = labels["targets"], outputs["logits"]
        if self.kind == "number":
            return {"label": tf.math.squared_difference(targets, logits)[:, 0]}
        smoothing = self.options.label_smoothing
        # [batch, labels]
        weights = targets * label_weights(
            self.sizes["label_counts"], self.options.balanced
        )
        if self.kind == "single":
            smooth = smoothing * tf.reduce_sum(weights, axis=1, keepdims=True)
            weights = (1 - smoothing) * weights + smooth / len(self.names)
            losses = -weights * tf.nn.log_softmax(logits)
        else:
            smooth = (1 - smoothing) * targets + smoothing / 2
            losses = tf.nn.sigmoid_cross_entropy_with_logits(smooth, logits)
            losses *= weights + 1 - targets
        return {"label": tf.reduce_sum(losses, axis=1)}

    def decode(self, candidates, owner, text):
        """Decodes labels and their probabilities; see docs/serving.md."""
        logits = candidates["logits"]
        if self.kind == "number":
            return {
                "number": logits[:, 0] * self.sizes["label_deviation"]
                + self.sizes["label_mean"]
            }
        batch = tf.shape(logits)[0]
        names = tf.constant(self.names)
        answers = {
            "labels": tf.tile(names[tf.newaxis], tf.stack([batch, 1])),
        }
        if self.kind == "single":
            best = tf.argmax(logits, axis=1)
            return {
                "label": tf.gather(names, best),
                "probabilities": tf.nn.softmax(logits),
                **answers,
            }
        probabilities = tf.sigmoid(logits)
        return {
            "is_chosen": probabilities >= TASK.tuned.of(self.options),
            "probabilities": probabilities,
            **answers,
        }

    def to_prediction(self, answers, text):
        """Converts answers for `datasets.classification.score`."""
        if self.kind == "number":
            return {"label": float(answers["number"]), "probabilities": {}}
        probabilities = dict(
            zip(self.names, answers["probabilities"].tolist(), strict=True)
        )
        if self.kind == "single":
            label = answers["label"].decode("utf-8")
        else:
            label = list(itertools.compress(self.names, answers["is_chosen"]))
        return {"label": label, "probabilities": probabilities}


def label_weights(counts, balanced: bool) -> tf.Tensor:
    """Returns the weight of each label, `<float32>[labels]`.

    If `balanced`, weights are inversely proportional to the counts, so that
    every label has the same total weight: counts of 3 and 1 give 2/3 and 2.
    Otherwise, and for labels without records, weights are 1.
    """
    total, known = sum(counts), sum(x > 0 for x in counts)
    return tf.constant(
        [total / (known * x) if balanced and x else 1.0 for x in counts],
        tf.float32,
    )
