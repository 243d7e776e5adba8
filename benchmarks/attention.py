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

import os

# Before TensorFlow starts: without its messages, of which there would be some
# from every process.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
from absl import app  # noqa: E402
from absl import flags  # noqa: E402

from benchmarks import gemm_floor  # noqa: E402
from benchmarks import harness  # noqa: E402
from benchmarks import measure  # noqa: E402
from etcmodel.layers import QkvRelativeLocalAttention  # noqa: E402


def make_step(case: harness.Case) -> measure.Step:
    """The step of the attention alone.

    Args:
        case: what the step is for.

    Returns:
        The step; see `harness.compile_step`.
    """
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
    pairs = {
        "att_mask": side_inputs["l2l_att_mask"],
        "relative_att_ids": side_inputs["l2l_relative_att_ids"],
        "side_att_mask": side_inputs["l2g_att_mask"],
        "side_relative_att_ids": side_inputs["l2g_relative_att_ids"],
    }
    training = case.pass_name == "train"

    def attend(queries, keys, values, side_keys, side_values):
        arguments = {
            "side_keys": side_keys,
            "side_values": side_values,
            **pairs,
        }
        if case.implementation not in harness.RECIPES:
            return [
                layer(
                    queries,
                    keys,
                    values,
                    **arguments,
                    att_implementation=case.implementation,
                    training=training,
                )
            ]
        tables = layer.qkv_relative_attention
        return [
            harness.RECIPES[case.implementation](
                queries,
                keys,
                values,
                **arguments,
                emb_table=tf.cast(tables.relative_emb_table, queries.dtype),
                bias_table=tf.cast(tables.relative_bias_table, queries.dtype),
                dropout_rate=case.dropout if training else 0.0,
            )
        ]

    inputs = harness.make_inputs(
        (long, long, long, side, side), case.compute_dtype
    )
    return harness.compile_step(case, attend, inputs, layer)


def make_products(case: harness.Case) -> list[gemm_floor.Product]:
    """The matrix products of the attention alone."""
    return gemm_floor.attention_products(case.sizes)


BENCHMARK = harness.Benchmark("attention", make_step, make_products)


def main(argv: list[str]) -> None:
    """Runs the program."""
    harness.main(argv, BENCHMARK)


if __name__ == "__main__":
    harness.define_flags(flags.FLAGS)
    app.run(main)
