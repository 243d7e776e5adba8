"""The encoders of ETC and ReadTwice, their heads and losses."""

from etcmodel.models.etc.config import EtcConfig
from etcmodel.models.etc.contrastive_loss import BatchContrastiveLoss
from etcmodel.models.etc.etc_model import EtcModel
from etcmodel.models.etc.etc_model import EtcOutput
from etcmodel.models.etc.structured_etc_model import StructuredEtcModel
from etcmodel.models.etc.structured_etc_model import build_encoder
from etcmodel.models.heads import GlobalChoiceHead
from etcmodel.models.input_checks import check_inputs
from etcmodel.models.lora import add_lora
from etcmodel.models.pretraining_heads import LanguageModelHead
from etcmodel.models.pretraining_heads import masked_lm_losses
from etcmodel.models.read_twice.config import ReadTwiceConfig
from etcmodel.models.read_twice.coreference_loss import (
    BatchCoreferenceResolutionLoss,
)
from etcmodel.models.read_twice.decoder import ReadTwiceDecoderModel
from etcmodel.models.read_twice.read_twice_model import ReadTwiceModel
from etcmodel.models.read_twice.read_twice_model import ReadTwiceOutput
from etcmodel.models.read_twice.read_twice_model import build_read_twice_encoder
from etcmodel.models.run_files import encoder_options
from etcmodel.models.span_loss import batch_span_cross_entropy_loss
from etcmodel.models.span_prediction import SpanPredictionHead
from etcmodel.models.span_prediction import best_spans

__all__ = [
    "BatchContrastiveLoss",
    "BatchCoreferenceResolutionLoss",
    "EtcConfig",
    "EtcModel",
    "EtcOutput",
    "GlobalChoiceHead",
    "LanguageModelHead",
    "ReadTwiceConfig",
    "ReadTwiceDecoderModel",
    "ReadTwiceModel",
    "ReadTwiceOutput",
    "SpanPredictionHead",
    "StructuredEtcModel",
    "add_lora",
    "batch_span_cross_entropy_loss",
    "best_spans",
    "build_encoder",
    "build_read_twice_encoder",
    "check_inputs",
    "encoder_options",
    "masked_lm_losses",
]
