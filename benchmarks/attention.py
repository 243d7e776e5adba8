r"""How long the attention of the long queries takes, and how much memory.

Measures queries, keys and values that are there already: local attention with
global side keys, masks and labels under one softmax, forward or with all
gradients, in graph mode or compiled by XLA. Implementations are those of the
package (`att_implementation`), the recipe of the paper's Appendix A
(`appendix_a`) and attention of all pairs (`dense`). What they are held against
is the time of the matrix products alone (`gemm_floor.py`).

    python -m benchmarks.attention --lengths=4096 --modes=graph \
        --implementations=sparse,appendix_a --output=FOLDER

prints JSON lines and a table, and leaves them, and a plot, in the folder.
"""

import tensorflow as tf

from benchmarks import appendix_a
from benchmarks import gemm_floor
from benchmarks import harness
from benchmarks import measure
from benchmarks import program
from etcmodel.layers import QkvRelativeLocalAttention


def make_step(case: harness.Case) -> measure.Step:
    """Makes the step; see `harness.compile_step`."""
    sizes = case.sizes
    heads = (sizes.heads, sizes.head_size)
    long = (sizes.batch, sizes.long_length, *heads)
    side = (sizes.batch, sizes.global_length, *heads)
    tf.keras.utils.set_random_seed(1)
    layer = QkvRelativeLocalAttention(
        sizes.radius,
        relative_vocab_size=sizes.relative_vocab_size,
        att_dropout_prob=case.dropout,
        dtype=case.dtype,
    )
    layer.build(long)
    side_inputs = harness.make_side_inputs(case.inputs, sizes)
    masks, labels = appendix_a.long_pairs(side_inputs)
    training = case.pass_name == "train"

    def attend(queries, keys, values, side_keys, side_values):
        if case.implementation not in harness.RECIPES:
            return [
                layer(
                    *(queries, keys, values),
                    side_keys=side_keys,
                    side_values=side_values,
                    att_mask=masks[0],
                    relative_att_ids=labels[0],
                    side_att_mask=masks[1],
                    side_relative_att_ids=labels[1],
                    att_implementation=case.implementation,
                    training=training,
                )
            ]
        tables = layer.qkv_relative_attention
        return [
            harness.RECIPES[case.implementation](
                *(queries, keys, values, side_keys, side_values),
                *(masks, labels),
                (
                    tf.cast(tables.relative_emb_table, queries.dtype),
                    tf.cast(tables.relative_bias_table, queries.dtype),
                ),
                case.dropout if training else 0.0,
            )
        ]

    inputs = harness.make_inputs(
        (long, long, long, side, side), case.compute_dtype
    )
    return harness.compile_step(case, attend, inputs, layer)


def make_products(case: harness.Case) -> list[gemm_floor.Product]:
    """The matrix products of the attention alone."""
    return gemm_floor.attention_products(case.sizes)


PROGRAM = harness.make_program("attention", make_step, make_products)

if __name__ == "__main__":
    program.main(PROGRAM)
