r"""Time and memory of one global-local transformer layer.

Measures the whole layer: projections, attention of the long and of the global
tokens, feed-forward parts, residual connections and normalization. Flags,
implementations and columns are those of `attention.py`. `appendix_a` replaces
only the attention of the long tokens:

    python -m benchmarks.layer --lengths=4096 --passes=train --dtypes=float32 \
        --implementations=sparse,appendix_a --output=FOLDER
"""

import tensorflow as tf

from benchmarks import gemm_floor
from benchmarks import harness
from benchmarks import measure
from benchmarks import program
from etcmodel.layers import GlobalLocalTransformerLayers
from etcmodel.models import EtcConfig


def make_layer(case: harness.Case) -> GlobalLocalTransformerLayers:
    """Builds a layer that shares weights as the preset of the case does."""
    sizes = case.sizes
    config = EtcConfig.from_preset(case.preset)
    layer = GlobalLocalTransformerLayers(
        long_hidden_size=sizes.hidden_size,
        global_hidden_size=sizes.hidden_size,
        num_hidden_layers=1,
        num_attention_heads=sizes.heads,
        local_radius=sizes.radius,
        hidden_dropout_prob=case.dropout,
        attention_probs_dropout_prob=case.dropout,
        relative_vocab_size=sizes.relative_vocab_size,
        share_feed_forward_params=config.share_feed_forward_params,
        share_kv_projections=config.share_kv_projections,
        share_qkv_projections=config.share_qkv_projections,
        share_att_output_projection=config.share_att_output_projection,
        dtype=case.dtype,
    )
    layer.build((None, None, sizes.hidden_size))
    return layer


def make_step(case: harness.Case) -> measure.Step:
    """Returns the step of a case; see `harness.compile_step`."""
    sizes = case.sizes
    tf.keras.utils.set_random_seed(1)
    layer = make_layer(case)
    side_inputs = harness.make_side_inputs(case.inputs, sizes)

    def apply(long_input, global_input):
        return layer(
            long_input,
            global_input,
            **side_inputs,
            att_implementation=case.att_implementation,
            training=case.pass_name == "train",
        )

    shapes = tuple(
        (sizes.batch, length, sizes.hidden_size)
        for length in (sizes.long_length, sizes.global_length)
    )
    return harness.compile_step(case, apply, shapes, layer)


def make_products(case: harness.Case) -> list[gemm_floor.Product]:
    """Returns the matrix products of a layer."""
    layer = make_layer(case)
    return gemm_floor.layer_products(
        case.sizes,
        intermediate_size=layer.long_intermediate_size,
        share_qkv_projections=layer.share_qkv_projections,
    )


PROGRAM = harness.make_program("layer", make_step, make_products)

if __name__ == "__main__":
    program.main(PROGRAM)
