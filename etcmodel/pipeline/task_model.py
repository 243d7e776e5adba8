"""Base classes for the models of tasks: head, losses and decoding."""

import abc
import dataclasses
import types
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.models import EtcConfig
from etcmodel.models import build_encoder
from etcmodel.models import json_config
from etcmodel.models import pretraining_heads
from etcmodel.models.losses import is_correct
from etcmodel.pipeline.example_schema import EXAMPLE_ID
from etcmodel.pipeline.record_keys import record_keys


class Term(NamedTuple):
    """A loss or metric of a batch: the weighted mean of its values."""

    values: tf.Tensor
    weights: tf.Tensor


class StoredData(NamedTuple):
    """Sizes and vocabulary of stored records, and the seed of a batch.

    Attributes:
        sizes: the preprocessing configuration.
        vocab_size: number of tokens in the vocabulary.
        special_ids: name of a special token -> id.
        seed: `<int32>[2]`, different for each training batch; None in
            evaluation.
    """

    sizes: Mapping[str, Any]
    vocab_size: int | None = None
    special_ids: Mapping[str, int] = {}  # noqa: RUF012
    seed: tf.Tensor | None = None


class TaskModel(abc.ABC):
    """A task's model, with its losses and the decoding of its answers.

    Training, evaluation and the exported model share this class. All methods
    except `to_prediction` are graph code. `select_candidates` runs on the
    device of the model, which may be a TPU; `decode` runs on the CPU, because
    it needs strings.

    Args:
        model_options: see `TaskSpec.model_options`.
        options: see `TaskSpec.options`.
        sizes: the preprocessing configuration of the records.

    Attributes:
        GROUPS: groups of records with their own official metrics: suffix of the
            metrics' names -> function that tells whether a record with a given
            number of rows is in the group.
        OUTPUTS: names of the sizes that define the outputs, such as the labels.
            A checkpoint's head is reused only if its sizes are equal to these.
        OPTIONAL: names of the parts of heads that a checkpoint may lack;
            missing parts keep their random initialization.
        ANSWER_AXES: answer -> names of its axes after the first, if their sizes
            depend on the request. An axis is one of `Preprocessor.INPUTS`, or
            one that is padded: texts with "", integers with -1.

    Raises:
        UserError: a loss has a negative weight.
    """

    GROUPS: ClassVar[Mapping[str, Callable[[int], bool]]] = {}
    OUTPUTS: ClassVar[tuple[str, ...]] = ()
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    ANSWER_AXES: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    # Whether batches may end after the last token of the longest record.
    CAN_BE_SHORTER: ClassVar[bool] = True

    def __init__(
        self,
        model_options: Any,
        options: Any,
        sizes: Mapping[str, Any] = types.MappingProxyType({}),
    ):
        self.model_options = model_options
        self.options = options
        self.sizes = sizes
        for name, value in dataclasses.asdict(options).items():
            if name.endswith("_weight") and value < 0:
                raise UserError(
                    f"task.{name} is {value}, but must be at least 0."
                )

    @abc.abstractmethod
    def build(self, config: json_config.JsonConfig, **options):
        """Builds the Keras model, which maps a dict of tensors to a dict.

        Args:
            config: the encoder's configuration.
            **options: the `lengths`, and further arguments of the encoder.

        Raises:
            ValueError: an option is invalid.
        """

    def lengths(self) -> dict[str, int]:
        """Returns the maximum lengths of the inputs: arguments of `build`.

        Batches may be shorter, so graph code takes lengths from tensors.
        """
        return {}

    @abc.abstractmethod
    def encoder(self, model: tf.keras.Model) -> tf.keras.layers.Layer:
        """Returns the encoder inside a model that `build` made."""

    def heads(self, model: tf.keras.Model) -> list[tf.keras.layers.Layer]:
        """Returns all layers that have weights, except the encoder."""
        encoder = self.encoder(model)
        return [x for x in model.layers if x.weights and x is not encoder]

    def pretrained_heads(
        self, model: tf.keras.Model
    ) -> Sequence[tf.keras.layers.Layer]:
        """Returns heads that another task's checkpoint can initialize."""
        del model
        return ()

    @abc.abstractmethod
    def inputs_and_labels(
        self,
        inputs: Mapping[str, tf.Tensor],
        fields: Mapping[str, Any],
        data: StoredData,
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Makes the model's inputs, and the labels for `terms`.

        If `data.seed` is given, masking depends on the seed, otherwise on the
        records.

        Args:
            inputs: fields with the role `INPUT`, `[batch, ...]`.
            fields: the other fields, `[batch, ...]`.
            data: sizes, vocabulary and seed.
        """

    @abc.abstractmethod
    def loss_factors(self) -> Mapping[str, float]:
        """Returns the weight of each loss by name; 0 skips the loss."""

    @abc.abstractmethod
    def metric_names(self) -> list[str]:
        """Returns the names of `terms`, in order."""

    @abc.abstractmethod
    def terms(
        self, outputs: Mapping[str, tf.Tensor], labels: Mapping[str, tf.Tensor]
    ) -> Mapping[str, Term]:
        """Computes the losses and metrics of a batch together."""

    def select_candidates(
        self,
        outputs: Mapping[str, tf.Tensor],
        features: Mapping[str, tf.Tensor],
        context: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """Reduces the model's outputs to the few tensors that `decode` needs.

        The result must not depend on the tuned option (`TaskSpec.tuned`).

        Args:
            outputs: the model's outputs.
            features: the model's inputs.
            context: the `CONTEXT` and `DECODING` fields.

        Returns:
            Name -> `[rows, ...]`; by default, the outputs.
        """
        del features, context
        return dict(outputs)

    def decode(
        self,
        candidates: Mapping[str, tf.Tensor],
        owner: tf.Tensor,
        text: Mapping[str, Any],
    ) -> dict[str, tf.Tensor]:
        """Decodes candidates to the answers of records.

        Args:
            candidates: results of `select_candidates`, `[rows, ...]`.
            owner: index of each row's record, `<int32>[rows]`.
            text: the `TEXT` fields, `[records, ...]`.

        Returns:
            The outputs of the signature `serving_default`, `[records, ...]`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must implement `decode`."
        )

    def to_prediction(
        self, answers: Mapping[str, np.ndarray], text: Mapping[str, Any]
    ) -> Any:
        """Converts a record's answers to a prediction for the official file.

        The official metrics score this prediction.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must implement `to_prediction`."
        )

    def with_option(self, name: str, value: Any) -> "TaskModel":
        """Returns a copy of the model with another value for an option."""
        options = dataclasses.replace(self.options, **{name: value})
        return type(self)(self.model_options, options, self.sizes)


class AnswerModel(TaskModel):
    """A fine-tuned model whose losses all have the same weight.

    Attributes:
        LOSSES: names of the losses.
        METRICS: accuracies: name -> names of the logits and the label.
    """

    LOSSES: ClassVar[tuple[str, ...]] = ()
    METRICS: ClassVar[Mapping[str, tuple[str, str]]] = {}

    @abc.abstractmethod
    def losses(
        self,
        outputs: Mapping[str, tf.Tensor],
        labels: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """Computes the losses of every row: name -> `<float32>[rows]`."""

    def loss_names(self) -> tuple[str, ...]:
        """Returns the names of `losses`; by default, `LOSSES`."""
        return self.LOSSES

    def metrics(
        self,
        outputs: Mapping[str, tf.Tensor],
        labels: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """Computes the accuracies of `METRICS`, each `<float32>[rows]`."""
        return {
            name: is_correct(outputs[logits], labels[label])
            for name, (logits, label) in self.METRICS.items()
        }

    def loss_factors(self):
        """Returns a weight of 1 for every loss."""
        return {f"{name}_loss": 1.0 for name in self.loss_names()}

    def metric_names(self):
        """Returns the names of losses and metrics, in order."""
        return [*self.loss_factors(), *self.METRICS]

    def terms(self, outputs, labels):
        """Computes losses and metrics, weighting rows by the label `weight`."""
        losses = self.losses(outputs, labels)
        values = {
            **{f"{name}_loss": x for name, x in losses.items()},
            **self.metrics(outputs, labels),
        }
        return {name: Term(x, labels["weight"]) for name, x in values.items()}

    def labels(
        self, inputs: Mapping[str, tf.Tensor], fields: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the labels that `losses` needs; by default, all fields."""
        del inputs
        return dict(fields)

    def inputs_and_labels(self, inputs, fields, data):
        """Makes inputs and labels; adds each row's `weight` and `record`."""
        del data
        fields = dict(fields)
        labels = {
            "record": record_keys(fields.pop(EXAMPLE_ID)),
            "weight": tf.cast(fields.pop("is_real_example"), tf.float32),
        }
        return dict(inputs), {**labels, **self.labels(inputs, fields)}


class PretrainingModel(TaskModel):
    """A model for pre-training with masked language modelling.

    Raises:
        UserError: an option is out of range, or all losses have weight 0.
    """

    def __init__(self, model_options, options, sizes=None):
        super().__init__(model_options, options, sizes or {})
        for name, value in dataclasses.asdict(options).items():
            if "fraction" in name and not 0 <= value <= 1:
                raise UserError(
                    f"task.{name} is {value}, but must be from 0 to 1."
                )
        factors = self.loss_factors()
        if not any(factors.values()):
            raise UserError(
                "All loss weights are 0. Set at least one of "
                f"{', '.join(f'task.{x[:-4]}weight' for x in factors)}."
            )

    def encoder(self, model):
        """Returns the encoder inside the model."""
        return model.encoder

    def pretrained_heads(self, model):
        """Returns all layers except the encoder."""
        return self.heads(model)


def masked_language_model(outputs, labels) -> dict[str, Term]:
    """Computes `mlm_loss` and `mlm_accuracy` of the masked tokens.

    Args:
        outputs: has `logits`, `<float32>[batch, n, vocab_size]`.
        labels: has `label_ids` and `weights`, `[batch, n]`.
    """
    logits, ids = outputs["logits"], labels["label_ids"]
    weights = labels["weights"]
    return {
        "mlm_loss": Term(
            pretraining_heads.masked_lm_losses(logits, ids), weights
        ),
        "mlm_accuracy": Term(is_correct(logits, ids), weights),
    }


def exempt_from_hard_g2l(
    is_exempt: Mapping[int, bool],
) -> dict[str, tuple[int, ...]]:
    """Returns the encoder option that exempts global tokens from hard g2l.

    With the hard g2l mask, a global token attends only to the long tokens
    linked with it. Exempt tokens attend to all long tokens.

    Args:
        is_exempt: type of global tokens (see `token_types`) -> whether tokens
            of this type are exempt.
    """
    types = tuple(x for x, exempt in is_exempt.items() if exempt)
    return {"ignore_hard_g2l_types": types}


class EtcTaskModel(AnswerModel):
    """A fine-tuned model on top of ETC's encoder."""

    @abc.abstractmethod
    def encoder_options(self) -> dict[str, Any]:
        """Returns arguments of `build_encoder`, such as `structure`."""

    @abc.abstractmethod
    def head(
        self, config: EtcConfig
    ) -> Callable[[Mapping, Mapping], dict[str, tf.Tensor]]:
        """Creates the layers on top of the encoder.

        Returns:
            A function that applies the layers. It maps the encoder's outputs
            (`long_output`, `global_output`) and inputs to the model's outputs.
        """

    def build(self, config: EtcConfig, **options) -> tf.keras.Model:
        """Builds the Keras model: the encoder, with `head` on top.

        Args:
            config: the encoder's configuration.
            **options: further arguments of `build_encoder`, such as
                `long_length` and `global_length`.
        """
        encoder = build_encoder(
            config,
            **{"structure": "paragraphs", **self.encoder_options()},
            **options,
        )
        inputs = {
            key: tf.keras.Input(
                shape=value.shape[1:], dtype=value.dtype, name=key
            )
            for key, value in encoder.input.items()
        }
        outputs = self.head(config)(encoder(inputs), inputs)
        return tf.keras.Model(
            inputs=inputs, outputs=outputs, name=type(self).__name__.lower()
        )

    def lengths(self):
        """Returns the static lengths of ETC's inputs."""
        return {x: self.sizes[x] for x in ("long_length", "global_length")}

    def encoder(self, model):
        """Returns the encoder inside the model."""
        return model.get_layer("etc_encoder")


def to_predictions(
    task_model: TaskModel,
    answers: Mapping[str, Any],
    texts: Sequence[Mapping[str, Any]],
) -> list[Any]:
    """Converts batched answers, `[batch, ...]`, to a prediction per record."""
    arrays = {name: np.asarray(value) for name, value in answers.items()}
    return [
        task_model.to_prediction({x: y[i] for x, y in arrays.items()}, text)
        for i, text in enumerate(texts)
    ]
