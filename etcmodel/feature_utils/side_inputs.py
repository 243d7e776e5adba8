"""Side inputs of the global-local layers: all functions in one place."""

from etcmodel.feature_utils.global_local_side_inputs import (
    GlobalLocalTransformerSideInputs,
)
from etcmodel.feature_utils.global_local_side_inputs import (
    add_side_input_features,
)
from etcmodel.feature_utils.global_local_side_inputs import (
    make_fixed_block_side_inputs,
)
from etcmodel.feature_utils.global_local_side_inputs import (
    make_global_local_transformer_side_inputs,
)
from etcmodel.feature_utils.global_local_side_inputs import (
    make_global_local_transformer_side_inputs_from_example_ids,
)
from etcmodel.feature_utils.multihop_side_inputs import (
    make_multihop_side_inputs,
)
from etcmodel.feature_utils.typed_links import TypedLink

__all__ = [
    "GlobalLocalTransformerSideInputs",
    "TypedLink",
    "add_side_input_features",
    "make_fixed_block_side_inputs",
    "make_global_local_transformer_side_inputs",
    "make_global_local_transformer_side_inputs_from_example_ids",
    "make_multihop_side_inputs",
]
