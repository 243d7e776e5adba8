"""The Model Garden task of ETC's pre-training."""

from etcmodel.training import experiments  # First: it explains Keras 3.

# isort: split
import dataclasses
import functools
import math

import tensorflow as tf
from official.core import config_definitions as cfg
from official.core import task_factory
from official.modeling.hyperparams import base_config

from etcmodel.errors import UserError
from etcmodel.feature_utils import sentence_masking
from etcmodel.models.etc import pretraining as pretraining_lib
from etcmodel.ops import gathering
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.tasks.pretrain import parsing
from etcmodel.tasks.pretrain.task import TASK
from etcmodel.training import pretraining
from etcmodel.training import trainer


@dataclasses.dataclass
class PretrainModelParams(base_config.Config):
    """The model.

    Attributes:
        encoder: the encoder.
    """

    encoder: experiments.EncoderParams = dataclasses.field(
        default_factory=experiments.EncoderParams
    )


@dataclasses.dataclass
class PretrainTaskConfig(cfg.TaskConfig):
    """The task: model, data, masking and losses.

    Attributes:
        model: the model.
        train_data: TFRecords of `preprocess`.
        validation_data: likewise.
        cpc_fraction_to_mask: share of the sentences that is masked for CPC.
        mlm_fraction_to_mask: share of the other words that is masked for MLM.
        max_predictions: masked tokens of an example that are predicted; 0 for
            a quarter of its length.
        max_sentence_tokens: tokens of an example's masked sentences that are
            encoded by themselves; 0 for twice the share that is masked.
        mlm_weight: weight of the loss of masked tokens, 0 for none.
        cpc_weight: that of masked sentences. Both are divided by their sum.
    """

    model: PretrainModelParams = dataclasses.field(
        default_factory=PretrainModelParams
    )
    train_data: cfg.DataConfig = dataclasses.field(
        default_factory=lambda: cfg.DataConfig(
            is_training=True, global_batch_size=512, shuffle_buffer_size=1000
        )
    )
    validation_data: cfg.DataConfig = dataclasses.field(
        default_factory=lambda: cfg.DataConfig(
            is_training=False, global_batch_size=512, drop_remainder=False
        )
    )
    cpc_fraction_to_mask: float = 0.1
    mlm_fraction_to_mask: float = 0.15
    max_predictions: int = 0
    max_sentence_tokens: int = 0
    mlm_weight: float = 0.8
    cpc_weight: float = 0.2


@task_factory.register_task_cls(PretrainTaskConfig)
class PretrainTask(pretraining.PretrainingTask):
    """Predicts masked tokens, and foresees masked sentences.

    Raises:
        UserError: nothing was noted about the records, they are those of
            another task, or a number is out of its range.
    """

    SPEC = TASK

    @classmethod
    def factors(cls, params):
        """The paper's 0.8 and 0.2, by default."""
        return {"mlm_loss": params.mlm_weight, "cpc_loss": params.cpc_weight}

    def build_model(self) -> tf.keras.Model:
        """The encoder with its heads.

        Raises:
            UserError: the configuration is impossible, or does not fit the
                records.
        """
        encoder = self.task_config.model.encoder
        config = encoder.to_config(self.metadata["vocab_size"])
        # Texts have no question; what is fine-tuned then may have one.
        config.question_words_in_global = False
        try:
            model = pretraining_lib.EtcPretrainModel(
                config,
                use_mlm=self.task_config.mlm_weight > 0,
                use_cpc=self.task_config.cpc_weight > 0,
                use_one_hot_embeddings=encoder.use_one_hot_embeddings,
            )
        except ValueError as error:
            raise UserError(f"task.model: {error}") from error
        model.checkpoint_items = {"encoder": model.encoder}
        return model

    def build_inputs(self, params, input_context=None) -> tf.data.Dataset:
        """The batches of a `DataConfig`; see `experiments.read_batches`."""
        return experiments.read_batches(
            params,
            functools.partial(self.parse, is_training=params.is_training),
            input_context,
        )

    def parse(self, serialized: tf.Tensor, is_training: bool):
        """Reads a batch of examples and masks it; graph code.

        Args:
            serialized: `<string>[batch]`.
            is_training: whether masks are new each time; otherwise they follow
                from the example.

        Returns:
            A pair of the model's inputs (see `EtcPretrainModel.call`) and of
            the labels: `label_ids` `<int32>[batch, predictions]`, `weights`
            `<float32>[batch, predictions]`, 1 for what is predicted, and
            `sentence_weights` `<float32>[batch * n]`.
        """
        config, sizes = self.task_config, self.sizes
        features, is_continuation = parsing.parse(
            serialized,
            sizes.long_length,
            sizes.global_length,
            self.metadata["special_ids"]["sentence"],
        )
        token_ids = features["long_token_ids"]
        cpc_fraction = (
            config.cpc_fraction_to_mask if config.cpc_weight > 0 else 0.0
        )
        masked = self._mask(
            features, is_continuation, cpc_fraction, is_training
        )
        features["long_token_ids"] = masked.token_ids
        labels = {}
        if config.mlm_weight > 0:
            # [batch, predictions]
            positions, weights = gathering.true_positions(
                masked.is_target,
                config.max_predictions or -(-sizes.long_length // 4),
            )
            features["masked_positions"] = positions
            labels |= {
                "label_ids": tf.gather(token_ids, positions, batch_dims=1),
                "weights": weights,
            }
        if config.cpc_weight > 0:
            taken = sentence_masking.take_sentences(
                token_ids,
                features["sentence_ids"],
                masked.is_masked,
                max_sentences=math.floor(
                    sizes.global_length * cpc_fraction + 0.5
                ),
                max_tokens=config.max_sentence_tokens
                or math.ceil(2 * cpc_fraction * sizes.long_length),
            )
            features |= {f"taken_{k}": x for k, x in taken._asdict().items()}
            labels["sentence_weights"] = taken.weights
        return features, labels

    def _mask(self, features, is_continuation, cpc_fraction, is_training):
        """Masks each row by itself, whatever batch it is in."""
        token_ids = features["long_token_ids"]
        if is_training:
            # [batch, 2]
            seeds = tf.random.uniform(
                [tf.shape(token_ids)[0], 2], maxval=2**31 - 1, dtype=tf.int32
            )
        else:
            # Sums may overflow, which does no harm.
            seeds = tf.stack(
                [
                    tf.reduce_sum(token_ids, axis=1),
                    tf.reduce_sum(
                        token_ids * tf.range(self.sizes.long_length), axis=1
                    ),
                ],
                axis=1,
            )
        ids = self.metadata["special_ids"]
        rows = {
            "token_ids": token_ids,
            "is_continuation": is_continuation,
            "is_text": features["sentence_ids"] >= 0,
            "sentence_ids": features["sentence_ids"],
            "is_sentence": features["global_token_ids"] > 0,
        }

        def mask_row(values):
            seed, row = values
            masked = sentence_masking.mask_sentences(
                **{name: x[tf.newaxis] for name, x in row.items()},
                mask_token_id=ids["mask"],
                sentence_mask_token_id=ids["cpc_mask"],
                vocab_size=self.metadata["vocab_size"],
                seed=seed,
                cpc_fraction=cpc_fraction,
                mlm_fraction=self.task_config.mlm_fraction_to_mask,
            )
            return sentence_masking.MaskedSentences(*(x[0] for x in masked))

        length = [self.sizes.long_length]
        return tf.map_fn(
            mask_row,
            (seeds, rows),
            fn_output_signature=sentence_masking.MaskedSentences(
                tf.TensorSpec(length, tf.int32),
                tf.TensorSpec(length, tf.bool),
                tf.TensorSpec([self.sizes.global_length], tf.bool),
            ),
        )

    def metric_names(self):
        """Those of what is learned; how often a blind guess is right, too."""
        config, names = self.task_config, []
        if config.mlm_weight > 0:
            names += ["mlm_loss", "mlm_accuracy"]
        if config.cpc_weight > 0:
            names += ["cpc_loss", "cpc_accuracy", "cpc_chance"]
        return names

    def terms(self, labels, outputs):
        """See `PretrainingTask`."""
        terms = {}
        if "logits" in outputs:
            terms |= pretraining.masked_language_model(labels, outputs)
        if "cpc_losses" in outputs:
            # [batch * n]
            weights = tf.reshape(labels["sentence_weights"], [-1])
            terms |= {
                name: pretraining.Term(outputs[key], weights)
                for name, key in (
                    ("cpc_loss", "cpc_losses"),
                    ("cpc_accuracy", "cpc_is_correct"),
                    ("cpc_chance", "cpc_chance"),
                )
            }
        return terms


def pretrain_experiment(
    preset: str = "base",
    mlm_weight: float = 0.8,
    cpc_weight: float = 0.2,
    batch_size: int = 512,
    learning_rate: float = math.sqrt(8) * 1e-3,
    train_steps: int = 63_000,
    warmup_steps: int = 6_300,
    optimizer: str = "lamb",
    grad_checkpointing_period: int | None = None,
) -> cfg.ExperimentConfig:
    """An experiment with the paper's hyperparameters (section 4.1, App. C).

    The paper does not tell the warm-up: it is a tenth of the steps.

    Args:
        preset: name of an `EtcConfig` preset.
        mlm_weight: see `PretrainTaskConfig`.
        cpc_weight: likewise.
        batch_size: examples of 4,096 tokens a step, over all replicas.
        learning_rate: the highest.
        train_steps: number of steps.
        warmup_steps: how many of them are warm-up.
        optimizer: `"adamw"` or `"lamb"`.
        grad_checkpointing_period: see `EtcConfig`.

    Returns:
        The configuration; the paths of the data are still to be given.
    """
    task = PretrainTaskConfig(mlm_weight=mlm_weight, cpc_weight=cpc_weight)
    for data in (task.train_data, task.validation_data):
        data.global_batch_size = batch_size
    encoder = task.model.encoder
    encoder.preset = preset
    # The paper's default (section 4.2): global tokens sum their sentences up.
    encoder.use_hard_g2l_mask = True
    encoder.grad_checkpointing_period = grad_checkpointing_period
    return cfg.ExperimentConfig(
        task=task,
        trainer=experiments.make_trainer(
            train_steps=train_steps,
            warmup_steps=warmup_steps,
            learning_rate=learning_rate,
            optimizer=optimizer,
            weight_decay=0.01,
            validation_interval=1_000,
            best_metric="mlm_accuracy" if mlm_weight else "cpc_accuracy",
        ),
    )


def register(spec: TaskSpec) -> None:
    """Registers the experiments; see `training.trainer.register`.

    Args:
        spec: the task.
    """
    trainer.register(
        spec, lambda spec, **options: pretrain_experiment(**options)
    )
