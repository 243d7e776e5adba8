"""The Model Garden task of all tasks with a `TaskModel`, and its experiments.

Works with Keras 2 only; see `training.experiments`.
"""

from etcmodel.training import experiments  # First: it explains Keras 3.

# isort: split
import abc
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from official.core import config_definitions as cfg
from official.core import exp_factory
from official.core import task_factory
from official.modeling.hyperparams import base_config

from etcmodel.errors import UserError
from etcmodel.ops import collectives
from etcmodel.pipeline import example_schema
from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.record_keys import record_keys
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import load
from etcmodel.training import evaluation

# Keeps the mean defined when a batch holds padding examples only.
_EPSILON = 1e-5


@dataclasses.dataclass
class EtcModelParams(base_config.Config):
    """What the models of all tasks have.

    Attributes:
        encoder: the encoder.
        long_length: length of the long input; 0 for that of the records.
        global_length: length of the global input; 0 for that of the records.
    """

    encoder: experiments.EncoderParams = dataclasses.field(
        default_factory=experiments.EncoderParams
    )
    long_length: int = 0
    global_length: int = 0


@dataclasses.dataclass
class AnswersConfig(cfg.TaskConfig):
    """What the tasks have beside a model: data.

    Attributes:
        train_data: TFRecords with training records.
        validation_data: TFRecords with validation records.
    """

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


class AnswersTask(experiments.RecordsTask):
    """Trains a model that answers, and measures it as it answers.

    Attributes:
        SPEC: the task; set by subclasses, see `task_classes`.
        PARAMS: dataclass of what the models of such tasks have.
        task_model: the `AnswerModel` with its options.
        schema: the fields of the task's records.
    """

    PARAMS: type

    def __init__(self, params, logging_dir=None, name=None, metadata=None):
        super().__init__(params, logging_dir, name, metadata)
        self.task_model = self.SPEC.make_model(
            _options(self.SPEC.model_options, params.model),
            _options(self.SPEC.options, params),
        )
        self.schema = load(self.SPEC.features).SCHEMA

    @abc.abstractmethod
    def feature_sizes(self) -> dict[str, Any]:
        """The sizes of the features that an exported model makes of text."""

    def build_losses(self, labels, model_outputs, aux_losses=None) -> tf.Tensor:
        """The mean of all losses over the real examples, `<float32>[]`.

        Of those of all replicas: how examples are dealt out to them must not
        matter. The mean of what the replicas return is the batch's.
        """
        losses = self.task_model.losses(model_outputs, labels)
        weights = labels["weight"]
        total = tf.reduce_sum(_mean(losses) * weights)
        total *= collectives.num_replicas() / (
            collectives.all_sum(tf.reduce_sum(weights)) + _EPSILON
        )
        return tf.add_n([total, *(aux_losses or [])])

    def metric_names(self, training: bool) -> list[str]:
        """Names of what `measure` gives.

        Args:
            training: whether they are those of training.

        Returns:
            The names.
        """
        names = [f"{name}_loss" for name in self.task_model.loss_names()]
        names += self.task_model.METRICS
        return names if training else [*names, "validation_loss"]

    def measure(self, labels, model_outputs) -> dict[str, tf.Tensor]:
        """What is averaged over the real examples.

        Args:
            labels: as they are read.
            model_outputs: the model's outputs.

        Returns:
            name -> `<float32>[batch]`, or a pair of that and of how much each
            example counts beside its weight.
        """
        losses = self.task_model.losses(model_outputs, labels)
        return {
            **{f"{name}_loss": value for name, value in losses.items()},
            **self.task_model.metrics(model_outputs, labels),
            "validation_loss": _mean(losses),
        }

    def build_metrics(self, training: bool = True):
        """Exact means over the real examples: of the losses, and others."""
        return [
            tf.keras.metrics.Mean(name=name)
            for name in self.metric_names(training)
        ]

    def process_metrics(self, metrics, labels, model_outputs, **kwargs):
        """Adds a batch to the metrics."""
        values = self.measure(labels, model_outputs)
        for metric in metrics:
            value, weights = values[metric.name], labels["weight"]
            if isinstance(value, tuple):
                value, counts = value
                weights *= counts
            metric.update_state(value, sample_weight=weights)

    @experiments.graph_code
    def validation_step(self, inputs, model, metrics=None):
        """Measures a batch, and chooses what the official metrics need.

        The loss is one of the metrics: batches that only fill up an evaluation
        must not count.
        """
        features, labels = inputs
        outputs = self.inference_step(features, model)
        if metrics:
            self.process_metrics(metrics, labels, outputs)
        chosen = {
            **self.task_model.choose(outputs, features, labels),
            **{name: labels[name] for name in ("record", "window", "weight")},
        }
        # Of all replicas of all hosts.
        return {
            "chosen": {
                name: collectives.all_gather(x) for name, x in chosen.items()
            }
        }

    def aggregate_logs(self, state=None, step_outputs=None):
        """Collects what was chosen in all batches."""
        chosen = step_outputs["chosen"]
        # Every replica has the same.
        batch = {name: np.asarray(x[0]) for name, x in chosen.items()}
        return [*(state or []), batch]

    def reduce_aggregated_logs(self, aggregated_logs, global_step=None):
        """The official metrics of all records; see `evaluation.score`."""
        del global_step
        return evaluation.score(
            self.SPEC,
            self.task_model,
            self.schema,
            aggregated_logs,
            evaluation.read_records(
                self.SPEC,
                self.schema,
                self.task_config.validation_data.input_path,
            ),
        )


class EtcTask(AnswersTask):
    """Trains a task's model with ETC's encoder.

    Attributes:
        long_length: length of the long input.
        global_length: length of the global input.

    Raises:
        UserError: the lengths of the inputs are not known, or the records do
            not fit.
    """

    PARAMS = EtcModelParams

    def __init__(self, params, logging_dir=None, name=None, metadata=None):
        super().__init__(params, logging_dir, name, metadata)
        known = (self.metadata or {}).get("features", {})
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

    def feature_sizes(self) -> dict[str, Any]:
        """Those of the records, but for the lengths of the model."""
        return {
            **(self.metadata or {}).get("features", {}),
            "long_length": self.long_length,
            "global_length": self.global_length,
        }

    def encoder_config(self):
        """The encoder's `EtcConfig`, with the vocabulary of the records."""
        return self.task_config.model.encoder.to_config(
            (self.metadata or {}).get("vocab_size")
        )

    def build_model(self) -> tf.keras.Model:
        """The model, with the static lengths of the records."""
        encoder = self.task_config.model.encoder
        model = self.task_model.build(
            self.encoder_config(),
            long_length=self.long_length,
            global_length=self.global_length,
            use_one_hot_embeddings=encoder.use_one_hot_embeddings,
            use_one_hot_relative_embeddings=(
                encoder.use_one_hot_relative_embeddings
            ),
        )
        # What a checkpoint of another task can lend: `initialize` reads it
        # from `init_checkpoint`.
        model.checkpoint_items = {"encoder": model.get_layer("etc_encoder")}
        return model

    def build_inputs(self, params, input_context=None) -> tf.data.Dataset:
        """The batches of a `DataConfig`; see `experiments.read_batches`."""
        return experiments.read_batches(params, self.parse, input_context)

    def parse(self, serialized: tf.Tensor):
        """Reads a batch of serialized examples; graph code.

        Args:
            serialized: `<string>[batch]`.

        Returns:
            A pair of the EtcFeatures, of the records' lengths, and of what
            `TaskModel.labels` makes of the stored fields, with the context,
            `record` `<int32>[batch, 2]` (see `record_keys`) and `weight`
            `<float32>[batch]`.
        """
        features, fields = self.schema.parse(
            serialized,
            self.long_length,
            self.global_length,
            (example_schema.LABEL, example_schema.CONTEXT),
        )
        labels = {
            "record": record_keys(fields.pop("example_id")),
            "weight": tf.cast(fields.pop("is_real_example"), tf.float32),
            **self.task_model.labels(features, fields),
        }
        return features, labels


def _options(options_class: type, params: base_config.Config) -> Any:
    """The fields of a dataclass out of a configuration."""
    return options_class(
        **{
            field.name: getattr(params, field.name)
            for field in dataclasses.fields(options_class)
        }
    )


def _mean(losses: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """The plain mean of all losses, `<float32>[batch]`."""
    return tf.add_n(list(losses.values())) / len(losses)


def _with_fields(options: type, base: type, **defaults) -> type:
    """A configuration with the fields of a dataclass, too."""
    namespace = {
        "__doc__": options.__doc__,
        "__annotations__": {name: kind for name, (kind, _) in defaults.items()},
        **{name: default for name, (_, default) in defaults.items()},
    }
    name = options.__name__ + base.__name__
    return dataclasses.dataclass(type(name, (options, base), namespace))


# Name of a task -> what `task_classes` made for it.
_CLASSES: dict[str, tuple[type, type]] = {}


def task_classes(
    spec: TaskSpec, task_class: type[AnswersTask] = EtcTask
) -> tuple[type, type]:
    """The Model Garden task of a task, and its configuration.

    Args:
        spec: the task.
        task_class: how it is trained.

    Returns:
        A subclass of `task_class`, registered, and one of `AnswersConfig`.
    """
    if spec.name not in _CLASSES:
        model = _with_fields(spec.model_options, task_class.PARAMS)
        config = _with_fields(
            spec.options,
            AnswersConfig,
            model=(model, dataclasses.field(default_factory=model)),
        )
        task = type("Task", (task_class,), {"SPEC": spec})
        task = task_factory.register_task_cls(config)(task)
        _CLASSES[spec.name] = task, config
    return _CLASSES[spec.name]


def configure(
    spec: TaskSpec,
    *,
    num_examples: int,
    epochs: float,
    batch_size: int,
    learning_rate: float,
    optimizer: str = "adamw",
    weight_decay: float = 0.01,
    best_metric: str,
    task_class: type[AnswersTask] = EtcTask,
    **options,
) -> cfg.ExperimentConfig:
    """An experiment with the paper's way to fine-tune.

    Args:
        spec: the task.
        num_examples: number of training examples of the paper.
        epochs: how often every example is seen.
        batch_size: examples a step, over all replicas.
        learning_rate: where the linear decay starts.
        optimizer: `"adamw"` or `"lamb"`.
        weight_decay: decay of all weights but biases and normalisation.
        best_metric: name of the validation metric, the higher the better.
        task_class: how the task is trained.
        **options: values of the task's options, of the options of its model,
            and of the encoder, whichever has one of that name.

    Returns:
        The configuration; the paths of the data are still to be given.

    Raises:
        ValueError: there is no such option.
    """
    task = task_classes(spec, task_class)[1]()
    task.train_data.global_batch_size = batch_size
    for name, value in options.items():
        for part in (task, task.model, task.model.encoder):
            if hasattr(part, name):
                setattr(part, name, value)
                break
        else:
            raise ValueError(f"{spec.name} has no option {name!r}.")
    return cfg.ExperimentConfig(
        task=task,
        trainer=experiments.fine_tuning_trainer(
            num_examples=num_examples,
            batch_size=batch_size,
            epochs=epochs,
            learning_rate=learning_rate,
            optimizer=optimizer,
            weight_decay=weight_decay,
            best_metric=best_metric,
        ),
    )


def register(spec: TaskSpec, configure=configure) -> None:
    """Registers a task's experiments with the Model Garden.

    Args:
        spec: the task.
        configure: makes a configuration of the task and of an experiment's
            options.
    """
    for name, experiment in spec.experiments.items():
        exp_factory.register_config_factory(name)(
            functools.partial(
                configure, spec, **{**spec.recipe, **experiment.options}
            )
        )
