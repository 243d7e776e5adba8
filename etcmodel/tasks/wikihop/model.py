"""WikiHop's model: the encoder, and one logit for every candidate."""

import tensorflow as tf

from etcmodel.feature_utils import token_types
from etcmodel.models.heads import MASKED_LOGIT
from etcmodel.models.heads import GlobalChoiceHead
from etcmodel.pipeline.task_model import EtcTaskModel
from etcmodel.pipeline.task_model import exempt_from_hard_g2l
from etcmodel.tasks.wikihop.preprocessor import LAYOUT
from etcmodel.tasks.wikihop.preprocessor import is_first_of_equals
from etcmodel.tasks.wikihop.preprocessor import normalize_candidates


def example_losses(
    logits: tf.Tensor,
    labels: tf.Tensor,
    global_token_type_ids: tf.Tensor,
    label_smoothing: float = 0.0,
) -> tf.Tensor:
    """Computes the cross entropy over candidates, `<float32>[batch]`.

    With label smoothing s and n candidates, the target of the right candidate
    is `1 - s + s / n`, that of others `s / n`. Logits are `[batch, global]`,
    labels are indices of the right candidates, `<int>[batch]`.
    """
    # [batch, global]
    is_candidate = tf.cast(
        tf.equal(global_token_type_ids, token_types.CANDIDATE_GLOBAL),
        tf.float32,
    )
    # [batch, 1]
    num_candidates = tf.reduce_sum(is_candidate, axis=-1, keepdims=True)
    # [batch, global]
    targets = tf.one_hot(labels, tf.shape(logits)[1], dtype=tf.float32)
    targets = (1.0 - label_smoothing) * targets + (
        label_smoothing * is_candidate / tf.maximum(num_candidates, 1.0)
    )
    return tf.nn.softmax_cross_entropy_with_logits(
        labels=targets, logits=tf.cast(logits, tf.float32)
    )


def decode_answers(
    logits: tf.Tensor, candidates: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Selects the most probable candidate.

    Candidate i is global position i (ETC paper, Appendix C). Of candidates that
    differ only in case or outer spaces, only the first is kept. Example:

        decode_answers([[1.0, 3.0, -10000.0]], [["oslo", "rome"]])
        -> answer ["rome"], answer_index [1],
           candidate_probabilities [[0.119, 0.881]]

    Returns:
        `answer` `<string>[batch]` as given, "" without candidates;
        `answer_index` `<int32>[batch]`, -1 without candidates;
        `candidate_probabilities` `<float32>[batch, candidates]`, 0 for padding,
        repeated candidates and candidates beyond the global length.
    """
    num_candidates = tf.shape(candidates)[1]
    missing = tf.maximum(num_candidates - tf.shape(logits)[1], 0)
    # [batch, candidates]
    scores = tf.pad(
        tf.cast(logits, tf.float32)[:, :num_candidates],
        [[0, 0], [0, missing]],
        constant_values=MASKED_LOGIT,
    )
    names = normalize_candidates(candidates)
    # [batch, candidates]
    is_candidate = names.with_values(is_first_of_equals(names)).to_tensor(
        default_value=False, shape=tf.stack([-1, num_candidates])
    )
    is_candidate &= tf.not_equal(candidates, "")
    scores = tf.where(is_candidate, scores, MASKED_LOGIT)
    probabilities = tf.where(is_candidate, tf.nn.softmax(scores), 0.0)
    # A last column of padding, for records without candidates.
    # [batch, candidates + 1]
    scores = tf.pad(scores, [[0, 0], [0, 1]], constant_values=2 * MASKED_LOGIT)
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


class WikiHop(EtcTaskModel):
    """Chooses the right candidate answer of a record."""

    LOSSES = ("cross_entropy",)
    METRICS = {"accuracy": ("logits", "label")}
    ANSWER_AXES = {
        "candidates": ("candidates",),
        "candidate_probabilities": ("candidates",),
    }

    def encoder_options(self):
        """Exempts candidates and query from the hard mask, if configured."""
        options = self.model_options
        exempt = {
            token_types.CANDIDATE_GLOBAL: options.candidate_ignore_hard_g2l,
            token_types.QUESTION_GLOBAL: options.query_ignore_hard_g2l,
        }
        return {
            "structure": LAYOUT,
            **exempt_from_hard_g2l(exempt),
            "use_links": options.use_links,
            "flat_sequence": options.flat_sequence,
        }

    def head(self, config):
        """Makes the head: `logits` `<float32>[batch, global]` of candidates."""
        choice = GlobalChoiceHead(
            choice_type_id=token_types.CANDIDATE_GLOBAL,
            intermediate_size=config.intermediate_size,
            hidden_act=config.hidden_act,
            hidden_dropout_prob=config.hidden_dropout_prob,
            initializer_range=config.initializer_range,
            add_final_layer=self.model_options.add_final_layer,
            name="global_output_layer",
        )
        return lambda encoded, inputs: {
            "logits": choice(
                encoded["global_output"], inputs["global_token_type_ids"]
            )
        }

    def labels(self, features, fields):
        """Returns the label, and which global tokens are candidates."""
        return {
            **fields,
            "label": tf.cast(fields["label_id"], tf.int32),
            "global_token_type_ids": features["global_token_type_ids"],
        }

    def losses(self, outputs, labels):
        """Computes the cross entropy over candidates."""
        return {
            "cross_entropy": example_losses(
                outputs["logits"],
                labels["label"],
                labels["global_token_type_ids"],
                self.options.label_smoothing,
            )
        }

    def decode(self, candidates, owner, text):
        """Selects the most probable candidate; see `decode_answers`."""
        # [batch, candidates]
        choices = text["candidates"].to_tensor(
            default_value="",
            # As wide as the request's candidates. Stored records have no
            # request.
            shape=tf.stack([-1, text.get("num_candidates", -1)]),
        )
        return decode_answers(candidates["logits"], choices)

    def to_prediction(self, answers, text):
        """Returns the answer as written among the candidates."""
        return answers["answer"].decode("utf-8")
