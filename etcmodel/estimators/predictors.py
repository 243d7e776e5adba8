"""Predicts in Python with a run or a SavedModel."""

import abc
import html
import os
import tempfile
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Generic
from typing import Literal
from typing import TypeVar

from etcmodel.engine import export as export_lib
from etcmodel.engine import inputs
from etcmodel.engine import progress as progress_lib
from etcmodel.engine import shortcuts
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.estimators.explanations import Explanation
from etcmodel.pipeline.spec import load as load_place
from etcmodel.readers.row_formats import RowFormat
from etcmodel.serving import exported
from etcmodel.tasks import registry
from etcmodel.training import runs

Result = TypeVar("Result")
_ON_ERROR = ("return", "raise")
# Path -> temporary directory, of all models in this process.
_FOLDERS = weakref.WeakValueDictionary()


class Predictor:
    """A trained model of any task; see `etcmodel.load`.

    Predictions equal those of `etcmodel predict` and of the served model: all
    run the graph that `export` writes. `predict` is thread-safe.

    Attributes:
        task: name of the task.
        model_dir: directory of the run; None for a SavedModel.
    """

    task = ""

    def __init__(self):
        self.model_dir = self._saved_model = self._loaded = None
        # The model of a run, set together with `_loaded`; None for a
        # SavedModel.
        self._trained = None
        self._lock = threading.Lock()
        # This directory is deleted together with the model.
        self._folder = tempfile.TemporaryDirectory(prefix="etcmodel")
        _FOLDERS[self._folder.name] = self._folder
        self._used_folders = []

    def open(self, path: str | os.PathLike) -> None:
        """Opens a run or a SavedModel."""
        path = os.fspath(path)
        self.task = task_of(path)
        if _is_saved_model(path):
            self._saved_model = path
        else:
            self.model_dir = path
        self._keep(path)

    def __getstate__(self):
        raise UserError(
            f"A {type(self).__name__} cannot be copied or pickled: its weights "
            "are in files. Load it again with `etcmodel.load`; after `fit`, "
            "call `save` first."
        )

    def _describe(self) -> dict[str, Any]:
        """Returns name -> value for `repr`."""
        state = "not trained"
        if self.model_dir is not None:
            state = "trained"
        elif self._saved_model is not None:
            state = f"SavedModel {self._saved_model}"
        return {"task": self.task, "state": state}

    def __repr__(self):
        values = ", ".join(f"{x}={y!r}" for x, y in self._describe().items())
        return f"{type(self).__name__}({values})"

    def _repr_html_(self) -> str:
        """Returns a small table for notebooks."""
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th>"
            f"<td>{html.escape(str(value))}</td></tr>"
            for name, value in self._describe().items()
        )
        return f"<b>{type(self).__name__}</b><table>{rows}</table>"

    def _keep(self, path: str) -> None:
        """Keeps the temporary directory that contains the path, if any."""
        self._used_folders += [
            folder
            for name, folder in _FOLDERS.items()
            if os.path.abspath(path).startswith(f"{name}{os.sep}")
        ]

    @property
    def _spec(self):
        return registry.get(self.task)

    def _path(self, *names: str) -> str:
        return os.path.join(self._folder.name, *names)

    def _load(self):
        """Returns the model's `Answers`, which are loaded once."""
        with self._lock:
            if self._loaded is None:
                self._loaded = self._make_answers()
            return self._loaded

    def _make_answers(self):
        """Loads the SavedModel, or builds the model of the run."""
        if self._saved_model is not None:
            from etcmodel.serving import answers

            spec = registry.get_with_answers(self.task)
            return answers.load_answers(self._saved_model, spec)
        self._trained = self._load_trained()
        return self._trained.answers()

    def _load_trained(self):
        """Builds the model of the run, with its weights."""
        if self.model_dir is None:
            raise UserError(
                f"This {type(self).__name__} is not trained yet. Call `fit` "
                "first."
            )
        from etcmodel.engine import trained_model

        params = runs.read_params(self.model_dir)
        params = shortcuts.nested({**params, **self._overrides()})
        return trained_model.load(
            registry.get_with_answers(self.task),
            self.model_dir,
            params,
            runs.find_vocabulary(self.model_dir),
        )

    def _export(self, directory: str, **options: Any) -> None:
        """Writes the run as a SavedModel, with further options of `export`."""
        export_lib.export(
            export_lib.Options(
                model_dir=self.model_dir,
                output_dir=directory,
                params_override=self._overrides() or None,
                **options,
            )
        )

    def _overrides(self) -> dict[str, Any]:
        """Returns the parameters that override those of the run, by name."""
        return {}

    def predict(
        self, records: Iterable[Any], batch_size: int = 8, progress: bool = True
    ) -> list[Any]:
        """Returns the predictions for records, in the order of the records.

        Args:
            records: dicts with the inputs of a request; see docs/serving.md.
            batch_size: number of records per batch.
            progress: whether to show a progress bar.

        Raises:
            UserError: the model is not trained, or a record cannot be used.
        """
        read = self._read(records, "predict")
        return [x for _, x in self._predictions(read, batch_size, progress)]

    def explain(
        self,
        record: Any,
        *,
        tokens: Sequence[int] | None = None,
        window: int = 0,
    ) -> Explanation:
        """Shows a record's tokens as the model reads them, and their attention.

        A notebook shows the result as a page on which tokens can be chosen;
        `save` writes the page.

        Args:
            record: a record as for `predict`; a label, if there is one, is
                shown as the gold answer.
            tokens: numbers of the tokens whose attention is computed, global
                tokens first; None for all. Few tokens take less time.
            window: number of the window, from 0, if the record does not fit
                into the model's input at once.

        Raises:
            UserError: the model is not trained or a SavedModel, or the record
                cannot be used.
        """
        if self._saved_model is not None:
            raise UserError(
                f"{self._saved_model} is a SavedModel, which does not contain "
                "its layers. Load the run instead, or what `save` wrote."
            )
        answers = self._load()
        (read,) = self._read_one(record)
        from etcmodel.engine import explain

        # Layers have one observer of their scores at a time.
        with self._lock:
            made = explain.explain(
                self._trained,
                answers,
                self._raw(read),
                None if isinstance(read, dict) else read,
                window,
                tokens,
            )
        return Explanation(made)

    def _read_one(self, record: Any) -> list[Any]:
        """Reads one record, with its label."""
        return list(self._read([record], "predict"))

    def _read(self, records: Iterable[Any], split: str) -> Iterator[Any]:
        """Yields records in the form that `_raw` takes."""
        del split
        names = list(load_place(self._spec.preprocessor).INPUTS)
        for i, record in enumerate(records):
            if not isinstance(record, dict) or not {*names} <= record.keys():
                raise UserError(
                    f"records[{i}]: expected a dict with {', '.join(names)}."
                )
            yield record

    def _raw(self, record: Any) -> dict[str, Any]:
        """Returns the raw inputs of a record, without padding."""
        return record

    def _predictions(self, records, batch_size: int, progress: bool):
        """Yields pairs of a record and its prediction."""
        import tqdm

        saved = self._load()
        num_cut, num_refused = saved.num_cut, saved.num_refused
        # With None, tqdm shows the bar only in terminals.
        disable = not progress or None
        if progress and progress_lib.in_notebook():
            disable = False
        with tqdm.tqdm(
            desc="Predicting", unit=" records", disable=disable
        ) as bar:
            yield from saved.predict_records(
                records, self._raw, batch_size, bar.update
            )
        if saved.num_cut > num_cut:
            _warn(
                f"Truncated records: {saved.num_cut - num_cut}. They are "
                "longer than the model's input."
            )
        if saved.num_refused > num_refused:
            _warn(
                f"Refused records: {saved.num_refused - num_refused}. Their "
                "inputs are invalid, so their answers are empty. See "
                "docs/serving.md."
            )


class _Errors(BadRecords):
    """Collects errors by the position of their record, or raises them."""

    def __init__(self, on_error: str):
        if on_error not in _ON_ERROR:
            raise UserError(
                f"on_error={on_error!r}: expected one of {_ON_ERROR}."
            )
        super().__init__(skip=on_error == "return")
        self.by_index: dict[int, RecordError] = {}

    def report(self, error: RecordError) -> None:
        """Stores an error, or raises it if `on_error` is "raise"."""
        super().report(error.without_flag())
        self.by_index[error.index] = error


class RowPredictor(Predictor, Generic[Result]):
    """A model that makes predictions for rows of users' own documents.

    Attributes:
        options: name -> value of the options that were set.
    """

    options: dict[str, Any]

    def predict(
        self,
        records: Iterable[Any],
        batch_size: int = 8,
        progress: bool = True,
        on_error: Literal["return", "raise"] = "return",
    ) -> list[Result | RecordError]:
        """Returns one result per document, in the order of the documents.

        The docstring of the class describes the type of the results.

        Args:
            records: strings, dicts with the fields of
                docs/own_documents_reference.md, a pandas data frame, a
                `tf.data.Dataset`, or any other collection of rows.
            batch_size: number of documents per batch.
            progress: whether to show a progress bar.
            on_error: how to handle a record that cannot be used, such as an
                empty document: "return" warns and returns its
                `etcmodel.errors.RecordError` in place of its prediction;
                "raise" raises it.

        Raises:
            UserError: the model is not trained, or a record cannot be used and
                `on_error` is "raise".
        """
        errors = _Errors(on_error)
        found = {
            record.index: self._result(record, x)
            for record, x in self._predictions(
                self._read(records, "predict", errors), batch_size, progress
            )
        }
        if errors.total:
            _warn(
                f"Records without a prediction: {errors.total}. The result has "
                f"their errors instead. The first is: {errors.examples[0]}"
            )
        found |= errors.by_index
        return [found[index] for index in sorted(found)]

    @abc.abstractmethod
    def _result(self, record: Any, prediction: Any) -> Result:
        """Converts a record's prediction to what `predict` returns."""

    def evaluate(
        self, records: Iterable[Any], batch_size: int = 8, progress: bool = True
    ) -> dict[str, float]:
        """Predicts labelled documents and returns metrics by name.

        The metrics are those of `etcmodel predict`. Gold labels that the model
        does not know count as wrong, with a warning. Also warns if a classifier
        is no better than always predicting the most frequent label.

        Args:
            records: records as for `predict`, with labels.
            batch_size: number of documents per batch.
            progress: whether to show a progress bar.
        """
        predictions, gold = {}, {}
        found = self._predictions(
            self._read(records, "dev", _Errors("raise")), batch_size, progress
        )
        for record, prediction in found:
            predictions[record.id] = prediction
            gold[record.id] = self._spec.dataset.gold(record)
        unknown = self._load().count_unknown_labels(gold.values())
        if unknown:
            _warn(
                f"Labels that are not in the training data: {unknown}. They "
                "are scored as wrong."
            )
        metrics = self._spec.dataset.score(predictions, gold)
        for text in self._spec.notes(metrics):
            _warn(text)
        return metrics

    def _read_one(self, record):
        return list(self._read([record], "predict", _Errors("raise")))

    def _read(self, records, split, errors=None):
        if isinstance(records, str):
            # Iterating over a string would yield characters.
            raise UserError(
                "records: expected a list of documents, got one string. Give "
                "[text] for one document."
            )
        sizes = self._load().sizes
        names = self._spec.size_names()
        given = {
            x: y
            for x, y in self.options.items()
            if x in names and y not in (None, "auto")
        }
        rows: RowFormat = inputs.format_of_model(
            self._spec, sizes, self._load().reading, given
        )
        read = rows.read_rows(records, split, errors, name="records")
        if self._load().has_queries:
            read = _with_warning(read, lambda x: not x.query, _NO_QUERY)
        if sizes.get("units") == "texts":
            read = _with_warning(read, lambda x: not x.has_units, _NO_TEXTS)
        return read

    def _raw(self, record):
        return load_place(self._spec.preprocessor).raw(record)


_NO_QUERY = (
    "The model was trained on records with queries, but record {} has none. "
    "If the records have queries, pass the field's name as `query_field`."
)
_NO_TEXTS = (
    "The model was trained on lists of texts, but record {} is a string, which "
    "counts as one text. Pass a list of sentences to get a score for each."
)


def _with_warning(
    records: Iterator[Any], is_odd: Callable[[Any], bool], message: str
) -> Iterator[Any]:
    """Yields the records; warns about the first for which `is_odd` is true."""
    is_told = False
    for record in records:
        if not is_told and is_odd(record):
            _warn(message.format(record.id))
            is_told = True
        yield record


def _warn(message: str) -> None:
    """Warns, naming the line of the caller outside this file."""
    frames = traceback.extract_stack()
    level = next(
        number
        for number, frame in enumerate(reversed(frames), 1)
        if number == len(frames) or frame.filename != __file__
    )
    # A `stacklevel` of 1 is the call of `warnings.warn` itself.
    warnings.warn(message, stacklevel=level)


def task_of(path: str | os.PathLike) -> str:
    """Returns the task of a run or SavedModel.

    Raises a `UserError` if the directory is neither.
    """
    path = os.fspath(path)
    if _is_saved_model(path):
        return exported.read_metadata(path)["task"]
    return runs.read(path)["task"]


def _is_saved_model(path: str) -> bool:
    return os.path.exists(os.path.join(path, "saved_model.pb"))
