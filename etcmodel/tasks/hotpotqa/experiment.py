"""HotpotQA's Model Garden task."""

from etcmodel.tasks import etc_task  # First: it explains Keras 3.

# isort: split
import dataclasses

import tensorflow as tf
from official.core import config_definitions as cfg
from official.core import task_factory

from etcmodel.models.losses import is_correct
from etcmodel.tasks import experiment_lib
from etcmodel.tasks.hotpotqa import decoding
from etcmodel.tasks.hotpotqa import evaluation
from etcmodel.tasks.hotpotqa import examples
from etcmodel.tasks.hotpotqa import model as model_lib
from etcmodel.tasks.hotpotqa.experiments import EXPERIMENTS
from etcmodel.tasks.record_keys import record_keys

# Paper, Appendix C: those whose answer is in the paragraphs.
NUM_TRAIN_EXAMPLES = 90431

_EXTRA = {
    **examples.LABEL_SPEC,
    **examples.EVALUATION_SPEC,
    "is_real_example": tf.io.FixedLenFeature([], tf.int64, default_value=1),
}


@dataclasses.dataclass
class HotpotQAModelParams(etc_task.EtcModelParams):
    """The model.

    Attributes:
        answer_encoding: "span" for the first and last token of an answer,
            "bio" for a label of every token.
        cls_ignores_hard_g2l: whether the global CLS attends to all long tokens
            though the hard g2l mask is on.
        flat_sequence: whether paragraphs are ignored (an ablation).
    """

    answer_encoding: str = "span"
    cls_ignores_hard_g2l: bool = True
    flat_sequence: bool = False


@dataclasses.dataclass
class HotpotQATaskConfig(etc_task.EtcTaskConfig):
    """The task: model, data and how answers are chosen.

    Attributes:
        model: the model.
        supporting_fact_threshold: probability from which a sentence is a
            supporting fact, in exported models. Evaluation tells the best.
        max_answer_length: greatest length of an answer, in tokens.
    """

    model: HotpotQAModelParams = dataclasses.field(
        default_factory=HotpotQAModelParams
    )
    supporting_fact_threshold: float = 0.5
    max_answer_length: int = decoding.MAX_ANSWER_LENGTH


@task_factory.register_task_cls(HotpotQATaskConfig)
class HotpotQATask(etc_task.EtcTask):
    """Answers a question from paragraphs and names the supporting facts."""

    def build_model(self) -> tf.keras.Model:
        """The model, with the static lengths of the records."""
        params = self.task_config.model
        model = model_lib.build_hotpotqa_model(
            self.encoder_config(),
            answer_encoding=params.answer_encoding,
            cls_ignores_hard_g2l=params.cls_ignores_hard_g2l,
            flat_sequence=params.flat_sequence,
            **self.encoder_options(),
        )
        return self.with_checkpoint_items(model)

    def decoding_options(self):
        """See `EtcTask.decoding_options`."""
        return {
            "supporting_fact_threshold": (
                self.task_config.supporting_fact_threshold
            ),
            "max_answer_length": self.task_config.max_answer_length,
        }

    def parse(self, serialized: tf.Tensor):
        """Reads a batch of serialized examples; graph code.

        Args:
            serialized: `<string>[batch]`.

        Returns:
            A pair of the model's inputs and of the labels: those of
            `model.example_losses`, `weight` `<float32>[batch]`, and what
            evaluation needs.
        """
        features = self.parse_features(serialized, _EXTRA)
        stored = {name: features.pop(name) for name in _EXTRA}
        # [batch, spans]
        begins, ends = (
            stored[name].to_tensor(default_value=-1)
            for name in ("answer_begins", "answer_ends")
        )
        labels = {
            "supporting_facts": examples.dense(
                stored, "supporting_facts", self.global_length
            ),
            "answer_type": tf.cast(stored["answer_type"], tf.int32),
            "weight": tf.cast(stored["is_real_example"], tf.float32),
            # What a span prediction is looked up with.
            "record": record_keys(stored["example_id"]),
            "global_segments": examples.dense(
                stored, "global_segments", self.global_length
            ),
            "long_starts": examples.dense(
                stored, "long_starts", self.long_length
            ),
            "long_ends": examples.dense(stored, "long_ends", self.long_length),
            "long_token_type_ids": features["long_token_type_ids"],
            "long_sentence_ids": features["long_sentence_ids"],
        }
        if self.task_config.model.answer_encoding == "bio":
            labels["answer_bio"] = model_lib.bio_labels(
                begins, ends, self.long_length
            )
            labels["is_answer_token"] = model_lib.is_answer_token(
                features["long_token_type_ids"], features["long_sentence_ids"]
            )
        else:
            # The first occurrence of the answer, if it has one.
            padding = [[0, 0], [0, 1]]
            for name, values in (("begin", begins), ("end", ends)):
                labels[f"answer_{name}"] = tf.cast(
                    tf.pad(values, padding, constant_values=-1)[:, 0], tf.int32
                )
        return features, labels

    def example_losses(self, labels, outputs):
        """See `model.example_losses`."""
        return model_lib.example_losses(outputs, labels)

    def metric_names(self) -> list[str]:
        """Each loss, and right answer types."""
        is_bio = self.task_config.model.answer_encoding == "bio"
        answer = ["answer_bio"] if is_bio else ["answer_begin", "answer_end"]
        losses = ["supporting_facts", "answer_type", *answer]
        return [*(f"{name}_loss" for name in losses), "answer_type_accuracy"]

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
        return evaluation.predict_for_thresholds(
            outputs, labels, self.task_config.max_answer_length
        )

    def reduce_aggregated_logs(self, aggregated_logs, global_step=None):
        """The official metrics, with the threshold of the best joint F1."""
        del global_step
        return evaluation.score(
            aggregated_logs,
            evaluation.read_gold(self.task_config.validation_data.input_path),
        )


def hotpotqa_experiment(
    preset: str = "base",
    use_hard_g2l_mask: bool = True,
    flat_sequence: bool = False,
    answer_encoding: str = "span",
    learning_rate: float = 5e-5,
    epochs: int = 9,
    batch_size: int = 64,
    grad_checkpointing_period: int | None = None,
    **encoder,
) -> cfg.ExperimentConfig:
    """An experiment with the paper's hyperparameters (section 4.1, Appendix C).

    Args:
        preset: name of an `EtcConfig` preset.
        use_hard_g2l_mask: whether a global token attends to its own sentence
            or paragraph only (the CLS excepted).
        flat_sequence: whether paragraphs are ignored.
        answer_encoding: `"span"` or `"bio"`.
        learning_rate: the highest. The paper tried 3e-5 and 5e-5.
        epochs: the paper tried 3, 5, 7 and 9.
        batch_size: over all replicas. The paper tried 32 and 64.
        grad_checkpointing_period: how many layers are recomputed together to
            save memory; None for no recomputation.
        **encoder: other values of `EncoderParams`.

    Returns:
        The configuration; the paths of the data are still to be given.
    """
    task = HotpotQATaskConfig()
    task.model.flat_sequence = flat_sequence
    task.model.answer_encoding = answer_encoding
    return etc_task.fine_tuning_experiment(
        task,
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
        best_metric="joint_f1",
    )


experiment_lib.register(EXPERIMENTS, hotpotqa_experiment)
