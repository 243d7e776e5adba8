from . import checkpoints as checkpoints
from . import datasets as datasets
from . import estimators as estimators
from . import feature_utils as feature_utils
from . import layers as layers
from . import models as models
from . import ops as ops
from .checkpoints import lift as lift
from .checkpoints import lifted_config as lifted_config
from .checkpoints import load_checkpoint as load_checkpoint
from .checkpoints import read_bert as read_bert
from .checkpoints import write_vocabulary as write_vocabulary
from .errors import UserError as UserError
from .estimators.estimators import DocumentClassifier as DocumentClassifier
from .estimators.estimators import QuestionAnswerer as QuestionAnswerer
from .estimators.estimators import SentenceSelector as SentenceSelector
from .estimators.estimators import load as load
from .estimators.predictors import Predictor as Predictor
from .layers import DenseLayers as DenseLayers
from .layers import EmbeddingLookup as EmbeddingLookup
from .layers import FusedGlobalLocalAttention as FusedGlobalLocalAttention
from .layers import FusedSideAttention as FusedSideAttention
from .layers import GlobalLocalTransformerLayers as GlobalLocalTransformerLayers
from .layers import LayerNormalization as LayerNormalization
from .layers import RelativeAttention as RelativeAttention
from .layers import RelativeTransformerLayers as RelativeTransformerLayers
from .layers import ResidualBlock as ResidualBlock
from .layers import SideAttention as SideAttention
from .layers import (
    TransformerWithSideInputLayers as TransformerWithSideInputLayers,
)
from .models import BatchContrastiveLoss as BatchContrastiveLoss
from .models import (
    BatchCoreferenceResolutionLoss as BatchCoreferenceResolutionLoss,
)
from .models import EtcConfig as EtcConfig
from .models import EtcModel as EtcModel
from .models import EtcOutput as EtcOutput
from .models import GlobalChoiceHead as GlobalChoiceHead
from .models import LanguageModelHead as LanguageModelHead
from .models import ReadTwiceConfig as ReadTwiceConfig
from .models import ReadTwiceDecoderModel as ReadTwiceDecoderModel
from .models import ReadTwiceModel as ReadTwiceModel
from .models import ReadTwiceOutput as ReadTwiceOutput
from .models import SpanPredictionHead as SpanPredictionHead
from .models import StructuredEtcModel as StructuredEtcModel
from .models import add_lora as add_lora
from .models import (
    batch_span_cross_entropy_loss as batch_span_cross_entropy_loss,
)
from .models import best_spans as best_spans
from .models import build_encoder as build_encoder
from .models import build_read_twice_encoder as build_read_twice_encoder
from .models import check_inputs as check_inputs
from .models import encoder_options as encoder_options
from .models import masked_lm_losses as masked_lm_losses

__version__: str
