"""The Model Garden task on which those of all data sets stand.

Works with Keras 2 only; see `experiment_lib`.
"""

from etcmodel.tasks import experiment_lib  # First: it explains Keras 3.

# isort: split
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from official.core import base_task
from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config

from etcmodel.errors import UserError
from etcmodel.feature_utils import etc_features
from etcmodel.models.losses import weighted_mean
from etcmodel.tasks import tfrecords


@dataclasses.dataclass
class EtcModelParams(base_config.Config):
    """What the models of all tasks have.

    Attributes:
        encoder: the encoder.
        long_length: length of the long input; 0 for that of the records.
        global_length: length of the global input; 0 for that of the records.
    """

    encoder: experiment_lib.EncoderParams = dataclasses.field(
        default_factory=experiment_lib.EncoderParams
    )
    long_length: int = 0
    global_length: int = 0


@dataclasses.dataclass
class EtcTaskConfig(cfg.TaskConfig):
    """What the tasks have: a model and data.

    Attributes:
        model: the model.
        train_data: TFRecords with training records.
        validation_data: TFRecords with validation records.
    """

    model: EtcModelParams = dataclasses.field(default_factory=EtcModelParams)
    train_data: cfg.DataConfig = dataclasses.field(
        default_factory=lambda: cfg.DataConfig(
            is_training=True, global_batch_size=64, shuffle_buffer_size=1000
        )
    )
    validation_data: cfg.DataConfig = dataclasses.field(
        default_factory=lambda: cfg.DataConfig(
            is_training=False, global_batch_size=64, drop_remainder=False
        )
    )


class EtcTask(base_task.Task):
    """Knows the records' lengths and reads them.

    Attributes:
        metadata: what `preprocess` noted about the records, or None.
        long_length: length of the long input.
        global_length: length of the global input.
    """

    def __init__(self, params, logging_dir=None, name=None, metadata=None):
        """Creates the task.

        Args:
            params: the task's configuration, an `EtcTaskConfig`.
            logging_dir: directory of the run.
            name: name of the task.
            metadata: what `preprocess` noted about the records; looked up
                beside the records by default.

        Raises:
            UserError: the lengths of the inputs are not known, or the records
                do not fit.
        """
        super().__init__(params, logging_dir=logging_dir, name=name)
        if metadata is None:
            metadata = experiment_lib.find_metadata(params)
        self.metadata = metadata
        known = (metadata or {}).get("features", {})
        self.long_length = self._length("long_length", known)
        self.global_length = self._length("global_length", known)

    def _length(self, name: str, known: dict) -> int:
        length = getattr(self.task_config.model, name)
        if not length and name not in known:
            raise UserError(
                f"The {name} of the records is not known: there is no "
                f"{tfrecords.METADATA_FILE} beside them. Say it with "
                f"--params_override=task.model.{name}=N."
            )
        if length and length < known.get(name, 0):
            raise UserError(
                f"task.model.{name} is {length}, but the records were made "
                f"with --{name}={known[name]}. Use at least that, or 0 for "
                "what the records have."
            )
        return length or known[name]

    def encoder_config(self):
        """The encoder's `EtcConfig`, with the vocabulary of the records."""
        return self.task_config.model.encoder.to_etc_config(
            (self.metadata or {}).get("vocab_size")
        )

    def encoder_options(self) -> dict[str, Any]:
        """What `build_encoder` is told beside that: lengths and lookups."""
        encoder = self.task_config.model.encoder
        return {
            "long_length": self.long_length,
            "global_length": self.global_length,
            "use_one_hot_embeddings": encoder.use_one_hot_embeddings,
            "use_one_hot_relative_embeddings": (
                encoder.use_one_hot_relative_embeddings
            ),
        }

    def decoding_options(self) -> dict[str, Any]:
        """How answers are chosen: arguments of `build_serving_module`."""
        return {}

    def with_checkpoint_items(self, model: tf.keras.Model) -> tf.keras.Model:
        """Names what a checkpoint of another task can lend to a model.

        It is what `initialize` reads from `init_checkpoint`.

        Args:
            model: a model with an encoder.

        Returns:
            The same model.
        """
        model.checkpoint_items = {"encoder": model.get_layer("etc_encoder")}
        return model

    def parse_features(
        self, serialized: tf.Tensor, extra: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Reads a batch of serialized examples; graph code.

        Args:
            serialized: `<string>[batch]`.
            extra: what else there is beside EtcFeatures.

        Returns:
            EtcFeatures of the records' lengths, and what `extra` names.
        """
        return etc_features.parse(
            serialized, self.long_length, self.global_length, extra=extra
        )

    def parse(self, serialized: tf.Tensor):
        """Pair of the model's inputs and of labels; graph code."""
        raise NotImplementedError

    def build_inputs(self, params, input_context=None) -> tf.data.Dataset:
        """The batches of a `DataConfig`; see `experiment_lib.read_batches`."""
        return experiment_lib.read_batches(params, self.parse, input_context)

    def example_losses(self, labels, outputs) -> dict[str, tf.Tensor]:
        """The losses of every example; the total is their plain mean.

        Args:
            labels: from `parse`.
            outputs: the model's outputs.

        Returns:
            name -> `<float32>[batch]`.
        """
        raise NotImplementedError

    def metric_names(self) -> list[str]:
        """Names of what `example_metrics` returns."""
        raise NotImplementedError

    def example_metrics(self, labels, outputs) -> dict[str, tf.Tensor]:
        """What is averaged over the examples of an epoch.

        Args:
            labels: from `parse`.
            outputs: the model's outputs.

        Returns:
            name -> `<float32>[batch]`.
        """
        raise NotImplementedError

    def build_losses(self, labels, model_outputs, aux_losses=None) -> tf.Tensor:
        """The mean of all losses over the real examples, `<float32>[]`."""
        losses = list(self.example_losses(labels, model_outputs).values())
        loss = weighted_mean(tf.add_n(losses) / len(losses), labels["weight"])
        return tf.add_n([loss, *(aux_losses or [])])

    def build_metrics(self, training: bool = True):
        """Exact means over the real examples."""
        del training
        return [
            tf.keras.metrics.Mean(name=name) for name in self.metric_names()
        ]

    def process_metrics(self, metrics, labels, model_outputs, **kwargs):
        """Adds a batch to the metrics."""
        values = self.example_metrics(labels, model_outputs)
        for metric in metrics:
            metric.update_state(
                values[metric.name], sample_weight=labels["weight"]
            )

    def predict_batch(self, outputs, labels) -> dict[str, tf.Tensor]:
        """What an evaluation collects of every batch; graph code.

        Tasks whose metrics need all records have this and
        `reduce_aggregated_logs`. Others have metrics alone.

        Args:
            outputs: the model's outputs.
            labels: from `parse`.

        Returns:
            name -> tensor, `[batch, ...]`.
        """
        del outputs, labels
        return {}

    def validation_step(self, inputs, model, metrics=None):
        """Measures a batch, and predicts what the whole evaluation needs."""
        features, labels = inputs
        outputs = self.inference_step(features, model)
        if metrics:
            self.process_metrics(metrics, labels, outputs)
        logs = {self.loss: self.build_losses(labels, outputs, model.losses)}
        predictions = self.predict_batch(outputs, labels)
        return {**logs, "predictions": predictions} if predictions else logs

    def aggregate_logs(self, state=None, step_outputs=None):
        """Collects the predictions of all batches and replicas."""
        predictions = (step_outputs or {}).get("predictions")
        if predictions is None:
            return state
        state = state or []
        replicas = len(next(iter(predictions.values())))
        state.extend(
            {name: np.asarray(x[i]) for name, x in predictions.items()}
            for i in range(replicas)
        )
        return state


def fine_tuning_experiment(
    task: EtcTaskConfig,
    encoder: Mapping[str, Any],
    batch_size: int,
    **trainer,
) -> cfg.ExperimentConfig:
    """An experiment of a task with the paper's recipe.

    Args:
        task: the task; its encoder and batch size are set.
        encoder: values of `EncoderParams` that differ from the defaults.
        batch_size: examples a step, over all replicas.
        **trainer: further arguments of `experiment_lib.fine_tuning_trainer`.

    Returns:
        The configuration; the paths of the data are still to be given.
    """
    task.model.encoder.override(dict(encoder))
    task.train_data.global_batch_size = batch_size
    return cfg.ExperimentConfig(
        task=task,
        trainer=experiment_lib.fine_tuning_trainer(
            batch_size=batch_size, **trainer
        ),
    )
