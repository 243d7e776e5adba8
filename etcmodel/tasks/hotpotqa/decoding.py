"""From logits to answers and supporting facts; graph code.

A *sentence* here is a title, too: whatever has a global token that can be a
supporting fact. Sentences are told by the index of their global token.

Source: ETC paper, Appendix C (HotpotQA, Inference).
"""

from typing import NamedTuple

import tensorflow as tf

from etcmodel.tasks.hotpotqa import model as model_lib
from etcmodel.tasks.hotpotqa.features import HotpotQAContext

# Answers longer than this many tokens are not given.
MAX_ANSWER_LENGTH = 30
_NEVER = -1e9


class Spans(NamedTuple):
    """The best span of every sentence.

    Attributes:
        scores: the higher the better, below -1e8 for no span;
            `<float32>[batch, global]`.
        begins: its first long token, `<int32>[batch, global]`.
        ends: its last one, likewise.
        probabilities: its own, likewise `<float32>`.
    """

    scores: tf.Tensor
    begins: tf.Tensor
    ends: tf.Tensor
    probabilities: tf.Tensor


def _windows(values: tf.Tensor, width: int, pad: float | int) -> tf.Tensor:
    """Every position with the `width - 1` after it, [batch, long, width]."""
    padded = tf.pad(values, [[0, 0], [0, width - 1]], constant_values=pad)
    return tf.signal.frame(padded, width, 1, axis=1)


def _spans_of_begins_and_ends(logits, sentences, max_answer_length):
    """The best span from every token, by begin_prob * end_prob."""
    begin, end = (
        tf.nn.log_softmax(logits[f"answer_{name}_logits"])
        for name in ("begin", "end")
    )
    # [batch, long, width]
    scores = begin[..., tf.newaxis] + _windows(end, max_answer_length, _NEVER)
    is_same = tf.equal(
        sentences[..., tf.newaxis], _windows(sentences, max_answer_length, -2)
    )
    scores = tf.where(is_same, scores, _NEVER)
    # [batch, long]
    best = tf.reduce_max(scores, axis=2)
    length = tf.argmax(scores, axis=2, output_type=tf.int32)
    position = tf.range(tf.shape(sentences)[1])
    return best, position + length, tf.exp(best)


def _spans_of_labels(logits, sentences, max_answer_length):
    """The runs of begin and inside labels, by their mean probability.

    A run begins at a "begin" label, or at an "inside" label that follows
    neither; it stays within its sentence, and may end with the last token. The
    token that is the most probable "begin" stands for sentences without a run.
    """
    probabilities = tf.nn.softmax(logits["answer_bio_logits"])
    # [batch, long]
    labels = tf.argmax(probabilities, axis=2, output_type=tf.int32)
    is_part = tf.not_equal(labels, model_lib.OUTSIDE) & (sentences >= 0)
    goes_on = tf.pad(is_part[:, :-1], [[0, 0], [1, 0]]) & tf.equal(
        sentences, tf.pad(sentences[:, :-1], [[0, 0], [1, 0]])
    )
    starts = is_part & (tf.equal(labels, model_lib.BEGIN) | ~goes_on)
    shape = tf.shape(labels)
    # The run of each token, numbered through the batch; 0 for none.
    run = tf.cumsum(tf.reshape(tf.cast(starts, tf.int32), [-1]))
    run = tf.where(tf.reshape(is_part, [-1]), run, 0)
    most = tf.size(run) + 1
    length = tf.math.unsorted_segment_sum(tf.ones_like(run), run, most)
    total = tf.math.unsorted_segment_sum(
        tf.reshape(tf.reduce_max(probabilities, axis=2), [-1]), run, most
    )
    # [batch, long]
    length = tf.reshape(tf.gather(length, run), shape)
    mean = tf.reshape(tf.gather(total, run), shape) / tf.cast(
        length, tf.float32
    )
    is_run = starts & (length <= max_answer_length)
    single = probabilities[..., model_lib.BEGIN]
    position = tf.range(shape[1])
    return (
        # Any run comes before all single tokens.
        tf.where(is_run, mean, single - 2.0),
        position + tf.where(is_run, length - 1, 0),
        tf.where(is_run, mean, single),
    )


def best_spans(
    logits,
    long_token_type_ids: tf.Tensor,
    long_sentence_ids: tf.Tensor,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> Spans:
    """Finds the best span of every sentence.

    Begin and end are in one sentence, begin is not behind end, and a span has
    at most `max_answer_length` tokens. Spans are ranked by the product of the
    probabilities of begin and end or, in the "bio" encoding, by the mean
    probability of their labels; of equals the first wins.

    Args:
        logits: as from the model.
        long_token_type_ids: `<int32>[batch, long]`.
        long_sentence_ids: `<int32>[batch, long]`.
        max_answer_length: greatest length of a span, in tokens.

    Returns:
        The spans.
    """
    can_be_part = model_lib.is_answer_token(
        long_token_type_ids, long_sentence_ids
    )
    # [batch, long]
    sentences = tf.where(can_be_part, long_sentence_ids, -1)
    find = (
        _spans_of_labels
        if "answer_bio_logits" in logits
        else _spans_of_begins_and_ends
    )
    scores, ends, probabilities = find(logits, sentences, max_answer_length)
    batch, length = tf.unstack(tf.shape(sentences))
    num_sentences = tf.shape(logits["supporting_fact_logits"])[1]
    # Sentences numbered through the batch; tokens of none are left out.
    index = tf.where(
        can_be_part,
        sentences + tf.range(batch)[:, tf.newaxis] * num_sentences,
        -1,
    )
    index = tf.reshape(index, [-1])
    most = batch * num_sentences
    flat = tf.reshape(scores, [-1])
    best = tf.math.unsorted_segment_max(flat, index, most)
    # The first token that reaches it.
    is_best = (index >= 0) & tf.equal(
        flat, tf.gather(best, tf.maximum(index, 0))
    )
    position = tf.tile(tf.range(length), [batch])
    begin = tf.math.unsorted_segment_min(
        tf.where(is_best, position, length - 1), index, most
    )
    # [batch, global]
    shape = tf.stack([batch, num_sentences])
    begin = tf.reshape(tf.clip_by_value(begin, 0, length - 1), shape)
    return Spans(
        scores=tf.maximum(tf.reshape(best, shape), _NEVER),
        begins=begin,
        ends=tf.gather(ends, begin, batch_dims=1),
        probabilities=tf.gather(probabilities, begin, batch_dims=1),
    )


def supporting_fact_probabilities(
    logits, global_segments: tf.Tensor
) -> tf.Tensor:
    """Probabilities of titles and sentences.

    Args:
        logits: as from the model.
        global_segments: `<int32>[batch, global]`, as in `HotpotQAContext`.

    Returns:
        `<float32>[batch, global]`; -1 for other global tokens.
    """
    return tf.where(
        global_segments >= 0, tf.sigmoid(logits["supporting_fact_logits"]), -1.0
    )


def choose_sentences(
    spans: Spans, probabilities: tf.Tensor, thresholds: tf.Tensor
) -> tf.Tensor:
    """Chooses the sentence whose best span is the answer.

    It is a predicted supporting fact: one with at least the threshold's
    probability. If there is none with a span, it is the most probable one.

    Example: spans with the scores `[-1, -3, -2]` in sentences with the
    probabilities `[0.1, 0.6, 0.7]` give, for the thresholds `[0, 0.5, 0.9]`,
    the sentences `[0, 2, 2]`.

    Args:
        spans: the best span of each sentence.
        probabilities: `<float32>[batch, global]`, from
            `supporting_fact_probabilities`.
        thresholds: `<float32>[thresholds]`.

    Returns:
        `<int32>[batch, thresholds]`, indices of global tokens; -1 where a
        record has no span at all.
    """
    has_span = (spans.scores > 0.1 * _NEVER) & (probabilities >= 0)
    among = tf.where(has_span, probabilities, -1.0)
    # [batch, 1]
    highest = tf.reduce_max(among, axis=1, keepdims=True)
    # [batch, thresholds]
    thresholds = tf.minimum(thresholds, highest)
    # [batch, thresholds, global]
    is_fact = among[:, tf.newaxis] >= thresholds[..., tf.newaxis]
    scores = tf.where(
        is_fact & has_span[:, tf.newaxis],
        spans.scores[:, tf.newaxis],
        2.0 * _NEVER,
    )
    # One more, for when there are no global tokens at all, as in a batch of no
    # records.
    scores = tf.pad(
        scores, [[0, 0], [0, 0], [0, 1]], constant_values=2.0 * _NEVER
    )
    # [batch, thresholds]
    chosen = tf.argmax(scores, axis=2, output_type=tf.int32)
    return tf.where(highest >= 0, chosen, -1)


def _substrings(
    context: HotpotQAContext, spans: Spans, sentence: tf.Tensor
) -> tf.Tensor:
    """Texts of the best spans of sentences <int32>[batch]; "" for -1."""
    is_there = sentence >= 0
    sentence = tf.maximum(sentence, 0)

    def of(values):
        return tf.gather(values, sentence, batch_dims=1)

    start = tf.gather(context.starts, of(spans.begins), batch_dims=1)
    end = tf.gather(context.ends, of(spans.ends), batch_dims=1)
    segment = of(context.global_segments)
    is_there &= (segment >= 0) & (start >= 0)
    # [batch]
    texts = tf.gather(
        tf.pad(context.segments.flat_values, [[0, 1]]),
        tf.where(
            is_there,
            tf.cast(context.segments.row_starts(), tf.int32) + segment,
            0,
        ),
    )
    start = tf.where(is_there, start, 0)
    # SentencePiece counts the space before a word to it.
    return tf.strings.strip(
        tf.strings.substr(
            texts, start, tf.where(is_there, end - start, 0), unit="BYTE"
        )
    )


def decode_answers(
    logits,
    long_token_type_ids: tf.Tensor,
    long_sentence_ids: tf.Tensor,
    context: HotpotQAContext,
    threshold: float = 0.5,
    max_answer_length: int = MAX_ANSWER_LENGTH,
    shape: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Gives the answer, its type and the supporting facts.

    Args:
        logits: as from the model.
        long_token_type_ids: `<int32>[batch, long]`.
        long_sentence_ids: `<int32>[batch, long]`.
        context: where the tokens come from.
        threshold: probability from which a sentence is a supporting fact.
        max_answer_length: greatest length of an answer, in tokens.
        shape: numbers of paragraphs and of sentences, `<int>[2]`, at least
            those of the texts; those of the texts by default.

    Returns:
        A dict with `answer` `<string>[batch]` (as it stands in the text, or
        "yes" or "no"), `answer_type` `<int32>[batch]` (0 span, 1 yes, 2 no),
        `answer_probability` `<float32>[batch]` (that of the type, times that
        of the span) and `supporting_fact_probabilities`
        `<float32>[batch, paragraphs, sentences]` (0 for sentences that are
        cut, empty or padding).
    """
    probabilities = supporting_fact_probabilities(
        logits, context.global_segments
    )
    spans = best_spans(
        logits, long_token_type_ids, long_sentence_ids, max_answer_length
    )
    # [batch]
    sentence = choose_sentences(spans, probabilities, tf.constant([threshold]))
    sentence = sentence[:, 0]
    type_probabilities = tf.nn.softmax(logits["answer_type_logits"])
    answer_type = tf.argmax(type_probabilities, axis=1, output_type=tf.int32)
    span_probability = tf.where(
        sentence >= 0,
        tf.gather(spans.probabilities, tf.maximum(sentence, 0), batch_dims=1),
        0.0,
    )
    is_span = tf.equal(answer_type, model_lib.SPAN)
    words = tf.gather(tf.constant(["", "yes", "no"]), answer_type)
    return {
        "answer": tf.where(
            is_span, _substrings(context, spans, sentence), words
        ),
        "answer_type": answer_type,
        "answer_probability": tf.reduce_max(type_probabilities, axis=1)
        * tf.where(is_span, span_probability, 1.0),
        "supporting_fact_probabilities": _by_paragraph(
            probabilities, context, shape
        ),
    }


def _by_paragraph(
    probabilities: tf.Tensor,
    context: HotpotQAContext,
    shape: tf.Tensor | None,
) -> tf.Tensor:
    """Probabilities of sentences, <float32>[batch, paragraphs, sentences]."""
    first = tf.cast(context.segments.row_starts(), tf.int32)
    segment = context.global_segments
    # [all segments]
    flat = tf.math.unsorted_segment_sum(
        tf.reshape(probabilities, [-1]),
        tf.reshape(
            tf.where(segment >= 0, segment + first[:, tf.newaxis], -1), [-1]
        ),
        tf.size(context.segments.flat_values),
    )
    sizes = context.paragraph_sizes
    # [batch, (paragraphs), (1 + sentences)]
    ragged = sizes.with_values(
        tf.RaggedTensor.from_row_lengths(flat, sizes.values, validate=False)
    )
    # The title comes first.
    # [batch, paragraphs, sentences]
    dense = ragged[:, :, 1:].to_tensor()
    if shape is None:
        return dense
    missing = tf.maximum(tf.cast(shape, tf.int32) - tf.shape(dense)[1:], 0)
    return tf.pad(dense, [[0, 0], [0, missing[0]], [0, missing[1]]])
