"""Question answering: options and experiments; see docs/own_documents.md."""

import dataclasses

from etcmodel.datasets import question_answering
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import Tuned
from etcmodel.pipeline.spec import read_experiments
from etcmodel.tasks.documents.document_options import READING
from etcmodel.tasks.documents.document_options import (
    DocumentPreprocessingConfig,
)

_PACKAGE = "etcmodel.tasks.answer"


@dataclasses.dataclass(frozen=True)
class AnswerPreprocessingConfig(DocumentPreprocessingConfig):
    """Options for reading documents and answers; units cannot be blocks.

    Attributes:
        evidence: units to learn as evidence: only "labelled" ones; or "answer",
            which also learns units with the answer in records without labelled
            evidence.
        evidence_field: the field with labelled evidence, if it is not
            "evidence" or "supporting_facts".
    """

    HAS_BLOCKS = False

    evidence: str = option("answer", one_of=["answer", "labelled"])
    evidence_field: str | None = None


@dataclasses.dataclass
class AnswerModelOptions:
    """Model options.

    Attributes:
        answer_encoding: "span" for the first and last token of an answer,
            "bio" for a label of every token.
        answer_places: with "span", up to this many occurrences of an answer,
            the first ones, are labelled as correct in training.
        query_ignore_hard_g2l: whether the question's global tokens attend to
            all long tokens despite the hard g2l mask.
        unit_prior: initial probability that a unit is evidence.
    """

    answer_encoding: str = option("span", one_of=["span", "bio"])
    answer_places: int = 8
    query_ignore_hard_g2l: bool = True
    unit_prior: float = 0.1


@dataclasses.dataclass
class AnswerOptions:
    """Options for training on answers and choosing them.

    Attributes:
        no_answer_threshold: minimum probability of "no answer"; None: the value
            with the best metric on the validation data.
        evidence_threshold: minimum probability of evidence.
        answer_in_evidence: whether the answer must be in a unit that reaches
            `evidence_threshold`, if any unit does.
        max_answer_length: maximum length of an answer, in tokens.
        supporting_fact_weight: weight of the evidence loss, which is a sum over
            all units; every other loss has weight 1.
        multiply_fact_probability: whether the answer is the span with the
            highest product of span probability and evidence probability of its
            unit; excludes answer_in_evidence.
    """

    no_answer_threshold: float | None = None
    evidence_threshold: float = 0.5
    answer_in_evidence: bool = False
    max_answer_length: int = 30
    supporting_fact_weight: float = 1.0
    multiply_fact_probability: bool = False


TASK = TaskSpec(
    name="answer",
    summary="answers with evidence, from your own documents or SQuAD's files",
    dataset=question_answering,
    preprocessing_config=AnswerPreprocessingConfig,
    preprocessor=f"{_PACKAGE}.preprocessor:AnswerPreprocessor",
    model=f"{_PACKAGE}.model:Answer",
    model_options=AnswerModelOptions,
    options=AnswerOptions,
    reading=(*READING, "evidence_field"),
    noted_reading=("units",),
    complete="etcmodel.tasks.documents.documents:complete_units",
    # Defaults of a training follow from its records; see `follows_size`.
    recipe={
        "num_examples": 10000,
        "epochs": 3,
        "batch_size": 16,
        "learning_rate": 5e-5,
        "best_metric": "f1",
        "use_hard_g2l_mask": True,
    },
    tuned=Tuned(
        "no_answer_threshold",
        tuple(i / 20 for i in range(1, 21)),
        default=0.5,
        metric="f1",
    ),
    experiments=read_experiments(__file__),
    follows_size=True,
    pipeline_tag="question-answering",
)
