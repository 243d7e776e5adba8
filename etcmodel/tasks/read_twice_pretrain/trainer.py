"""The Model Garden task of ReadTwice's pre-training."""

from etcmodel.training import experiments  # First: it explains Keras 3.

# isort: split
import dataclasses
import functools

import tensorflow as tf
from official.core import config_definitions as cfg
from official.core import task_factory
from official.modeling.hyperparams import base_config

from etcmodel.errors import UserError
from etcmodel.feature_utils import entity_masking
from etcmodel.models import span_loss
from etcmodel.ops import gathering
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.tasks.read_twice_pretrain import features as features_lib
from etcmodel.tasks.read_twice_pretrain import model as model_lib
from etcmodel.tasks.read_twice_pretrain.task import TASK
from etcmodel.training import pretraining
from etcmodel.training import read_twice
from etcmodel.training import trainer


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


@task_factory.register_task_cls(PretrainTaskConfig)
class PretrainTask(pretraining.PretrainingTask):
    """Predicts masked tokens, and tells which memories are of one entity.

    Raises:
        UserError: nothing was noted about the records, they are those of
            another task, or a number is out of its range.
    """

    SPEC = TASK

    @property
    def _max_predictions(self) -> int:
        return (
            self.task_config.max_predictions_per_block
            or self.sizes.block_length // 4
        )

    def build_model(self) -> tf.keras.Model:
        """The encoder with its heads.

        Raises:
            UserError: the configuration is impossible, or does not fit the
                records.
        """
        params = self.task_config.model
        config = params.encoder.to_config(self.metadata["vocab_size"])
        read_twice.check_length(config, self.sizes.block_length)
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
            self.sizes.num_blocks_per_example,
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
            `<float32>[blocks, predictions]`, 1 for what is predicted,
            `is_entity`, the same for the tokens of mentions, and `is_multi`
            `<float32>[blocks, 1]`, 1 in documents of several segments.
        """
        sizes = self.sizes
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
        # Documents are whole in an example.
        is_multi = span_loss.get_multi_doc_mask(features["block_ids"])
        labels = {
            "label_ids": tf.gather(token_ids, positions, batch_dims=1),
            "weights": weights,
            "is_entity": weights * tf.cast(is_entity, tf.float32),
            "is_multi": is_multi[:, tf.newaxis],
        }
        features |= {
            "token_ids": masked.token_ids,
            "masked_positions": positions,
        }
        return features, labels

    @classmethod
    def factors(cls, params):
        """Masked tokens have the weight 1."""
        return {"mlm_loss": 1.0, "coreference_loss": params.coreference_weight}

    def metric_names(self):
        """Entities are told from other words, and long documents from short."""
        names = [
            f"{name}{suffix}"
            for name in (
                "mlm_loss",
                "mlm_accuracy",
                "entity_accuracy",
                "other_accuracy",
            )
            for suffix in ("", "_multi_blocks", "_single_blocks")
        ]
        if self.task_config.coreference_weight > 0:
            names.append("coreference_loss")
        return names

    def terms(self, labels, outputs):
        """See `PretrainingTask`."""
        terms = pretraining.masked_language_model(labels, outputs)
        correct, weights = terms["mlm_accuracy"]
        is_entity = labels["is_entity"]
        terms["entity_accuracy"] = pretraining.Term(correct, is_entity)
        terms["other_accuracy"] = pretraining.Term(correct, weights - is_entity)
        is_multi = labels["is_multi"]
        for name, (values, weights) in tuple(terms.items()):
            for suffix, counts in (
                ("multi", is_multi),
                ("single", 1 - is_multi),
            ):
                terms[f"{name}_{suffix}_blocks"] = pretraining.Term(
                    values, weights * counts
                )
        if "coreference_losses" in outputs:
            terms["coreference_loss"] = pretraining.Term(
                outputs["coreference_losses"], outputs["is_coreferent"]
            )
        return terms


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
    """Registers the experiments; see `training.trainer.register`.

    Args:
        spec: the task.
    """
    trainer.register(
        spec, lambda spec, **options: pretrain_experiment(**options)
    )
