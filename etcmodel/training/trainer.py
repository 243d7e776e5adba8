"""Trains and evaluates all tasks with the Model Garden.

Works only with Keras 2; see `training.configuration`.
"""

# Imported first, because it raises an error under Keras 3.
from etcmodel.training import configuration

# isort: split
import dataclasses
import functools
import os
import threading
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from official.core import base_task
from official.core import config_definitions as cfg
from official.core import exp_factory
from official.core import task_factory
from official.modeling.hyperparams import base_config

from etcmodel import checkpoints
from etcmodel.checkpoints import files
from etcmodel.errors import UserError
from etcmodel.feature_utils import random_masks
from etcmodel.models import EtcConfig
from etcmodel.models import input_checks
from etcmodel.models import json_config
from etcmodel.models import lora
from etcmodel.models import run_files
from etcmodel.ops import collectives
from etcmodel.ops import recompute
from etcmodel.pipeline import example_schema
from etcmodel.pipeline import sizes
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import load
from etcmodel.pipeline.task_model import StoredData
from etcmodel.pipeline.task_model import Term
from etcmodel.training import evaluation
from etcmodel.training import input_pipeline
from etcmodel.training import lifted

# Avoids division by zero when all weights of a batch are 0.
_EPSILON = 1e-5
# Maximum number of batches whose records are sorted by length together.
_SORTED_BATCHES = 16


@dataclasses.dataclass
class EtcModelParams(base_config.Config):
    """Model parameters shared by all ETC tasks.

    Attributes:
        encoder: configuration of the encoder.
        long_length: maximum length of the long input; 0 means the value of
            `preprocess`. Batches are only as long as the longest record.
        global_length: maximum length of the global input, as `long_length`.
    """

    encoder: configuration.EncoderParams = dataclasses.field(
        default_factory=configuration.EncoderParams
    )
    long_length: int = 0
    global_length: int = 0


@dataclasses.dataclass
class ReadTwiceModelParams(base_config.Config):
    """Model parameters shared by all ReadTwice tasks."""

    encoder: configuration.ReadTwiceParams = dataclasses.field(
        default_factory=configuration.ReadTwiceParams
    )


@dataclasses.dataclass
class RecordsConfig(cfg.TaskConfig):
    """Configuration of training and validation data, for all tasks.

    ReadTwice's batch sizes count segments.

    Attributes:
        train_data: training data: TFRecords of `preprocess`.
        validation_data: validation data: TFRecords of `preprocess`.
        trim_batches: whether to pad a training batch only to its longest
            record, and to batch records of similar length. This is faster, but
            TPUs need a fixed length. Not for ReadTwice.
        lora_rank: rank of LoRA, which trains small updates of a frozen
            encoder; 0 to train the whole encoder. See `models.add_lora`.
        freeze_encoder: whether to train the head alone, which is faster.
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
    trim_batches: bool = False
    lora_rank: int = 0
    freeze_encoder: bool = False


class RecordsTask(base_task.Task):
    """Trains and evaluates a `TaskModel` on records of `preprocess`.

    Args:
        params: the task's configuration.
        logging_dir: see `base_task.Task`.
        name: see `base_task.Task`.
        metadata: the records' `preprocessing_config.json`; by default, it is
            read from the directory of the records.

    Attributes:
        SPEC: the task; set by subclasses, see `task_classes`.
        sizes: name -> value of the records' preprocessing configuration, with
            the lengths of the model.
        on_validated_batch: called after each batch of a validation; the
            runner sets it.
        first_step: number of steps that a resumed run has already made. With a
            seed, the run continues with the records that follow.

    Raises:
        UserError: the records do not match the task (see
            `configuration.find_metadata`), their sizes are unknown, or an
            option is invalid.
    """

    SPEC: TaskSpec

    def __init__(self, params, logging_dir=None, name=None, metadata=None):
        spec = self.SPEC
        super().__init__(params, logging_dir=logging_dir, name=name)
        if metadata is None:
            metadata = configuration.find_metadata(params, spec)
        self.metadata = metadata or None
        self.schema = load(spec.preprocessor).SCHEMA
        self.sizes = sizes.find_sizes(spec, self.metadata, params.model)
        if params.trim_batches and spec.reads_segments:
            raise UserError(
                f"task.trim_batches is not supported by {spec.name}, whose "
                "segments have a fixed length. Set it to false."
            )
        if params.lora_rank < 0:
            raise UserError(
                f"task.lora_rank is {params.lora_rank}, but must be at least "
                "0. Set it to 8, or to 0 to train the whole encoder."
            )
        if params.lora_rank and params.freeze_encoder:
            raise UserError(
                "task.freeze_encoder and task.lora_rank are both set: the "
                "first trains the head alone, the second changes the encoder, "
                "too. Set only one of them."
            )
        try:
            self.task_model = spec.make_model(params.model, params, self.sizes)
        except ValueError as error:
            raise UserError(f"task: {error}") from error
        # Thread-local, because each replica is traced in its own thread.
        self._last = threading.local()
        self.first_step = 0
        self.on_validated_batch = lambda: None

    def encoder_config(self) -> json_config.JsonConfig:
        """Returns the encoder's configuration, checked against the records."""
        config = self.task_config.model.encoder.to_config(
            (self.metadata or {}).get("vocab_size")
        )
        if self.SPEC.reads_segments:
            configuration.check_length(config, self.sizes["block_length"])
        return config

    def build_model(self) -> tf.keras.Model:
        """Builds the model for the lengths of the batches.

        Raises a `UserError` if the configuration is invalid for these lengths.
        """
        encoder = self.task_config.model.encoder
        names = ("use_one_hot_embeddings", "use_one_hot_relative_embeddings")
        options = {x: getattr(encoder, x) for x in names if hasattr(encoder, x)}
        config = self.encoder_config()
        try:
            lengths = self._batch_lengths(self.task_config.trim_batches)
            model = self.task_model.build(config, **lengths, **options)
        except ValueError as error:
            raise UserError(f"task.model: {error}") from error
        # With this name, `initialize` finds the encoder in checkpoints of all
        # tasks.
        encoder = self.task_model.encoder(model)
        model.checkpoint_items = {"encoder": encoder}
        if self.task_config.lora_rank:
            lora.add_lora(
                files.find_encoder(encoder), self.task_config.lora_rank
            )
        if self.task_config.freeze_encoder:
            files.find_encoder(encoder).trainable = False
        return model

    def _batch_lengths(self, is_dynamic: bool) -> dict[str, int | None]:
        """Returns the lengths of batches; None for that of the longest row."""
        lengths = self.task_model.lengths()
        if is_dynamic:
            return dict.fromkeys(lengths)
        if not self.task_model.CAN_BE_SHORTER:
            return lengths
        return sizes.shorten(lengths, (self.metadata or {}).get("longest", {}))

    def describe_encoder(
        self, model: tf.keras.Model
    ) -> tuple[json_config.JsonConfig, dict]:
        """Returns the configuration and the options that rebuild the encoder.

        `models.encoder_options` reads the options from a run.
        """
        encoder = files.find_encoder(model.checkpoint_items["encoder"])
        if isinstance(encoder.config, EtcConfig):
            return encoder.config, run_files.describe_options(encoder)
        mode = self.task_config.model.cross_block_attention_mode
        return encoder.config, {"cross_block_attention_mode": mode}

    def initialize(self, model: tf.keras.Model) -> None:
        """Loads the weights of `init_checkpoint` into the encoder and heads.

        For the heads, see `lifted.load_heads`. Heads that the checkpoint lacks,
        such as CPC's in a model that was converted from BERT, keep their random
        initialization. Raises a `UserError` if the checkpoint is missing, does
        not match the model, or has another vocabulary than the records.
        """
        path = self.task_config.init_checkpoint
        if not path:
            return
        is_known = lifted.check_vocabulary(path, self.metadata)
        encoder = model.checkpoint_items["encoder"]
        try:
            checkpoints.load_checkpoint(encoder, path)
            lifted.load_heads(path, self.SPEC, self.task_model, model)
        except (ValueError, OSError) as error:
            raise UserError(f"task.init_checkpoint: {error}") from error
        if not is_known:
            table = files.find_encoder(encoder).get_token_embedding_table()
            lifted.warn_of_vocabulary(path, self.metadata, np.asarray(table))

    def build_inputs(self, params, input_context=None) -> tf.data.Dataset:
        """Reads the batches of a `DataConfig`; see `input_pipeline`."""
        parse = functools.partial(self.parse, is_training=params.is_training)
        if not self.SPEC.reads_segments:
            return input_pipeline.read_batches(
                params,
                parse,
                input_context,
                self._num_sorted(params),
                self.first_step,
            )
        number = self.sizes["num_blocks_per_example"]
        return input_pipeline.read_blocks(
            params, parse, number, input_context, self.first_step
        )

    def _num_sorted(self, params) -> int:
        """Returns the number of batches to sort together by length."""
        if not self.task_config.trim_batches or not self.metadata:
            return 0
        number = self.metadata["num_examples"] // params.global_batch_size
        return min(number, _SORTED_BATCHES)

    def read_examples(self, first: int, number: int) -> list[bytes]:
        """Reads the examples of some training steps again.

        Returns an empty list if the order of the examples is unknown: without a
        seed, with a tf.data service, or with several hosts.

        Args:
            first: the first step, from 0.
            number: number of steps.
        """
        params = self.task_config.train_data
        if (
            params.seed is None
            or params.enable_tf_data_service
            or "TF_CONFIG" in os.environ
        ):
            return []
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        size = params.global_batch_size
        if self.SPEC.reads_segments:
            # All replicas share the examples of a step.
            size, replicas = size // self.sizes["num_blocks_per_example"], 1
        return input_pipeline.read_examples(
            params,
            size // replicas,
            replicas * first,
            replicas * number,
            self._num_sorted(params),
        )

    def parse(
        self,
        serialized: tf.Tensor,
        seed: tf.Tensor | None = None,
        *,
        is_training: bool,
    ):
        """Parses examples to the model's inputs and labels; graph code.

        Raises an error, when the graph runs, if a token id or breakpoint is
        invalid. See `TaskModel.inputs_and_labels`.

        Args:
            serialized: `<string>[batch]`; for ReadTwice, whose examples hold
                many segments, one example, `<string>[]`.
            seed: see `input_pipeline.Parse`.
            is_training: whether to skip the fields for decoding.
        """
        schema = example_schema
        roles = [schema.LABEL, schema.CONTEXT]
        roles += [] if is_training else [schema.DECODING]
        is_one = serialized.shape.rank == 0
        lengths = self._batch_lengths(
            self.task_config.trim_batches and is_training
        )
        inputs, fields = self.schema.parse(
            tf.expand_dims(serialized, 0) if is_one else serialized,
            self.sizes | lengths,
            roles,
        )
        if is_one:
            inputs, fields = (
                {name: x[0] for name, x in values.items()}
                for values in (inputs, fields)
            )
        metadata = self.metadata or {}
        data = StoredData(
            self.sizes,
            metadata.get("vocab_size"),
            metadata.get("special_ids", {}),
            seed,
        )
        inputs, labels = self.task_model.inputs_and_labels(inputs, fields, data)
        # Inputs are checked here, because a model compiled with XLA cannot
        # raise errors.
        return input_checks.check_inputs(inputs, self.encoder_config()), labels

    def _terms(self, labels, model_outputs) -> Mapping[str, Term]:
        """Computes losses and metrics, once for each `model_outputs`.

        Caches the result, because the Model Garden requests losses and metrics
        separately.
        """
        last = self._last
        if getattr(last, "outputs", None) is not model_outputs:
            last.outputs = model_outputs
            last.terms = self.task_model.terms(model_outputs, labels)
        return last.terms

    def build_losses(self, labels, model_outputs, aux_losses=None) -> tf.Tensor:
        """Computes the loss of a replica; the batch loss is the replicas' mean.

        Each loss is a weighted mean over all replicas, so that the result does
        not depend on how examples are sharded. `aux_losses` are the losses that
        the model's layers add.
        """
        terms = self._terms(labels, model_outputs)
        # Sums each weight tensor once, because losses often share it.
        sums = {}
        total = 0.0
        for name, factor in self._loss_factors().items():
            values, weights = terms[name]
            if id(weights) not in sums:
                sums[id(weights)] = collectives.all_sum(tf.reduce_sum(weights))
            total += (
                factor
                * tf.reduce_sum(values * weights)
                / (sums[id(weights)] + _EPSILON)
            )
        total *= collectives.num_replicas()
        return tf.add_n([total, *(aux_losses or [])])

    def _loss_factors(self) -> dict[str, float]:
        """Returns loss -> share of the total, for losses with a weight."""
        factors = {x: y for x, y in self.task_model.loss_factors().items() if y}
        return {x: y / sum(factors.values()) for x, y in factors.items()}

    def build_metrics(self, training: bool = True):
        """Returns Keras metrics: weighted means of the losses and metrics."""
        names = self.task_model.metric_names()
        if self.SPEC.has_answers and not training:
            names = [*names, "validation_loss"]
        return [tf.keras.metrics.Mean(name=name) for name in names]

    def process_metrics(self, metrics, labels, model_outputs, **kwargs):
        """Updates the metrics with the outputs for a batch."""
        terms = dict(self._terms(labels, model_outputs))
        if self.SPEC.has_answers:
            losses = [(y, terms[x]) for x, y in self._loss_factors().items()]
            terms["validation_loss"] = Term(
                sum(factor * term.values for factor, term in losses),
                losses[0][1].weights,
            )
        for metric in metrics:
            values, weights = terms[metric.name]
            metric.update_state(values, sample_weight=weights)

    @configuration.graph_code
    def train_step(self, inputs, model, optimizer, metrics=None):
        """Trains on a batch; see `base_task.Task`.

        With a seed, dropout depends only on the seed, the step and the replica,
        so that a resumed run gives the same result as an uninterrupted one.
        """
        seed = self.task_config.train_data.seed
        if seed is None:
            return super().train_step(inputs, model, optimizer, metrics)
        replica = tf.distribute.get_replica_context()
        # [2]
        of_step = tf.random.experimental.stateless_fold_in(
            tf.stack([seed % 2**31, tf.cast(optimizer.iterations, tf.int32)]),
            replica.replica_id_in_sync_group,
        )
        with recompute.seeded(
            random_masks.random_ints([], of_step, None, None)
        ):
            return super().train_step(inputs, model, optimizer, metrics)

    @configuration.graph_code
    def validation_step(self, inputs, model, metrics=None):
        """Evaluates a batch, and selects candidates for official metrics.

        For tasks with answers, the loss is a weighted metric, so that padding
        batches do not count.
        """
        if not self.SPEC.has_answers:
            return super().validation_step(inputs, model, metrics)
        features, labels = inputs
        outputs = self.inference_step(features, model)
        if metrics:
            self.process_metrics(metrics, labels, outputs)
        candidates = {
            **self.task_model.select_candidates(outputs, features, labels),
            **{name: labels[name] for name in ("record", "window", "weight")},
        }
        # Gathers the candidates from all replicas of all hosts.
        return {
            "candidates": {
                name: collectives.all_gather(x)
                for name, x in candidates.items()
            }
        }

    def aggregate_logs(self, state=None, step_outputs=None):
        """Collects the candidates of all batches."""
        self.on_validated_batch()
        if not self.SPEC.has_answers:
            return super().aggregate_logs(state, step_outputs)
        # After gathering, every replica has the same values.
        batch = {
            name: np.asarray(x[0])
            for name, x in step_outputs["candidates"].items()
        }
        return [*(state or []), batch]

    def reduce_aggregated_logs(self, aggregated_logs, global_step=None):
        """Computes the official metrics; see `evaluation.score`."""
        if not self.SPEC.has_answers:
            return super().reduce_aggregated_logs(aggregated_logs, global_step)
        return evaluation.score(
            self.SPEC,
            self.task_model,
            self.schema,
            aggregated_logs,
            self._validation_records,
        )

    @functools.cached_property
    def _validation_records(self) -> list[evaluation.StoredRecord]:
        """Texts and answers of the validation records, read once."""
        return evaluation.read_records(
            self.SPEC, self.schema, self.task_config.validation_data.input_path
        )


# Name of a task -> result of `task_classes`.
_CLASSES: dict[str, tuple[type, type]] = {}


def task_classes(spec: TaskSpec) -> tuple[type, type]:
    """Returns the Model Garden classes of a task and of its configuration.

    Creates and registers subclasses of `RecordsTask` and `RecordsConfig`.
    """
    if spec.name not in _CLASSES:
        params = ReadTwiceModelParams if spec.reads_segments else EtcModelParams

        @dataclasses.dataclass
        class Model(spec.model_options, params):
            __doc__ = spec.model_options.__doc__

        @dataclasses.dataclass
        class Config(spec.options, RecordsConfig):
            __doc__ = spec.options.__doc__

            model: Model = dataclasses.field(default_factory=Model)

        @task_factory.register_task_cls(Config)
        class Task(RecordsTask):
            SPEC = spec

        _CLASSES[spec.name] = Task, Config
    return _CLASSES[spec.name]


def configure(
    spec: TaskSpec,
    *,
    batch_size: int,
    learning_rate: float,
    best_metric: str,
    num_examples: int = 0,
    epochs: float = 0,
    train_steps: int = 0,
    warmup_steps: int = 0,
    validation_interval: int = 0,
    validation_batch_size: int = 0,
    shuffle_buffer_size: int = 0,
    optimizer: str = "adamw",
    weight_decay: float = 0.01,
    **options,
) -> cfg.ExperimentConfig:
    """Makes an experiment, with warm-up and linear decay to 0.

    Args:
        spec: the task.
        batch_size: number of examples per step over all replicas; for
            ReadTwice, number of segments.
        learning_rate: learning rate at step 0 of the linear decay.
        best_metric: name of the validation metric that selects the best
            checkpoint; higher is better.
        num_examples: number of training examples in the paper.
        epochs: number of passes over the training examples.
        train_steps: number of steps; by default, computed from `epochs`.
        warmup_steps: number of warm-up steps, after which the learning rate
            joins the linear decay; by default, a tenth of all steps.
        validation_interval: steps between validations; by default, an epoch.
        validation_batch_size: batch size of validation; by default, 64.
        shuffle_buffer_size: number of examples to shuffle; by default, 1,000.
        optimizer: `"adamw"` or `"lamb"`.
        weight_decay: weight decay, except for biases and layer normalization.
        **options: options of the task, its model or the encoder, by name.

    Raises:
        ValueError: an option does not exist.
    """
    task = task_classes(spec)[1]()
    task.train_data.global_batch_size = batch_size
    if validation_batch_size:
        task.validation_data.global_batch_size = validation_batch_size
    if shuffle_buffer_size:
        task.train_data.shuffle_buffer_size = shuffle_buffer_size
    for name, value in options.items():
        for part in (task, task.model, task.model.encoder):
            if hasattr(part, name):
                setattr(part, name, value)
                break
        else:
            raise ValueError(
                f"{spec.name} has no option {name!r}. Use an option of the "
                "task, its model or the encoder."
            )
    train_steps = train_steps or int(num_examples * epochs // batch_size)
    return cfg.ExperimentConfig(
        task=task,
        trainer=configuration.make_trainer(
            train_steps=train_steps,
            warmup_steps=warmup_steps or train_steps // 10,
            learning_rate=learning_rate,
            optimizer=optimizer,
            weight_decay=weight_decay,
            validation_interval=validation_interval
            or num_examples // batch_size,
            best_metric=best_metric,
        ),
    )


def register(spec: TaskSpec) -> None:
    """Registers a task's experiments with the Model Garden."""
    for name, experiment in spec.experiments.items():
        exp_factory.register_config_factory(name)(
            functools.partial(
                configure, spec, **{**spec.recipe, **experiment.options}
            )
        )
