"""The encoders of ETC and ReadTwice, as layers and as Keras models."""

from etcmodel.models.config import EtcConfig
from etcmodel.models.encoder import build_encoder
from etcmodel.models.etc_model import EtcModel
from etcmodel.models.heads import GlobalChoiceHead
from etcmodel.models.pretraining_heads import LanguageModelHead
from etcmodel.models.read_twice_config import ReadTwiceConfig
from etcmodel.models.read_twice_decoder import ReadTwiceDecoderModel
from etcmodel.models.read_twice_model import ReadTwiceModel
from etcmodel.models.read_twice_model import build_read_twice_encoder
from etcmodel.models.run_files import encoder_options
from etcmodel.models.span_prediction import SpanPredictionHead
from etcmodel.models.span_prediction import best_spans

__all__ = [
    "EtcConfig",
    "EtcModel",
    "GlobalChoiceHead",
    "LanguageModelHead",
    "ReadTwiceConfig",
    "ReadTwiceDecoderModel",
    "ReadTwiceModel",
    "SpanPredictionHead",
    "best_spans",
    "build_encoder",
    "build_read_twice_encoder",
    "encoder_options",
]
