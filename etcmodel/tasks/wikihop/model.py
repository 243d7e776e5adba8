"""WikiHop's model: the encoder and one logit for every candidate."""

import tensorflow as tf

from etcmodel.feature_utils import token_types
from etcmodel.models import EtcConfig
from etcmodel.models import build_encoder
from etcmodel.models.heads import GlobalChoiceHead


def build_wikihop_model(
    config: EtcConfig,
    long_length: int | None = None,
    global_length: int | None = None,
    add_final_layer: bool = True,
    candidate_ignore_hard_g2l: bool = True,
    query_ignore_hard_g2l: bool = True,
    use_links: bool = True,
    flat_sequence: bool = False,
    name: str = "wikihop",
    **encoder_options,
) -> tf.keras.Model:
    """Builds the model that chooses among the candidates of a WikiHop record.

    Source: ETC paper, section 4.1 and Appendix C.

    Args:
        config: sizes of the encoder and whether it uses the hard g2l mask.
        long_length: static length of the long inputs; None for any.
        global_length: static length of the global inputs; None for any.
        add_final_layer: whether a feed-forward block stands before the logits.
        candidate_ignore_hard_g2l: whether candidates attend to all long tokens
            though the hard g2l mask is on.
        query_ignore_hard_g2l: the same for the query's global tokens.
        use_links: whether candidates are linked with their mentions.
        flat_sequence: the paper's ablation "flat structure": no paragraphs.
        name: name of the model.
        **encoder_options: further arguments of `build_encoder`.

    Returns:
        A `tf.keras.Model` from a dict of the nine EtcFeatures, `<int32>[batch,
        long]` and `<int32>[batch, global]`, to a dict with `logits`,
        `<float32>[batch, global]`: candidate i is at global position i, and
        positions that are no candidate have -10,000.
    """
    exempt = []
    if candidate_ignore_hard_g2l:
        exempt.append(token_types.CANDIDATE_GLOBAL)
    if query_ignore_hard_g2l:
        exempt.append(token_types.QUESTION_GLOBAL)
    encoder = build_encoder(
        config,
        structure="paragraphs",
        long_length=long_length,
        global_length=global_length,
        use_links=use_links,
        flat_sequence=flat_sequence,
        ignore_hard_g2l_types=tuple(exempt),
        **encoder_options,
    )
    inputs = {
        key: tf.keras.Input(shape=value.shape[1:], dtype="int32", name=key)
        for key, value in encoder.input.items()
    }
    head = GlobalChoiceHead(
        choice_type_id=token_types.CANDIDATE_GLOBAL,
        intermediate_size=config.intermediate_size,
        hidden_act=config.hidden_act,
        hidden_dropout_prob=config.hidden_dropout_prob,
        initializer_range=config.initializer_range,
        add_final_layer=add_final_layer,
        name="global_output_layer",
    )
    logits = head(
        encoder(inputs)["global_output"], inputs["global_token_type_ids"]
    )
    return tf.keras.Model(inputs=inputs, outputs={"logits": logits}, name=name)


def example_losses(
    logits: tf.Tensor,
    labels: tf.Tensor,
    global_token_type_ids: tf.Tensor,
    label_smoothing: float = 0.0,
) -> tf.Tensor:
    """Cross entropy of every example over its candidates.

    With label smoothing s and n candidates, the right candidate should get
    probability `1 - s + s / n` and every other one `s / n`.

    Args:
        logits: `<float32>[batch, global]`, as from the model.
        labels: `<int>[batch]`, index of the right candidate.
        global_token_type_ids: `<int>[batch, global]`; tells the candidates.
        label_smoothing: from 0 to 1.

    Returns:
        `<float32>[batch]`.
    """
    # [batch, global]
    is_candidate = tf.cast(
        tf.equal(global_token_type_ids, token_types.CANDIDATE_GLOBAL),
        tf.float32,
    )
    # [batch, 1]
    num_candidates = tf.reduce_sum(is_candidate, axis=-1, keepdims=True)
    # [batch, global]
    targets = tf.one_hot(labels, tf.shape(logits)[1], dtype=tf.float32)
    targets = (1.0 - label_smoothing) * targets + (
        label_smoothing * is_candidate / tf.maximum(num_candidates, 1.0)
    )
    return tf.nn.softmax_cross_entropy_with_logits(
        labels=targets, logits=tf.cast(logits, tf.float32)
    )
