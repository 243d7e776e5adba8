"""From logits to answers, in graph code, so that it is exported too."""

import tensorflow as tf

# Added to the scores of what is no candidate; as the model's own mask.
_MASKED = -10000.0


def decode_answers(
    logits: tf.Tensor, candidates: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Picks the most probable candidate.

    Candidate i is global position i (ETC paper, Appendix C). Example:

        decode_answers([[1.0, 3.0, -10000.0]], [["oslo", "rome"]])
        -> answer ["rome"], answer_index [1],
           candidate_probabilities [[0.119, 0.881]]

    Args:
        logits: `<float32>[batch, global]`, masked to candidates.
        candidates: `<string>[batch, candidates]`; the empty string is padding,
            which may stand at the end of a row only.

    Returns:
        A dict with `answer` `<string>[batch]` (the candidate as given; empty if
        there are none), `answer_index` `<int32>[batch]` (-1 if there are none)
        and `candidate_probabilities` `<float32>[batch, candidates]` (0 for
        padding and for candidates beyond the global length).
    """
    num_candidates = tf.shape(candidates)[1]
    missing = tf.maximum(num_candidates - tf.shape(logits)[1], 0)
    # [batch, candidates]
    scores = tf.pad(
        tf.cast(logits, tf.float32)[:, :num_candidates],
        [[0, 0], [0, missing]],
        constant_values=_MASKED,
    )
    # [batch, candidates]
    is_candidate = tf.not_equal(candidates, "")
    scores = tf.where(is_candidate, scores, _MASKED)
    probabilities = tf.where(is_candidate, tf.nn.softmax(scores), 0.0)
    # A last column of padding, to point to when there are no candidates.
    # [batch, candidates + 1]
    scores = tf.pad(scores, [[0, 0], [0, 1]], constant_values=2 * _MASKED)
    choices = tf.pad(candidates, [[0, 0], [0, 1]], constant_values="")
    # [batch]
    index = tf.argmax(scores, axis=1, output_type=tf.int32)
    return {
        "answer": tf.gather(choices, index, batch_dims=1),
        "answer_index": tf.where(
            tf.reduce_any(is_candidate, axis=1), index, -1
        ),
        "candidate_probabilities": probabilities,
    }
