"""What the Model Garden tasks of pre-training share.

Works with Keras 2 only; see `training.experiments`.
"""

from etcmodel.training import experiments  # First: it explains Keras 3.

# isort: split
import abc
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.models import pretraining_heads
from etcmodel.models.losses import is_correct
from etcmodel.ops import collectives

_EPSILON = 1e-5


class Term(NamedTuple):
    """A part of a loss, or a metric.

    Attributes:
        values: `<float32>[...]`.
        weights: `<float32>[...]`, 0 for what does not count.
    """

    values: tf.Tensor
    weights: tf.Tensor


class PretrainingTask(experiments.RecordsTask):
    """Learns from masked tokens and from something else.

    Subclasses have a configuration with `mlm_fraction_to_mask`.

    Raises:
        UserError: nothing was noted about the records, or they are those of
            another task, or a number is out of its range.
    """

    def __init__(self, params, logging_dir=None, name=None, metadata=None):
        self.check(params)
        super().__init__(params, logging_dir, name, metadata)
        self.require_metadata()

    @classmethod
    def check(cls, params) -> None:
        """Checks that numbers are in their ranges.

        Args:
            params: the task's configuration.

        Raises:
            UserError: one is not.
        """
        for name, value in params.as_dict().items():
            if "fraction" in name and not 0 <= value <= 1:
                raise UserError(
                    f"task.{name} is {value}, but must be a fraction: from 0 "
                    "to 1."
                )
            if name.endswith("_weight") and value < 0:
                raise UserError(
                    f"task.{name} is {value}, but must be at least 0."
                )
        weights = cls.factors(params)
        if not any(weights.values()):
            raise UserError(
                "There is nothing to learn: all of "
                f"{', '.join(f'task.{x[:-4]}weight' for x in weights)} are 0."
            )

    @classmethod
    @abc.abstractmethod
    def factors(cls, params) -> Mapping[str, float]:
        """The weights of the losses next to each other.

        Args:
            params: the task's configuration.

        Returns:
            Name of the loss, such as "mlm_loss", -> weight. Those of weight 0
            are not there at all.
        """

    @abc.abstractmethod
    def terms(self, labels, outputs) -> Mapping[str, Term]:
        """What the model is measured by.

        Args:
            labels: as they are read.
            outputs: the model's outputs.

        Returns:
            Name -> term: all losses, and further metrics.
        """

    @abc.abstractmethod
    def metric_names(self) -> list[str]:
        """Names of the terms, in order."""

    def initialize(self, model: tf.keras.Model) -> None:
        """Gives the encoder the weights of `init_checkpoint`, and heads theirs.

        Args:
            model: has the encoder in its `checkpoint_items`, and heads in its
                attributes.

        Raises:
            UserError: there is no such checkpoint, or it does not fit.
        """
        super().initialize(model)
        encoder = model.checkpoint_items["encoder"]
        self.initialize_heads(x for x in model.layers if x is not encoder)

    def build_losses(self, labels, model_outputs, aux_losses=None) -> tf.Tensor:
        """The loss of a replica; its mean over all replicas is the batch's.

        Args:
            labels: as they are read.
            model_outputs: the model's outputs.
            aux_losses: what the layers add.

        Returns:
            `<float32>[]`.
        """
        factors = self.factors(self.task_config)
        terms = self.terms(labels, model_outputs)
        total = 0.0
        for name, factor in factors.items():
            if factor:
                values, weights = terms[name]
                # The sums of all replicas: how tokens are dealt out to them
                # must not matter.
                total += (
                    factor
                    / sum(factors.values())
                    * tf.reduce_sum(values * weights)
                    / (collectives.all_sum(tf.reduce_sum(weights)) + _EPSILON)
                )
        total *= collectives.num_replicas()
        return tf.add_n([total, *(aux_losses or [])])

    def build_metrics(self, training: bool = True):
        """Exact means over all that counts."""
        del training
        return [tf.keras.metrics.Mean(name=x) for x in self.metric_names()]

    def process_metrics(self, metrics, labels, model_outputs, **kwargs):
        """Adds a batch to the metrics."""
        terms = self.terms(labels, model_outputs)
        for metric in metrics:
            values, weights = terms[metric.name]
            metric.update_state(values, sample_weight=weights)


def masked_language_model(labels, outputs) -> dict[str, Term]:
    """Loss and accuracy of predicted tokens.

    Args:
        labels: dict with `label_ids` `<int32>[batch, n]` and `weights`
            `<float32>[batch, n]`.
        outputs: dict with `logits` `<float32>[batch, n, vocab_size]`.

    Returns:
        `mlm_loss` and `mlm_accuracy`.
    """
    logits, ids = outputs["logits"], labels["label_ids"]
    weights = labels["weights"]
    return {
        "mlm_loss": Term(
            pretraining_heads.masked_lm_losses(logits, ids), weights
        ),
        "mlm_accuracy": Term(is_correct(logits, ids), weights),
    }
