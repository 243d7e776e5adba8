"""WikiHop's Model Garden task."""

from etcmodel.tasks import etc_task  # First: it explains Keras 3.

# isort: split
import dataclasses

import tensorflow as tf
from official.core import config_definitions as cfg
from official.core import task_factory

from etcmodel.models.losses import is_correct
from etcmodel.tasks import experiment_lib
from etcmodel.tasks.wikihop import model as model_lib
from etcmodel.tasks.wikihop.experiments import EXPERIMENTS

# Paper, Table 1.
NUM_TRAIN_EXAMPLES = 43738

_LABELS = {
    # A float, as in the files of the original code.
    "label_id": tf.io.FixedLenFeature([], tf.float32),
    "is_real_example": tf.io.FixedLenFeature([], tf.int64, default_value=1),
}


@dataclasses.dataclass
class WikiHopModelParams(etc_task.EtcModelParams):
    """The model.

    Attributes:
        add_final_layer: whether a feed-forward block stands before the logits.
        candidate_ignore_hard_g2l: whether candidates attend to all long tokens
            though the hard g2l mask is on.
        query_ignore_hard_g2l: the same for the query's global tokens.
        use_links: whether candidates are linked with their mentions.
        flat_sequence: whether paragraphs are ignored (an ablation).
    """

    add_final_layer: bool = True
    candidate_ignore_hard_g2l: bool = True
    query_ignore_hard_g2l: bool = True
    use_links: bool = True
    flat_sequence: bool = False


@dataclasses.dataclass
class WikiHopTaskConfig(etc_task.EtcTaskConfig):
    """The task: model, data and loss.

    Attributes:
        model: the model.
        label_smoothing: share of the probability that is spread over all
            candidates.
    """

    model: WikiHopModelParams = dataclasses.field(
        default_factory=WikiHopModelParams
    )
    label_smoothing: float = 0.0


@task_factory.register_task_cls(WikiHopTaskConfig)
class WikiHopTask(etc_task.EtcTask):
    """Chooses the right one of the candidate answers of a record."""

    def build_model(self) -> tf.keras.Model:
        """The model, with the static lengths of the records."""
        params = self.task_config.model
        model = model_lib.build_wikihop_model(
            self.encoder_config(),
            add_final_layer=params.add_final_layer,
            candidate_ignore_hard_g2l=params.candidate_ignore_hard_g2l,
            query_ignore_hard_g2l=params.query_ignore_hard_g2l,
            use_links=params.use_links,
            flat_sequence=params.flat_sequence,
            **self.encoder_options(),
        )
        return self.with_checkpoint_items(model)

    def parse(self, serialized: tf.Tensor):
        """Reads a batch of serialized examples; graph code.

        Args:
            serialized: `<string>[batch]`.

        Returns:
            A pair of the model's inputs and of the labels: `label`
            `<int32>[batch]`, `weight` `<float32>[batch]` and
            `global_token_type_ids` `<int32>[batch, global]`.
        """
        features = self.parse_features(serialized, _LABELS)
        labels = {
            "label": tf.cast(features.pop("label_id"), tf.int32),
            "weight": tf.cast(features.pop("is_real_example"), tf.float32),
            "global_token_type_ids": features["global_token_type_ids"],
        }
        return features, labels

    def example_losses(self, labels, outputs):
        """See `model.example_losses`."""
        return {
            "cross_entropy": model_lib.example_losses(
                outputs["logits"],
                labels["label"],
                labels["global_token_type_ids"],
                self.task_config.label_smoothing,
            )
        }

    def metric_names(self) -> list[str]:
        """Accuracy and cross entropy."""
        return ["accuracy", "cross_entropy"]

    def example_metrics(self, labels, outputs):
        """See `metric_names`."""
        return {
            "accuracy": is_correct(outputs["logits"], labels["label"]),
            **self.example_losses(labels, outputs),
        }


def wikihop_experiment(
    preset: str = "base",
    use_hard_g2l_mask: bool = True,
    flat_sequence: bool = False,
    optimizer: str = "adamw",
    learning_rate: float = 4e-5,
    epochs: int = 15,
    batch_size: int = 64,
    grad_checkpointing_period: int | None = None,
) -> cfg.ExperimentConfig:
    """An experiment with the paper's hyperparameters (section 4.1, Appendix C).

    Args:
        preset: name of an `EtcConfig` preset.
        use_hard_g2l_mask: whether a global token attends to its own sentence
            or paragraph only (candidates and query excepted).
        flat_sequence: whether paragraphs are ignored.
        optimizer: `"adamw"` or `"lamb"`.
        learning_rate: the highest. The paper tried 1e-5 to 5e-5.
        epochs: the paper tried 5, 10 and 15.
        batch_size: over all replicas.
        grad_checkpointing_period: how many layers are recomputed together to
            save memory; None for no recomputation.

    Returns:
        The configuration; the paths of the data are still to be given.
    """
    task = WikiHopTaskConfig()
    task.model.flat_sequence = flat_sequence
    return etc_task.fine_tuning_experiment(
        task,
        {
            "preset": preset,
            "use_hard_g2l_mask": use_hard_g2l_mask,
            "grad_checkpointing_period": grad_checkpointing_period,
        },
        batch_size=batch_size,
        num_examples=NUM_TRAIN_EXAMPLES,
        epochs=epochs,
        learning_rate=learning_rate,
        optimizer=optimizer,
    )


experiment_lib.register(EXPERIMENTS, wikihop_experiment)
