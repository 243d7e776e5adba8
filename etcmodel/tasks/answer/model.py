"""Question answering: the model finds the answer, if any, and evidence."""

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.tasks.answer.task import TASK
from etcmodel.tasks.documents import document_units
from etcmodel.tasks.documents import span_decoding
from etcmodel.tasks.documents.span_model import SpanAnswerModel


class Answer(SpanAnswerModel):
    """Answers a question from a document, if it has an answer."""

    HAS_NO_ANSWER = True
    ANSWER_AXES = document_units.UNIT_AXES

    def __init__(self, model_options, options, *args, **kwargs):
        super().__init__(model_options, options, *args, **kwargs)
        if options.answer_in_evidence and options.multiply_fact_probability:
            raise UserError(
                "task.answer_in_evidence and task.multiply_fact_probability"
                " are both true. Set only one of them."
            )

    @property
    def _unit_threshold(self) -> float | None:
        """Threshold for the answer's unit; see `choose_sentences`."""
        options = self.options
        if options.multiply_fact_probability:
            return None
        return options.evidence_threshold if options.answer_in_evidence else 0.0

    def decode(self, candidates, owner, text):
        """Decodes answers and units with probabilities (docs/serving.md)."""
        types = candidates["answer_type_probabilities"]
        # [batch]
        no_answer = types[:, span_decoding.NONE]
        threshold = TASK.tuned.of(self.options)
        is_none = (no_answer >= threshold)[:, tf.newaxis]
        # Sets the probability of the type "none", or of the other three types,
        # to 0.
        # [batch, 3]
        others = tf.where(is_none, 0.0, 1.0) * types[:, : span_decoding.NONE]
        types = tf.concat(
            [others, tf.where(is_none, no_answer[:, tf.newaxis], 0.0)], axis=1
        )
        return {
            **span_decoding.decode_spans(
                {**candidates, "answer_type_probabilities": types},
                text["units"],
                text["unit_paragraphs"].flat_values,
                text["unit_numbers"].flat_values,
                self._unit_threshold,
            ),
            "no_answer_probability": no_answer,
            **document_units.decode_units(
                candidates["global_units"],
                candidates["fact_probabilities"],
                text,
            ),
        }

    def to_prediction(self, answers, text):
        """Converts answers to what `question_answering.score` compares."""
        return {
            "answer": answers["answer"].decode("utf-8", "replace"),
            "no_answer_probability": float(answers["no_answer_probability"]),
            # Returns all units, since gold evidence may be texts or a
            # paragraph.
            "evidence": document_units.to_unit_predictions(
                answers, self.options.evidence_threshold
            ),
        }
