"""Attention with structure, as pure tensor functions.

Queries attend to several pieces of keys under one softmax, with masks and
relative labels, which may be described rather than spelled out. Nothing here
knows of Keras: weights come in as tensors.
"""

from etcmodel.attention.core import Dropout
from etcmodel.attention.core import Keys
from etcmodel.attention.core import LabelTable
from etcmodel.attention.dispatch import dense_attention
from etcmodel.attention.dispatch import global_attention
from etcmodel.attention.dispatch import long_attention
from etcmodel.attention.inference import for_inference
from etcmodel.attention.labels import DistanceLabels
from etcmodel.attention.labels import LongGlobalLabels
from etcmodel.attention.labels import PairLabels
from etcmodel.attention.scores import dense_scores
from etcmodel.attention.scores import global_scores
from etcmodel.attention.scores import long_scores
from etcmodel.attention.specs import AttentionSpec
from etcmodel.attention.specs import LongGlobalMask
from etcmodel.attention.specs import SegmentMask

__all__ = [
    "AttentionSpec",
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
