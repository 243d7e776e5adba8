"""The ETC encoder as a layer and as a Keras model."""

from etcmodel.models.config import EtcConfig
from etcmodel.models.encoder import build_encoder
from etcmodel.models.etc_model import EtcModel

__all__ = ["EtcConfig", "EtcModel", "build_encoder"]
