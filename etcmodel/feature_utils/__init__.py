"""Turns text and structure into the tensors that the layers take.

This package exports names that need only TensorFlow. Import modules that handle
text, and so import tensorflow-text, by name, such as
`etcmodel.feature_utils.text.tokenizers`.
"""

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
from etcmodel.feature_utils.masks import make_att_mask_from_breakpoints
from etcmodel.feature_utils.masks import make_att_mask_from_input_mask
from etcmodel.feature_utils.masks import make_local_att_mask_from_breakpoints
from etcmodel.feature_utils.masks import make_local_segmented_att_mask
from etcmodel.feature_utils.masks import make_segmented_att_mask
from etcmodel.feature_utils.masks import (
    overwrite_relative_att_ids_outside_segments,
)
from etcmodel.feature_utils.multihop_side_inputs import (
    make_multihop_side_inputs,
)
from etcmodel.feature_utils.positions import make_paragraph_positions
from etcmodel.feature_utils.positions import take_first_owned
from etcmodel.feature_utils.relative_positions import RelativePositionGenerator
from etcmodel.feature_utils.typed_links import TypedLink

__all__ = [
    "GlobalLocalTransformerSideInputs",
    "RelativePositionGenerator",
    "TypedLink",
    "add_side_input_features",
    "make_att_mask_from_breakpoints",
    "make_att_mask_from_input_mask",
    "make_fixed_block_side_inputs",
    "make_global_local_transformer_side_inputs",
    "make_global_local_transformer_side_inputs_from_example_ids",
    "make_local_att_mask_from_breakpoints",
    "make_local_segmented_att_mask",
    "make_multihop_side_inputs",
    "make_paragraph_positions",
    "make_segmented_att_mask",
    "overwrite_relative_att_ids_outside_segments",
    "take_first_owned",
]
