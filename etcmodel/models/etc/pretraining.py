"""ETC with its pre-training heads: masked tokens (MLM) and CPC."""

import tensorflow as tf

from etcmodel.layers import keras_compat
from etcmodel.layers import normalization
from etcmodel.models import pretraining_heads
from etcmodel.models.etc import config as config_lib
from etcmodel.models.etc import contrastive_loss
from etcmodel.models.etc import structured_etc_model as encoder_lib
from etcmodel.ops import gathering


class EtcPretrainModel(tf.keras.Model):
    """An ETC encoder with a masked language model head and the CPC loss.

    CPC is contrastive predictive coding (ETC paper, section 3.5 and Appendix
    B). `tasks.pretrain.sentence_masking` makes the inputs from texts that are
    split into sentences. The constructor builds the model. The attribute `head`
    is None without MLM, and `contrast` is None without CPC.
    """

    def __init__(
        self,
        config: config_lib.EtcConfig,
        use_mlm: bool = True,
        use_cpc: bool = True,
        use_one_hot_embeddings: bool = False,
        use_one_hot_relative_embeddings: bool = False,
        name: str = "etc_pretrain",
    ):
        super().__init__(name=name)
        self.encoder = encoder_lib.StructuredEtcModel(
            config,
            structure="sentences",
            use_one_hot_embeddings=use_one_hot_embeddings,
            use_one_hot_relative_embeddings=use_one_hot_relative_embeddings,
            name="etc_document_bert",
        )
        keras_compat.build_once(self.encoder, None)
        self.head = self.contrast = None
        if use_mlm:
            self.head = pretraining_heads.make_language_model_head(
                config, layer_norm_epsilon=normalization.EPSILON
            )
        if use_cpc:
            self.contrast = contrastive_loss.BatchContrastiveLoss(
                config.initializer_range, name="batch_contrastive_loss"
            )
            keras_compat.build_once(self.contrast, (None, config.hidden_size))
        self.built = True

    def call(self, inputs, training=None):
        """Predicts masked tokens and masked sentences.

        `inputs` has the inputs of `build_encoder(config, "sentences")`, with
        masked `long_token_ids`. MLM also needs `masked_positions`
        `<int32>[batch, predictions]`. CPC also needs the original text of the
        masked sentences: the fields of `sentence_masking.TakenSentences`, each
        prefixed with `taken_`.

        Returns:
            A dict. With MLM, it has `logits`, `<float32>[batch, predictions,
            vocab_size]`. With CPC, it has the fields of a `Contrast`,
            `<float32>[batch * n]`, each prefixed with `cpc_`.
        """
        encoded = self.encoder(inputs, training=training)
        outputs = {}
        if self.head is not None:
            outputs["logits"] = self.head(
                gathering.gather_positions(
                    encoded.long_output, inputs["masked_positions"]
                ),
                self.encoder.get_token_embedding_table(),
            )
        if self.contrast is not None:
            sentences = inputs["taken_sentences"]
            contrast = self.contrast(
                _rows(
                    gathering.gather_positions(encoded.global_output, sentences)
                ),
                _rows(self._encode_alone(inputs, training)),
                tf.reshape(inputs["taken_weights"], [-1]),
            )
            outputs |= {f"cpc_{k}": x for k, x in contrast._asdict().items()}
        return outputs

    def _encode_alone(self, inputs, training):
        """Encodes masked sentences alone, `<float>[batch, n, hidden_size]`.

        The sentences are packed into one row, each with one global token. Each
        sentence attends only to itself.
        """
        owners = inputs["taken_owners"]
        # [batch, n]
        is_sentence = tf.cast(inputs["taken_weights"], owners.dtype)
        # [batch, m], true at the last token of each sentence
        is_end = tf.not_equal(
            owners, tf.pad(owners[:, 1:], [[0, 0], [0, 1]], constant_values=-1)
        ) & (tf.reduce_max(is_sentence, axis=1, keepdims=True) > 0)
        global_token_ids = is_sentence * tf.gather(
            inputs["global_token_ids"], inputs["taken_sentences"], batch_dims=1
        )
        return self.encoder(
            {
                "long_token_ids": inputs["taken_token_ids"],
                "long_breakpoints": tf.cast(is_end, tf.int32),
                "sentence_ids": owners,
                "global_token_ids": global_token_ids,
                "global_breakpoints": is_sentence,
            },
            training=training,
        ).global_output


def _rows(values):
    return tf.reshape(values, [-1, values.shape[-1]])
