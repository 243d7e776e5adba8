r"""Time and memory of the attention of the long tokens.

Measures local attention with global side keys, masks and labels under one
softmax, given queries, keys and values: forward or with all gradients, in graph
mode or compiled by XLA. Implementations are those of the package
(`att_implementation`; `full` computes all pairs) and that of the paper's
Appendix A (`appendix_a`). The baseline is the time of the matrix products alone
(`gemm_floor.py`).

    python -m benchmarks.attention --lengths=4096 --modes=graph \
        --implementations=sparse,appendix_a --output=FOLDER
"""

import tensorflow as tf

from benchmarks import gemm_floor
from benchmarks import harness
from benchmarks import measure
from benchmarks import program
from etcmodel.layers import QkvRelativeLocalAttention


def make_step(case: harness.Case) -> measure.Step:
    """Returns the step of a case; see `harness.compile_step`."""
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
    given = harness.make_side_inputs(case.inputs, sizes)

    def attend(queries, keys, values, side_keys, side_values):
        return [
            layer(
                *(queries, keys, values),
                side_keys=side_keys,
                side_values=side_values,
                att_mask=given["l2l_att_mask"],
                relative_att_ids=given["l2l_relative_att_ids"],
                side_att_mask=given["l2g_att_mask"],
                side_relative_att_ids=given["l2g_relative_att_ids"],
                att_implementation=case.att_implementation,
                training=case.pass_name == "train",
            )
        ]

    return harness.compile_step(
        case, attend, (long, long, long, side, side), layer
    )


def make_products(case: harness.Case) -> list[gemm_floor.Product]:
    """Returns the matrix products of the attention alone."""
    return gemm_floor.attention_products(case.sizes)


PROGRAM = harness.make_program("attention", make_step, make_products)

if __name__ == "__main__":
    program.main(PROGRAM)
