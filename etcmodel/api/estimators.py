"""Models that are trained and used in Python, with the commands' engine."""

import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from etcmodel.api import predictors
from etcmodel.cli import command_line
from etcmodel.cli import shortcut_flags
from etcmodel.datasets import files
from etcmodel.datasets import tables
from etcmodel.errors import UserError
from etcmodel.pipeline import metadata_files
from etcmodel.pipeline import options as options_lib
from etcmodel.training import runs

_LIFTED = "lift.json"


class Estimator(predictors.RowPredictor):
    """A model for users' own documents.

    `fit` runs `etcmodel preprocess` and `etcmodel train` in this process, in a
    temporary directory; `save` keeps the run. Training uses Keras 2: import
    this class before TensorFlow, or set `TF_USE_LEGACY_KERAS=1`.
    """

    def __init__(self, model_dir=None, saved_model=None, **options):
        super().__init__(model_dir, saved_model, **options)
        self._source = self._vocab_file = None

    @classmethod
    def from_pretrained(
        cls, source: str, vocab_file: str | None = None, **options: Any
    ) -> "Estimator":
        """Makes a model that starts from weights, or from random ones.

        Args:
            source: what `etcmodel lift` wrote, a run of `train`, a published
                checkpoint, or the name of a preset such as "small", whose
                weights are random.
            vocab_file: the vocabulary; by default that beside the weights.
            **options: the options in docs/own_documents.md, such as
                `long_length` (preprocessing), `pooling` (model) and `threshold`
                (predictions).

        Raises:
            UserError: there is no such option, or no vocabulary.
        """
        made = cls(**options)
        made._check_options()
        made._source = source
        made._vocab_file = vocab_file or _vocabulary_beside(source)
        if made._vocab_file is None:
            raise UserError(
                f"{source} has no vocabulary. Name it with `vocab_file`."
            )
        if _task_of_run(source) == cls.task:
            made.model_dir = source
        return made

    def _fields(self) -> dict[str, list[str]]:
        spec = self._spec
        return {
            "preprocessing": [
                x.name
                for x in options_lib.flag_fields(
                    spec.preprocessing_config_class
                )
            ],
            "model": [x.name for x in dataclasses.fields(spec.model_options)],
            "answers": [x.name for x in dataclasses.fields(spec.options)],
        }

    def _check_options(self) -> None:
        known = sum(self._fields().values(), [])
        for name in self.options:
            if name not in known:
                raise UserError(
                    f"{type(self).__name__} has no option {name!r}. Choose "
                    f"from: {', '.join(known)}."
                )

    def fit(
        self,
        records: Iterable[Any] | str,
        validation: Iterable[Any] | str | None = None,
        *,
        validation_fraction: float | None = None,
        epochs: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        patience: int | None = None,
        seed: int | None = None,
        small: bool = False,
        skip_bad_records: bool = False,
        params: dict[str, Any] | None = None,
        verbose: bool = True,
    ) -> "Estimator":
        """Trains the model; with validation, the best checkpoint is kept.

        A second call starts from the weights of the first.

        Args:
            records: training records, as for `predict` but with labels; or the
                name of a file. See docs/own_documents.md.
            validation: validation records, in the same forms.
            validation_fraction: share of `records` to validate with instead.
            epochs: passes over the records; by default the experiment's.
            batch_size: records of a step.
            learning_rate: the highest one, after the warm-up.
            patience: validations without a better metric after which training
                stops.
            seed: seed of weights, order, dropout and of the split by
                `validation_fraction`.
            small: a trial run; see `etcmodel train --small`.
            skip_bad_records: leave out records that cannot be used.
            params: overrides of the training configuration, such as
                `{"runtime.mixed_precision_dtype": "bfloat16"}`.
            verbose: whether to show what the commands print.

        Returns:
            The model itself.

        Raises:
            UserError: records, options or weights do not fit.
        """
        self._check_options()
        _use_keras_2()
        folder = self._path(f"fit_{len(os.listdir(self._folder.name))}")
        os.mkdir(folder)
        data = self._preprocess(
            folder,
            records,
            validation,
            validation_fraction,
            seed,
            skip_bad_records,
            verbose,
        )
        model_dir = os.path.join(folder, "run")
        start = self.model_dir or self._source
        is_preset = not metadata_files.exists(start)
        predictors.run_command(
            "train",
            verbose,
            experiment=f"etc/{self.task}",
            model_dir=model_dir,
            **data,
            **{"preset" if is_preset else "init_checkpoint": start},
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            patience=patience,
            seed=seed,
            small=small,
            params_override=json.dumps(
                shortcut_flags.nested(self._parameters(params or {}))
            ),
        )
        self.model_dir, self._saved_model, self._loaded = model_dir, None, None
        return self

    def _preprocess(
        self, folder, records, validation, fraction, seed, skip, verbose
    ) -> dict[str, str]:
        """Preprocesses both collections of records."""
        if validation is not None and fraction is not None:
            raise UserError(
                "Give either `validation` or `validation_fraction`."
            )
        common = {
            "task": self.task,
            "vocab_file": self._vocab_file,
            "skip_bad_records": skip,
            **{
                name: self.options[name]
                for name in self._fields()["preprocessing"]
                if name in self.options
            },
        }
        train = os.path.join(folder, "train")
        predictors.run_command(
            "preprocess",
            verbose,
            input=_as_file(records, os.path.join(folder, "train.jsonl")),
            output_dir=train if fraction is None else folder + "/records",
            validation_fraction=fraction,
            seed=seed or 0,
            **common,
        )
        if fraction is not None:
            train = os.path.join(folder, "records", "train")
            dev = os.path.join(folder, "records", "dev")
        elif validation is None:
            return {"train_data": train}
        else:
            dev = os.path.join(folder, "dev")
            predictors.run_command(
                "preprocess",
                verbose,
                input=_as_file(validation, os.path.join(folder, "dev.jsonl")),
                output_dir=dev,
                split="dev",
                like=train,
                **common,
            )
        return {"train_data": train, "validation_data": dev}

    def _parameters(self, given: dict[str, Any]) -> dict[str, Any]:
        """Returns the trainer's parameters that the options stand for."""
        fields = self._fields()
        places = {"model": "task.model", "answers": "task"}
        return {
            **{
                f"{place}.{name}": self.options[name]
                for kind, place in places.items()
                for name in fields[kind]
                if name in self.options
            },
            **given,
        }

    def save(self, directory: str) -> None:
        """Copies the run to a directory; `etcmodel.load` reads it."""
        if self.model_dir is None:
            raise UserError("There is no run to save. Call `fit` first.")
        if os.path.exists(directory) and os.listdir(directory):
            raise UserError(f"{directory} exists. Choose another directory.")
        partial = f"{directory.rstrip('/')}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(self.model_dir, partial)
        if os.path.exists(directory):
            os.rmdir(directory)
        os.rename(partial, directory)

    def export(self, directory: str, overwrite: bool = False) -> None:
        """Writes a SavedModel that answers raw text; see docs/serving.md."""
        if self.model_dir is None:
            raise UserError("There is no run to export. Call `fit` first.")
        predictors.run_command(
            "export",
            model_dir=self.model_dir,
            output_dir=directory,
            overwrite=overwrite,
        )


class DocumentClassifier(Estimator):
    """Predicts one label, several labels or a number for documents.

    `predict` returns a dict for each document: `label` (a string, a list or a
    number) and `probabilities`, label -> probability.

    Example:
        model = DocumentClassifier.from_pretrained("lifted")
        model.fit(records, validation_fraction=0.1, epochs=3)
        model.predict(["a long text ..."])
    """

    task = "classify"


class SentenceSelector(Estimator):
    """Scores the sentences or paragraphs of documents.

    `predict` returns a list of dicts for each document, one for each unit:
    `paragraph`, `number` in the paragraph, `text`, `probability` and
    `is_selected`.
    """

    task = "select"

    def _friendly(self, prediction):
        return [
            {
                "paragraph": unit.paragraph,
                "number": unit.text,
                "text": unit.content,
                "probability": unit.score,
                "is_selected": unit.is_selected,
            }
            for unit in prediction
        ]


class QuestionAnswerer(Estimator):
    """Answers questions about documents.

    `predict` returns a dict for each question: `answer` ("" for none),
    `no_answer_probability` and `evidence`, a list of `(paragraph, number)`.
    """

    task = "answer"

    def _friendly(self, prediction):
        evidence = [x[:2] for x in prediction["evidence"] if x.is_selected]
        return {**prediction, "evidence": evidence}


_ESTIMATORS = {
    x.task: x for x in (DocumentClassifier, SentenceSelector, QuestionAnswerer)
}


def load(path: str, **options: Any) -> predictors.Predictor:
    """Loads a run of `train` or `fit`, or what `export` wrote, of any task.

    Args:
        path: its directory.
        **options: how rows are read, such as `text_field`.

    Raises:
        UserError: the directory is none of these, or the task has no options.
    """
    task, arguments = predictors.task_of(path)
    if task not in _ESTIMATORS and options:
        raise UserError(f"{task} takes no options, got {', '.join(options)}.")
    made = _ESTIMATORS.get(task, predictors.Predictor)(**arguments, **options)
    made.task = task
    if isinstance(made, Estimator) and made.model_dir:
        made._source = path
        made._vocab_file = _vocabulary_beside(path)
    return made


def _use_keras_2() -> None:
    """Selects Keras 2, if that is still possible."""
    command_line.prepare_environment()
    import tensorflow as tf

    if not tf.keras.layers.Layer.__module__.startswith("tf_keras"):
        raise UserError(
            "Training needs Keras 2, but TensorFlow was imported with Keras "
            "3. Set TF_USE_LEGACY_KERAS=1 before TensorFlow is imported, or "
            "import it after etcmodel.DocumentClassifier."
        )


def _task_of_run(source: str) -> str | None:
    path = os.path.join(source, runs.RUN_FILE)
    return runs.read(source)["task"] if metadata_files.exists(path) else None


def _vocabulary_beside(source: str) -> str | None:
    """Returns the vocabulary of lifted weights or of a run; None if unknown."""
    for name, keys in ((_LIFTED, ()), (runs.RUN_FILE, ("records",))):
        path = os.path.join(source, name)
        if metadata_files.exists(path):
            note = metadata_files.read(path)
            for key in keys:
                note = note.get(key) or {}
            if "vocab_file" in note:
                return os.path.join(source, note["vocab_file"])
    path = os.path.join(source, "vocab.txt")
    return path if metadata_files.exists(path) else None


def _as_file(records: Iterable[Any] | str, path: str) -> str:
    """Writes rows to a file, unless they are a file already."""
    if isinstance(records, str):
        return ",".join(files.find(records))
    with open(path, "w", encoding="utf-8") as stream:
        for row in tables.rows_of(records):
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


# Selects Keras 2 unless TensorFlow is already imported.
if "tensorflow" not in sys.modules:
    command_line.prepare_environment()
