"""Keras layers of ETC and ReadTwice, which depend only on TensorFlow."""

from etcmodel.layers.dense_layers import DenseLayers
from etcmodel.layers.dropout import RecomputingDropout
from etcmodel.layers.embedding import EmbeddingLookup
from etcmodel.layers.fused_attention import FusedGlobalLocalAttention
from etcmodel.layers.fused_side_attention import FusedSideAttention
from etcmodel.layers.local_attention import QkvRelativeLocalAttention
from etcmodel.layers.normalization import LayerNormalization
from etcmodel.layers.relative_attention import ProjectAttentionHeads
from etcmodel.layers.relative_attention import QkvRelativeAttention
from etcmodel.layers.relative_attention import RelativeAttention
from etcmodel.layers.relative_transformer import RelativeTransformerLayers
from etcmodel.layers.residual_block import ResidualBlock
from etcmodel.layers.side_attention import SideAttention
from etcmodel.layers.side_transformer import TransformerWithSideInputLayers
from etcmodel.layers.transformer import GlobalLocalTransformerLayers

__all__ = [
    "DenseLayers",
    "EmbeddingLookup",
    "FusedGlobalLocalAttention",
    "FusedSideAttention",
    "GlobalLocalTransformerLayers",
    "LayerNormalization",
    "ProjectAttentionHeads",
    "QkvRelativeAttention",
    "QkvRelativeLocalAttention",
    "RecomputingDropout",
    "RelativeAttention",
    "RelativeTransformerLayers",
    "ResidualBlock",
    "SideAttention",
    "TransformerWithSideInputLayers",
]
