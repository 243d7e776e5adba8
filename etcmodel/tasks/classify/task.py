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
            "number" for a number to predict; "auto" finds the kind from the
            training records.
        kind: the label kind of the training records.
        labels: the names of the labels; by default those of the training
            records.
        labels_as_json: labels that are whole numbers, true or false in the
            training records, instead of strings.
        label_counts: how many training records have each label.
        label_mean: mean of the training records' numbers.
        label_deviation: standard deviation of the training records' numbers.
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
            # Otherwise, a label "3" in later records could be read as a number,
            # or a number as a label.
            object.__setattr__(self, "label_kind", self.kind)
        if self.kind and self.label_kind != self.kind:
            raise ValueError(
                f"label_kind is {self.label_kind!r}, but the labels of the "
                f"training records are {self.kind!r}. Use the same kind, or "
                "'auto'."
            )


@dataclasses.dataclass
class ClassifyModelOptions:
    """Model options.

    Attributes:
        pooling: vector to classify a document by: "cls", its global CLS token;
            "mean", the mean of the long tokens; "max", their maximum.
        word_counts: whether to add a linear function of the word-piece counts,
            learned jointly with the encoder, to the logits (Cheng et al., "Wide
            & Deep Learning for Recommender Systems", 2016).
        standardize: whether the vector is standardized by those of the training
            documents, for one label of long documents whose vectors hardly
            differ. The head then learns 20 times as fast as the encoder.
    """

    pooling: str = option("mean", one_of=["mean", "max", "cls"])
    word_counts: bool = True
    standardize: bool = False


@dataclasses.dataclass
class ClassifyOptions:
    """Options for training on labels and choosing them.

    Attributes:
        balanced: whether each label is weighted by the inverse of its
            frequency, so that every label has the same total weight.
        label_smoothing: share of the target probability that is spread evenly
            over all labels.
        threshold: minimum probability of a chosen label if documents may have
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
    # Defaults of a training follow from its records; see `follows_size`.
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
    follows_size=True,
    pipeline_tag="text-classification",
)
