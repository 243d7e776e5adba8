"""The Model Garden task of ReadTwice's pre-training."""

from etcmodel.tasks.frame import experiments  # First: it explains Keras 3.

# isort: split
import dataclasses
import functools

import tensorflow as tf
from official.core import config_definitions as cfg
from official.core import task_factory
from official.modeling.hyperparams import base_config

from etcmodel import cross_replica
from etcmodel.errors import UserError
from etcmodel.feature_utils import entity_masking
from etcmodel.layers import gathering
from etcmodel.models import pretraining_heads
from etcmodel.models.losses import is_correct
from etcmodel.tasks import tfrecords
from etcmodel.tasks.frame import read_twice
from etcmodel.tasks.frame import trainer
from etcmodel.tasks.frame.spec import TaskSpec
from etcmodel.tasks.read_twice_pretrain import features as features_lib
from etcmodel.tasks.read_twice_pretrain import model as model_lib
from etcmodel.tasks.read_twice_pretrain.task import TASK

_EPSILON = 1e-5


@dataclasses.dataclass
class PretrainModelParams(base_config.Config):
    """The encoder, and how much of documents it sees.

    Attributes:
        encoder: the encoder.
        cross_block_attention_mode: whose memories a segment sees: "doc" for
            those of its document, "block" for its own alone.
    """

    encoder: read_twice.ReadTwiceParams = dataclasses.field(
        default_factory=read_twice.ReadTwiceParams
    )
    cross_block_attention_mode: str = "doc"


@dataclasses.dataclass
class PretrainTaskConfig(cfg.TaskConfig):
    """The task: model, data, masking and losses.

    Attributes:
        model: the model.
        train_data: TFRecords of `preprocess`; the batch size counts segments.
        validation_data: likewise.
        mlm_fraction_to_mask: share of the words outside of mentions that is
            masked.
        mlm_entity_fraction_to_mask: share of the mentions that is.
        mlm_max_consecutive_masks: greatest number of words masked in a row.
        mention_mask_mode: "whole_mention", "whole_entity" or
            "whole_entity_batch"; see `entity_masking.mask_tokens`.
        max_predictions_per_block: masked tokens of a segment that are
            predicted; 0 for a quarter of the segment.
        coreference_weight: weight of the coreference loss next to that of
            masked tokens, 0 for none. Both are divided by their sum.
    """

    model: PretrainModelParams = dataclasses.field(
        default_factory=PretrainModelParams
    )
    train_data: cfg.DataConfig = dataclasses.field(
        default_factory=lambda: cfg.DataConfig(
            is_training=True, global_batch_size=512, shuffle_buffer_size=100
        )
    )
    validation_data: cfg.DataConfig = dataclasses.field(
        default_factory=lambda: cfg.DataConfig(
            is_training=False, global_batch_size=512, drop_remainder=False
        )
    )
    mlm_fraction_to_mask: float = 0.15
    mlm_entity_fraction_to_mask: float = 0.25
    mlm_max_consecutive_masks: int = 5
    mention_mask_mode: str = "whole_mention"
    max_predictions_per_block: int = 0
    coreference_weight: float = 1.0


def _check_ranges(config: PretrainTaskConfig):
    """Raises a UserError if a number is out of its range."""
    for name in ("mlm_fraction_to_mask", "mlm_entity_fraction_to_mask"):
        value = getattr(config, name)
        if not 0 <= value <= 1:
            raise UserError(
                f"task.{name} is {value}, but must be a fraction: from 0 to 1."
            )
    if config.coreference_weight < 0:
        raise UserError(
            f"task.coreference_weight is {config.coreference_weight}, but must "
            "be at least 0."
        )


@task_factory.register_task_cls(PretrainTaskConfig)
class PretrainTask(experiments.RecordsTask):
    """Predicts masked tokens, and tells which memories are of one entity.

    Raises:
        UserError: nothing was noted about the records, they are those of
            another task, or a number is out of its range.
    """

    SPEC = TASK

    def __init__(self, params, logging_dir=None, name=None, metadata=None):
        _check_ranges(params)
        super().__init__(params, logging_dir, name, metadata)
        if not self.metadata:
            raise UserError(
                f"There is no {tfrecords.METADATA_FILE} beside the records, so "
                "the sizes of their segments are not known. Keep it where "
                "`preprocess` wrote it."
            )
        self._sizes = features_lib.PretrainFeatureConfig(
            **self.metadata["features"]
        )

    @property
    def _max_predictions(self) -> int:
        return (
            self.task_config.max_predictions_per_block
            or self._sizes.block_length // 4
        )

    def build_model(self) -> tf.keras.Model:
        """The encoder with its heads.

        Raises:
            UserError: the configuration is impossible, or does not fit the
                records.
        """
        params = self.task_config.model
        config = params.encoder.to_read_twice_config(
            self.metadata["vocab_size"]
        )
        length = self._sizes.block_length
        if length > config.max_seq_length:
            raise UserError(
                f"The records have segments of {length} tokens, but "
                f"task.model.encoder.max_seq_length is {config.max_seq_length}."
            )
        try:
            model = model_lib.PretrainModel(
                config,
                use_coreference=self.task_config.coreference_weight > 0,
                cross_block_attention_mode=params.cross_block_attention_mode,
                use_one_hot_embeddings=params.encoder.use_one_hot_embeddings,
            )
        except ValueError as error:
            raise UserError(f"task.model: {error}") from error
        model.checkpoint_items = {"encoder": model.encoder}
        return model

    def build_inputs(self, params, input_context=None) -> tf.data.Dataset:
        """The batches of a `DataConfig`; see `read_twice.read_blocks`."""
        return read_twice.read_blocks(
            params,
            functools.partial(self.parse, is_training=params.is_training),
            self._sizes.num_blocks_per_example,
            input_context,
        )

    def parse(self, serialized: tf.Tensor, is_training: bool):
        """Reads an example and masks tokens; graph code.

        Args:
            serialized: `<string>[]`.
            is_training: whether masks are new each time; otherwise they follow
                from the example.

        Returns:
            A pair of the model's inputs (see `PretrainModel.call`) and of the
            labels: `label_ids` `<int32>[blocks, predictions]`, `weights`
            `<float32>[blocks, predictions]`, 1 for what is predicted, and
            `is_entity`, the same for the tokens of mentions.
        """
        sizes = self._sizes
        shapes = {name: [] for name in features_lib.BLOCK_FEATURES}
        shapes |= {
            name: [sizes.block_length] for name in features_lib.TOKEN_FEATURES
        }
        shapes |= {
            name: [sizes.max_num_annotations]
            for name in features_lib.ANNOTATION_FEATURES
        }
        features = tf.io.parse_single_example(
            serialized,
            {
                name: tf.io.FixedLenFeature(
                    [sizes.num_blocks_per_example, *shape], tf.int64
                )
                for name, shape in shapes.items()
            },
        )
        features = {name: tf.cast(x, tf.int32) for name, x in features.items()}
        token_ids = features["token_ids"]
        if is_training:
            seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
        else:
            # Sums may overflow, which does no harm.
            seed = tf.stack(
                [
                    tf.reduce_sum(features["block_ids"]),
                    tf.reduce_sum(
                        token_ids * (1 + features["block_pos"])[:, None]
                    ),
                ]
            )
        # [blocks, length]; the first token is the CLS.
        is_text = tf.logical_and(
            tf.not_equal(token_ids, 0),
            tf.range(sizes.block_length) > 0,
        )
        masked = entity_masking.mask_tokens(
            token_ids,
            features.pop("is_continuation"),
            is_text,
            features["annotation_begins"],
            features["annotation_ends"],
            features["annotation_labels"],
            mask_token_id=self.metadata["special_ids"]["mask"],
            seed=seed,
            mlm_fraction_to_mask=self.task_config.mlm_fraction_to_mask,
            mlm_entity_fraction_to_mask=(
                self.task_config.mlm_entity_fraction_to_mask
            ),
            mlm_max_consecutive_masks=(
                self.task_config.mlm_max_consecutive_masks
            ),
            mention_mask_mode=self.task_config.mention_mask_mode,
            block_ids=features["block_ids"],
        )
        # [blocks, predictions]
        positions, weights = gathering.true_positions(
            masked.is_target, self._max_predictions
        )
        is_entity = tf.gather(masked.is_entity, positions, batch_dims=1)
        labels = {
            "label_ids": tf.gather(token_ids, positions, batch_dims=1),
            "weights": weights,
            "is_entity": weights * tf.cast(is_entity, tf.float32),
        }
        features |= {
            "token_ids": masked.token_ids,
            "masked_positions": positions,
        }
        return features, labels

    def build_losses(self, labels, model_outputs, aux_losses=None) -> tf.Tensor:
        """The loss of a replica; its mean over all replicas is the batch's.

        Args:
            labels: from `parse`.
            model_outputs: the model's outputs.
            aux_losses: what the layers add.

        Returns:
            `<float32>[]`.
        """
        terms = self._loss_terms(labels, model_outputs)
        weight = self.task_config.coreference_weight
        total = 0.0
        for name, (values, weights) in terms.items():
            # The sums of all replicas: how tokens are dealt out to them must
            # not matter.
            share = tf.reduce_sum(values * weights) / (
                cross_replica.all_sum(tf.reduce_sum(weights)) + _EPSILON
            )
            factor = weight if name == "coreference_loss" else 1.0
            total += factor / (1.0 + weight) * share
        total *= cross_replica.num_replicas()
        return tf.add_n([total, *(aux_losses or [])])

    def _loss_terms(self, labels, outputs):
        """Name -> values and their weights."""
        terms = {
            "mlm_loss": (
                pretraining_heads.masked_lm_losses(
                    outputs["logits"], labels["label_ids"]
                ),
                labels["weights"],
            )
        }
        if "coreference_losses" in outputs:
            terms["coreference_loss"] = (
                outputs["coreference_losses"],
                outputs["is_coreferent"],
            )
        return terms

    def build_metrics(self, training: bool = True):
        """Exact means over predicted tokens, and over memories."""
        del training
        names = ["mlm_loss", "mlm_accuracy", "entity_accuracy"]
        names.append("other_accuracy")
        if self.task_config.coreference_weight > 0:
            names.append("coreference_loss")
        return [tf.keras.metrics.Mean(name=name) for name in names]

    def process_metrics(self, metrics, labels, model_outputs, **kwargs):
        """Adds a batch to the metrics."""
        correct = is_correct(model_outputs["logits"], labels["label_ids"])
        weights, is_entity = labels["weights"], labels["is_entity"]
        values = {
            **self._loss_terms(labels, model_outputs),
            "mlm_accuracy": (correct, weights),
            "entity_accuracy": (correct, is_entity),
            "other_accuracy": (correct, weights - is_entity),
        }
        for metric in metrics:
            value, weight = values[metric.name]
            metric.update_state(value, sample_weight=weight)


def pretrain_experiment(
    preset: str = "base",
    cross_block_attention_mode: str = "doc",
    coreference_weight: float = 1.0,
    optimizer: str = "lamb",
    learning_rate: float = 1e-4,
    train_steps: int = 1_000_000,
    warmup_steps: int = 10_000,
) -> cfg.ExperimentConfig:
    """An experiment with the paper's hyperparameters (section 4.1).

    Of the optimizer the paper tells its name and the number of steps; its other
    values are the original code's.

    Args:
        preset: name of a `ReadTwiceConfig` preset.
        cross_block_attention_mode: whose memories a segment sees.
        coreference_weight: see `PretrainTaskConfig`.
        optimizer: `"adamw"` or `"lamb"`.
        learning_rate: the highest.
        train_steps: number of steps.
        warmup_steps: how many of them are warm-up.

    Returns:
        The configuration; the paths of the data are still to be given.
    """
    task = PretrainTaskConfig(coreference_weight=coreference_weight)
    task.model.encoder.preset = preset
    task.model.cross_block_attention_mode = cross_block_attention_mode
    return cfg.ExperimentConfig(
        task=task,
        trainer=experiments.make_trainer(
            train_steps=train_steps,
            warmup_steps=warmup_steps,
            learning_rate=learning_rate,
            optimizer=optimizer,
            weight_decay=0.01,
            validation_interval=10_000,
            best_metric="mlm_accuracy",
        ),
    )


def register(spec: TaskSpec) -> None:
    """Registers the experiments; see `frame.trainer.register`.

    Args:
        spec: the task.
    """
    trainer.register(
        spec, lambda spec, **options: pretrain_experiment(**options)
    )
