"""The encoders of ETC and ReadTwice as layers, and ETC's as a Keras model."""

from etcmodel.models.config import EtcConfig
from etcmodel.models.encoder import build_encoder
from etcmodel.models.etc_model import EtcModel
from etcmodel.models.read_twice_config import ReadTwiceConfig
from etcmodel.models.read_twice_model import ReadTwiceModel

__all__ = [
    "EtcConfig",
    "EtcModel",
    "ReadTwiceConfig",
    "ReadTwiceModel",
    "build_encoder",
]
