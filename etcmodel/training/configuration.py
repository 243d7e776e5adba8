"""Configuration shared by the Model Garden experiments of all tasks.

Training uses the TensorFlow Model Garden (`official.core`), which works only
with Keras 2.
"""

import tensorflow as tf

from etcmodel.layers import keras_compat

if keras_compat.is_keras_3():
    raise ImportError(
        "Training uses the TensorFlow Model Garden, which needs Keras 2, but "
        "tf.keras is Keras 3 in this process. Install the package tf-keras and "
        "set the environment variable TF_USE_LEGACY_KERAS=1 before TensorFlow "
        "is imported. Layers, models and exported SavedModels work with both "
        "versions."
    )

import dataclasses
from typing import ClassVar

from official.core import config_definitions as cfg
from official.modeling import optimization
from official.modeling.hyperparams import base_config

from etcmodel import run_paths
from etcmodel.errors import UserError
from etcmodel.models import EtcConfig
from etcmodel.models import ReadTwiceConfig
from etcmodel.models import json_config
from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.spec import TaskSpec

# As in BERT, weight decay skips biases and layer normalization, whose weights
# Keras calls `gamma` and `beta`.
NO_WEIGHT_DECAY = ["LayerNorm", "layer_norm", "bias", "gamma", "beta"]


@dataclasses.dataclass
class PresetParams(base_config.Config):
    """The configuration of an encoder: a preset or a file, with overrides.

    `preset_params` adds the fields of the encoder's configuration. A field that
    is None has the value of the preset or file. If `vocab_size` is None and
    `config_file` is not given, it is the size of the records' vocabulary.

    Attributes:
        preset: name of a preset, such as `"base"`.
        config_file: path of a JSON file; used instead of the preset.
        use_one_hot_embeddings: whether to look up token embeddings by matrix
            products, which is faster on TPUs.
    """

    # The class of the encoder's configuration; set by `preset_params`.
    CONFIG: ClassVar[type[json_config.JsonConfig]]

    preset: str = "base"
    config_file: str = ""
    use_one_hot_embeddings: bool = False

    def to_config(
        self, data_vocab_size: int | None = None
    ) -> json_config.JsonConfig:
        """Makes the encoder's configuration.

        Args:
            data_vocab_size: size of the records' vocabulary; None if unknown.

        Raises:
            UserError: the preset or file does not exist, a value is invalid, or
                the records' vocabulary is larger than the encoder's.
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
                f"The records' vocabulary has {data_vocab_size} tokens, but "
                f"the encoder's has {config.vocab_size}. Preprocess with the "
                "vocabulary that belongs to the encoder."
            )
        return config


def preset_params(
    config_class: type[json_config.JsonConfig], *left_out: str
) -> type[PresetParams]:
    """Makes a subclass of `PresetParams` with the fields of a configuration.

    Fields default to None. The fields in `left_out` are skipped.
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
    """The configuration of ETC's encoder: overrides of an `EtcConfig`.

    Attributes:
        use_one_hot_relative_embeddings: whether to look up embeddings of
            relative position labels by matrix products.
    """

    use_one_hot_relative_embeddings: bool = False


@dataclasses.dataclass
class ReadTwiceParams(
    preset_params(ReadTwiceConfig, "summary_padding_token_id")
):
    """The configuration of ReadTwice's encoder, as a preset with overrides."""


def check_length(config: ReadTwiceConfig, block_length: int) -> None:
    """Raises a `UserError` if segments are too long for the model."""
    if block_length > config.max_seq_length:
        raise UserError(
            f"The records have segments of {block_length} tokens, but "
            "task.model.encoder.max_seq_length is "
            f"{config.max_seq_length}. Preprocess with a smaller "
            "`block_length`."
        )


def find_metadata(params: cfg.TaskConfig, spec: TaskSpec) -> dict | None:
    """Reads the `preprocessing_config.json` of training and validation data.

    Returns:
        The content, which all directories share; None if a directory has no
        such file.

    Raises:
        UserError: records belong to another task, were preprocessed differently
            or lack answers; or the validation data are of the split "train",
            which drops some records.
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
            f"The records in {metadata['directory']} were preprocessed for the "
            f"task {metadata['task']!r}, not for {spec.name!r}. Preprocess "
            f"them with `task={spec.name}`."
        )
    validation = tfrecords.read_metadata(files["validation"])
    if spec.has_answers and validation and validation["split"] == "train":
        raise UserError(
            f"{validation['directory']} was preprocessed with `split=train`, "
            "which drops records that cannot be learned, so metrics would be "
            "too high. Preprocess validation data with `split=dev`."
        )
    return metadata


# Decorator that disables AutoGraph, which the Model Garden applies to all
# functions. AutoGraph takes seconds, and the tasks' graph code has no Python
# control flow that depends on tensors. The decorator hides argument names: do
# not use it for functions whose arguments the Model Garden inspects, such as
# `build_inputs`.
graph_code = tf.autograph.experimental.do_not_convert


def make_trainer(
    train_steps: int,
    warmup_steps: int,
    learning_rate: float,
    optimizer: str,
    weight_decay: float,
    validation_interval: int,
    best_metric: str,
) -> cfg.TrainerConfig:
    """Returns the training configuration: BERT's, with linear decay to 0.

    Gradients are clipped to a global norm of 1 over the whole batch. The
    checkpoint with the best validation metric is kept in `best_ckpt`. For the
    arguments, see `trainer.configure`. Raises a ValueError if the optimizer is
    unknown.
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
        # Without this, AdamW clips the gradients of each replica separately.
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
        best_checkpoint_export_subdir=run_paths.BEST,
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
