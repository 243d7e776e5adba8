"""Small ReadTwice models, and a batch for them."""

import numpy as np
import tensorflow as tf

from etcmodel.models.read_twice import read_twice_model
from etcmodel.models.read_twice.config import ReadTwiceConfig

LENGTH, VOCAB = 6, 40
CROSS = dict(
    second_read_type="cross_attend_once",
    second_read_num_new_layers=1,
    second_read_num_cross_attention_heads=2,
)
# Options of the paper's model, with small sizes.
PAPER = CROSS | dict(
    second_read_num_cross_attention_heads=0,
    second_read_enable_default_side_input=True,
    cross_attention_pos_emb_mode="simple_relative",
    cross_attention_pos_emb_size=1,
    use_sparse_memory_attention=True,
    summary_mode="entity",
)
SECOND_READS = {
    "from_scratch": dict(second_read_type="from_scratch"),
    "new_layers": dict(
        second_read_type="new_layers",
        second_read_num_new_layers=1,
        share_kv_projections=True,
    ),
    "cross_attend_once": CROSS,
    "paper": PAPER,
    "new_layers_cross_attention": dict(
        second_read_type="new_layers_cross_attention",
        second_read_num_new_layers=1,
        second_read_num_cross_attention_heads=2,
        second_read_enable_default_side_input=True,
    ),
}
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def make_config(**kwargs):
    arguments = dict(
        vocab_size=VOCAB,
        max_seq_length=LENGTH,
        max_num_blocks_per_document=4,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
    )
    return ReadTwiceConfig(**(arguments | kwargs))


def make_model(seed=0, dtype=None, **kwargs):
    """Builds a model with random weights, except in normalizations."""
    model = read_twice_model.ReadTwiceModel(make_config(**kwargs), dtype=dtype)
    model.build(None)
    rng = np.random.default_rng(seed)
    model.set_weights(
        [w + 0.4 * rng.normal(size=w.shape) for w in model.get_weights()]
    )
    return model


def make_batch(seed=1):
    """Returns three segments of document 1, one of document 2, and padding."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, VOCAB, size=[5, LENGTH])
    ids[2, 4:] = 0
    ids[4] = 0
    batch = dict(
        token_ids=ids,
        block_ids=[1, 1, 1, 2, 0],
        block_pos=[1, 2, 3, 1, 0],
        annotation_begins=[[1, 4], [0, 0], [2, 3], [3, 0], [0, 0]],
        annotation_ends=[[2, 4], [1, 0], [2, 3], [5, 0], [0, 0]],
        annotation_labels=[[7, 1], [7, 0], [3, 9], [7, 0], [0, 0]],
    )
    return {name: tf.constant(x, tf.int32) for name, x in batch.items()}
