"""Natural Questions' Model Garden task."""

from etcmodel.tasks import etc_task  # First: it explains Keras 3.

# isort: split
import dataclasses

import tensorflow as tf
from official.core import config_definitions as cfg
from official.core import task_factory

from etcmodel.models.losses import is_correct
from etcmodel.tasks import experiment_lib
from etcmodel.tasks.nq import decoding
from etcmodel.tasks.nq import evaluation
from etcmodel.tasks.nq import examples
from etcmodel.tasks.nq import model as model_lib
from etcmodel.tasks.nq.experiments import EXPERIMENTS
from etcmodel.tasks.record_keys import record_keys

# Paper, Table 1.
NUM_TRAIN_EXAMPLES = 307373

_EXTRA = {
    **examples.LABEL_SPEC,
    "words": examples.CONTEXT_SPEC["words"],
    "example_id": tf.io.FixedLenFeature([], tf.string),
    "is_real_example": tf.io.FixedLenFeature([], tf.int64, default_value=1),
}


@dataclasses.dataclass
class NQTaskConfig(etc_task.EtcTaskConfig):
    """The task: model, data and how answers are chosen.

    Attributes:
        null_threshold: answers of a score that is not greater are not given by
            exported models. 0 is where an answer is as probable as none.
        max_short_answer_words: greatest length of a short answer.
    """

    null_threshold: float = 0.0
    max_short_answer_words: int = decoding.MAX_SHORT_ANSWER_WORDS


@task_factory.register_task_cls(NQTaskConfig)
class NQTask(etc_task.EtcTask):
    """Finds the long and the short answer to a question in a page."""

    def build_model(self) -> tf.keras.Model:
        """The model, with the static lengths of the records."""
        model = model_lib.build_nq_model(
            self.encoder_config(), **self.encoder_options()
        )
        return self.with_checkpoint_items(model)

    def decoding_options(self):
        """See `EtcTask.decoding_options`."""
        return {
            "null_threshold": self.task_config.null_threshold,
            "max_short_answer_words": self.task_config.max_short_answer_words,
        }

    def parse(self, serialized: tf.Tensor):
        """Reads a batch of serialized examples; graph code.

        Args:
            serialized: `<string>[windows]`.

        Returns:
            A pair of the model's inputs and of the labels: those of
            `model.example_losses`, `weight` `<float32>[windows]`, and what
            evaluation needs.
        """
        features = self.parse_features(serialized, _EXTRA)
        stored = {name: features.pop(name) for name in _EXTRA}
        labels = {
            name: tf.cast(stored[name], tf.int32)
            for name in examples.LABEL_SPEC
        }
        labels["weight"] = tf.cast(stored["is_real_example"], tf.float32)
        labels["record"] = record_keys(stored["example_id"])
        labels["words"] = tf.cast(
            stored["words"].to_tensor(
                default_value=-1, shape=[None, self.long_length]
            ),
            tf.int32,
        )
        return features, labels

    def example_losses(self, labels, outputs):
        """See `model.example_losses`."""
        return model_lib.example_losses(outputs, labels)

    def metric_names(self) -> list[str]:
        """Each loss, and right answer types."""
        losses = [f"{name}_loss" for name in examples.LABEL_SPEC]
        return [*losses, "answer_type_accuracy"]

    def example_metrics(self, labels, outputs):
        """See `metric_names`."""
        losses = self.example_losses(labels, outputs)
        return {
            **{f"{name}_loss": value for name, value in losses.items()},
            "answer_type_accuracy": is_correct(
                outputs["answer_type_logits"], labels["answer_type"]
            ),
        }

    def predict_batch(self, outputs, labels):
        """See `EtcTask.predict_batch`."""
        return evaluation.predict_windows(
            outputs, labels, self.task_config.max_short_answer_words
        )

    def reduce_aggregated_logs(self, aggregated_logs, global_step=None):
        """The official metrics."""
        del global_step
        return evaluation.score(
            aggregated_logs,
            evaluation.read_gold(self.task_config.validation_data.input_path),
        )


def nq_experiment(
    preset: str = "base",
    use_hard_g2l_mask: bool = True,
    learning_rate: float = 5e-5,
    epochs: int = 5,
    batch_size: int = 64,
    grad_checkpointing_period: int | None = None,
    **encoder,
) -> cfg.ExperimentConfig:
    """An experiment with the paper's hyperparameters (section 4.1, Appendix C).

    Args:
        preset: name of an `EtcConfig` preset.
        use_hard_g2l_mask: whether a global token attends to its own candidate
            only.
        learning_rate: the highest. The paper tried 3e-5 and 5e-5.
        epochs: the paper tried 3 and 5, for large models 2 and 3.
        batch_size: over all replicas.
        grad_checkpointing_period: how many layers are recomputed together to
            save memory; None for no recomputation.
        **encoder: other values of `EncoderParams`.

    Returns:
        The configuration; the paths of the data are still to be given. Steps
        are counted for one example a page; set `trainer.train_steps` from the
        `examples_written` of `stats.json` for the windows there are.
    """
    return etc_task.fine_tuning_experiment(
        NQTaskConfig(),
        {
            "preset": preset,
            "use_hard_g2l_mask": use_hard_g2l_mask,
            "grad_checkpointing_period": grad_checkpointing_period,
            **encoder,
        },
        batch_size=batch_size,
        num_examples=NUM_TRAIN_EXAMPLES,
        epochs=epochs,
        learning_rate=learning_rate,
        weight_decay=0.01,
        best_metric="average_best_threshold_f1",
    )


experiment_lib.register(EXPERIMENTS, nq_experiment)
