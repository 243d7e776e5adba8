"""The model of a task: its head, its losses, and its answers."""

import abc
import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import ClassVar

import numpy as np
import tensorflow as tf

from etcmodel.models import EtcConfig
from etcmodel.models import build_encoder
from etcmodel.models import json_config


class AnswerModel(abc.ABC):
    """A model, what it learns, and how an answer follows from its outputs.

    Everything is graph code but `reference` and `predict`. Training, evaluation
    and the exported model share all of it: `choose` runs where the model runs,
    on a TPU, too; `answer` needs strings.

    Attributes:
        METRICS: names of what `metrics` returns.
        GROUPS: whose official metrics `evaluate` tells apart, too: what is put
            behind their names -> whether a record of so many rows counts.
        model_options: the options of the model; see `TaskSpec.model_options`.
        options: the other ones; see `TaskSpec.options`.
    """

    METRICS: ClassVar[tuple[str, ...]] = ()
    GROUPS: ClassVar[Mapping[str, Callable[[int], bool]]] = {}

    def __init__(self, model_options: Any, options: Any):
        """Takes the options.

        Args:
            model_options: whatever has the fields of `TaskSpec.model_options`.
            options: whatever has the fields of `TaskSpec.options`.
        """
        self.model_options = model_options
        self.options = options

    @abc.abstractmethod
    def build(self, config: json_config.JsonConfig, **options):
        """Builds the Keras model.

        Args:
            config: sizes of the encoder.
            **options: arguments of what builds the encoder.

        Returns:
            A `tf.keras.Model` from a dict of tensors to a dict of tensors.
        """

    def labels(
        self, features: Mapping[str, tf.Tensor], fields: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """What `losses` needs of a batch; all that is stored, by default.

        Args:
            features: EtcFeatures.
            fields: labels and context, as `Schema.parse` reads them.

        Returns:
            name -> tensor, `[batch, ...]`.
        """
        del features
        return dict(fields)

    @abc.abstractmethod
    def losses(
        self,
        outputs: Mapping[str, tf.Tensor],
        labels: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """The losses of every example; the total is their plain mean.

        Args:
            outputs: the model's.
            labels: from `labels`.

        Returns:
            name -> `<float32>[batch]`.
        """

    @abc.abstractmethod
    def loss_names(self) -> tuple[str, ...]:
        """Names of what `losses` returns."""

    def metrics(
        self,
        outputs: Mapping[str, tf.Tensor],
        labels: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """What is averaged over examples beside the losses.

        Args:
            outputs: the model's.
            labels: from `labels`.

        Returns:
            name -> `<float32>[batch]`.
        """
        del outputs, labels
        return {}

    def choose(
        self,
        outputs: Mapping[str, tf.Tensor],
        features: Mapping[str, tf.Tensor],
        context: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """What of the outputs an answer depends on, in few numbers.

        It must not depend on the option that is tuned.

        Args:
            outputs: the model's.
            features: its inputs.
            context: the schema's context.

        Returns:
            name -> numbers, `[rows, ...]`; the outputs by default.
        """
        del features, context
        return dict(outputs)

    @abc.abstractmethod
    def answer(
        self,
        chosen: Mapping[str, tf.Tensor],
        owner: tf.Tensor,
        text: Mapping[str, Any],
    ) -> dict[str, tf.Tensor]:
        """The answers of records from what was chosen in their rows.

        Args:
            chosen: from `choose`, `[rows, ...]`.
            owner: the record of each row, `<int32>[rows]`.
            text: the schema's text, `[batch, ...]`.

        Returns:
            name -> tensor, `[batch, ...]`: the outputs of `serving_default`.
        """

    def reference(self, record: Any) -> Any:
        """What `predict` has to know of a record; anything that JSON can hold.

        Args:
            record: the record.

        Returns:
            Nothing, by default.
        """
        del record

    @abc.abstractmethod
    def predict(self, answers: Mapping[str, np.ndarray], reference: Any) -> Any:
        """A prediction as the dataset's official file and score take it.

        Args:
            answers: those of `answer` of one record.
            reference: what `reference` told of it.

        Returns:
            The prediction.
        """

    def with_option(self, name: str, value: Any) -> "AnswerModel":
        """The same with another value of an option.

        Args:
            name: the option.
            value: its value.

        Returns:
            A copy.
        """
        options = dataclasses.replace(self.options, **{name: value})
        return type(self)(self.model_options, options)


class TaskModel(AnswerModel):
    """What a task makes of the outputs of ETC's encoder."""

    @abc.abstractmethod
    def encoder_options(self) -> dict[str, Any]:
        """How the encoder makes masks and labels.

        Returns:
            Arguments of `build_encoder`, such as the `structure` of a task
            with links of its own.
        """

    @abc.abstractmethod
    def head(
        self, config: EtcConfig
    ) -> Callable[[Mapping, Mapping], dict[str, tf.Tensor]]:
        """Makes what stands on top of the encoder.

        Args:
            config: sizes of the encoder.

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
