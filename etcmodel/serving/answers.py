"""Predicts with an exported model."""

import itertools
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.errors import without_stack
from etcmodel.pipeline import raw_inputs
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import load
from etcmodel.pipeline.task_model import TaskModel
from etcmodel.pipeline.task_model import to_predictions
from etcmodel.serving import exported
from etcmodel.serving import signatures


class Answers:
    """Predicts with a model's signatures; thread-safe.

    Args:
        spec: the task.
        task_model: the task's model, for `TaskModel.to_prediction`.
        answer: the signature `serving_default`.
        metadata: the description that `export` writes; see
            `exported.read_metadata`.
        owner: object to keep alive as long as `answer`, such as the model that
            holds its weights.
        answer_text: the signature `text`; None if the model has none.

    Attributes:
        spec: the task.
        answer, answer_text: the signatures.
        sizes: the preprocessing configuration of the training records.
        reading: the options that the training records were read with: name ->
            value.
        has_queries: whether all training records are known to have queries.
        num_cut: number of records truncated so far.
        num_refused: number of records that the model has refused so far.
    """

    def __init__(
        self,
        spec: TaskSpec,
        task_model: TaskModel,
        answer: Callable[..., Mapping[str, tf.Tensor]],
        metadata: Mapping[str, Any],
        owner: object = None,
        answer_text: Callable[..., Mapping[str, tf.Tensor]] | None = None,
    ):
        self.spec = spec
        self.sizes = metadata.get("preprocessing_config", {})
        self.reading = metadata.get("reading", {})
        self.has_queries = metadata.get("has_queries", False)
        self.num_cut = self.num_refused = 0
        self._task_model, self.answer = task_model, answer
        self.answer_text = answer_text
        self._owner = owner

    def predict(self, raw: Sequence[dict[str, Any]]) -> list[Any]:
        """Predicts a batch of requests, given as inputs without padding."""
        inputs = load(self.spec.preprocessor).pad_batch(raw)
        answers = self._call(self.answer, inputs)
        return to_predictions(self._task_model, answers, raw)

    def predict_texts(self, raw: Sequence[Mapping[str, str]]) -> list[Any]:
        """Predicts a batch of requests with the signature `text`."""
        inputs = raw_inputs.texts_batch(raw)
        answers = self._call(self.answer_text, inputs)
        # The signature also returns the parts of each text, which the
        # predictions name.
        parts = [
            {name: x[i] for name, x in answers.items()} for i in range(len(raw))
        ]
        return to_predictions(self._task_model, answers, parts)

    def _call(self, signature, inputs) -> dict[str, np.ndarray]:
        """Calls a signature, and counts truncated and refused records."""
        outputs = signature(**{x: tf.constant(y) for x, y in inputs.items()})
        answers = {name: np.asarray(x) for name, x in outputs.items()}
        if "tokens_cut" in answers:
            self.num_cut += np.count_nonzero(answers["tokens_cut"])
        if "is_refused" in answers:
            self.num_refused += np.count_nonzero(answers["is_refused"])
        return answers

    def predict_records(
        self,
        records: Iterable[Any],
        to_raw: Callable[[Any], dict[str, Any]],
        batch_size: int,
        done: Callable[[int], object],
        are_texts: bool = False,
    ) -> Iterator[tuple[Any, Any]]:
        """Yields each record and its prediction.

        Args:
            records: the records.
            to_raw: converts a record to a request: inputs without padding.
            batch_size: number of records per batch.
            done: called after each batch with its number of records.
            are_texts: whether `to_raw` makes requests for the signature `text`.
        """
        predict = self.predict_texts if are_texts else self.predict
        records = iter(records)
        while batch := list(itertools.islice(records, batch_size)):
            made = predict([to_raw(record) for record in batch])
            yield from zip(batch, made, strict=True)
            done(len(batch))

    def count_unknown_labels(self, gold: Iterable[Any]) -> int:
        """Counts gold labels that did not occur in training."""
        find = getattr(self.spec.dataset, "unknown_labels", None)
        if find is None:
            return 0
        labels = self.sizes.get("labels", ())
        return sum(len(find(x, labels)) for x in gold)


def load_answers(path: str, spec: TaskSpec) -> Answers:
    """Loads a SavedModel of a task that `export` wrote.

    Raises a `UserError` if the SavedModel is damaged.
    """
    metadata = exported.read_metadata(path)
    options = exported.make_options(path, spec.options, metadata["options"])
    exported.check_files(path, metadata)
    # The model owns the weights that the signature uses.
    model = load_saved_model(path)
    if signatures.SERVING_DEFAULT not in model.signatures:
        raise UserError(
            f"{path} has no signature {signatures.SERVING_DEFAULT}. Export the "
            "model again."
        )
    sizes = metadata.get("preprocessing_config", {})
    return Answers(
        spec,
        spec.make_model(options=options, sizes=sizes),
        model.signatures[signatures.SERVING_DEFAULT],
        metadata,
        model,
        model.signatures.get(signatures.TEXT),
    )


def load_saved_model(path: str):
    """Loads a SavedModel that `export` wrote.

    Raises a `UserError` if it is damaged.
    """
    import tensorflow_text  # noqa: F401  The graph uses its operations.

    try:
        return tf.saved_model.load(path)
    # TensorFlow raises any exception for damaged files: KeyError, IndexError...
    except Exception as error:
        problem = " ".join(without_stack(str(error))).rstrip(".")
        raise UserError(
            f"{path} cannot be loaded ({type(error).__name__}: {problem}). "
            "Copy it again, or export the model again."
        ) from error
