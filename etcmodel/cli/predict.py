"""`predict`: answers the questions of a data file with a SavedModel."""

import collections
import dataclasses
import itertools
import json
import os
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from absl import flags

from etcmodel.cli.preprocess import InputFlags
from etcmodel.errors import BadRecords
from etcmodel.errors import UserError
from etcmodel.errors import without_stack
from etcmodel.pipeline.atomic import atomic_file
from etcmodel.pipeline.atomic import check_file
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import load
from etcmodel.readers import files
from etcmodel.serving import exported
from etcmodel.tasks import registry

DESCRIPTION = """
Reads a data file in the official format of the task, sends its raw text through
a SavedModel, and writes the answers in the official submission format:

  hotpotqa  {"answer": {id: text}, "sp": {id: [[title, sentence], ...]}}
  nq        {"predictions": [...]}, with scores
  wikihop   {id: answer}; so do answer and read_twice_triviaqa
  openkp    {"url": url, "KeyPhrases": [[text], ...]}, a line each
  classify  {"id": id, "label": label, "probabilities": {...}}, likewise
  select    {"id": id, "selected": [[paragraph, unit], ...], "scores": ...}
  read_twice_narrativeqa  {"id": "document: question", "answer": text}, likewise

Where the file has answers, the official metrics are printed. The output file
appears only when it is whole.
"""

EXAMPLE = """
python -m etcmodel predict --saved_model=saved_model --input=dev.json \\
    --output=predictions.json
"""


# Flags that say how a file is read; each is of some tasks.
_READING = (
    *("data_split", "text_field", "query_field", "id_field"),
    *("label_field", "label_kind", "evidence_field"),
)


@dataclasses.dataclass(kw_only=True)
class Flags(InputFlags):
    """The flags.

    Attributes:
        saved_model: the SavedModel: the --output_dir of `export`.
        output: the file to write.
        data_split: which records of a file are answered: "train", "valid" or
            "test" of NarrativeQA; by default all.
        text_field: field with the document, of your own documents.
        query_field: field with the question or the candidate labels.
        id_field: field with the record's id.
        label_field: field with the right answer.
        label_kind: kind of the labels of `classify`: single, multiple, number.
        evidence_field: field with the evidence, of `answer`.
        batch_size: how many records are answered at once.
        metrics: a JSON file to write the metrics to. Pictures of `classify`'s
            labels, confusion matrix and calibration, are written beside it.
        overwrite: replace the files to write if they exist.
    """

    saved_model: str = option(path="saved_model")
    output: str = option(path="new_file")
    data_split: str | None = None
    text_field: str | None = None
    query_field: str | None = None
    id_field: str | None = None
    label_field: str | None = None
    label_kind: str | None = None
    evidence_field: str | None = None
    batch_size: int = 8
    metrics: str | None = option(None, path="new_file")
    overwrite: bool = False


class SavedAnswers:
    """What `export` wrote, asked for the task's predictions.

    Attributes:
        spec: the task.
        sizes: the preprocessing configuration of the training records.
        has_queries: whether all training records are known to have queries.
        num_cut: number of records truncated so far.
        num_refused: number of records so far that the model refused.
    """

    def __init__(self, path: str):
        metadata = exported.read_metadata(path)
        self.spec = registry.get_with_answers(metadata["task"])
        self.sizes = metadata.get("preprocessing_config", {})
        self.has_queries = metadata.get("has_queries", False)
        self._metadata = metadata
        self._path = path
        self._task_model = self.answer = None
        self.num_cut = self.num_refused = 0

    def load(self) -> None:
        """Loads the SavedModel; a `UserError` if it cannot be loaded."""
        from etcmodel.serving import signatures

        options = exported.make_options(
            self._path, self.spec.options, self._metadata["options"]
        )
        exported.check_files(self._path, self._metadata)
        # The model owns the weights that the signature uses.
        self._model = load_saved_model(self._path)
        if signatures.SERVING_DEFAULT not in self._model.signatures:
            raise UserError(
                f"{self._path} has no signature {signatures.SERVING_DEFAULT}. "
                "Export the model again."
            )
        self.answer = self._model.signatures[signatures.SERVING_DEFAULT]
        self._task_model = self.spec.make_model(
            options=options, sizes=self.sizes
        )

    def predict(self, raw: Sequence[dict[str, Any]]) -> list[Any]:
        """Predicts a batch of the inputs of requests, not padded."""
        import numpy as np
        import tensorflow as tf

        from etcmodel.training import evaluation

        inputs = load(self.spec.preprocessor).pad_batch(raw)
        answers = self.answer(**{x: tf.constant(y) for x, y in inputs.items()})
        if "tokens_cut" in answers:
            self.num_cut += np.count_nonzero(answers["tokens_cut"])
        if "is_refused" in answers:
            self.num_refused += np.count_nonzero(answers["is_refused"])
        return evaluation.to_predictions(self._task_model, answers, raw)

    def count_unknown_labels(self, gold: Iterable[Any]) -> int:
        """Counts labels in right answers that training did not have."""
        find = getattr(self.spec.dataset, "unknown_labels", None)
        if find is None:
            return 0
        labels = self.sizes.get("labels", ())
        return sum(len(find(x, labels)) for x in gold)


def load_saved_model(path: str):
    """Loads a SavedModel that `export` wrote."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  The graph uses its operations.

    try:
        return tf.saved_model.load(path)
    # Anything is raised for damaged files: KeyError, IndexError, ...
    except Exception as error:
        problem = " ".join(without_stack(str(error))).rstrip(".")
        raise UserError(
            f"{path} cannot be loaded ({type(error).__name__}: {problem}). "
            "Copy it again, or export the model again."
        ) from error


def _reader(spec, noted: dict, flag_values: flags.FlagValues):
    """Returns how the data file is read, as flags and training records say."""
    given = {
        name: flag_values[name].value
        for name in _READING
        if flag_values[name].value is not None
    }
    for name, value in given.items():
        if name not in spec.reading:
            raise UserError(f"--{name}={value}: {spec.name} has no such flag.")
    if not spec.reading:
        return spec.dataset.FORMAT
    try:
        return spec.format(spec.make_preprocessing_config({**noted, **given}))
    except (UserError, ValueError) as error:
        shown = ", ".join(f"--{name}={value}" for name, value in given.items())
        reason = error.__cause__ or error
        raise UserError(f"{shown}: {spec.name}: {reason}") from error


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command."""
    paths = files.find(flag_values.input)
    saved = SavedAnswers(flag_values.saved_model)
    spec, dataset = saved.spec, saved.spec.dataset
    reader = _reader(spec, saved.sizes, flag_values)
    prefix, _ = os.path.splitext(flag_values.metrics or "")
    if flag_values.metrics and spec.plots:
        module, _, _ = spec.plots.partition(":")
        for ending in load(f"{module}:ENDINGS"):
            check_file(f"{prefix}{ending}", flag_values.overwrite)
    saved.load()

    from etcmodel.cli.progress import file_progress

    preprocessor = load(spec.preprocessor)
    bad_records = BadRecords(flag_values.skip_bad_records)
    predictions, gold, counts = {}, {}, collections.Counter()
    with (
        atomic_file(flag_values.output) as stream,
        file_progress(paths, "Predicting") as progress,
    ):
        records = files.limited(
            flag_values.max_record_bytes,
            *(reader.read, paths, "predict", bad_records, progress.at),
        )
        while batch := list(itertools.islice(records, flag_values.batch_size)):
            made = saved.predict([preprocessor.raw(x) for x in batch])
            for record, prediction in zip(batch, made, strict=True):
                counts.update(record.counts)
                if saved.sizes.get("units") == "texts":
                    # The model learned from lists of texts.
                    counts[
                        "documents_not_split_into_texts"
                    ] += not record.has_units
                if saved.has_queries:
                    counts["records_without_query"] += not record.query
                predictions[record.id] = prediction
                right = dataset.gold(record)
                if right is not None:
                    gold[record.id] = right
            progress.done(len(batch))
        counts["records_truncated"] += saved.num_cut
        counts["labels_not_in_training_data"] = saved.count_unknown_labels(
            gold.values()
        )
        if not predictions:
            raise UserError(
                f"{flag_values.input}: no usable record was found. "
                f"{bad_records.summary()}"
            )
        dataset.write_predictions(predictions, stream)
    if bad_records.total:
        print(bad_records.summary())
        print("They are not in the metrics; official ones count them as wrong.")
    if flag_values.metrics and not gold:
        raise UserError(
            f"--metrics={flag_values.metrics} is not written: no record of "
            f"{flag_values.input} has a label. The predictions are in "
            f"{flag_values.output}."
        )
    print(f"Wrote {len(predictions)} answers to {flag_values.output}.")
    for name, count in counts.items():
        if count:
            print(f"  {count:10d}  {name.replace('_', ' ')}")
    if gold:
        print(f"Of {len(gold)} records with an answer:")
        metrics = dataset.score(predictions, gold)
        for name, value in metrics.items():
            print(f"{name}: {value:.6g}")
        if flag_values.metrics:
            with atomic_file(flag_values.metrics) as stream:
                json.dump(metrics, stream, indent=2, sort_keys=True)
            if spec.plots:
                for path in load(spec.plots)(prefix, predictions, gold):
                    print(f"The picture is in {path}.")
