"""ETC with what it learns from before any task."""

import tensorflow as tf

from etcmodel import tensor_utils
from etcmodel.feature_utils import sentence_masking
from etcmodel.layers import building
from etcmodel.layers import gathering
from etcmodel.models import config as config_lib
from etcmodel.models import contrastive_loss
from etcmodel.models import encoder as encoder_lib
from etcmodel.models import pretraining_heads


class EtcPretrainModel(tf.keras.Model):
    """An ETC encoder with a head for masked tokens and the CPC loss.

    ETC paper, section 3.5 and Appendix B. `feature_utils.sentence_masking`
    makes its inputs from texts of sentences. It is built when it is made.

    Attributes:
        encoder: the `StructuredEtcModel`, of "sentences".
        head: the `LanguageModelHead`.
        contrast: the `BatchContrastiveLoss`; None without CPC.

    Args:
        config: the encoder's.
        use_cpc: whether masked sentences are to be foreseen.
        max_sentence_length: how many tokens of a masked sentence are encoded.
        use_one_hot_embeddings: see `EtcModel`.
        name: name of the model.

    Raises:
        ValueError: the configuration is impossible, or the length is below 1.
    """

    def __init__(
        self,
        config: config_lib.EtcConfig,
        use_cpc: bool = True,
        max_sentence_length: int = 128,
        use_one_hot_embeddings: bool = False,
        name: str = "etc_pretrain",
    ):
        super().__init__(name=name)
        if max_sentence_length < 1:
            raise ValueError(
                f"max_sentence_length is {max_sentence_length}, expected at "
                "least 1"
            )
        self.max_sentence_length = max_sentence_length
        self.encoder = encoder_lib.StructuredEtcModel(
            config,
            structure="sentences",
            use_one_hot_embeddings=use_one_hot_embeddings,
            name="etc_document_bert",
        )
        building.build_once(self.encoder, None)
        self.head = pretraining_heads.make_language_model_head(
            config, layer_norm_epsilon=1e-12
        )
        self.contrast = None
        if use_cpc:
            self.contrast = contrastive_loss.BatchContrastiveLoss(
                config.initializer_range, name="batch_contrastive_loss"
            )
            building.build_once(self.contrast, (None, config.hidden_size))
        self.built = True

    def call(self, inputs, training=None):
        """Predicts masked tokens, and foresees masked sentences.

        Args:
            inputs: the inputs of a `build_encoder` model of "sentences", with
                masked `long_token_ids`; `masked_positions` `<int32>[batch,
                predictions]`; and for CPC `unmasked_token_ids` `<int32>[batch,
                long]`, `masked_sentences` `<int32>[batch, n]`, global tokens of
                masked sentences, and `masked_sentence_weights` `<float>[batch,
                n]`, 0 for those that only fill up.
            training: whether dropout is applied.

        Returns:
            `logits` `<float32>[batch, predictions, vocab_size]` and, with CPC,
            `losses`, `is_correct` and `chance` `<float32>[batch * n]` as of a
            `Contrast`, with `cpc_` in front.
        """
        long_output, global_output = self.encoder(inputs, training=training)
        outputs = {
            "logits": self.head(
                gathering.gather_positions(
                    long_output, inputs["masked_positions"]
                ),
                self.encoder.get_token_embedding_table(),
            )
        }
        if self.contrast is None:
            return outputs
        sentences = inputs["masked_sentences"]
        size = global_output.shape[-1]
        # [batch * n, hidden_size]
        foreseen = tf.reshape(
            gathering.gather_positions(global_output, sentences), [-1, size]
        )
        contrast = self.contrast(
            foreseen,
            self._encode_alone(inputs, training),
            tf.reshape(inputs["masked_sentence_weights"], [-1]),
        )
        return outputs | {
            f"cpc_{name}": x for name, x in contrast._asdict().items()
        }

    def _encode_alone(self, inputs, training):
        """Masked sentences by themselves, `<float>[batch * n, hidden_size]`.

        Each is the long input, and has one global token.
        """
        sentences = inputs["masked_sentences"]
        batch, number = tensor_utils.get_shape_list(sentences)
        positions, is_token = sentence_masking.take_sentences(
            inputs["sentence_ids"], sentences, self.max_sentence_length
        )
        # [batch, n * max_sentence_length]
        positions = tf.reshape(positions, [batch, -1])
        # [batch * n, max_sentence_length]
        shape = [batch * number, self.max_sentence_length]
        is_token = tf.reshape(is_token, shape)
        token_ids = tf.reshape(
            tf.gather(inputs["unmasked_token_ids"], positions, batch_dims=1),
            shape,
        )
        # The last token of each, after which there is padding.
        ends = is_token & ~tf.pad(is_token[:, 1:], [[0, 0], [0, 1]])
        # [batch * n, 1]
        global_token_ids = tf.reshape(
            tf.gather(inputs["global_token_ids"], sentences, batch_dims=1),
            [batch * number, 1],
        )
        _, global_output = self.encoder(
            {
                "long_token_ids": tf.where(is_token, token_ids, 0),
                "long_breakpoints": tf.cast(ends, tf.int32),
                "sentence_ids": tf.zeros_like(token_ids),
                "global_token_ids": global_token_ids,
                "global_breakpoints": tf.ones_like(global_token_ids),
            },
            training=training,
        )
        return global_output[:, 0]
