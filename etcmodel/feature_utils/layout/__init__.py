"""The layout engine: turns ragged units and a spec into EtcFeatures."""

from etcmodel.feature_utils.layout.contents import groups_of_one
from etcmodel.feature_utils.layout.contents import one_group
from etcmodel.feature_utils.layout.contents import one_unit
from etcmodel.feature_utils.layout.contents import unit_indices
from etcmodel.feature_utils.layout.engine import Layout
from etcmodel.feature_utils.layout.engine import LayoutEngine
from etcmodel.feature_utils.layout.flat_content import Counts
from etcmodel.feature_utils.layout.lookup import pick_units
from etcmodel.feature_utils.layout.spec import WINDOWS
from etcmodel.feature_utils.layout.spec import Blocks
from etcmodel.feature_utils.layout.spec import EncoderInputs
from etcmodel.feature_utils.layout.spec import GlobalToken
from etcmodel.feature_utils.layout.spec import LayoutSpec
from etcmodel.feature_utils.layout.spec import Link
from etcmodel.feature_utils.layout.spec import Section
from etcmodel.feature_utils.layout.spec import Value

__all__ = [
    "WINDOWS",
    "Blocks",
    "Counts",
    "EncoderInputs",
    "GlobalToken",
    "Layout",
    "LayoutEngine",
    "LayoutSpec",
    "Link",
    "Section",
    "Value",
    "groups_of_one",
    "one_group",
    "one_unit",
    "pick_units",
    "unit_indices",
]
