"""Predicts for the records of data files with a SavedModel."""

import collections
import dataclasses
import itertools
import json
import os
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from etcmodel.engine import inputs
from etcmodel.engine import paths as paths_lib
from etcmodel.engine import plain_texts
from etcmodel.engine import serve
from etcmodel.engine.progress import Reporter
from etcmodel.errors import BadRecords
from etcmodel.errors import UserError
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.atomic import atomic_file
from etcmodel.pipeline.atomic import check_file
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import load
from etcmodel.readers import files
from etcmodel.readers import text_files
from etcmodel.readers.records import Format
from etcmodel.serving import exported
from etcmodel.tasks import registry


@dataclasses.dataclass(kw_only=True)
class RequestOptions(
    plain_texts.Options, inputs.InputOptions, inputs.ReadingOptions
):
    """Options of `request`: the model, and the records to ask it about.

    Attributes:
        input: the data files in the task's format, plain or compressed:
            paths or patterns such as nq-train-*.jsonl.gz, separated by commas.
            A file called .txt or .md is one document, unless it holds JSON or
            a table: paragraphs are separated by blank lines, and a line that
            begins with "# " is the title of the paragraph after it.
        saved_model: the SavedModel: the `output_dir` of `export`.
    """

    saved_model: str = option(path="saved_model")


@dataclasses.dataclass(kw_only=True)
class Options(RequestOptions):
    """Options of `predict`.

    Attributes:
        output: the prediction file to write.
        batch_size: number of records per batch.
        metrics: a JSON file to write the metrics to. For the labels of
            `classify`, a report and pictures are written beside it.
        overwrite: replace existing output files.
    """

    output: str = option(path="new_file")
    batch_size: int = 8
    metrics: str | None = option(None, path="new_file")
    overwrite: bool = False


class Result(NamedTuple):
    """Files that `predict` wrote, and statistics of the records.

    Attributes:
        output: path of the prediction file.
        num_predictions: number of predictions in it.
        counts: property, such as "records_truncated" -> number of records that
            have it.
        skipped: how many records were skipped and why; "" for none.
        num_gold: number of records with a gold answer.
        metrics: name -> value on the records with a gold answer; empty if there
            are none.
        pictures: paths of the report about labels and its pictures.
    """

    output: str
    num_predictions: int
    counts: Mapping[str, int]
    skipped: str
    num_gold: int
    metrics: Mapping[str, float]
    pictures: tuple[str, ...]


class Request(NamedTuple):
    """A request that asks a server about records.

    Attributes:
        body: the body: JSON in ASCII.
        num_records: number of records in it.
        notes: sentences for the user: which records it leaves out, and whether
            it is too large.
    """

    body: bytes
    num_records: int
    notes: tuple[str, ...]


class _Source(NamedTuple):
    """Data files to ask a model about.

    Attributes:
        spec: the task of the model.
        metadata: the description of the model.
        paths: the data files.
        are_texts: whether they are plain texts, for the signature `text`.
        reader: their format.
        to_raw: converts a record to a request: inputs without padding.
    """

    spec: TaskSpec
    metadata: Mapping[str, Any]
    paths: list[str]
    are_texts: bool
    reader: Format
    to_raw: Callable[[Any], Mapping[str, Any]]

    def read(
        self, options: RequestOptions, bad_records: BadRecords, progress: Any
    ) -> Iterator[Any]:
        """Yields the records."""
        return files.limited(
            options.max_record_bytes,
            self.reader.read,
            self.paths,
            "predict",
            bad_records,
            progress.at,
        )


def _source(options: RequestOptions) -> _Source:
    """Checks the options; finds the data files and their format."""
    options_lib.check(options)
    paths_lib.check(options)
    paths = files.find(options.input)
    metadata = exported.read_metadata(options.saved_model)
    spec = registry.get_with_answers(metadata["task"])
    reader = _reader(spec, metadata, options)
    if not text_files.are_texts(paths, getattr(reader, "used", ())):
        plain_texts.check_unused(options)
        to_raw = load(spec.preprocessor).raw
        return _Source(spec, metadata, paths, False, reader, to_raw)
    request = plain_texts.make_request(spec, paths[0], options)
    return _Source(
        spec,
        metadata,
        paths,
        True,
        text_files.make_format(paths, request.get("query", "")),
        lambda record: {**request, "text": record.text},
    )


def _reader(spec, metadata: Mapping, options: RequestOptions):
    """Returns the format of the training files, changed by `reading`."""
    given = inputs.parse_reading(spec, options.reading)
    noted = metadata.get("reading", {})
    sizes = metadata.get("preprocessing_config", {})
    try:
        return inputs.format_of_model(spec, sizes, noted, given)
    except (UserError, ValueError) as error:
        shown = ", ".join(f"`reading={x}`" for x in options.reading or ())
        parts = [shown, spec.name, str(error.__cause__ or error)]
        raise UserError(": ".join(filter(None, parts))) from error


def predict(options: Options, reporter: Reporter | None = None) -> Result:
    """Writes the predictions of a SavedModel for data files.

    Raises:
        UserError: an option, the model or a record cannot be used.
    """
    reporter = reporter or Reporter("quiet")
    source = _source(options)
    spec, paths, are_texts = source.spec, source.paths, source.are_texts
    prefix, _ = os.path.splitext(options.metrics or "")
    if options.metrics and spec.plots:
        module, _, _ = spec.plots.partition(":")
        for ending in load(f"{module}:ENDINGS"):
            check_file(f"{prefix}{ending}", options.overwrite)
    from etcmodel.serving import answers

    saved = answers.load_answers(options.saved_model, spec)
    if are_texts and saved.answer_text is None:
        raise _no_text_signature(options, paths[0])
    bad_records = BadRecords(options.skip_bad_records)
    predictions, gold, counts = {}, {}, collections.Counter()
    with (
        atomic_file(options.output) as stream,
        reporter.files(paths, "Predicting") as progress,
    ):
        for record, prediction in saved.predict_records(
            source.read(options, bad_records, progress),
            source.to_raw,
            options.batch_size,
            progress.done,
            are_texts,
        ):
            counts.update(_remarks(saved, record))
            predictions[record.id] = prediction
            right = None if are_texts else spec.dataset.gold(record)
            if right is not None:
                gold[record.id] = right
        counts["records_truncated"] += saved.num_cut
        counts["labels_not_in_training_data"] = saved.count_unknown_labels(
            gold.values()
        )
        if not predictions:
            raise _nothing_usable(options, bad_records)
        spec.dataset.write_predictions(predictions, stream)
    if options.metrics and not gold:
        raise UserError(
            f"`metrics={options.metrics}` is not written: no record of "
            f"{options.input} has a label. Add labels, or leave out `metrics`. "
            f"The predictions are in {options.output}."
        )
    metrics = spec.dataset.score(predictions, gold) if gold else {}
    pictures = ()
    if options.metrics:
        with atomic_file(options.metrics) as stream:
            json.dump(metrics, stream, indent=2, sort_keys=True)
        if spec.plots:
            pictures = tuple(load(spec.plots)(prefix, predictions, gold))
    return Result(
        options.output,
        len(predictions),
        counts,
        bad_records.summary() if bad_records.total else "",
        len(gold),
        metrics,
        pictures,
    )


def request(
    options: RequestOptions, reporter: Reporter | None = None
) -> Request:
    """Returns the request that asks a server about the records of data files.

    The request has all records, up to the number that `serve` accepts by
    default, padded to the same sizes. The model is not loaded.

    Raises:
        UserError: an option, the model or a record cannot be used.
    """
    reporter = reporter or Reporter("quiet")
    source = _source(options)
    from etcmodel.pipeline import raw_inputs
    from etcmodel.serving import rest

    signature = rest.DEFAULT_SIGNATURE
    if source.are_texts:
        signature = rest.TEXT_SIGNATURE
        # Models without axes are older than the signature.
        if signature not in source.metadata.get("axes", {}):
            raise _no_text_signature(options, source.paths[0])
    most = serve.Options.max_records
    bad_records = BadRecords(options.skip_bad_records)
    ids, raw, notes = [], [], []
    with reporter.files(source.paths, "Reading") as progress:
        records = source.read(options, bad_records, progress)
        for record in itertools.islice(records, most):
            ids.append(record.id)
            raw.append(source.to_raw(record))
            progress.done()
        # Later records are not counted: that would read all files.
        is_cut = len(raw) == most and next(records, None) is not None
    if not raw:
        raise _nothing_usable(options, bad_records)
    if source.are_texts:
        arrays = raw_inputs.texts_batch(raw)
    else:
        arrays = load(source.spec.preprocessor).pad_batch(raw)
    _check_finite(arrays, ids, options)
    # Clients that convert the request need the name of any signature.
    content = {"signature_name": signature, **rest.body_of(signature, arrays)}
    # ASCII, because the encoding of a terminal may differ from UTF-8.
    body = json.dumps(content).encode("ascii")
    if bad_records.total:
        notes.append(bad_records.summary())
    if is_cut:
        notes.append(
            f"The request has the first {most} records of {options.input}, as "
            "many as `serve` accepts by default. The others are left out."
        )
    if len(body) > serve.Options.max_body_bytes:
        notes.append(
            f"The request has {len(body):,} bytes; `serve` accepts "
            f"{serve.Options.max_body_bytes:,} by default. Give fewer records, "
            "or raise `max_body_bytes` of `serve`."
        )
    return Request(body, len(raw), tuple(notes))


def _check_finite(
    arrays: Mapping[str, Any], ids: list[str], options: RequestOptions
) -> None:
    """Raises an error for an infinite number or NaN, which JSON lacks."""
    import numpy as np

    for name, x in arrays.items():
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            row = np.argwhere(~np.isfinite(x))[0][0]
            raise UserError(
                f"{options.input}: record {ids[row]!r} has a number in {name} "
                f"that is too large for {x.dtype}. Fix the record, or leave it "
                "out."
            )


def _no_text_signature(options: RequestOptions, path: str) -> UserError:
    """Returns the error about a model that answers no plain texts."""
    return UserError(
        f"{options.saved_model} has no signature `text`, which answers {path}. "
        "Export the model again."
    )


def _nothing_usable(
    options: RequestOptions, bad_records: BadRecords
) -> UserError:
    """Returns the error about data files without a usable record."""
    return UserError(
        f"{options.input}: no usable record was found. {bad_records.summary()}"
    )


def _remarks(saved, record) -> collections.Counter[str]:
    """Returns the counts of a record for `Result.counts`."""
    counts = collections.Counter(record.counts)
    if saved.sizes.get("units") == "texts":
        # The model was trained on lists of texts, so a single string is
        # unexpected.
        counts["documents_not_split_into_texts"] += not record.has_units
    if saved.has_queries:
        counts["records_without_query"] += not record.query
    return counts
