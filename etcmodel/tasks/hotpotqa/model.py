"""HotpotQA's model: answers with their supporting facts."""

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import token_types
from etcmodel.pipeline.task_model import exempt_from_hard_g2l
from etcmodel.tasks.documents import span_decoding
from etcmodel.tasks.documents.span_model import SpanAnswerModel
from etcmodel.tasks.hotpotqa.task import TASK


class HotpotQA(SpanAnswerModel):
    """Answers a question from paragraphs and names the supporting facts."""

    ANSWER_AXES = {
        "titles": ("paragraphs",),
        "sentences": ("paragraphs", "sentences"),
        "supporting_fact_probabilities": ("paragraphs", "sentences"),
    }

    @property
    def threshold(self) -> float:
        """Minimum probability of a supporting fact."""
        return TASK.tuned.of(self.options)

    def encoder_options(self):
        """Exempts the CLS and optionally the question from the hard mask."""
        options = self.model_options
        exempt = exempt_from_hard_g2l(
            {
                token_types.CLS_GLOBAL: True,
                token_types.QUESTION_GLOBAL: options.query_ignore_hard_g2l,
            }
        )
        return {**exempt, "flat_sequence": options.flat_sequence}

    def decode(self, candidates, owner, text):
        """Decodes answers and facts; see `span_decoding.decode_answers`."""
        return span_decoding.decode_answers(
            candidates,
            text["units"],
            text["paragraph_sizes"],
            None if self.options.multiply_fact_probability else self.threshold,
            text.get("shape"),
        )

    def to_prediction(self, answers, text):
        """Returns the answer and its supporting facts."""
        probabilities = answers["supporting_fact_probabilities"]
        # Sentences that were cut have the probability 0.
        threshold = max(self.threshold, np.finfo(np.float32).tiny)
        facts = [
            (tf.compat.as_text(text["titles"][paragraph]), sentence)
            for paragraph, sentence in np.argwhere(
                probabilities >= threshold
            ).tolist()
        ]
        return answers["answer"].decode("utf-8", "replace"), facts
