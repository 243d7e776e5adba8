"""What the Model Garden experiments of all tasks share.

Training runs on the TensorFlow Model Garden (`official.core`), which works with
Keras 2 only.
"""

import numpy as np
import tensorflow as tf

if not tf.keras.layers.Layer.__module__.startswith("tf_keras"):
    raise ImportError(
        "Training uses the TensorFlow Model Garden, which needs Keras 2, but "
        "tf.keras is Keras 3 in this process. Set the environment variable "
        "TF_USE_LEGACY_KERAS=1 before TensorFlow is imported (and have the "
        "package tf-keras installed). Layers, models and exported SavedModels "
        "work under both."
    )

import dataclasses
import functools
from collections.abc import Callable
from collections.abc import Iterable
from typing import ClassVar

from absl import logging
from official.core import base_task
from official.core import config_definitions as cfg
from official.core import input_reader
from official.modeling import optimization
from official.modeling.hyperparams import base_config

from etcmodel import checkpoints
from etcmodel.checkpoints import files
from etcmodel.errors import UserError
from etcmodel.models import EtcConfig
from etcmodel.models import json_config
from etcmodel.models import run_files
from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.training import lifted

# No decay for biases and normalisation, as in BERT. `gamma` and `beta` are what
# Keras calls the weights of a layer normalisation.
NO_WEIGHT_DECAY = ["LayerNorm", "layer_norm", "bias", "gamma", "beta"]


@dataclasses.dataclass
class PresetParams(base_config.Config):
    """A configuration of an encoder: a preset or a file, and what differs.

    `preset_params` adds the attributes of the configuration; None stands for
    the value of the preset or file. `vocab_size` None is the size of the
    vocabulary that the records were made with, unless a `config_file` is given.

    Attributes:
        preset: name of a preset, such as `"base"`.
        config_file: path of a JSON file; used instead of the preset.
        use_one_hot_embeddings: look token embeddings up by matrix products
            (faster on TPU).
    """

    # The class of the configurations, of each kind of encoder another.
    CONFIG: ClassVar[type[json_config.JsonConfig]]

    preset: str = "base"
    config_file: str = ""
    use_one_hot_embeddings: bool = False

    def to_config(
        self, data_vocab_size: int | None = None
    ) -> json_config.JsonConfig:
        """The configuration that these parameters stand for.

        Args:
            data_vocab_size: size of the vocabulary that the records were made
                with, if known.

        Returns:
            The configuration.

        Raises:
            UserError: the preset or file does not exist, or the vocabulary of
                the records does not fit into the encoder's.
        """
        config_class = self.CONFIG
        try:
            if self.config_file:
                values = config_class.from_json_file(self.config_file).to_dict()
            else:
                values = config_class.from_preset(self.preset).to_dict()
                if data_vocab_size is not None:
                    values["vocab_size"] = data_vocab_size
            for name, value in self.as_dict().items():
                if name in values and value is not None:
                    values[name] = value
            config = config_class.from_dict(values)
            config.validate()
        except (ValueError, OSError, tf.errors.OpError) as error:
            raise UserError(f"task.model.encoder: {error}") from error
        if data_vocab_size is not None and config.vocab_size < data_vocab_size:
            raise UserError(
                f"The records were made with a vocabulary of {data_vocab_size} "
                f"tokens, but the encoder has {config.vocab_size}. Preprocess "
                "with the vocabulary that belongs to the encoder."
            )
        return config


def preset_params(
    config_class: type[json_config.JsonConfig], *left_out: str
) -> type[PresetParams]:
    """Makes `PresetParams` with an optional field for each of a configuration.

    Args:
        config_class: the encoder's configuration.
        *left_out: names of fields that are no parameters.

    Returns:
        The class; its fields have the configuration's names, and are None.
    """
    return dataclasses.make_dataclass(
        f"{config_class.__name__}Params",
        [
            (field.name, field.type | None, None)
            for field in dataclasses.fields(config_class)
            if field.name not in left_out
        ],
        bases=(PresetParams,),
        namespace={"CONFIG": config_class, "__module__": __name__},
    )


@dataclasses.dataclass
class EncoderParams(preset_params(EtcConfig)):
    """The encoder of ETC: values of an `EtcConfig`.

    Attributes:
        use_one_hot_relative_embeddings: look relative labels up by matrix
            products.
    """

    use_one_hot_relative_embeddings: bool = False


def find_metadata(params: cfg.TaskConfig, spec: TaskSpec) -> dict | None:
    """What `preprocess` noted about the data of a task.

    Args:
        params: with `train_data` and `validation_data`.
        spec: the task.

    Returns:
        See `tfrecords.read_metadata`.

    Raises:
        UserError: the records are those of another task, were preprocessed
            differently, or are no use: without answers, or validation records
            of which those that teach nothing were left out.
    """
    files = {
        name: tfrecords.find_files(data.input_path) if data.input_path else []
        for name, data in (
            ("train", params.train_data),
            ("validation", params.validation_data),
        )
    }
    metadata = tfrecords.read_metadata([*files["train"], *files["validation"]])
    if metadata is None:
        return None
    if metadata["task"] != spec.name:
        raise UserError(
            f"The records in {metadata['directory']} are those of the task "
            f"{metadata['task']!r}, not of {spec.name!r}. Preprocess with "
            f"--task={spec.name}."
        )
    validation = tfrecords.read_metadata(files["validation"])
    if spec.model and validation and validation["split"] == "train":
        raise UserError(
            f"{validation['directory']} was preprocessed with --split=train, "
            "which leaves out what cannot be learned: figures of such records "
            "are too good. Preprocess validation data with --split=dev."
        )
    return metadata


# The tasks' graph code has no Python control flow over tensors, so that there
# is nothing in it for AutoGraph, with which Model Garden traces all it calls.
# Looking for it takes seconds. Not for functions whose arguments Model Garden
# looks at, such as `build_inputs`: it hides their names.
graph_code = tf.autograph.experimental.do_not_convert


class RecordsTask(base_task.Task):
    """A Model Garden task that reads what `preprocess` wrote.

    Attributes:
        SPEC: the task; set by subclasses.
        metadata: what `preprocess` noted about the records, or None.

    Args:
        params: the task's configuration.
        logging_dir: directory of the run.
        name: name of the task.
        metadata: what `preprocess` noted about the records; looked up beside
            the records by default.

    Raises:
        UserError: see `find_metadata`.
    """

    SPEC: TaskSpec

    def __init__(self, params, logging_dir=None, name=None, metadata=None):
        super().__init__(params, logging_dir=logging_dir, name=name)
        if metadata is None:
            metadata = find_metadata(params, self.SPEC)
        self.metadata = metadata

    def require_metadata(self) -> None:
        """Checks that something is known of the records.

        Raises:
            UserError: nothing was noted about them.
        """
        if not self.metadata:
            raise UserError(
                f"There is no {tfrecords.METADATA_FILE} beside the records, so "
                "their sizes are not known. Keep it where `preprocess` wrote "
                "it."
            )

    @functools.cached_property
    def sizes(self):
        """The sizes of the records' features."""
        sizes = self.metadata["features"]
        try:
            return self.SPEC.config_class(**sizes)
        except TypeError as error:
            raise UserError(
                f"{tfrecords.METADATA_FILE} of the records has the features "
                f"{', '.join(sizes)}, which are not those of {self.SPEC.name} "
                f"({error}). Preprocess the data again."
            ) from error

    def describe_encoder(
        self, model: tf.keras.Model
    ) -> tuple[json_config.JsonConfig, dict]:
        """Returns how the encoder can be built again, from Python.

        Args:
            model: has the encoder in its `checkpoint_items`.

        Returns:
            Its configuration, and what `models.encoder_options` reads.
        """
        encoder = files.find_encoder(model.checkpoint_items["encoder"])
        if isinstance(encoder.config, EtcConfig):
            return encoder.config, run_files.describe_options(encoder)
        mode = self.task_config.model.cross_block_attention_mode
        return encoder.config, {"cross_block_attention_mode": mode}

    def initialize(self, model: tf.keras.Model) -> None:
        """Gives the encoder the weights of `init_checkpoint`.

        Args:
            model: has the encoder in its `checkpoint_items`.

        Raises:
            UserError: there is no such checkpoint, it does not fit, or the
                records were made with another vocabulary than its.
        """
        path = self.task_config.init_checkpoint
        if not path:
            return
        is_known = lifted.check_vocabulary(path, self.metadata)
        encoder = model.checkpoint_items["encoder"]
        try:
            checkpoints.load_checkpoint(encoder, path)
        except (ValueError, OSError) as error:
            raise UserError(f"task.init_checkpoint: {error}") from error
        if not is_known:
            table = files.find_encoder(encoder).get_token_embedding_table()
            lifted.warn_of_vocabulary(path, self.metadata, np.asarray(table))

    def initialize_heads(self, heads: Iterable[tf.keras.layers.Layer]) -> None:
        """Gives heads the weights of `init_checkpoint`, where it has them.

        Those that it lacks, such as a lifted model's for CPC, begin at random.

        Args:
            heads: layers, built.

        Raises:
            UserError: there is no such checkpoint, or it does not fit.
        """
        path = self.task_config.init_checkpoint
        for layer in heads if path else ():
            try:
                found = checkpoints.load_head(layer, path)
            except ValueError as error:
                raise UserError(f"task.init_checkpoint: {error}") from error
            logging.info(
                "%s of %s: %s",
                layer.name,
                path,
                "taken" if found else "not there, begins at random",
            )

    @graph_code
    def train_step(self, inputs, model, optimizer, metrics=None):
        """Trains on a batch; see `base_task.Task`."""
        return super().train_step(inputs, model, optimizer, metrics)

    @graph_code
    def validation_step(self, inputs, model, metrics=None):
        """Measures a batch; see `base_task.Task`."""
        return super().validation_step(inputs, model, metrics)


@graph_code
def read_batches(
    params: cfg.DataConfig,
    parse: Callable[[tf.Tensor], object],
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Reads TFRecords in batches of one static size.

    In evaluation no record is dropped and none counts twice, on any number of
    replicas: the last batch is filled with zeros, and batches of zeros follow
    so that every replica has one. Parsed batches must therefore hold weights
    that are 1 for records and 0 for what is not.

    Args:
        params: files (see `tfrecords.find_files`), batch size, shuffling.
        parse: graph function from serialized examples `<string>[batch]` to
            nested tensors `[batch, ...]`.
        input_context: which part of the input belongs to this host.

    Returns:
        The dataset of parsed batches.

    Raises:
        UserError: there are no such files.
    """

    def batch(dataset, input_context):
        size, replicas = params.global_batch_size, 1
        if input_context is not None:
            size = input_context.get_per_replica_batch_size(size)
            replicas = (
                input_context.num_replicas_in_sync
                // input_context.num_input_pipelines
            )

        def fill(value):
            missing = size - tf.shape(value)[0]
            paddings = [[0, missing]] + [[0, 0]] * (value.shape.rank - 1)
            # [size, ...]
            return tf.ensure_shape(
                tf.pad(value, paddings), [size, *value.shape[1:]]
            )

        dataset = dataset.batch(size, drop_remainder=params.is_training).map(
            parse, num_parallel_calls=tf.data.AUTOTUNE
        )
        dataset = dataset.map(lambda *x: tf.nest.map_structure(fill, x))
        if params.is_training or replicas == 1:
            return dataset
        nothing = dataset.take(1).map(
            lambda *x: tf.nest.map_structure(tf.zeros_like, x)
        )
        return dataset.concatenate(nothing.repeat(replicas - 1))

    return read_files(params, batch, input_context)


def read_files(
    params: cfg.DataConfig,
    batch: Callable[
        [tf.data.Dataset, tf.distribute.InputContext | None], tf.data.Dataset
    ],
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Reads TFRecords with Model Garden's reader.

    The dataset is not autotuned: deleting an iterator that is takes as long
    again as the iterator was in use, up to a minute, whenever its tuning
    thread misses the signal to stop. Each validation would end with that.

    Args:
        params: files (see `tfrecords.find_files`), shuffling.
        batch: makes a dataset of batches of one of serialized examples,
            `<string>[]`.
        input_context: which part of the input belongs to this host.

    Returns:
        The dataset of batches.

    Raises:
        UserError: there are no such files.
    """
    files = tfrecords.find_files(params.input_path)
    reader = input_reader.InputReader(
        params.replace(input_path=files),
        dataset_fn=functools.partial(
            tf.data.TFRecordDataset,
            compression_type=tfrecords.compression_type(files),
        ),
        transform_and_batch_fn=batch,
    )
    options = tf.data.Options()
    options.autotune.enabled = False
    return reader.read(input_context).with_options(options)


def fine_tuning_trainer(
    num_examples: int,
    batch_size: int,
    epochs: float,
    learning_rate: float,
    optimizer: str,
    weight_decay: float,
    best_metric: str,
) -> cfg.TrainerConfig:
    """The fine-tuning recipe of the paper: warm-up, then linear decay to 0.

    See `make_trainer`.

    Args:
        num_examples: number of training examples.
        batch_size: examples a step, over all replicas.
        epochs: how often every example is seen.
        learning_rate: where the linear decay starts. The warm-up takes a
            tenth of the steps and ends on the line of the decay.
        optimizer: `"adamw"` or `"lamb"`.
        weight_decay: decay of all weights but biases and normalisation.
        best_metric: name of the validation metric, the higher the better.

    Returns:
        The trainer's configuration.

    Raises:
        ValueError: unknown optimizer.
    """
    train_steps = int(num_examples * epochs // batch_size)
    return make_trainer(
        train_steps=train_steps,
        warmup_steps=train_steps // 10,
        learning_rate=learning_rate,
        optimizer=optimizer,
        weight_decay=weight_decay,
        validation_interval=num_examples // batch_size,
        best_metric=best_metric,
    )


def make_trainer(
    train_steps: int,
    warmup_steps: int,
    learning_rate: float,
    optimizer: str,
    weight_decay: float,
    validation_interval: int,
    best_metric: str,
) -> cfg.TrainerConfig:
    """Warm-up, then linear decay to 0, with BERT's optimizers.

    The gradients of the whole batch are clipped to a global norm of 1. The
    checkpoint with the best validation metric is kept in `best_ckpt`.

    Args:
        train_steps: number of steps.
        warmup_steps: how many of them are warm-up, which ends on the line of
            the decay.
        learning_rate: where the linear decay starts.
        optimizer: `"adamw"` or `"lamb"`.
        weight_decay: decay of all weights but biases and normalisation.
        validation_interval: steps between evaluations.
        best_metric: name of the validation metric, the higher the better.

    Returns:
        The trainer's configuration.

    Raises:
        ValueError: unknown optimizer.
    """
    options = {
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-6,
        "weight_decay_rate": weight_decay,
        "exclude_from_weight_decay": NO_WEIGHT_DECAY,
        "global_clipnorm": 1.0,
    }
    if optimizer == "adamw":
        # Its own clipping is that of each replica's gradients.
        options["gradient_clip_norm"] = 0.0
    elif optimizer != "lamb":
        raise ValueError(
            f"optimizer is {optimizer!r}, expected 'adamw' or 'lamb'."
        )
    return cfg.TrainerConfig(
        train_steps=train_steps,
        steps_per_loop=50,
        summary_interval=50,
        checkpoint_interval=1000,
        validation_steps=-1,
        validation_interval=validation_interval,
        best_checkpoint_export_subdir="best_ckpt",
        best_checkpoint_eval_metric=best_metric,
        best_checkpoint_metric_comp="higher",
        optimizer_config=optimization.OptimizationConfig(
            {
                "optimizer": {"type": optimizer, optimizer: options},
                "learning_rate": {
                    "type": "polynomial",
                    "polynomial": {
                        "initial_learning_rate": learning_rate,
                        "decay_steps": train_steps,
                        "end_learning_rate": 0.0,
                        "power": 1.0,
                    },
                },
                "warmup": {
                    "type": "linear",
                    "linear": {
                        "warmup_steps": warmup_steps,
                        "warmup_learning_rate": 0.0,
                    },
                },
            }
        ),
    )
