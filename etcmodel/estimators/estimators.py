"""One class for each task on users' own documents, and `load`."""

import os
from collections.abc import Sequence
from typing import Literal

from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.estimators import predictors
from etcmodel.estimators import results
from etcmodel.estimators.arguments import suggest_names
from etcmodel.estimators.estimator import Estimator
from etcmodel.estimators.estimator import start
from etcmodel.estimators.results import Label

AnswerEncoding = Literal["span", "bio"]
ClassifierUnits = Literal["auto", "sentences", "texts", "paragraphs", "blocks"]
Evidence = Literal["answer", "labelled"]
LabelKind = Literal["auto", "single", "multiple", "number"]
Pooling = Literal["mean", "max", "cls"]
Units = Literal["auto", "sentences", "texts", "paragraphs"]


class DocumentClassifier(Estimator[results.Classification]):
    """Predicts one label, several labels or a number for documents.

    `predict` returns a `results.Classification` for each document: a dict with
    `id`, `label` and `probabilities`.

    Example:
        model = DocumentClassifier.from_pretrained("lifted")
        model.fit(records, validation_fraction=0.1, epochs=3)
        model.predict(["a long text ..."])

    Args:
        label_kind: "single" for one label per document, "multiple" for several,
            "number" for regression; default: the kind of the training records.
        labels: all labels; default: the labels of the training records.
            Predicted labels have the types of the labels given here.
        pooling: vector that the classifier uses: the "mean" of the long tokens
            (default), their "max", or "cls", the global CLS token.
        word_counts: whether to add a linear function of the counts of word
            pieces to the scores (default: True).
        standardize: whether the vector of a document is standardized by those
            of the training documents; see `ClassifyModelOptions`.
        balanced: whether to weight records so that every label has the same
            total weight (default: False).
        label_smoothing: probability mass that is spread over all labels in
            training, from 0 to 1 (default: 0).
        threshold: minimum probability of a predicted label, if documents have
            several; default: tuned by validation, or 0.5 without validation.

    The other arguments are those of `Estimator`. `units` can also be "blocks"
    of `block_size` tokens.
    """

    task = "classify"

    @suggest_names
    def __init__(
        self,
        *,
        long_length: int | None = None,
        global_length: int | None = None,
        units: ClassifierUnits | None = None,
        block_size: int | None = None,
        text_field: str | None = None,
        title_field: str | None = None,
        query_field: str | None = None,
        id_field: str | None = None,
        label_field: str | None = None,
        label_kind: LabelKind | None = None,
        labels: Sequence[Label] | None = None,
        pooling: Pooling | None = None,
        word_counts: bool | None = None,
        standardize: bool | None = None,
        balanced: bool | None = None,
        label_smoothing: float | None = None,
        threshold: float | None = None,
    ):
        arguments, self._as_json = locals(), []
        if isinstance(labels, str):
            raise UserError(f"`labels` is {show(labels)}, but must be a list.")
        if labels is not None:
            names = [results.label_name(x) for x in labels]
            arguments = {**arguments, "labels": names}
            self._as_json = [
                name
                for name, label in zip(names, labels, strict=True)
                if not isinstance(label, str)
            ]
        super().__init__(arguments)

    @classmethod
    @suggest_names
    def from_pretrained(
        cls,
        source: str | os.PathLike,
        vocab_file: str | os.PathLike | None = None,
        *,
        long_length: int | None = None,
        global_length: int | None = None,
        units: ClassifierUnits | None = None,
        block_size: int | None = None,
        text_field: str | None = None,
        title_field: str | None = None,
        query_field: str | None = None,
        id_field: str | None = None,
        label_field: str | None = None,
        label_kind: LabelKind | None = None,
        labels: Sequence[Label] | None = None,
        pooling: Pooling | None = None,
        word_counts: bool | None = None,
        standardize: bool | None = None,
        balanced: bool | None = None,
        label_smoothing: float | None = None,
        threshold: float | None = None,
    ) -> "DocumentClassifier":
        """Creates a classifier from pre-trained or random weights.

        `source` is the output of `etcmodel lift` or `train`, a published
        checkpoint, a Hugging Face model (a directory, or a name in the hub,
        such as "google-bert/bert-base-uncased"), or a preset such as "small",
        which has random weights. `vocab_file` is by default the vocabulary
        beside the weights; a preset needs this argument. The class documents
        the other arguments.
        """
        return start(**locals())

    @property
    def labels(self) -> list[Label]:
        """The labels; empty for regression, and before training."""
        noted = self._noted()
        as_json = self._as_json or noted.get("labels_as_json", ())
        names = self.options.get("labels") or noted.get("labels", ())
        return [results.typed_label(x, as_json) for x in names]

    def _describe(self):
        found = super()._describe()
        return {**found, "labels": show(self.labels)} if self.labels else found

    def _reading(self):
        as_json = {"labels_as_json": self._as_json} if self._as_json else {}
        return {**super()._reading(), **as_json}

    def _result(self, record, prediction):
        as_json = self._load().sizes.get("labels_as_json", ())
        return results.classification(record.id, prediction, as_json)


class SentenceSelector(Estimator[list[results.ScoredUnit]]):
    """Scores the sentences or paragraphs of documents.

    `predict` returns a list of `results.ScoredUnit` for each document: a dict
    for each unit with `id`, `paragraph`, `number`, `text`, `probability` and
    `is_selected`.

    Args:
        unit_prior: initial probability that a unit is selected (default: 0.1).
        query_ignore_hard_g2l: whether the query's global tokens attend to the
            whole document (default: True).
        threshold: minimum probability of a selected unit; default: tuned by
            validation, or 0.5 without validation.

    The other arguments are those of `Estimator`.
    """

    task = "select"

    @suggest_names
    def __init__(
        self,
        *,
        long_length: int | None = None,
        global_length: int | None = None,
        units: Units | None = None,
        block_size: int | None = None,
        text_field: str | None = None,
        title_field: str | None = None,
        query_field: str | None = None,
        id_field: str | None = None,
        label_field: str | None = None,
        unit_prior: float | None = None,
        query_ignore_hard_g2l: bool | None = None,
        threshold: float | None = None,
    ):
        super().__init__(locals())

    @classmethod
    @suggest_names
    def from_pretrained(
        cls,
        source: str | os.PathLike,
        vocab_file: str | os.PathLike | None = None,
        *,
        long_length: int | None = None,
        global_length: int | None = None,
        units: Units | None = None,
        block_size: int | None = None,
        text_field: str | None = None,
        title_field: str | None = None,
        query_field: str | None = None,
        id_field: str | None = None,
        label_field: str | None = None,
        unit_prior: float | None = None,
        query_ignore_hard_g2l: bool | None = None,
        threshold: float | None = None,
    ) -> "SentenceSelector":
        """Creates a selector from pre-trained or random weights.

        `source` is the output of `etcmodel lift` or `train`, a published
        checkpoint, a Hugging Face model (a directory, or a name in the hub,
        such as "google-bert/bert-base-uncased"), or a preset such as "small",
        which has random weights. `vocab_file` is by default the vocabulary
        beside the weights; a preset needs this argument. The class documents
        the other arguments.
        """
        return start(**locals())

    def _result(self, record, prediction):
        return results.scored_units(record.id, prediction)


class QuestionAnswerer(Estimator[results.Answer]):
    """Answers questions about documents.

    `predict` returns a `results.Answer` for each question: a dict with `id`,
    `answer` ("" if there is no answer), `no_answer_probability` and `evidence`.

    Args:
        evidence: evidence to train on: "labelled" evidence only, or "answer"
            (default) to use the unit with the answer where a record labels no
            evidence.
        evidence_field: field with labelled evidence; default: "evidence" or
            "supporting_facts".
        answer_encoding: "span" to predict the first and last token of an answer
            (default), "bio" to predict a label of every token.
        answer_places: with "span", up to this many occurrences of an answer are
            labelled as correct in training, from the first on (default: 8).
        query_ignore_hard_g2l: whether the question's global tokens attend to
            the whole document (default: True).
        unit_prior: initial probability that a unit is evidence
            (default: 0.1).
        no_answer_threshold: minimum probability of "no answer"; default: tuned
            by validation, or 0.5 without validation.
        evidence_threshold: minimum probability of evidence (default: 0.5).
        answer_in_evidence: whether answers must be in units above
            `evidence_threshold`, or if there are none, in the most probable
            unit (default: False).
        max_answer_length: maximum length of an answer, in tokens (default: 30).
        supporting_fact_weight: weight of the evidence loss, relative to the
            other losses (default: 1).
        multiply_fact_probability: whether to rank spans by the product of two
            probabilities: of the span, and of its unit as evidence (default:
            False).

    The other arguments are those of `Estimator`.
    """

    task = "answer"

    @suggest_names
    def __init__(
        self,
        *,
        long_length: int | None = None,
        global_length: int | None = None,
        units: Units | None = None,
        block_size: int | None = None,
        text_field: str | None = None,
        title_field: str | None = None,
        query_field: str | None = None,
        id_field: str | None = None,
        label_field: str | None = None,
        evidence: Evidence | None = None,
        evidence_field: str | None = None,
        answer_encoding: AnswerEncoding | None = None,
        answer_places: int | None = None,
        query_ignore_hard_g2l: bool | None = None,
        unit_prior: float | None = None,
        no_answer_threshold: float | None = None,
        evidence_threshold: float | None = None,
        answer_in_evidence: bool | None = None,
        max_answer_length: int | None = None,
        supporting_fact_weight: float | None = None,
        multiply_fact_probability: bool | None = None,
    ):
        super().__init__(locals())

    @classmethod
    @suggest_names
    def from_pretrained(
        cls,
        source: str | os.PathLike,
        vocab_file: str | os.PathLike | None = None,
        *,
        long_length: int | None = None,
        global_length: int | None = None,
        units: Units | None = None,
        block_size: int | None = None,
        text_field: str | None = None,
        title_field: str | None = None,
        query_field: str | None = None,
        id_field: str | None = None,
        label_field: str | None = None,
        evidence: Evidence | None = None,
        evidence_field: str | None = None,
        answer_encoding: AnswerEncoding | None = None,
        answer_places: int | None = None,
        query_ignore_hard_g2l: bool | None = None,
        unit_prior: float | None = None,
        no_answer_threshold: float | None = None,
        evidence_threshold: float | None = None,
        answer_in_evidence: bool | None = None,
        max_answer_length: int | None = None,
        supporting_fact_weight: float | None = None,
        multiply_fact_probability: bool | None = None,
    ) -> "QuestionAnswerer":
        """Creates a question answerer from pre-trained or random weights.

        `source` is the output of `etcmodel lift` or `train`, a published
        checkpoint, a Hugging Face model (a directory, or a name in the hub,
        such as "google-bert/bert-base-uncased"), or a preset such as "small",
        which has random weights. `vocab_file` is by default the vocabulary
        beside the weights; a preset needs this argument. The class documents
        the other arguments.
        """
        return start(**locals())

    def _result(self, record, prediction):
        return results.answer(record.id, prediction)


_ESTIMATORS = {
    x.task: x for x in (DocumentClassifier, SentenceSelector, QuestionAnswerer)
}


@suggest_names
def load(
    path: str | os.PathLike,
    *,
    long_length: int | None = None,
    global_length: int | None = None,
    units: ClassifierUnits | None = None,
    block_size: int | None = None,
    text_field: str | None = None,
    title_field: str | None = None,
    query_field: str | None = None,
    id_field: str | None = None,
    label_field: str | None = None,
    label_kind: LabelKind | None = None,
    labels: Sequence[Label] | None = None,
    pooling: Pooling | None = None,
    word_counts: bool | None = None,
    standardize: bool | None = None,
    balanced: bool | None = None,
    label_smoothing: float | None = None,
    threshold: float | None = None,
    query_ignore_hard_g2l: bool | None = None,
    evidence: Evidence | None = None,
    evidence_field: str | None = None,
    answer_encoding: AnswerEncoding | None = None,
    answer_places: int | None = None,
    unit_prior: float | None = None,
    no_answer_threshold: float | None = None,
    evidence_threshold: float | None = None,
    answer_in_evidence: bool | None = None,
    max_answer_length: int | None = None,
    supporting_fact_weight: float | None = None,
    multiply_fact_probability: bool | None = None,
) -> predictors.Predictor:
    """Loads a model of any task.

    `path` is the directory of a run of `train` or `fit`, or of a SavedModel
    that `export` wrote. The other arguments are options of the task's class,
    such as `DocumentClassifier`. Field names apply to runs and SavedModels. For
    a run, thresholds and longer lengths apply at once, and other options need
    `fit`.

    Raises:
        UserError: the directory has no model, or the task lacks one of the
            options.
    """
    options = {x: y for x, y in locals().items() if y is not None}
    del options["path"]
    task = predictors.task_of(path)
    if task not in _ESTIMATORS and options:
        raise UserError(
            f"Models of the task {task} take no options, got "
            f"{', '.join(options)}. Leave them out."
        )
    made = _ESTIMATORS.get(task, predictors.Predictor)(**options)
    made.open(path)
    return made
