"""Classification: options and experiments; see docs/own_documents.md."""

import dataclasses

from etcmodel.datasets import classification
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import Tuned
from etcmodel.pipeline.spec import read_experiments
from etcmodel.tasks.documents.document_options import READING
from etcmodel.tasks.documents.document_options import (
    DocumentPreprocessingConfig,
)

_PACKAGE = "etcmodel.tasks.classify"


@dataclasses.dataclass(frozen=True)
class ClassifyPreprocessingConfig(DocumentPreprocessingConfig):
    """Options for reading documents and labels.

    Attributes:
        label_kind: "single" for one label, "multiple" for any number of labels,
            "number" for a number to predict; "auto" takes the kind of the
            training records.
        kind: the kind of the training records.
        labels: the labels; those of the training records by default.
        labels_as_json: those of the labels that are whole numbers, true or
            false in the training records, not strings.
        label_counts: how many training records have each label.
        label_mean: mean of the training records' numbers.
        label_deviation: their standard deviation.
    """

    label_kind: str = option("auto", one_of=list(classification.LABEL_KINDS))
    kind: str = option("", is_flag=False)
    labels: tuple[str, ...] = option((), several=True)
    labels_as_json: tuple[str, ...] = option(
        (), is_flag=False, is_optional=True
    )
    label_counts: tuple[int, ...] = option((), is_flag=False)
    label_mean: float = option(0.0, is_flag=False)
    label_deviation: float = option(1.0, is_flag=False)

    def __post_init__(self):
        super().__post_init__()
        if self.kind and self.label_kind == "auto":
            # Otherwise "3" in other records would be read as a label.
            object.__setattr__(self, "label_kind", self.kind)
        if self.kind and self.label_kind != self.kind:
            raise ValueError(
                f"label_kind is {self.label_kind!r}, but the labels of the "
                f"training records are {self.kind!r}."
            )


@dataclasses.dataclass
class ClassifyModelOptions:
    """Model options.

    Attributes:
        pooling: vector to classify a document by: "cls", its global CLS token;
            "mean", the mean of the long tokens; "max", their maximum.
        word_counts: whether a linear function of how often each word piece
            occurs is learned beside the encoder and added to the logits (Cheng
            et al., "Wide & Deep Learning for Recommender Systems", 2016).
    """

    pooling: str = option("mean", one_of=["mean", "max", "cls"])
    word_counts: bool = True


@dataclasses.dataclass
class ClassifyOptions:
    """Options for training on labels and choosing them.

    Attributes:
        balanced: whether each label is weighted by the inverse of its
            frequency, so that every label has the same total weight.
        label_smoothing: probability that all labels share.
        threshold: minimum probability of a chosen label, if documents have
            several; None: the value with the best metric on the validation
            data.
    """

    balanced: bool = False
    label_smoothing: float = 0.0
    threshold: float | None = None


TASK = TaskSpec(
    name="classify",
    summary="one label, several labels or a number for your own documents",
    dataset=classification,
    preprocessing_config=ClassifyPreprocessingConfig,
    preprocessor=f"{_PACKAGE}.preprocessor:ClassifyPreprocessor",
    model=f"{_PACKAGE}.model:Classify",
    model_options=ClassifyModelOptions,
    options=ClassifyOptions,
    reading=(*READING, "label_kind"),
    noted_reading=("labels",),
    plots="etcmodel.inspection.classification_plots:write_plots",
    complete=f"{_PACKAGE}.preprocessor:complete",
    recipe={
        "num_examples": 10000,
        "epochs": 5,
        "batch_size": 16,
        "learning_rate": 5e-5,
        "best_metric": "score",
    },
    tuned=Tuned(
        "threshold",
        tuple(i / 20 for i in range(1, 20)),
        default=0.5,
        metric="score",
        is_used=lambda sizes: sizes.get("kind") == "multiple",
    ),
    experiments=read_experiments(__file__),
)
