"""Selection: scores the global token of each unit."""

import math

import tensorflow as tf

from etcmodel.feature_utils import token_types
from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat
from etcmodel.models.heads import make_logits_layer
from etcmodel.pipeline.task_model import EtcTaskModel
from etcmodel.pipeline.task_model import exempt_from_hard_g2l
from etcmodel.tasks.documents import document_units
from etcmodel.tasks.select.task import TASK


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class SelectionHead(graph_layer.GraphLayer):
    """Computes a logit for every global token; see `SelectModelOptions`.

    Raises a ValueError if the prior is not between 0 and 1.
    """

    def __init__(
        self,
        unit_prior: float = 0.1,
        initializer_range: float = 0.02,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        if not 0 < unit_prior < 1:
            raise ValueError(
                f"unit_prior is {unit_prior}, expected a probability between 0 "
                "and 1."
            )
        self.unit_prior = unit_prior
        self.initializer_range = initializer_range
        self.logits = make_logits_layer(
            1,
            initializer_range,
            "logits",
            bias=math.log(unit_prior / (1 - unit_prior)),
        )

    def build(self, input_shape):
        """Builds the dense layer from the width of `global_output`."""
        keras_compat.build_once(self.logits, input_shape)
        super().build(input_shape)

    def call(self, global_output):
        """Computes logits, `<float32>[batch, global]`."""
        return self.logits(global_output)[..., 0]

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "unit_prior": self.unit_prior,
            "initializer_range": self.initializer_range,
        }


class Select(EtcTaskModel):
    """Selects units of a document."""

    LOSSES = ("selection",)
    ANSWER_AXES = {**document_units.UNIT_AXES, "is_selected": ("units",)}

    def encoder_options(self):
        """Exempts the CLS and optionally the query from the hard mask."""
        query = self.model_options.query_ignore_hard_g2l
        return exempt_from_hard_g2l(
            {token_types.CLS_GLOBAL: True, token_types.QUESTION_GLOBAL: query}
        )

    def head(self, config):
        """Makes a head that computes `logits`, `<float32>[batch, global]`."""
        head = SelectionHead(
            self.model_options.unit_prior,
            config.initializer_range,
            name="output_layer",
        )
        return lambda encoded, inputs: {
            "logits": head(encoded["global_output"])
        }

    def losses(self, outputs, labels):
        """Computes the cross entropies of the units."""
        logits, labels = outputs["logits"], labels["is_relevant"]
        return {"selection": document_units.unit_losses(logits, labels)}

    def select_candidates(self, outputs, features, context):
        """Returns each global token's unit, and its probability."""
        return {
            "global_units": context["global_units"],
            "probabilities": tf.sigmoid(outputs["logits"]),
        }

    def decode(self, candidates, owner, text):
        """Decodes units and their probabilities; see docs/serving.md."""
        units = document_units.decode_units(**candidates, text=text)
        threshold = TASK.tuned.of(self.options)
        is_selected = units["unit_probabilities"] >= threshold
        return {**units, "is_selected": is_selected}

    def to_prediction(self, answers, text):
        """Converts answers for `datasets.selection.score`."""
        threshold = TASK.tuned.of(self.options)
        return document_units.to_unit_predictions(answers, threshold)
