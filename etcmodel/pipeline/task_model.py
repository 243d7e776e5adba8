"""The model of a task: its head, its losses, and how it answers."""

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
    """A loss or a metric of a batch: the mean of values with weights."""

    values: tf.Tensor
    weights: tf.Tensor


class StoredData(NamedTuple):
    """Sizes and vocabulary of stored records, and the seed of a batch.

    Attributes:
        sizes: the preprocessing configuration.
        vocab_size: size of the vocabulary.
        special_ids: ids of special tokens by name.
        seed: `<int32>[2]`, different for each training batch; None in
            evaluation.
    """

    sizes: Mapping[str, Any]
    vocab_size: int | None = None
    special_ids: Mapping[str, int] = {}  # noqa: RUF012
    seed: tf.Tensor | None = None


class TaskModel(abc.ABC):
    """A model, its losses and its answers; see `TaskSpec` for its options.

    `sizes` is the preprocessing configuration of its records.

    Training, evaluation and the exported model share it. All methods but
    `to_prediction` are graph code. `select_candidates` runs where the model
    runs, also on a TPU; `decode` needs strings.

    Groups of records can have their own official metrics: `GROUPS` maps the
    suffix of the metrics' names to a test whether a number of rows is in the
    group. `OUTPUTS` names the sizes that define the outputs, such as labels;
    heads are reused only if these are equal. `OPTIONAL` names parts of heads
    that a checkpoint's head may lack; they then stay random. `ANSWER_AXES`
    names the axes, after the first, of answers whose sizes depend on the
    request: axes of `Preprocessor.INPUTS`, or others that some of the answers
    pad, texts with "" and integers with -1.

    Raises a `UserError` if a loss has a negative weight.
    """

    GROUPS: ClassVar[Mapping[str, Callable[[int], bool]]] = {}
    OUTPUTS: ClassVar[tuple[str, ...]] = ()
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    ANSWER_AXES: ClassVar[Mapping[str, tuple[str, ...]]] = {}

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

        `options` are the `lengths` and arguments of the encoder. Raises a
        ValueError if an option is impossible.
        """

    def lengths(self) -> dict[str, int]:
        """Returns the static lengths of the inputs, for `build`."""
        return {}

    @abc.abstractmethod
    def encoder(self, model: tf.keras.Model) -> tf.keras.layers.Layer:
        """Returns the encoder of a model that `build` made."""

    def heads(self, model: tf.keras.Model) -> list[tf.keras.layers.Layer]:
        """Returns all layers with weights except the encoder."""
        encoder = self.encoder(model)
        return [x for x in model.layers if x.weights and x is not encoder]

    def pretrained_heads(
        self, model: tf.keras.Model
    ) -> Sequence[tf.keras.layers.Layer]:
        """Returns the heads that a run of another task can initialize."""
        del model
        return ()

    @abc.abstractmethod
    def inputs_and_labels(
        self,
        inputs: Mapping[str, tf.Tensor],
        fields: Mapping[str, Any],
        data: StoredData,
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Makes the model's inputs and labels, `[batch, ...]`, for `terms`.

        Takes the fields with the role `INPUT`, and the others. With
        `data.seed`, masks are random and depend on it; otherwise they depend on
        the records.
        """

    @abc.abstractmethod
    def loss_factors(self) -> Mapping[str, float]:
        """Returns name -> weight of losses; weight 0 skips the loss."""

    @abc.abstractmethod
    def metric_names(self) -> list[str]:
        """Returns the names of `terms`, in order."""

    @abc.abstractmethod
    def terms(
        self, outputs: Mapping[str, tf.Tensor], labels: Mapping[str, tf.Tensor]
    ) -> Mapping[str, Term]:
        """Computes the losses and metrics of a batch, once for both."""

    def select_candidates(
        self,
        outputs: Mapping[str, tf.Tensor],
        features: Mapping[str, tf.Tensor],
        context: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """Reduces outputs to the few numbers that an answer depends on.

        They must not depend on the tuned option. `context` has the `CONTEXT`
        and `DECODING` fields. Returns name -> `[rows, ...]`; the outputs by
        default.
        """
        del features, context
        return dict(outputs)

    def decode(
        self,
        candidates: Mapping[str, tf.Tensor],
        owner: tf.Tensor,
        text: Mapping[str, Any],
    ) -> dict[str, tf.Tensor]:
        """Decodes candidates, `[rows, ...]`, to answers of records.

        `owner` is the record of each row, `<int32>[rows]`; `text` has the
        `TEXT` fields, `[records, ...]`. Returns the outputs of
        `serving_default`, `[records, ...]`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no answers.")

    def to_prediction(
        self, answers: Mapping[str, np.ndarray], text: Mapping[str, Any]
    ) -> Any:
        """Converts a record's answers for the official file and score."""
        raise NotImplementedError(f"{type(self).__name__} has no answers.")

    def with_option(self, name: str, value: Any) -> "TaskModel":
        """Returns a copy with another value for an option."""
        options = dataclasses.replace(self.options, **{name: value})
        return type(self)(self.model_options, options, self.sizes)


class AnswerModel(TaskModel):
    """A fine-tuned model whose losses all have the same weight.

    Attributes:
        LOSSES: names of the losses.
        METRICS: accuracies: name -> names of the logits and of the label.
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
        """Returns the names of `losses`; `LOSSES` unless they vary."""
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
        """Gives every loss the weight 1."""
        return {f"{name}_loss": 1.0 for name in self.loss_names()}

    def metric_names(self):
        """Returns the names of losses and metrics, in order."""
        return [*self.loss_factors(), *self.METRICS]

    def terms(self, outputs, labels):
        """Computes losses and metrics; rows count by the labels' `weight`."""
        losses = self.losses(outputs, labels)
        values = {
            **{f"{name}_loss": x for name, x in losses.items()},
            **self.metrics(outputs, labels),
        }
        return {name: Term(x, labels["weight"]) for name, x in values.items()}

    def labels(
        self, inputs: Mapping[str, tf.Tensor], fields: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns what `losses` needs of a batch; all fields by default."""
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
    """A model whose losses include the prediction of masked tokens.

    Raises a `UserError` if an option is out of range, or no loss counts.
    """

    def __init__(self, model_options, options, sizes=None):
        super().__init__(model_options, options, sizes or {})
        for name, value in dataclasses.asdict(options).items():
            if "fraction" in name and not 0 <= value <= 1:
                raise UserError(
                    f"task.{name} is {value}, but must be a fraction from 0 "
                    "to 1."
                )
        factors = self.loss_factors()
        if not any(factors.values()):
            raise UserError(
                "There is nothing to learn: all of "
                f"{', '.join(f'task.{x[:-4]}weight' for x in factors)} are 0."
            )

    def encoder(self, model):
        """Returns the encoder inside."""
        return model.encoder

    def pretrained_heads(self, model):
        """Returns all layers except the encoder."""
        return self.heads(model)


def masked_language_model(outputs, labels) -> dict[str, Term]:
    """Computes `mlm_loss` and `mlm_accuracy` of predicted tokens.

    `logits` are `<float32>[batch, n, vocab_size]`, `label_ids` and `weights`
    `[batch, n]`.
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
    """Returns the encoder's option that exempts tokens from the hard g2l mask.

    Exempt global tokens attend to all long tokens, the others to their own.
    `is_exempt` has the exempt types of global tokens (see `token_types`).
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
        """Makes the layers on top of the encoder.

        Returns a function that applies them: it maps the encoder's outputs
        (`long_output` and `global_output`) and inputs to the model's outputs.
        """

    def build(self, config: EtcConfig, **options) -> tf.keras.Model:
        """Builds the Keras model: the encoder, with `head` on top.

        `options` are further arguments of `build_encoder`, such as
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
        """Returns the encoder inside."""
        return model.get_layer("etc_encoder")


def to_predictions(
    task_model: TaskModel,
    answers: Mapping[str, Any],
    texts: Sequence[Mapping[str, Any]],
) -> list[Any]:
    """Converts answers, `[batch, ...]`, to a prediction for each text."""
    arrays = {name: np.asarray(value) for name, value in answers.items()}
    return [
        task_model.to_prediction({x: y[i] for x, y in arrays.items()}, text)
        for i, text in enumerate(texts)
    ]
