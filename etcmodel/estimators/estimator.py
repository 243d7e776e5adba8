"""Base class of trainable models for users' own documents."""

import dataclasses
import os
import shutil
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import TypeVar

import numpy as np

from etcmodel.engine import preprocess
from etcmodel.engine import processes
from etcmodel.engine import shortcuts
from etcmodel.engine import train
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.estimators import predictors
from etcmodel.estimators import sources
from etcmodel.estimators.arguments import suggest_names
from etcmodel.estimators.predictors import Result
from etcmodel.pipeline import atomic
from etcmodel.pipeline import metadata_files
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline import own_files
from etcmodel.readers import files
from etcmodel.serving import exported
from etcmodel.training import overlaps
from etcmodel.training import runs

# Lengths of the input, which can be raised after training.
_SIZES = ("long_length", "global_length")


_Estimator = TypeVar("_Estimator", bound="Estimator")


class Estimator(predictors.RowPredictor[Result]):
    """A model for users' own documents.

    `fit` trains in a temporary directory with Keras 2. If this process uses
    Keras 3, `fit` trains in a new process. `save` copies the run to a permanent
    directory.

    The subclasses take options as keyword arguments. An option that is None
    (the default) keeps the value of the run that `fit` continues. Without a
    run, it has the default given here or in the subclass. All subclasses have
    these options:

    *   `long_length`, `global_length`: lengths of the input, in tokens
        (default: 4096 and 512). Text that does not fit is truncated.
    *   `units`: parts of the document that get a global token: "sentences",
        which are detected; "texts", which are given as lists; or "paragraphs".
        By default ("auto"), the choice depends on the training records; see
        docs/own_documents.md.
    *   `block_size`: length of a block, in tokens (default: 64), if `units` is
        "blocks".
    *   `text_field`, `query_field`, `id_field`, `label_field`: names of the
        records' fields, if they differ from the default names.
    *   `title_field`: name of a field with the document's title (default:
        none). The run stores all these names.

    Attributes:
        history: measurements of the last `fit`: "loss" has step -> loss,
            "validation" has step -> metrics by name.
    """

    def __init__(self, arguments: Mapping[str, Any]):
        super().__init__()
        names = sum(self._fields().values(), [])
        given = {name: arguments[name] for name in names}
        self.options = {x: y for x, y in given.items() if y is not None}
        self._check_values()
        self.history: dict[str, Mapping[int, Any]] = {}
        self._source = self._vocab_file = None
        # Options at the last `fit`; the run in `model_dir` was trained with
        # them.
        self._trained_with = {}

    def open(self, path: str | os.PathLike) -> None:
        """Opens a run, which `fit` then continues, or a SavedModel."""
        super().open(path)
        if self.model_dir:
            self._source = self.model_dir
            self._vocab_file = sources.vocabulary_beside(self.model_dir)

    def _describe(self):
        noted = {**self._noted(), **self.options}
        found = super()._describe()
        if self._source is not None:
            found["weights"] = self._source
        for name in (*_SIZES, "units"):
            if noted.get(name):
                found[name] = noted[name]
        return found

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

    def _check_values(self) -> None:
        """Raises a `UserError` for an option with an invalid value."""
        spec, fields = self._spec, self._fields()
        values = {
            kind: {
                x: _plain(self.options[x]) for x in names if x in self.options
            }
            for kind, names in fields.items()
        }
        options_lib.check(
            spec.make_preprocessing_config(values["preprocessing"])
        )
        for kinds, kind in (
            (spec.model_options, "model"),
            (spec.options, "answers"),
        ):
            options_lib.check(kinds(**values[kind]))

    @suggest_names
    def fit(
        self,
        records: Iterable[Any] | str | os.PathLike,
        validation: Iterable[Any] | str | os.PathLike | None = None,
        *,
        validation_fraction: float | None = None,
        epochs: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        patience: int | None = None,
        seed: int | None = None,
        small: bool = False,
        skip_bad_records: bool = False,
        max_record_bytes: int = files.MAX_RECORD_BYTES,
        optimizer: str | None = None,
        schedule: str | None = None,
        lora_rank: int | None = None,
        params: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callable[[int, dict[str, float]], object]] = (),
        verbose: int = 1,
    ) -> "Estimator":
        """Trains the model; with validation, keeps the best checkpoint.

        Calling `fit` again continues training from the current weights, with
        the current options and labels. To train on other labels, list all of
        them in the option `labels`; the head is then initialized at random.

        Args:
            records: training records, as for `predict` but with labels; or the
                path of a file. See docs/own_documents_reference.md.
            validation: validation records, in any form that `records` may have.
            validation_fraction: share of `records` to hold out for validation,
                instead of `validation`.
            epochs: passes over the records; by default, those that at least 300
                steps need.
            batch_size: number of records per step; by default 8 below 500
                records, otherwise 16.
            learning_rate: peak learning rate, reached after the warm-up; by
                default, it follows from the encoder's width. See
                docs/own_documents.md.
            patience: number of validations without a better metric after which
                training stops early.
            seed: seed of weights, order of records, dropout, and the split by
                `validation_fraction`.
            small: trial run with a tiny model; see `etcmodel train --small`.
            skip_bad_records: skip records that cannot be used.
            max_record_bytes: maximum size of a record in a file; 0 for no
                limit.
            optimizer: "adamw" or "lamb".
            schedule: how the learning rate decays after the warm-up: "linear",
                "cosine" or "constant".
            lora_rank: train with LoRA of this rank, such as 8: the encoder is
                frozen, and small updates of its attention and feed-forward
                weights are trained. The trained model includes the updates.
            params: overrides of the training configuration, such as
                `{"runtime.mixed_precision_dtype": "bfloat16"}`.
            callbacks: functions that are called after each validation with the
                step and the metrics. Training stops if one returns True.
            verbose: 1 shows a progress bar in a terminal or notebook, and lines
                elsewhere; 2 shows lines; 0 shows nothing.

        Returns:
            `self`.

        Raises:
            UserError: records, options or weights cannot be used.
        """
        reporter = _reporter(verbose)
        self._check_values()
        if not self.model_dir and self._source is None:
            raise UserError(
                "There are no weights to train; a SavedModel cannot be "
                "trained. Create the model with `from_pretrained`, or load a "
                "run."
            )
        folder = self._path(f"fit_{len(os.listdir(self._folder.name))}")
        os.mkdir(folder)
        reading = {
            "skip_bad_records": skip_bad_records,
            "max_record_bytes": max_record_bytes,
        }
        data = self._preprocess(
            folder,
            records,
            validation,
            validation_fraction,
            seed,
            reading,
            reporter,
        )
        model_dir = os.path.join(folder, "run")
        start = self._source
        if self.model_dir:
            start = runs.find_checkpoint(self.model_dir, None)
        is_preset = not self.model_dir and not metadata_files.exists(start)
        experiment = f"etc/{self.task}"
        if self.model_dir:
            experiment = runs.read(self.model_dir)["experiment"]
        result = processes.train(
            train.Options(
                experiment=experiment,
                model_dir=model_dir,
                **data,
                **{"preset" if is_preset else "init_checkpoint": start},
                epochs=epochs,
                batch_size=batch_size,
                learning_rate=learning_rate,
                patience=patience,
                seed=seed,
                small=small,
                optimizer=optimizer,
                schedule=schedule,
                lora_rank=lora_rank,
                params_override=self._parameters(params or {}),
            ),
            reporter,
            _all_of(callbacks),
        )
        self.history = {
            "loss": dict(result.losses),
            "validation": dict(result.validations),
        }
        self.model_dir, self._saved_model, self._loaded = model_dir, None, None
        self._trained_with = dict(self.options)
        return self

    def _make_answers(self):
        if self._saved_model is not None:
            metadata = exported.read_metadata(self._saved_model)
            had = {**metadata["preprocessing_config"], **metadata["options"]}
            for name in self._other_options(had):
                raise UserError(
                    f"{name}={self.options[name]!r}: the SavedModel "
                    f"{self._saved_model} has {had.get(name, 'its own')!r}. "
                    "Load the run instead, or leave out the option."
                )
        return super()._make_answers()

    def _other_options(self, had: dict[str, Any]) -> list[str]:
        """Returns the names of options that differ from the trained model's.

        `had` has the options of the trained model.
        """
        reading = self._spec.reading
        return [
            name
            for name, value in self.options.items()
            if name not in reading
            and value not in (None, "auto", self._trained_with.get(name))
            and _plain(value) != _plain(had.get(name))
        ]

    def _overrides(self) -> dict[str, Any]:
        """Returns parameter overrides for options set after training."""
        fields, params = self._fields(), runs.read_params(self.model_dir)
        had = {**self._noted(), **params["task"]["model"]}
        overrides = {}
        for name in self._other_options({**had, **params["task"]}):
            value = _plain(self.options[name])
            if name in fields["answers"]:
                overrides[f"task.{name}"] = value
            elif name in _SIZES:
                overrides[f"task.model.{name}"] = value
            else:
                raise UserError(
                    f"{name}={value!r}: the run {self.model_dir} has "
                    f"{had.get(name)!r}. Call `fit` to train with the option, "
                    "or leave it out."
                )
        return overrides

    def _preprocess(
        self, folder, records, validation, fraction, seed, reading, reporter
    ) -> dict[str, str]:
        """Preprocesses the records; returns their paths as `train` options."""
        if validation is not None and fraction is not None:
            raise UserError(
                "Both `validation` and `validation_fraction` are set. Give "
                "only one of them."
            )
        common = {
            "task": self.task,
            "vocab_file": self._vocab_file,
            "task_options": self._reading(),
            **reading,
        }
        train_data = os.path.join(folder, "train")
        like = None if self._has_other_labels() else self.model_dir
        is_one = fraction is None
        preprocess.preprocess(
            preprocess.Options(
                input=_paths(records),
                output_dir=train_data if is_one else f"{folder}/records",
                validation_fraction=fraction,
                seed=seed or 0,
                like=like,
                **common,
            ),
            reporter,
        )
        if fraction is not None:
            return {
                "train_data": os.path.join(folder, "records", "train"),
                "validation_data": os.path.join(folder, "records", "dev"),
            }
        if validation is None:
            return {"train_data": train_data}
        dev = os.path.join(folder, "dev")
        preprocess.preprocess(
            preprocess.Options(
                input=_paths(validation),
                output_dir=dev,
                split="dev",
                like=train_data,
                **common,
            ),
            reporter,
            "validation",
        )
        return {"train_data": train_data, "validation_data": dev}

    def _reading(self) -> dict[str, Any]:
        """Returns the `task_options` to pass to `preprocess`."""
        options = self.options
        if self.model_dir:
            # `save` can store lengths in a run that exceed those of its
            # records.
            model = runs.read_params(self.model_dir)["task"]["model"]
            lengths = {x: model[x] for x in _SIZES if model.get(x)}
            options = {**lengths, **options}
        if self._has_other_labels():
            # Keeps the run's remaining options.
            noted = self._noted()
            options = {
                **{x: noted[x] for x in noted if not x.startswith("label")},
                **options,
            }
        names = self._fields()["preprocessing"]
        return {name: options[name] for name in names if name in options}

    def _noted(self) -> dict[str, Any]:
        """Returns the preprocessing configuration of the trained model."""
        if self._saved_model is not None:
            metadata = exported.read_metadata(self._saved_model)
            return metadata.get("preprocessing_config", {})
        note = self.model_dir and runs.read_records(self.model_dir)
        return note["preprocessing_config"] if note else {}

    def _has_other_labels(self) -> bool:
        """Returns whether the labels or their kind differ from the run's."""
        noted, options = self._noted(), self.options
        if not noted:
            return False
        labels, kind = options.get("labels"), options.get("label_kind")
        return (
            labels is not None and [*labels] != [*noted.get("labels", ())]
        ) or kind not in (None, "auto", noted.get("kind"))

    def _parameters(self, given: dict[str, Any]) -> dict[str, Any]:
        """Returns the trainer's parameters for the options.

        Parameters in `given` override them.
        """
        fields, found = self._fields(), {}
        before = {}
        if self.model_dir:
            before = runs.read_params(self.model_dir)["task"]
        for kind, place, values in (
            ("model", "task.model", before.get("model", {})),
            ("answers", "task", before),
        ):
            for name in fields[kind]:
                value = _plain(self.options.get(name, values.get(name)))
                if name in self.options or value is not None:
                    found[f"{place}.{name}"] = value
        return {**found, **given}

    def save(self, directory: str | os.PathLike) -> None:
        """Copies the run to a directory that `etcmodel.load` can open.

        Raises:
            UserError: there is no run, or the directory is not empty, overlaps
                with the run, or cannot be written.
        """
        directory = os.fspath(directory)
        if self.model_dir is None:
            raise UserError("There is no run to save. Call `fit` first.")
        place = overlaps.Place("directory", directory)
        run = overlaps.Place("the model's run", self.model_dir)
        overlaps.check([place], [run])
        if overlaps.lies_in(directory, self.model_dir):
            raise UserError(
                f"{directory} is in the run that would be copied. Choose "
                "another directory."
            )
        overrides = self._overrides()
        try:
            with atomic.atomic_directory(directory) as partial:
                self._copy_run(partial, overrides)
        except (OSError, shutil.Error) as error:
            raise UserError(
                f"{directory} cannot be written: {_reason(error)}. Choose "
                "another directory, or free space and try again."
            ) from error

    def _copy_run(self, directory: str, overrides: dict[str, Any]) -> None:
        """Copies the run into an empty directory, and overrides parameters."""
        shutil.copytree(
            self.model_dir,
            directory,
            dirs_exist_ok=True,
            # Skips the file that lists the files of the original directory.
            ignore=shutil.ignore_patterns(own_files.FILE),
        )
        if overrides:
            params = runs.read_params(directory)
            runs.write_params(
                directory, shortcuts.nested({**params, **overrides})
            )

    def export(
        self,
        directory: str | os.PathLike,
        overwrite: bool = False,
        *,
        format: Literal["saved_model", "litert", "onnx"] = "saved_model",
        weights: Literal["float32", "bfloat16", "int8"] = "float32",
        validation_data: str | os.PathLike | None = None,
        tolerance: float = 0.01,
        license: str | None = None,
        language: Sequence[str] | None = None,
    ) -> None:
        """Writes a SavedModel that answers raw text, and its model card.

        See docs/serving.md. The other formats take token ids and have no card;
        see docs/converted_models.md.

        Args:
            directory: the directory to create.
            overwrite: whether to replace the directory if it exists.
            format: what reads the model: TensorFlow, LiteRT or ONNX Runtime.
            weights: how large matrices are stored.
            validation_data: the output of `preprocess`, to measure the model
                on. Nothing is written if the main metric falls by more than
                `tolerance` below that of float32.
            tolerance: how far the main metric may fall: 0.01 is one percent of
                its scale.
            license: licence of the model, for its card.
            language: codes of the languages of the training data, for the card.

        Raises:
            UserError: there is no run, the metric falls too far, or the
                directory cannot be written.
        """
        if self.model_dir is None:
            raise UserError("There is no run to export. Call `fit` first.")
        if validation_data is not None:
            validation_data = os.fspath(validation_data)
        self._export(
            os.fspath(directory),
            overwrite=overwrite,
            format=format,
            weights=weights,
            validation_data=validation_data,
            tolerance=tolerance,
            license=license,
            language=language and [*language],
        )


def start(
    cls: type[_Estimator],
    source: str | os.PathLike,
    vocab_file: str | os.PathLike | None = None,
    **options: Any,
) -> _Estimator:
    """Creates a model that starts from pre-trained or random weights.

    Args:
        cls: the subclass of `Estimator`.
        source: the output of `etcmodel lift`, a run of `train`, a published
            checkpoint, or the name of a preset such as "small", which has
            random weights. A Hugging Face model (a directory or a name in the
            hub, such as "google-bert/bert-base-uncased") is lifted (converted
            to ETC) once; see `sources.find`. `fit` continues a run of the same
            task; options that are not given here keep the run's values.
        vocab_file: the vocabulary; by default the one beside the weights.
        **options: arguments of the class. For a run, thresholds and longer
            lengths apply to `predict` at once; other options need `fit`.

    Raises:
        UserError: an option is invalid, or there are no weights or vocabulary.
    """
    made = cls(**options)
    source = sources.find(os.fspath(source))
    made._source = source
    made._keep(source)
    sources.check(source)
    vocab_file = vocab_file or sources.vocabulary_beside(source)
    if vocab_file is None:
        raise UserError(
            f"{source} has no vocabulary. Pass the vocabulary's path as "
            "`vocab_file`."
        )
    made._vocab_file = os.fspath(vocab_file)
    if (runs.find(source) or {}).get("task") == cls.task:
        made.model_dir = source
    return made


def _reason(error: Exception) -> str:
    """Returns the first reason why files could not be copied."""
    # `copytree` collects its errors as a list of (source, target, reason).
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        return str(error.args[0][0][2])
    return str(error)


def _plain(value: Any) -> Any:
    """Converts tuples and NumPy scalars to JSON types."""
    if isinstance(value, np.generic):
        return value.item()
    return [*map(_plain, value)] if isinstance(value, tuple) else value


def _paths(records: Any) -> Any:
    """Joins a pattern's paths with commas; returns other records unchanged."""
    if isinstance(records, str | os.PathLike):
        return ",".join(files.find(os.fspath(records)))
    return records


_STYLES = {0: "quiet", 1: "auto", 2: "lines"}


def _reporter(verbose: int) -> Reporter:
    """Returns the reporter for `verbose`, which has Keras's levels."""
    if verbose not in _STYLES:
        raise UserError(f"`verbose` is {show(verbose)}, but must be 0, 1 or 2.")
    return Reporter(_STYLES[int(verbose)])


def _all_of(callbacks):
    """Combines callbacks into one, which returns True if any of them does."""
    callbacks = list(callbacks)
    if not callbacks:
        return None
    return lambda step, metrics: any(
        [callback(step, metrics) is True for callback in callbacks]
    )
