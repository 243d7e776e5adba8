"""ReadTwice's pre-training: masked words and coreferent mentions."""

import tensorflow as tf

from etcmodel.feature_utils import entity_masking
from etcmodel.feature_utils.entity_masking import UNKNOWN_ENTITY
from etcmodel.layers import keras_compat
from etcmodel.models import ReadTwiceConfig
from etcmodel.models import ReadTwiceModel
from etcmodel.models import pretraining_heads
from etcmodel.models import span_loss
from etcmodel.models.read_twice import coreference_loss
from etcmodel.models.read_twice.memory_extraction import (
    check_cross_block_attention_mode,
)
from etcmodel.ops import gathering
from etcmodel.pipeline.task_model import PretrainingModel
from etcmodel.pipeline.task_model import Term
from etcmodel.pipeline.task_model import masked_language_model


class PretrainModel(tf.keras.Model):
    """ReadTwice with a head for masked tokens and the coreference loss.

    The constructor creates the variables. Source: ReadTwice paper, section 2.2
    and Appendix B.

    Args:
        use_coreference: whether to train memories of the same entity to be
            similar; needs a configuration with memories of entity mentions.
        cross_block_attention_mode: memories that a segment attends to; "block"
            is the paper's single-segment mode.

    Raises:
        ValueError: the configuration or the mode is invalid, or the coreference
            loss has no memories of entity mentions.
    """

    def __init__(
        self,
        config: ReadTwiceConfig,
        use_coreference: bool = True,
        cross_block_attention_mode: str = "doc",
        use_one_hot_embeddings: bool = False,
        name: str = "read_twice_pretrain",
    ):
        super().__init__(name=name)
        if use_coreference and config.summary_mode != "entity":
            raise ValueError(
                "The coreference loss needs memories of entity mentions, but "
                f"summary_mode is '{config.summary_mode}'. Set "
                "summary_mode='entity', or switch the loss off."
            )
        check_cross_block_attention_mode(cross_block_attention_mode)
        self.cross_block_attention_mode = cross_block_attention_mode
        self.encoder = ReadTwiceModel(
            config, use_one_hot_embeddings, name="read_twice"
        )
        keras_compat.build_once(self.encoder, None)
        self.head = pretraining_heads.make_language_model_head(config)
        self.coreference = None
        if use_coreference:
            self.coreference = coreference_loss.BatchCoreferenceResolutionLoss(
                name="batch_coreference_resolution_loss"
            )
            keras_compat.build_once(
                self.coreference, (None, config.hidden_size)
            )
        self.built = True

    def call(self, inputs, training=None):
        """Predicts masked tokens.

        Args:
            inputs: `masked_positions` `<int32>[batch, predictions]`, and inputs
                of `ReadTwiceModel`: `token_ids`, masked, `block_ids`,
                `block_pos`, `annotation_begins`, `annotation_ends` and
                `annotation_labels`.
            training: whether dropout is applied.

        Returns:
            `logits` `<float32>[batch, predictions, vocab_size]`. With a
            coreference loss, there are two further outputs, `<float32>[batch *
            mentions]`: `coreference_losses`, the loss of each memory, and
            `is_coreferent`, 1 for memories of a known entity, else 0.
        """
        inputs = dict(inputs)
        positions = inputs.pop("masked_positions")
        output = self.encoder(
            **inputs,
            cross_block_attention_mode=self.cross_block_attention_mode,
            training=training,
        )
        outputs = {
            "logits": self.head(
                gathering.gather_positions(
                    output.final_hidden_states, positions
                ),
                self.encoder.get_token_embedding_table(),
            )
        }
        if self.coreference is not None:
            local, everywhere = output.local_summary, output.global_summary
            outputs["coreference_losses"] = self.coreference(
                local.states, local.labels, everywhere.states, everywhere.labels
            )
            outputs["is_coreferent"] = tf.cast(
                local.labels > UNKNOWN_ENTITY, tf.float32
            )
        return outputs


class ReadTwicePretraining(PretrainingModel):
    """Predicts masked tokens, and finds memories of the same entity."""

    def build(self, config, **options):
        """Builds a `PretrainModel`."""
        return PretrainModel(
            config,
            use_coreference=self.options.coreference_weight > 0,
            cross_block_attention_mode=(
                self.model_options.cross_block_attention_mode
            ),
            **options,
        )

    def loss_factors(self):
        """Returns the loss weights; the masked-token loss has weight 1."""
        return {
            "mlm_loss": 1.0,
            "coreference_loss": self.options.coreference_weight,
        }

    def metric_names(self):
        """Names metrics of all, entity and other tokens, by document size."""
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
        if self.options.coreference_weight > 0:
            names.append("coreference_loss")
        return names

    def terms(self, outputs, labels):
        """Computes the losses and metrics of a batch."""
        terms = masked_language_model(outputs, labels)
        correct, weights = terms["mlm_accuracy"]
        is_entity = labels["is_entity"]
        terms["entity_accuracy"] = Term(correct, is_entity)
        terms["other_accuracy"] = Term(correct, weights - is_entity)
        is_multi = labels["is_multi"]
        for name, (values, weights) in tuple(terms.items()):
            for suffix, counts in (
                ("multi", is_multi),
                ("single", 1 - is_multi),
            ):
                terms[f"{name}_{suffix}_blocks"] = Term(
                    values, weights * counts
                )
        if "coreference_losses" in outputs:
            terms["coreference_loss"] = Term(
                outputs["coreference_losses"], outputs["is_coreferent"]
            )
        return terms

    def inputs_and_labels(self, inputs, fields, data):
        """Masks the segments of an example.

        In evaluation the masks depend only on the example.

        Returns:
            The inputs of `PretrainModel.call`, and labels: `label_ids`
            `<int32>[blocks, predictions]`, `weights` `<float32>[blocks,
            predictions]`, 1 for predicted tokens, `is_entity`, 1 for predicted
            tokens of mentions, and `is_multi` `<float32>[blocks, 1]`, 1 in
            documents of several segments.
        """
        options, length = self.options, data.sizes["block_length"]
        features = dict(inputs)
        token_ids = features["token_ids"]
        seed = data.seed
        if seed is None:
            # Sums may overflow, which is harmless.
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
            tf.range(length) > 0,
        )
        masked = entity_masking.mask_tokens(
            token_ids,
            fields["is_continuation"],
            is_text,
            features["annotation_begins"],
            features["annotation_ends"],
            features["annotation_labels"],
            mask_token_id=data.special_ids["mask"],
            seed=seed,
            mlm_fraction_to_mask=options.mlm_fraction_to_mask,
            mlm_entity_fraction_to_mask=(options.mlm_entity_fraction_to_mask),
            mlm_max_consecutive_masks=(options.mlm_max_consecutive_masks),
            mention_mask_mode=options.mention_mask_mode,
            block_ids=features["block_ids"],
        )
        # [blocks, predictions]
        positions, weights = gathering.true_positions(
            masked.is_target, options.max_predictions_per_block or length // 4
        )
        is_entity = tf.gather(masked.is_entity, positions, batch_dims=1)
        # Documents do not cross examples, so an example shows how many segments
        # they have.
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
