"""ETC's pre-training on words and sentences (section 3.5, Appendix B)."""

import math

import tensorflow as tf

from etcmodel.feature_utils import random_masks
from etcmodel.models.etc.pretraining import EtcPretrainModel
from etcmodel.ops import gathering
from etcmodel.pipeline.task_model import PretrainingModel
from etcmodel.pipeline.task_model import Term
from etcmodel.pipeline.task_model import masked_language_model
from etcmodel.tasks.pretrain import sentence_masking


def lay_out(
    stored: dict[str, tf.RaggedTensor],
    long_length: int,
    global_length: int,
    sentence_token_id: int,
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Lays stored texts out as inputs of the encoder; graph code.

    Example: one example with room for 6 tokens and 4 sentences has two texts.
    The first has the sentences `5 6` and `7`, the second the sentence `8 9`:

        long_token_ids    5 6 7 8 9  0      global_token_ids    1 1 1 0
        sentence_ids      0 0 1 2 2 -1      global_breakpoints  0 1 1 0
        long_breakpoints  0 0 1 0 1  0

    Args:
        stored: fields of the schema, `<int32>[batch, (values)]`.
        long_length: length of the long input.
        global_length: length of the global input.
        sentence_token_id: id of the global token of every sentence.

    Returns:
        The inputs, `<int32>[batch, long or global length]`; and whether each
        long token continues a word, `<int32>[batch, long_length]`.
    """
    tokens = stored["token_ids"]
    lengths = stored["sentence_lengths"]
    # The batch is flattened; 1 marks the end of each text.
    # [sentences]
    is_last = _marks(
        tf.cumsum(stored["text_lengths"].values) - 1,
        tf.ones_like(stored["text_lengths"].values),
        lengths.values,
    )
    # [tokens]
    is_end = _marks(tf.cumsum(lengths.values) - 1, is_last, tokens.values)
    number = tf.cast(tf.ragged.range(lengths.row_lengths()).values, tf.int32)
    owner = tf.repeat(number, lengths.values)

    def dense(like, values, length, padding=0):
        """Pads values: `<int32>[batch, length]`."""
        return like.with_values(values).to_tensor(padding, shape=[None, length])

    return {
        "long_token_ids": dense(tokens, tokens.values, long_length),
        "sentence_ids": dense(tokens, owner, long_length, -1),
        "long_breakpoints": dense(tokens, is_end, long_length),
        "global_token_ids": dense(
            lengths,
            tf.fill(tf.shape(number), sentence_token_id),
            global_length,
        ),
        "global_breakpoints": dense(lengths, is_last, global_length),
    }, dense(tokens, stored["is_continuation"].values, long_length)


def _marks(places, values, like):
    """Scatters values into zeros of the shape of `like`."""
    return tf.tensor_scatter_nd_max(
        tf.zeros_like(like), places[:, tf.newaxis], values
    )


class EtcPretraining(PretrainingModel):
    """Predicts masked tokens, and masked sentences from their contexts."""

    def build(self, config, **options):
        """Builds an `EtcPretrainModel`."""
        # Texts have no question, even if the encoder's configuration allows for
        # one.
        config.question_words_in_global = False
        return EtcPretrainModel(
            config,
            use_mlm=self.options.mlm_weight > 0,
            use_cpc=self.options.cpc_weight > 0,
            **options,
        )

    def loss_factors(self):
        """Returns the loss weights, by default the paper's 0.8 and 0.2."""
        return {
            "mlm_loss": self.options.mlm_weight,
            "cpc_loss": self.options.cpc_weight,
        }

    def metric_names(self):
        """Returns metric names; `cpc_chance` is the accuracy of guessing."""
        names = []
        if self.options.mlm_weight > 0:
            names += ["mlm_loss", "mlm_accuracy"]
        if self.options.cpc_weight > 0:
            names += ["cpc_loss", "cpc_accuracy", "cpc_chance"]
        return names

    def terms(self, outputs, labels):
        """Computes the losses and metrics of a batch."""
        terms = {}
        if "logits" in outputs:
            terms |= masked_language_model(outputs, labels)
        if "cpc_losses" in outputs:
            # [batch * n]
            weights = tf.reshape(labels["sentence_weights"], [-1])
            terms |= {
                name: Term(outputs[key], weights)
                for name, key in (
                    ("cpc_loss", "cpc_losses"),
                    ("cpc_accuracy", "cpc_is_correct"),
                    ("cpc_chance", "cpc_chance"),
                )
            }
        return terms

    def inputs_and_labels(self, inputs, fields, data):
        """Masks sentences and words of a batch.

        In evaluation the masks depend only on the example.

        Returns:
            The inputs of `EtcPretrainModel.call`, and labels: `label_ids`
            `<int32>[batch, predictions]`, `weights`
            `<float32>[batch, predictions]`, 1 for predicted tokens, and
            `sentence_weights` `<float32>[batch, n]`.
        """
        del fields
        options, sizes = self.options, data.sizes
        features, is_continuation = lay_out(
            inputs,
            sizes["long_length"],
            sizes["global_length"],
            data.special_ids["sentence"],
        )
        token_ids = features["long_token_ids"]
        cpc_fraction = (
            options.cpc_fraction_to_mask if options.cpc_weight > 0 else 0.0
        )
        masked = self._mask(features, is_continuation, cpc_fraction, data)
        features["long_token_ids"] = masked.token_ids
        labels = {}
        if options.mlm_weight > 0:
            # [batch, predictions]
            positions, weights = gathering.true_positions(
                masked.is_target,
                options.max_predictions or -(-sizes["long_length"] // 4),
            )
            features["masked_positions"] = positions
            labels |= {
                "label_ids": tf.gather(token_ids, positions, batch_dims=1),
                "weights": weights,
            }
        if options.cpc_weight > 0:
            taken = sentence_masking.take_sentences(
                token_ids,
                features["sentence_ids"],
                masked.is_masked,
                max_sentences=math.floor(
                    sizes["global_length"] * cpc_fraction + 0.5
                ),
                # Room for twice the masked share of the tokens.
                max_tokens=math.ceil(2 * cpc_fraction * sizes["long_length"]),
            )
            features |= {f"taken_{k}": x for k, x in taken._asdict().items()}
            labels["sentence_weights"] = taken.weights
        return features, labels

    def _mask(self, features, is_continuation, cpc_fraction, data):
        """Masks each row independently of its batch."""
        token_ids = features["long_token_ids"]
        if data.seed is not None:
            # [batch, 2]
            seeds = random_masks.random_ints(
                [tf.shape(token_ids)[0], 2], data.seed, None, None
            )
        else:
            # Seeds are computed from the text. Sums may overflow, which is
            # harmless.
            seeds = tf.stack(
                [
                    tf.reduce_sum(token_ids, axis=1),
                    tf.reduce_sum(
                        token_ids * tf.range(data.sizes["long_length"]), axis=1
                    ),
                ],
                axis=1,
            )
        ids = data.special_ids
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
                vocab_size=data.vocab_size,
                seed=seed,
                cpc_fraction=cpc_fraction,
                mlm_fraction=self.options.mlm_fraction_to_mask,
            )
            return sentence_masking.MaskedSentences(*(x[0] for x in masked))

        length = [data.sizes["long_length"]]
        return tf.map_fn(
            mask_row,
            (seeds, rows),
            fn_output_signature=sentence_masking.MaskedSentences(
                tf.TensorSpec(length, tf.int32),
                tf.TensorSpec(length, tf.bool),
                tf.TensorSpec([data.sizes["global_length"]], tf.bool),
            ),
        )
