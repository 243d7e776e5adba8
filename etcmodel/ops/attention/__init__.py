"""Structured attention, as pure tensor functions.

Queries attend to several groups of keys under one softmax. Masks and relative
labels are tensors, or objects that describe them (see `masks.py`). This package
does not depend on Keras: weights are passed as tensors.
"""

from etcmodel.ops.attention.dispatch import dense_attention
from etcmodel.ops.attention.dispatch import global_attention
from etcmodel.ops.attention.dispatch import long_attention
from etcmodel.ops.attention.masks import AttentionSpec
from etcmodel.ops.attention.masks import LongGlobalMask
from etcmodel.ops.attention.masks import SegmentMask
from etcmodel.ops.attention.probabilities import dense_scores
from etcmodel.ops.attention.probabilities import global_scores
from etcmodel.ops.attention.probabilities import long_scores
from etcmodel.ops.attention.relative_ids import BandLabels
from etcmodel.ops.attention.relative_ids import DistanceLabels
from etcmodel.ops.attention.relative_ids import LongGlobalLabels
from etcmodel.ops.attention.relative_ids import PairLabels
from etcmodel.ops.attention.softmax import Dropout
from etcmodel.ops.attention.softmax import Keys
from etcmodel.ops.attention.softmax import LabelTable
from etcmodel.ops.inference import for_inference

__all__ = [
    "AttentionSpec",
    "BandLabels",
    "DistanceLabels",
    "Dropout",
    "Keys",
    "LabelTable",
    "LongGlobalLabels",
    "LongGlobalMask",
    "PairLabels",
    "SegmentMask",
    "dense_attention",
    "dense_scores",
    "for_inference",
    "global_attention",
    "global_scores",
    "long_attention",
    "long_scores",
]
