"""Decodes logits to answers and supporting facts; graph code.

A *unit* is a title or a sentence, identified by the index of its global token.
Functions with "sentences" in their name also handle titles. Source: ETC paper,
Appendix C (HotpotQA, Inference).
"""

from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import layout
from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils.text import word_cuts
from etcmodel.pipeline import example_schema

# Fields of examples, for each long token: its first byte and exclusive end in
# its unit, -1 for tokens outside of units; and whether it begins or ends inside
# a word (see `word_cuts`).
FIELDS = {
    name: example_schema.Field("long", example_schema.DECODING, pad=pad)
    for name, pad in (
        ("long_starts", -1),
        ("long_ends", -1),
        ("long_word_cuts", 0),
    )
}
# Labels: 1, 0 or -1 (no loss) for each global token; the type of the answer;
# the first and the last token of each occurrence of a span answer.
LABELS = {
    "supporting_facts": example_schema.Field(
        "global", example_schema.LABEL, pad=-1
    ),
    "answer_type": example_schema.Field("one", example_schema.LABEL),
    "answer_begins": example_schema.Field("list", example_schema.LABEL),
    "answer_ends": example_schema.Field("list", example_schema.LABEL),
}


def values(section: str) -> list[layout.Value]:
    """Returns the layout values that fill `FIELDS`."""
    return [
        layout.Value(name, section, pad=field.pad)
        for name, field in FIELDS.items()
    ]


# Types of answers, as numbered in records and in `answer_type_logits`.
SPAN, YES, NO, NONE = range(4)
# Labels of tokens in the "bio" encoding.
BEGIN, INSIDE, OUTSIDE = 0, 1, 2
_NEVER = -1e9
# Penalty for spans that begin or end inside a word: they rank below all spans
# of whole words.
_CUT = -1e4
# Penalty for a single word, used if a unit has no run of labels. It outweighs
# the logarithms of two probabilities.
_NO_RUN = -200.0


def is_answer_token(
    long_token_type_ids: tf.Tensor, long_sentence_ids: tf.Tensor
) -> tf.Tensor:
    """Marks the tokens that can be part of an answer, `<bool>[batch, long]`.

    These are the tokens of titles and sentences. The CLS has the same type as
    sentences, but no sentence id. Example: types `[1, 3, 2, 1, 0]` and sentence
    ids `[-1, 1, 3, 4, -1]` of a CLS, a question token, a title, a sentence and
    padding give `[False, False, True, True, False]`.
    """
    is_text = tf.equal(long_token_type_ids, token_types.SENTENCE) | tf.equal(
        long_token_type_ids, token_types.TITLE
    )
    return is_text & (long_sentence_ids >= 0)


class Spans(NamedTuple):
    """The best span of every unit, each field `[batch, global]`.

    Attributes:
        scores: `<float32>`, logarithms of the values that rank spans, below
            -1e8 for units without a span.
        begins, ends: `<int32>`, the span's first and last long token.
        probabilities: `<float32>`, the span's probability.
    """

    scores: tf.Tensor
    begins: tf.Tensor
    ends: tf.Tensor
    probabilities: tf.Tensor


def _log(probabilities: tf.Tensor) -> tf.Tensor:
    """Computes natural logarithms, at least -69.1."""
    return tf.math.log(tf.maximum(probabilities, 1e-30))


def _windows(values: tf.Tensor, width: int, pad: float | int) -> tf.Tensor:
    """Gathers `width` values from each position on, [batch, long, width]."""
    padded = tf.pad(values, [[0, 0], [0, width - 1]], constant_values=pad)
    return tf.signal.frame(padded, width, 1, axis=1)


def _spans_of_begins_and_ends(logits, units, cuts, max_answer_length):
    """Finds the best span from each token on: the highest P(begin) P(end)."""
    begin, end = (
        tf.nn.log_softmax(logits[f"answer_{name}_logits"])
        for name in ("begin", "end")
    )
    penalty = tf.where(word_cuts.begins_inside(cuts), _CUT, 0.0)
    end_penalty = tf.where(word_cuts.ends_inside(cuts), _CUT, 0.0)
    # [batch, long, width]
    scores = (begin + penalty)[..., tf.newaxis] + _windows(
        end + end_penalty, max_answer_length, _NEVER
    )
    is_same = tf.equal(
        units[..., tf.newaxis], _windows(units, max_answer_length, -2)
    )
    scores = tf.where(is_same, scores, _NEVER)
    # [batch, long]
    best = tf.reduce_max(scores, axis=2)
    length = tf.argmax(scores, axis=2, output_type=tf.int32)
    # A token is always in its own window.
    last = tf.range(tf.shape(units)[1]) + length
    penalty += tf.gather(end_penalty, last, batch_dims=1)
    return best, last, tf.exp(best - penalty)


def _whole_words(labels, cuts):
    """Returns the labels of words, and the last token of each token's word.

    All tokens of a word get the label of its first token; a "begin" is followed
    by "inside".
    """
    shape = tf.shape(labels)
    continues = word_cuts.begins_inside(cuts)
    # The word of each token, numbered across the batch.
    word = tf.cumsum(tf.cast(tf.reshape(~continues, [-1]), tf.int32))
    place = tf.range(tf.size(word))
    most = tf.size(word) + 1
    first, last = (
        tf.gather(x(place, word, most), word)
        for x in (tf.math.unsorted_segment_min, tf.math.unsorted_segment_max)
    )
    labels = tf.reshape(tf.gather(tf.reshape(labels, [-1]), first), shape)
    labels = tf.where(
        continues & tf.equal(labels, BEGIN),
        INSIDE * tf.ones_like(labels),
        labels,
    )
    return labels, tf.range(shape[1]) + tf.reshape(last - place, shape)


def _spans_of_labels(logits, units, cuts, max_answer_length):
    """Scores each run of begin and inside labels by its mean probability.

    A run starts at a "begin" label, or at an "inside" label that follows no
    other label of the unit. Runs do not cross units. All tokens of a word get
    the label of its first token. In a unit without a run, the word with the
    most probable "begin" is used.
    """
    probabilities = tf.nn.softmax(logits["answer_bio_logits"])
    # [batch, long]
    labels, last = _whole_words(
        tf.argmax(probabilities, axis=2, output_type=tf.int32), cuts
    )
    is_part = tf.not_equal(labels, OUTSIDE) & (units >= 0)
    goes_on = tf.pad(is_part[:, :-1], [[0, 0], [1, 0]]) & tf.equal(
        units, tf.pad(units[:, :-1], [[0, 0], [1, 0]])
    )
    starts = is_part & (tf.equal(labels, BEGIN) | ~goes_on)
    shape = tf.shape(labels)
    # The run of each token, numbered across the batch; 0 for none.
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
    single = probabilities[..., BEGIN]
    # Runs rank before single words, and single words before parts of words.
    penalty = tf.where(word_cuts.begins_inside(cuts), 2.0, 1.0) * _NO_RUN
    return (
        tf.where(is_run, _log(mean), _log(single) + penalty),
        tf.where(is_run, tf.range(shape[1]) + length - 1, last),
        tf.where(is_run, mean, single),
    )


def best_spans(
    logits,
    long_token_type_ids: tf.Tensor,
    long_sentence_ids: tf.Tensor,
    long_word_cuts: tf.Tensor,
    max_answer_length: int,
) -> Spans:
    """Finds the best span of every unit.

    A span lies in one unit and has at most `max_answer_length` tokens. It
    consists of whole words, if possible. Spans are ranked by the product of the
    probabilities of begin and end or, in the "bio" encoding, by the mean
    probability of their labels; of spans with equal values, the first one is
    chosen.

    `logits` are the model's outputs, other tensors are `<int32>[batch, long]`.
    """
    can_be_part = is_answer_token(long_token_type_ids, long_sentence_ids)
    # [batch, long]
    units = tf.where(can_be_part, long_sentence_ids, -1)
    find = (
        _spans_of_labels
        if "answer_bio_logits" in logits
        else _spans_of_begins_and_ends
    )
    scores, ends, probabilities = find(
        logits, units, long_word_cuts, max_answer_length
    )
    batch, length = tf.unstack(tf.shape(units))
    num_units = tf.shape(logits["supporting_fact_logits"])[1]
    # Units are numbered across the batch; tokens outside of units are ignored.
    index = tf.where(
        can_be_part,
        units + tf.range(batch)[:, tf.newaxis] * num_units,
        -1,
    )
    index = tf.reshape(index, [-1])
    most = batch * num_units
    flat = tf.reshape(scores, [-1])
    best = tf.math.unsorted_segment_max(flat, index, most)
    # The first token with the maximum.
    is_best = (index >= 0) & tf.equal(
        flat, tf.gather(best, tf.maximum(index, 0))
    )
    position = tf.tile(tf.range(length), [batch])
    begin = tf.math.unsorted_segment_min(
        tf.where(is_best, position, length - 1), index, most
    )
    # [batch, global]
    shape = tf.stack([batch, num_units])
    begin = tf.reshape(tf.clip_by_value(begin, 0, length - 1), shape)
    return Spans(
        scores=tf.maximum(tf.reshape(best, shape), _NEVER),
        begins=begin,
        ends=tf.gather(ends, begin, batch_dims=1),
        probabilities=tf.gather(probabilities, begin, batch_dims=1),
    )


def select_candidates(
    logits, features, context, max_answer_length: int
) -> dict[str, tf.Tensor]:
    """Selects each unit's best span and supporting-fact probability.

    `logits` are the model's outputs, `context` has `global_units` and `FIELDS`.

    Returns:
        `answer_type_probabilities` `<float32>[batch, 3 or 4]`, and `[batch,
        global]`: `global_units`, the unit of each global token, and
        `fact_probabilities`, both -1 for tokens without a unit; `scores`,
        `probabilities`, `starts` and `ends` (bytes) of the unit's best span.
    """
    spans = best_spans(
        logits,
        features["long_token_type_ids"],
        features["long_sentence_ids"],
        context["long_word_cuts"],
        max_answer_length,
    )
    units = context["global_units"]

    def of(name, tokens):
        return tf.gather(context[name], tokens, batch_dims=1)

    return {
        "answer_type_probabilities": tf.nn.softmax(
            logits["answer_type_logits"]
        ),
        "global_units": units,
        "fact_probabilities": tf.where(
            units >= 0, tf.sigmoid(logits["supporting_fact_logits"]), -1.0
        ),
        "scores": spans.scores,
        "probabilities": spans.probabilities,
        "starts": of("long_starts", spans.begins),
        "ends": of("long_ends", spans.ends),
    }


def choose_sentences(
    scores: tf.Tensor, probabilities: tf.Tensor, threshold: float | None
) -> tf.Tensor:
    """Chooses the unit whose best span is the answer, `<int32>[batch]`.

    With a threshold, as in the paper, this is the unit with the best span among
    the predicted supporting facts. If none of them has a span, it is the unit
    with the highest fact probability among those with a span. Without a
    threshold, it is the unit with the highest product of span probability and
    fact probability. The result is -1 if no unit has a span. Example: spans
    with the scores `[-1, -3, -2]` in units with the fact probabilities `[0.1,
    0.6, 0.7]` give, for the thresholds 0, 0.5 and 0.9, the units 0, 2 and 2.
    Without a threshold, scores plus log probabilities are `[-3.3, -3.5, -2.4]`,
    which gives unit 2.

    `scores`, `<float32>[batch, global]`, belong to each unit's best span;
    `probabilities`, of the same shape, are fact probabilities (-1 for other
    tokens).
    """
    has_span = (scores > 0.1 * _NEVER) & (probabilities >= 0)
    among = tf.where(has_span, probabilities, -1.0)
    # [batch, 1]
    highest = tf.reduce_max(among, axis=1, keepdims=True)
    is_fact = has_span
    if threshold is None:
        scores += _log(probabilities)
    else:
        is_fact &= among >= tf.minimum(threshold, highest)
    # One more column, since `argmax` needs at least one.
    # [batch, global + 1]
    candidates = tf.pad(
        tf.where(is_fact, scores, 2.0 * _NEVER),
        [[0, 0], [0, 1]],
        constant_values=2.0 * _NEVER,
    )
    chosen = tf.argmax(candidates, axis=1, output_type=tf.int32)
    return tf.where(highest[:, 0] >= 0, chosen, -1)


def decode_answers(
    chosen,
    units: tf.RaggedTensor,
    paragraph_sizes: tf.RaggedTensor,
    threshold: float | None,
    shape: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Returns the answer, its type and the supporting facts.

    Args:
        chosen: result of `select_candidates`.
        units: all units of a record, `<string>[batch, (units)]`.
        paragraph_sizes: number of units of each paragraph,
            `<int>[batch, (paragraphs)]`.
        threshold: minimum fact probability of the answer's unit, or None; see
            `choose_sentences`.
        shape: minimum numbers of paragraphs and of sentences in the result,
            `<int>[2]`; by default, the result is as small as the texts allow.

    Returns:
        The results of `decode_spans`, and `supporting_fact_probabilities`
        `<float32>[batch, paragraphs, sentences]` (0 for sentences that are cut,
        empty or padding).
    """
    paragraphs, numbers = _positions(paragraph_sizes)
    return {
        **decode_spans(chosen, units, paragraphs, numbers, threshold),
        "supporting_fact_probabilities": _by_paragraph(
            chosen, units, paragraph_sizes, shape
        ),
    }


def _positions(sizes: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each unit's paragraph, and its number there, -1 for titles.

    Example: the sizes `[[3, 1], [2]]` give the paragraphs `[0, 0, 0, 1, 0, 0]`
    and the numbers `[-1, 0, 1, -1, -1, 0]`.
    """
    paragraph = ragged_rows.index_in(
        ragged_rows.owners_in(sizes), tf.cast(sizes.row_splits, tf.int64)
    )
    splits = ragged_rows.cumulative(sizes.values)
    # [all units]
    owner = ragged_rows.owners(splits)
    return (
        tf.cast(tf.gather(paragraph, owner), tf.int32),
        tf.cast(ragged_rows.index_in(owner, splits), tf.int32) - 1,
    )


def decode_spans(
    chosen,
    units: tf.RaggedTensor,
    paragraphs: tf.Tensor,
    numbers: tf.Tensor,
    threshold: float | None,
) -> dict[str, tf.Tensor]:
    """Returns the answer, its type and its position; see `decode_answers`.

    Args:
        chosen: as for `decode_answers`.
        units: as for `decode_answers`.
        paragraphs: each unit's paragraph, `<int32>[all units]`.
        numbers: each unit's number in its paragraph, -1 for a title,
            `<int32>[all units]`.
        threshold: as for `decode_answers`.

    Returns:
        Each `[batch]`: `answer` `<string>` (as in the text, "yes" or "no"; ""
        for no answer), `answer_type` `<int32>` (0 span, 1 yes, 2 no, 3 no
        answer or no text), `answer_probability` `<float32>` (the type's
        probability; for a span, times the span's). The position, all `<int32>`,
        -1 without a span: `answer_paragraph`, `answer_unit` (the unit's number
        in its paragraph, -1 for a title), `answer_start` and `answer_end`
        (bytes of the unit; the end is exclusive).
    """
    # [batch]
    position = choose_sentences(
        chosen["scores"], chosen["fact_probabilities"], threshold
    )
    is_there = position >= 0

    def of(name):
        return tf.gather(chosen[name], tf.maximum(position, 0), batch_dims=1)

    start, end, unit = of("starts"), of("ends"), of("global_units")
    has_text = is_there & (unit >= 0) & (start >= 0)
    first = tf.cast(units.row_starts(), tf.int32)
    index = tf.where(has_text, first + unit, 0)
    texts = tf.strings.substr(
        tf.gather(tf.pad(units.flat_values, [[0, 1]]), index),
        tf.where(has_text, start, 0),
        tf.where(has_text, end - start, 0),
        unit="BYTE",
    )
    # SentencePiece's tokens include the space before a word.
    stripped = tf.strings.strip(texts)
    start += tf.strings.length(texts) - tf.strings.length(
        tf.strings.regex_replace(texts, r"^[\s\v]+", "")
    )
    types = chosen["answer_type_probabilities"]
    answer_type = tf.argmax(types, axis=1, output_type=tf.int32)
    is_span = tf.equal(answer_type, SPAN)
    words = tf.gather(tf.constant(["", "yes", "no", ""]), answer_type)
    answer = tf.where(is_span, stripped, words)
    is_found = is_span & tf.not_equal(answer, "")
    span_probability = tf.where(is_there, of("probabilities"), 0.0)
    return {
        "answer": answer,
        "answer_type": tf.where(tf.equal(answer, ""), NONE, answer_type),
        "answer_probability": tf.reduce_max(types, axis=1)
        * tf.where(is_span, span_probability, 1.0),
        **{
            f"answer_{name}": tf.where(is_found, values, -1)
            for name, values in {
                "paragraph": tf.gather(tf.pad(paragraphs, [[0, 1]]), index),
                "unit": tf.gather(tf.pad(numbers, [[0, 1]]), index),
                "start": start,
                "end": start + tf.strings.length(stripped),
            }.items()
        },
    }


def _by_paragraph(chosen, units, sizes, shape) -> tf.Tensor:
    """Returns fact probabilities, <float32>[batch, paragraphs, sentences]."""
    first = tf.cast(units.row_starts(), tf.int32)
    unit = chosen["global_units"]
    # [all units]
    flat = tf.math.unsorted_segment_sum(
        tf.reshape(chosen["fact_probabilities"], [-1]),
        tf.reshape(tf.where(unit >= 0, unit + first[:, tf.newaxis], -1), [-1]),
        tf.size(units.flat_values),
    )
    # An empty sentence between others has a global token, but cannot be a fact.
    flat = tf.where(tf.equal(units.flat_values, ""), 0.0, flat)
    sizes = tf.cast(sizes.with_row_splits_dtype(tf.int64), tf.int64)
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
