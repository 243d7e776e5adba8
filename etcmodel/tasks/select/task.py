"""Selection: options and experiments; see docs/own_documents.md."""

import dataclasses

from etcmodel.datasets import selection
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import Tuned
from etcmodel.pipeline.spec import read_experiments
from etcmodel.tasks.documents.document_options import READING
from etcmodel.tasks.documents.document_options import (
    DocumentPreprocessingConfig,
)

_PACKAGE = "etcmodel.tasks.select"


@dataclasses.dataclass(frozen=True)
class SelectPreprocessingConfig(DocumentPreprocessingConfig):
    """Options for reading documents; units cannot be blocks."""

    HAS_BLOCKS = False


@dataclasses.dataclass
class SelectModelOptions:
    """Model options.

    Attributes:
        unit_prior: initial probability that a unit is selected. Training
            converges faster if it is close to the share of selected units in
            the data.
        query_ignore_hard_g2l: whether the query's global tokens attend to all
            long tokens despite the hard g2l mask.
    """

    unit_prior: float = 0.1
    query_ignore_hard_g2l: bool = True


@dataclasses.dataclass
class SelectOptions:
    """Options for choosing units.

    Attributes:
        threshold: minimum probability of a selected unit; None: the value with
            the best metric on the validation data.
    """

    threshold: float | None = None


TASK = TaskSpec(
    name="select",
    summary="a score for each sentence or paragraph of your own documents",
    dataset=selection,
    preprocessing_config=SelectPreprocessingConfig,
    preprocessor=f"{_PACKAGE}.preprocessor:SelectPreprocessor",
    model=f"{_PACKAGE}.model:Select",
    model_options=SelectModelOptions,
    options=SelectOptions,
    reading=READING,
    noted_reading=("units",),
    complete="etcmodel.tasks.documents.documents:complete_units",
    # Defaults of a training follow from its records; see `follows_size`.
    recipe={
        "num_examples": 10000,
        "epochs": 5,
        "batch_size": 16,
        "learning_rate": 5e-5,
        "best_metric": "f1",
        "use_hard_g2l_mask": True,
    },
    tuned=Tuned(
        "threshold",
        tuple(i / 20 for i in range(1, 20)),
        default=0.5,
        metric="f1",
    ),
    experiments=read_experiments(__file__),
    follows_size=True,
    pipeline_tag="text-ranking",
)
