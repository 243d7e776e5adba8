"""Builds the model of a run and loads its weights, in Keras 2 or 3."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from etcmodel import checkpoints
from etcmodel import models
from etcmodel.checkpoints import files as checkpoint_files
from etcmodel.checkpoints import lora_factors
from etcmodel.engine import processes
from etcmodel.engine import runner
from etcmodel.errors import UserError
from etcmodel.feature_utils.text import tokenizer_settings
from etcmodel.models import json_config
from etcmodel.ops.attention import for_inference
from etcmodel.pipeline import sizes as sizes_lib
from etcmodel.pipeline.preprocessor import Preprocessor
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.task_model import TaskModel
from etcmodel.serving import answers as answers_lib
from etcmodel.serving import signatures
from etcmodel.training import run_directory
from etcmodel.training import runs


class TrainedModel(NamedTuple):
    """The model of a run, with the steps before and after it.

    Attributes:
        spec: specification of the task.
        model: the Keras model, with its weights.
        task_model: converts the model's outputs to answers.
        preprocessor: converts raw text to the model's inputs.
        metadata: metadata that `export` stores in a SavedModel.
        checkpoint: path of the checkpoint with the weights.
        config: configuration of the encoder.
    """

    spec: TaskSpec
    model: tf.keras.Model
    task_model: TaskModel
    preprocessor: Preprocessor
    metadata: Mapping[str, Any]
    checkpoint: str
    config: json_config.JsonConfig

    def answers(self) -> answers_lib.Answers:
        """Returns an object that answers raw records.

        It runs the same graph that `export` saves.
        """
        module = signatures.make_module(
            self.model, self.preprocessor, self.task_model
        )
        name = signatures.SERVING_DEFAULT
        with for_inference():
            answer = module.signatures([name])[name]
        return answers_lib.Answers(
            self.spec, self.task_model, answer, self.metadata, module
        )


def load(
    spec: TaskSpec,
    model_dir: str,
    params: Mapping[str, Any],
    vocab_file: str,
    checkpoint: str | None = None,
    config: json_config.JsonConfig | None = None,
) -> TrainedModel:
    """Builds the model of a run for inference, in float32.

    Args:
        spec: specification of the task.
        model_dir: directory of the run.
        params: the run's configuration, from `runs.read_params`.
        vocab_file: the vocabulary of the run's records.
        checkpoint: "best", "last" or a path; see `runs.find_checkpoint`.
        config: the encoder's configuration; by default the run's own.

    Raises:
        FileNotFoundError: the run has no config file of its encoder, and
            `config` is None.
        UserError: the run lacks a file, or the checkpoint does not fit.
    """
    path = runs.find_checkpoint(model_dir, checkpoint)
    task_params = types.SimpleNamespace(**params["task"])
    runs.use_tuned(spec, task_params, path, model_dir)
    records = runs.read(model_dir).get("records")
    if records:
        runs.check_vocabulary(vocab_file, records, model_dir)
    model_params = types.SimpleNamespace(**params["task"]["model"])
    sizes = sizes_lib.find_sizes(spec, records, model_params)
    try:
        task_model = spec.make_model(model_params, task_params, sizes)
    except ValueError as error:
        raise UserError(f"task: {error}") from error
    kinds = models.ReadTwiceConfig if spec.reads_segments else models.EtcConfig
    config = config or kinds.from_run(model_dir)
    with runner.same_precision():
        tf.keras.mixed_precision.set_global_policy("float32")
        try:
            model = task_model.build(
                config, **task_model.lengths(), **_build_options(model_params)
            )
        except ValueError as error:
            raise UserError(f"task.model: {error}") from error
    _restore(model, task_model, path, model_dir)
    settings = (records or {}).get("tokenizer")
    preprocessor = spec.make_preprocessor(
        spec.make_preprocessing_config(sizes),
        vocab_file,
        settings and tokenizer_settings.TokenizerSettings.from_dict(settings),
    )
    metadata = {
        "task": spec.name,
        "preprocessing_config": sizes,
        "options": dataclasses.asdict(task_model.options),
        "reading": (records or {}).get("reading", {}),
        "has_queries": (records or {}).get("has_queries", False),
        "axes": signatures.request_axes(preprocessor, task_model),
    }
    return TrainedModel(
        spec, model, task_model, preprocessor, metadata, path, config
    )


def _build_options(model_params) -> dict[str, bool]:
    """Returns the encoder's options that change its speed, not its outputs."""
    names = ("use_one_hot_embeddings", "use_one_hot_relative_embeddings")
    encoder = model_params.encoder
    return {name: encoder[name] for name in names if name in encoder}


def _restore(model, task_model, checkpoint: str, model_dir: str) -> None:
    """Loads all weights; raises a `UserError` if the checkpoint lacks any."""
    try:
        with run_directory.restoring(checkpoint):
            shapes = checkpoint_files.Checkpoint(checkpoint).shapes
            if processes.has_keras_2() and not lora_factors.rank_of(shapes):
                # Checkpoints are written with Keras 2, so they can be restored
                # directly, unless LoRA must be merged.
                status = tf.train.Checkpoint(model=model).read(checkpoint)
                status.expect_partial().assert_existing_objects_matched()
                return
            checkpoints.load_checkpoint(
                checkpoint_files.find_encoder(task_model.encoder(model)),
                checkpoint,
            )
            for head in task_model.heads(model):
                if not checkpoints.load_head(head, checkpoint):
                    raise ValueError(f"it lacks the weights of {head.name}")
    except (AssertionError, ValueError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"The checkpoint {checkpoint} does not fit the model configured by "
            f"{model_dir} and the options: {reason}"
        ) from error
