"""The model of a task: its head, its losses, and how it answers."""

import abc
import dataclasses
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
    """A loss or a metric of a batch: a weighted mean.

    Attributes:
        values: `<float32>[...]`.
        weights: `<float32>[...]`, 0 for what does not count.
    """

    values: tf.Tensor
    weights: tf.Tensor


class StoredData(NamedTuple):
    """What `preprocess` noted about stored examples.

    Attributes:
        sizes: the preprocessing configuration: name -> value.
        vocab_size: number of token ids.
        special_ids: name of a special token -> its id.
    """

    sizes: Mapping[str, Any]
    vocab_size: int | None = None
    special_ids: Mapping[str, int] = {}  # noqa: RUF012


class TaskModel(abc.ABC):
    """A model, and what it learns.

    All of it is graph code but `to_prediction`. Training, evaluation and the
    exported model share it: `select_candidates` runs where the model runs, on
    a TPU as well; `decode` needs strings.

    Attributes:
        GROUPS: groups of records with official metrics of their own: what is
            added to the metrics' names -> whether a record of so many rows is
            in the group.
        model_options: the options of the model; see `TaskSpec.model_options`.
        options: the other ones; see `TaskSpec.options`.
    """

    GROUPS: ClassVar[Mapping[str, Callable[[int], bool]]] = {}

    def __init__(self, model_options: Any, options: Any):
        """Takes the options; see `TaskSpec`."""
        self.model_options = model_options
        self.options = options

    @abc.abstractmethod
    def build(self, config: json_config.JsonConfig, **options):
        """Builds the Keras model.

        Args:
            config: configuration of the encoder.
            **options: those of `lengths`, and arguments of the encoder.

        Returns:
            A `tf.keras.Model` from a dict of tensors to a dict of tensors.

        Raises:
            ValueError: an option is impossible.
        """

    def lengths(self, sizes: Mapping[str, Any]) -> dict[str, int]:
        """Returns arguments of `build`: the static lengths of the inputs.

        Args:
            sizes: the preprocessing configuration.
        """
        del sizes
        return {}

    @abc.abstractmethod
    def encoder(self, model: tf.keras.Model) -> tf.keras.layers.Layer:
        """Returns the encoder of a model that `build` made."""

    def pretrained_heads(
        self, model: tf.keras.Model
    ) -> Sequence[tf.keras.layers.Layer]:
        """Returns the layers beside the encoder that a checkpoint can start.

        Args:
            model: from `build`.
        """
        del model
        return ()

    def labels(
        self, inputs: Mapping[str, tf.Tensor], fields: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns what `terms` needs of a batch: all fields, by default.

        Args:
            inputs: the model's inputs.
            fields: labels and context, as `ExampleSchema.parse` reads them.
        """
        del inputs
        return dict(fields)

    def inputs_and_labels(
        self,
        inputs: Mapping[str, tf.Tensor],
        fields: Mapping[str, Any],
        data: StoredData,
        is_training: bool,
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Makes the model's inputs and labels of a batch of stored examples.

        Args:
            inputs: fields with the role `INPUT`.
            fields: fields with other roles.
            data: what is known of the examples.
            is_training: whether random masks differ each time.

        Returns:
            A pair of the model's inputs, `[batch, ...]`, and of what `terms`
            needs.
        """
        del data, is_training
        return dict(inputs), self.labels(inputs, fields)

    @abc.abstractmethod
    def loss_factors(self) -> Mapping[str, float]:
        """Returns name of a loss -> its weight beside the other losses.

        The names are those of `terms`. Losses with the weight 0 are not
        computed.
        """

    @abc.abstractmethod
    def metric_names(self) -> list[str]:
        """Returns the names of `terms`, in order."""

    @abc.abstractmethod
    def terms(
        self, outputs: Mapping[str, tf.Tensor], labels: Mapping[str, tf.Tensor]
    ) -> Mapping[str, Term]:
        """Computes the losses and metrics of a batch, once for both.

        Args:
            outputs: the model's outputs.
            labels: from `inputs_and_labels`.

        Returns:
            Name -> term.
        """

    def select_candidates(
        self,
        outputs: Mapping[str, tf.Tensor],
        features: Mapping[str, tf.Tensor],
        context: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """Reduces outputs to the few numbers that an answer depends on.

        They must not depend on the option that is tuned.

        Args:
            outputs: the model's outputs.
            features: its inputs.
            context: fields with the role `CONTEXT` or `DECODING`.

        Returns:
            name -> numbers, `[rows, ...]`; the outputs by default.
        """
        del features, context
        return dict(outputs)

    def decode(
        self,
        candidates: Mapping[str, tf.Tensor],
        owner: tf.Tensor,
        text: Mapping[str, Any],
    ) -> dict[str, tf.Tensor]:
        """Decodes the answers of records from the candidates in their rows.

        Args:
            candidates: from `select_candidates`, `[rows, ...]`.
            owner: the record of each row, `<int32>[rows]`.
            text: fields with the role `TEXT`, `[records, ...]`.

        Returns:
            name -> tensor, `[records, ...]`: the outputs of `serving_default`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no answers.")

    def to_prediction(
        self, answers: Mapping[str, np.ndarray], text: Mapping[str, Any]
    ) -> Any:
        """Converts an answer to what the official file and score take.

        Args:
            answers: those of `decode` for one record.
            text: values of the fields with the role `TEXT` for the record.
        """
        raise NotImplementedError(f"{type(self).__name__} has no answers.")

    def with_option(self, name: str, value: Any) -> "TaskModel":
        """Returns a copy with another value of an option."""
        options = dataclasses.replace(self.options, **{name: value})
        return type(self)(self.model_options, options)


class AnswerModel(TaskModel):
    """A model that is fine-tuned: its losses count alike.

    Attributes:
        METRICS: names of what `metrics` returns.
    """

    METRICS: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def losses(
        self,
        outputs: Mapping[str, tf.Tensor],
        labels: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """Computes the losses of every row.

        Args:
            outputs: the model's outputs.
            labels: from `labels`.

        Returns:
            name -> `<float32>[rows]`.
        """

    @abc.abstractmethod
    def loss_names(self) -> tuple[str, ...]:
        """Returns the names of `losses`."""

    def metrics(
        self,
        outputs: Mapping[str, tf.Tensor],
        labels: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """Computes metrics of every row; none by default.

        Args:
            outputs: the model's outputs.
            labels: from `labels`.

        Returns:
            name -> `<float32>[rows]`.
        """
        del outputs, labels
        return {}

    def loss_factors(self):
        """See `TaskModel`."""
        return {f"{name}_loss": 1.0 for name in self.loss_names()}

    def metric_names(self):
        """See `TaskModel`."""
        return [*self.loss_factors(), *self.METRICS]

    def terms(self, outputs, labels):
        """See `TaskModel`; the labels' `weight` is that of each row."""
        losses = self.losses(outputs, labels)
        values = {
            **{f"{name}_loss": x for name, x in losses.items()},
            **self.metrics(outputs, labels),
        }
        return {name: Term(x, labels["weight"]) for name, x in values.items()}

    def inputs_and_labels(self, inputs, fields, data, is_training):
        """See `TaskModel`; adds each row's `weight` and `record`."""
        del data, is_training
        fields = dict(fields)
        labels = {
            "record": record_keys(fields.pop(EXAMPLE_ID)),
            "weight": tf.cast(fields.pop("is_real_example"), tf.float32),
        }
        return dict(inputs), {**labels, **self.labels(inputs, fields)}


class PretrainingModel(TaskModel):
    """A model that predicts masked tokens, beside something else."""

    def __init__(self, model_options, options):
        """Checks the options.

        Raises:
            UserError: a number is out of its range, or all losses have the
                weight 0.
        """
        super().__init__(model_options, options)
        for name, value in dataclasses.asdict(options).items():
            if "fraction" in name and not 0 <= value <= 1:
                raise UserError(
                    f"task.{name} is {value}, but must be a fraction: from 0 "
                    "to 1."
                )
            if name.endswith("_weight") and value < 0:
                raise UserError(
                    f"task.{name} is {value}, but must be at least 0."
                )
        factors = self.loss_factors()
        if not any(factors.values()):
            raise UserError(
                "There is nothing to learn: all of "
                f"{', '.join(f'task.{x[:-4]}weight' for x in factors)} are 0."
            )

    def encoder(self, model):
        """See `TaskModel`."""
        return model.encoder

    def pretrained_heads(self, model):
        """See `TaskModel`; all layers beside the encoder."""
        return [x for x in model.layers if x is not model.encoder]


def masked_language_model(outputs, labels) -> dict[str, Term]:
    """Computes the loss and accuracy of predicted tokens.

    Args:
        outputs: dict with `logits` `<float32>[batch, n, vocab_size]`.
        labels: dict with `label_ids` `<int32>[batch, n]` and `weights`
            `<float32>[batch, n]`.

    Returns:
        `mlm_loss` and `mlm_accuracy`.
    """
    logits, ids = outputs["logits"], labels["label_ids"]
    weights = labels["weights"]
    return {
        "mlm_loss": Term(
            pretraining_heads.masked_lm_losses(logits, ids), weights
        ),
        "mlm_accuracy": Term(is_correct(logits, ids), weights),
    }


class EtcTaskModel(AnswerModel):
    """What a task makes of the outputs of ETC's encoder."""

    @abc.abstractmethod
    def encoder_options(self) -> dict[str, Any]:
        """Returns arguments of `build_encoder`: how masks and labels are made.

        Such as the `structure` of a task with links of its own.
        """

    @abc.abstractmethod
    def head(
        self, config: EtcConfig
    ) -> Callable[[Mapping, Mapping], dict[str, tf.Tensor]]:
        """Makes what stands on top of the encoder.

        Args:
            config: configuration of the encoder.

        Returns:
            A function from the encoder's outputs, `long_output` and
            `global_output`, and from its inputs to the model's outputs, whose
            layers are made once.
        """

    def build(self, config: EtcConfig, **options) -> tf.keras.Model:
        """Builds the Keras model.

        Args:
            config: sizes of the encoder and whether it uses the hard g2l mask.
            **options: further arguments of `build_encoder`, such as
                `long_length` and `global_length`.

        Returns:
            A `tf.keras.Model` from a dict of what the encoder reads,
            `<dtype>[batch, long, ...]` and `<dtype>[batch, global, ...]`, to
            a dict of what `head` gives.
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

    def lengths(self, sizes):
        """See `TaskModel`."""
        return {x: sizes[x] for x in ("long_length", "global_length")}

    def encoder(self, model):
        """See `TaskModel`."""
        return model.get_layer("etc_encoder")
