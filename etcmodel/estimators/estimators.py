"""Classes for users' own documents, one a task, and `load`."""

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
        label_kind: "single" for one label a document, "multiple" for several,
            "number" for a number; default: that of the training records.
        labels: the labels; default: those of the training records. Labels are
            predicted in the type that they have here or there.
        pooling: vector to classify by: the "mean" of the long tokens (default),
            their "max", or "cls", the global CLS token.
        word_counts: whether a linear function of how often each word piece
            occurs is learned, too (default: True).
        balanced: whether labels are weighted so that every label has the same
            total weight (default: False).
        label_smoothing: probability that all labels share in training, from 0
            to 1 (default: 0).
        threshold: minimum probability of a chosen label, if documents have
            several; default: chosen by validation, 0.5 without.
        **others: see `Estimator`. `units` can also be "blocks" of `block_size`
            tokens.
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
        query_field: str | None = None,
        id_field: str | None = None,
        label_field: str | None = None,
        label_kind: LabelKind | None = None,
        labels: Sequence[Label] | None = None,
        pooling: Pooling | None = None,
        word_counts: bool | None = None,
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
        query_field: str | None = None,
        id_field: str | None = None,
        label_field: str | None = None,
        label_kind: LabelKind | None = None,
        labels: Sequence[Label] | None = None,
        pooling: Pooling | None = None,
        word_counts: bool | None = None,
        balanced: bool | None = None,
        label_smoothing: float | None = None,
        threshold: float | None = None,
    ) -> "DocumentClassifier":
        """Makes a classifier that starts from weights, or from random ones.

        `source` is what `etcmodel lift` or `train` wrote, a published
        checkpoint, a model of Hugging Face's library (a directory, or a name in
        its hub, such as "google-bert/bert-base-uncased"), or a preset such as
        "small", whose weights are random. A vocabulary is found beside the
        weights; presets need a `vocab_file`. Options: see the class.
        """
        return start(**locals())

    @property
    def labels(self) -> list[Label]:
        """The labels; empty for numbers, and before training."""
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
        threshold: minimum probability of a selected unit; default: chosen by
            validation, 0.5 without.
        **others: see `Estimator`.
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
        query_field: str | None = None,
        id_field: str | None = None,
        label_field: str | None = None,
        unit_prior: float | None = None,
        query_ignore_hard_g2l: bool | None = None,
        threshold: float | None = None,
    ) -> "SentenceSelector":
        """Makes a selector that starts from weights, or from random ones.

        `source` is what `etcmodel lift` or `train` wrote, a published
        checkpoint, a model of Hugging Face's library (a directory, or a name in
        its hub, such as "google-bert/bert-base-uncased"), or a preset such as
        "small", whose weights are random. A vocabulary is found beside the
        weights; presets need a `vocab_file`. Options: see the class.
        """
        return start(**locals())

    def _result(self, record, prediction):
        return results.scored_units(record.id, prediction)


class QuestionAnswerer(Estimator[results.Answer]):
    """Answers questions about documents.

    `predict` returns a `results.Answer` for each question: a dict with `id`,
    `answer` ("" for none), `no_answer_probability` and `evidence`.

    Args:
        evidence: where records label no evidence, learn the unit with the
            "answer" (default); or learn "labelled" evidence alone.
        evidence_field: field with labelled evidence; default: "evidence" or
            "supporting_facts".
        answer_encoding: "span" for the first and last token of an answer
            (default), "bio" for a label of every token.
        answer_places: with "span", how many occurrences of an answer are right
            in training, the first ones (default: 8).
        query_ignore_hard_g2l: whether the question's global tokens attend to
            the whole document (default: True).
        unit_prior: initial probability that a unit is evidence
            (default: 0.1).
        no_answer_threshold: minimum probability of "no answer"; default: chosen
            by validation, 0.5 without.
        evidence_threshold: minimum probability of evidence (default: 0.5).
        answer_in_evidence: whether answers must be in units above
            `evidence_threshold`, or else in the most probable unit (default:
            False).
        max_answer_length: maximum length of an answer, in tokens (default: 30).
        supporting_fact_weight: weight of the loss of evidence; each other loss
            has the weight 1 (default: 1).
        multiply_fact_probability: whether the answer is the span with the
            highest product of its probability and that of its unit as evidence
            (default: False).
        **others: see `Estimator`.
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
        """Makes an answerer that starts from weights, or from random ones.

        `source` is what `etcmodel lift` or `train` wrote, a published
        checkpoint, a model of Hugging Face's library (a directory, or a name in
        its hub, such as "google-bert/bert-base-uncased"), or a preset such as
        "small", whose weights are random. A vocabulary is found beside the
        weights; presets need a `vocab_file`. Options: see the class.
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
    query_field: str | None = None,
    id_field: str | None = None,
    label_field: str | None = None,
    label_kind: LabelKind | None = None,
    labels: Sequence[Label] | None = None,
    pooling: Pooling | None = None,
    word_counts: bool | None = None,
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
    """Loads a run of `train` or `fit`, or what `export` wrote, of any task.

    `path` is its directory. Options are those of the task's class, such as
    `DocumentClassifier`. Names of fields apply to all models; for a run, new
    thresholds and greater lengths apply at once, and other options need `fit`.

    Raises:
        UserError: the directory is none of these, or the task has no such
            option.
    """
    options = {x: y for x, y in locals().items() if y is not None}
    del options["path"]
    task = predictors.task_of(path)
    if task not in _ESTIMATORS and options:
        raise UserError(f"{task} takes no options, got {', '.join(options)}.")
    made = _ESTIMATORS.get(task, predictors.Predictor)(**options)
    made.open(path)
    return made
