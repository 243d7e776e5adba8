"""OpenKP's model: the encoder, and a softmax over all phrases of a page."""

import dataclasses

import tensorflow as tf

from etcmodel.models.heads import MASKED_LOGIT
from etcmodel.ops import checks
from etcmodel.pipeline.task_model import EtcTaskModel
from etcmodel.tasks.openkp import layers
from etcmodel.tasks.openkp import ngrams
from etcmodel.tasks.openkp.preprocessor import LAYOUT

# Number of predicted keyphrases, and number of best phrases from which they are
# chosen, before phrases with the same words are merged.
NUM_PREDICTIONS = 5
_NUM_CANDIDATES = 100


def join_occurrences(
    logits: tf.Tensor, first_occurrences: tf.Tensor
) -> tf.Tensor:
    """Moves the highest logit of a phrase to its first occurrence.

    Example: the words "a b a" with the logits 1, 2, 3 and first occurrences 0,
    0, 2 positions earlier give 3, 2, -10000. Logits are `<float32>[batch,
    sizes, long]`, first occurrences `<int32>[batch, long, at least sizes]`.
    Positions before the first word raise an error; see `ops.checks`.
    """
    batch, sizes, length = tf.unstack(tf.shape(logits))
    # [batch, sizes, long]
    back = tf.transpose(first_occurrences, [0, 2, 1])[:, :sizes]
    is_wrong = (back < 0) | (back > tf.range(length))
    check = checks.Check(
        "first_occurrences",
        "expected the number of positions back to the first occurrence of the "
        "phrase, at most the position itself",
        tf.reduce_any(is_wrong, axis=[1, 2]),
        tf.reduce_max(tf.where(is_wrong, back, tf.int32.min), axis=[1, 2]),
    )
    (back,) = checks.guard([check], "", back)
    index = tf.reshape(tf.range(batch * sizes * length), [batch, sizes, length])
    joined = tf.math.unsorted_segment_max(
        tf.reshape(logits, [-1]),
        tf.reshape(index - back, [-1]),
        batch * sizes * length,
    )
    return tf.where(
        tf.equal(back, 0),
        tf.reshape(joined, [batch, sizes, length]),
        MASKED_LOGIT,
    )


def phrase_losses(
    logits: tf.Tensor,
    label_starts: tf.Tensor,
    label_sizes: tf.Tensor,
    smoothing: float = 0.0,
) -> tf.Tensor:
    """Computes the cross entropy of the phrases of pages, `<float32>[batch]`.

    All keyphrases have the same target probability; without keyphrases, the
    loss is 0. With smoothing s, the share `s / (1 + s)` of the target is spread
    evenly over all phrases of the page. Example: one keyphrase among four
    phrases of equal logits has the loss log 4.

    Args:
        logits: `<float32>[batch, sizes, long]`.
        label_starts: `<int32>[batch, labels]`, first word of each keyphrase, -1
            for padding.
        label_sizes: `<int32>[batch, labels]`, its number of words.
        smoothing: 0 or more.
    """
    batch, sizes, length = tf.unstack(tf.shape(logits))
    # [batch, sizes * long]
    logits = tf.reshape(logits, [batch, sizes * length])
    is_phrase = tf.cast(logits > MASKED_LOGIT / 2, tf.float32)
    probabilities = tf.nn.log_softmax(logits)
    # [batch, labels]
    is_label = tf.cast(label_starts >= 0, tf.float32)
    index = tf.maximum((label_sizes - 1) * length + label_starts, 0)
    of_labels = tf.gather(probabilities, index, batch_dims=1)
    num_labels = tf.reduce_sum(is_label, axis=1)
    loss = tf.math.divide_no_nan(
        tf.reduce_sum(of_labels * is_label, axis=1), num_labels
    )
    loss += smoothing * tf.math.divide_no_nan(
        tf.reduce_sum(probabilities * is_phrase, axis=1),
        tf.reduce_sum(is_phrase, axis=1),
    )
    return tf.where(num_labels > 0, -loss / (1.0 + smoothing), 0.0)


def join_words(
    words: tf.RaggedTensor, starts: tf.Tensor, sizes: tf.Tensor
) -> tf.Tensor:
    """Returns phrases as text, `<string>[batch, n]`.

    Example: for the words "a b c", the starts `[1, 0]` and the sizes `[2, 0]`
    give "b c" and "". Starts and sizes are `<int32>[batch, n]`.
    """
    offset = tf.range(tf.reduce_max(tf.pad(tf.reshape(sizes, [-1]), [[0, 1]])))
    # [batch, n, most]
    is_part = offset < sizes[..., tf.newaxis]
    # [batch, words + 1]: the last column is empty text.
    padded = tf.pad(words.to_tensor(""), [[0, 0], [0, 1]], constant_values="")
    # Copies as few words as possible, since they may be long.
    last = tf.shape(padded)[1] - 1
    index = tf.where(is_part, starts[..., tf.newaxis] + offset, last)
    parts = tf.gather(padded, index, batch_dims=1)
    # [batch, n]
    return tf.strings.strip(tf.strings.reduce_join(parts, -1, separator=" "))


def first_of_equals(texts: tf.Tensor, number: int) -> tf.Tensor:
    """Finds the first occurrence of each text that is not empty.

    Returns up to `number` indices, padded with n: `<string>[batch, n]` to
    `<int32>[batch, number]`. Example: for "b", "a", "b", "" and "c" and
    `number=4`, they are 0, 1, 4 and 5.
    """
    size = tf.shape(texts)[1]
    # [batch, n, n]
    is_equal = tf.equal(texts[:, :, tf.newaxis], texts[:, tf.newaxis])
    index = tf.range(size)
    is_before = index < index[:, tf.newaxis]
    is_first = ~tf.reduce_any(is_equal & is_before, axis=2)
    # [batch, n]
    is_first &= tf.not_equal(texts, "")
    order = tf.sort(tf.where(is_first, index, size), axis=1)
    return order[:, :number]


def _initial(config):
    """Returns the encoder's settings that the task's layers also use."""
    names = ("hidden_act", "initializer_range")
    return {name: getattr(config, name) for name in names}


class OpenKP(EtcTaskModel):
    """Finds the keyphrases of a page.

    A page is a flat sequence: local attention does not stop at the end of a
    node (ETC paper, section 4.1 and Appendix C).
    """

    # `first_occurrences` may have values beyond the last token.
    CAN_BE_SHORTER = False

    LOSSES = ("cross_entropy",)

    def encoder_options(self):
        """Returns the options of flat sequences with visual features."""
        options = self.model_options
        added_to = [
            source
            for source, is_on in (
                ("global", options.visual_in_global),
                ("long", options.visual_in_long),
            )
            if is_on
        ]
        values = [
            dataclasses.replace(x, embed=added_to if x.shape else ())
            for x in LAYOUT.values
        ]
        structure = dataclasses.replace(LAYOUT, values=values)
        return {"structure": structure, "flat_sequence": True}

    def build(self, config, **options):
        """Builds the Keras model with visual embeddings."""
        chosen = self.model_options
        if chosen.visual_in_global or chosen.visual_in_long:
            options["value_layers"] = {
                "visual": layers.VisualEmbedding(
                    config.hidden_size,
                    chosen.visual_layers,
                    **_initial(config),
                    name="visual_embedding",
                    dtype=options.get("dtype"),
                )
            }
        return super().build(config, **options)

    def head(self, config):
        """Makes the head with `ngram_logits`; see `layers.NgramHead`."""
        head = layers.NgramHead(
            config.hidden_size,
            ngrams.MAX_WORDS,
            **_initial(config),
            name="output_layer",
        )
        return lambda encoded, inputs: {
            "ngram_logits": head(encoded["long_output"], inputs["words"])
        }

    def labels(self, features, fields):
        """Pads the keyphrases of each page to three."""
        return {
            **fields,
            **{
                name: fields[name].to_tensor(
                    -1, shape=[None, ngrams.MAX_PHRASES]
                )
                for name in ("label_starts", "label_sizes")
            },
        }

    def losses(self, outputs, labels):
        """Computes the cross entropy of the phrases."""
        return {
            "cross_entropy": phrase_losses(
                self._logits(outputs, labels),
                labels["label_starts"],
                labels["label_sizes"],
                self.options.label_smoothing,
            )
        }

    def _logits(self, outputs, context):
        """Returns softmax logits; with `max_loss`, joins equal phrases."""
        logits = outputs["ngram_logits"]
        if not self.options.max_loss:
            return logits
        return join_occurrences(logits, context["first_occurrences"])

    def select_candidates(self, outputs, features, context):
        """Selects the most probable phrases; merges equal ones within nodes."""
        logits = self._logits(outputs, context)
        batch, sizes, length = tf.unstack(tf.shape(logits))
        # [batch, 1]
        total = tf.reduce_logsumexp(
            tf.reshape(logits, [batch, sizes * length]), axis=1, keepdims=True
        )
        joined = join_occurrences(logits, context["first_occurrences"])
        # [batch, sizes * long + 100]: at least 100 columns for `top_k`.
        joined = tf.pad(
            tf.reshape(joined, [batch, sizes * length]),
            [[0, 0], [0, _NUM_CANDIDATES]],
            constant_values=MASKED_LOGIT,
        )
        # [batch, 100]
        scores, index = tf.math.top_k(joined, _NUM_CANDIDATES)
        is_phrase = scores > MASKED_LOGIT / 2
        length = tf.maximum(length, 1)
        return {
            "starts": tf.where(is_phrase, index % length, 0),
            "sizes": tf.where(is_phrase, index // length + 1, 0),
            "scores": tf.where(is_phrase, tf.exp(scores - total), 0.0),
        }

    def decode(self, candidates, owner, text):
        """Decodes keyphrases, "" for missing ones, and their probabilities.

        Phrases that differ only in case are merged; the most probable
        occurrence gives the probability.
        """
        # [batch, 100]
        phrases = join_words(
            text["visible_words"], candidates["starts"], candidates["sizes"]
        )
        order = first_of_equals(
            tf.strings.lower(phrases, encoding="utf-8"), NUM_PREDICTIONS
        )
        scores = tf.pad(candidates["scores"], [[0, 0], [0, 1]])
        phrases = tf.pad(phrases, [[0, 0], [0, 1]], constant_values="")
        return {
            "keyphrases": tf.gather(phrases, order, batch_dims=1),
            "keyphrase_scores": tf.gather(scores, order, batch_dims=1),
        }

    def to_prediction(self, answers, text):
        """Returns the keyphrases, the best first."""
        return [x.decode("utf-8") for x in answers["keyphrases"] if x]
