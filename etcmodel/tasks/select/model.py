"""Selection: a score for the global token of each unit."""

import math

import tensorflow as tf

from etcmodel.feature_utils import token_types
from etcmodel.models.heads import make_logits_layer
from etcmodel.pipeline import document_units
from etcmodel.pipeline.task_model import EtcTaskModel
from etcmodel.tasks.select.task import TASK


class Select(EtcTaskModel):
    """Selects units of a document."""

    @property
    def threshold(self) -> float:
        """Probability from which a unit is selected."""
        chosen = self.options.threshold
        return TASK.tuned.default if chosen is None else chosen

    def encoder_options(self):
        """The CLS sees everything, though a hard mask is on."""
        return {"ignore_hard_g2l_types": (token_types.CLS_GLOBAL,)}

    def head(self, config):
        """`logits` `<float32>[batch, global]`."""
        prior = self.model_options.prior
        if not 0 < prior < 1:
            raise ValueError(
                f"prior is {prior}, expected a probability between 0 and 1."
            )
        head = make_logits_layer(
            1,
            config.initializer_range,
            "output_layer",
            bias=math.log(prior / (1 - prior)),
        )
        return lambda encoded, inputs: {
            "logits": head(encoded["global_output"])[..., 0]
        }

    def loss_names(self):
        """See `TaskModel`."""
        return ("selection",)

    def losses(self, outputs, labels):
        """See `document_units.unit_losses`."""
        return {
            "selection": document_units.unit_losses(
                outputs["logits"], labels["is_relevant"]
            )
        }

    def select_candidates(self, outputs, features, context):
        """The unit of each global token, and its probability."""
        del features
        return {
            "global_units": context["global_units"],
            "probabilities": tf.sigmoid(outputs["logits"]),
        }

    def decode(self, candidates, owner, text):
        """Units and their probabilities; see docs/serving.md."""
        del owner
        units = document_units.decode_units(**candidates, text=text)
        return {
            **units,
            "is_selected": units["unit_probabilities"] >= self.threshold,
        }

    def to_prediction(self, answers, text):
        """See `datasets.selection.score`."""
        del text
        return document_units.to_unit_predictions(answers, self.threshold)
