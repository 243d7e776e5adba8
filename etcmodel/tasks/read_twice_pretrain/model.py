"""The encoder with what it learns from in pre-training."""

import tensorflow as tf

from etcmodel.feature_utils.entity_masking import UNKNOWN_ENTITY
from etcmodel.layers import keras_compat
from etcmodel.models import ReadTwiceConfig
from etcmodel.models import ReadTwiceModel
from etcmodel.models import pretraining_heads
from etcmodel.models.read_twice import coreference_loss
from etcmodel.models.read_twice.memory_extraction import (
    check_cross_block_attention_mode,
)
from etcmodel.ops import gathering


class PretrainModel(tf.keras.Model):
    """ReadTwice with a head for masked tokens and the coreference loss.

    ReadTwice paper, section 2.2 and Appendix B. It is built when it is made.

    Attributes:
        encoder: the `ReadTwiceModel`.
        head: the `LanguageModelHead`.
        coreference: the `BatchCoreferenceResolutionLoss`, or None.

    Args:
        config: the encoder's.
        use_coreference: whether there is a loss for memories of the same
            entity; only memories of entity mentions can have one.
        cross_block_attention_mode: whose memories a segment sees; "block" is
            the paper's single-segment mode.
        use_one_hot_embeddings: see `ReadTwiceModel`.
        name: name of the model.

    Raises:
        ValueError: the configuration or the mode is impossible, or there are no
            memories of entity mentions but is to be a coreference loss.
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
                "the coreference loss needs memories of entity mentions, but "
                f"summary_mode is '{config.summary_mode}'; switch it off"
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
            inputs: `token_ids` `<int32>[batch, length]`, masked; `block_ids`,
                `block_pos`, `annotation_begins`, `annotation_ends` and
                `annotation_labels` as for `ReadTwiceModel`; and
                `masked_positions` `<int32>[batch, predictions]`.
            training: whether dropout is applied.

        Returns:
            `logits` `<float32>[batch, predictions, vocab_size]` and, with a
            coreference loss, `coreference_losses` and `is_coreferent`,
            `<float32>[batch * mentions]`: the loss of each memory, and 1 for
            those that have one, being of a known entity.
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
