"""Predicts for the records of data files with a SavedModel."""

import collections
import dataclasses
import json
import os
from collections.abc import Mapping
from typing import NamedTuple

from etcmodel.engine import inputs
from etcmodel.engine import paths as paths_lib
from etcmodel.engine.progress import Reporter
from etcmodel.errors import BadRecords
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.atomic import atomic_file
from etcmodel.pipeline.atomic import check_file
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import load
from etcmodel.readers import files
from etcmodel.readers import text_files
from etcmodel.serving import exported
from etcmodel.tasks import registry

_SUFFIXES = ", ".join(text_files.SUFFIXES)


@dataclasses.dataclass(kw_only=True)
class Options(inputs.InputOptions, inputs.ReadingOptions):
    """Options of `predict`.

    Attributes:
        input: the data files in the task's format, plain or compressed:
            paths or patterns such as nq-train-*.jsonl.gz, separated by commas.
            A file called .txt or .md is one document, unless it holds JSON or
            a table: paragraphs are separated by blank lines, and a line that
            begins with "# " is the title of the paragraph after it.
        saved_model: the SavedModel: the `output_dir` of `export`.
        output: the prediction file to write.
        batch_size: number of records per batch.
        metrics: a JSON file to write the metrics to. For the labels of
            `classify`, a report and pictures are written beside it.
        overwrite: replace existing output files.
        query: the question or query about plain texts.
        candidate: a candidate answer for plain texts, which `wikihop` needs;
            give it several times.
    """

    saved_model: str = option(path="saved_model")
    output: str = option(path="new_file")
    batch_size: int = 8
    metrics: str | None = option(None, path="new_file")
    overwrite: bool = False
    query: str | None = None
    candidate: list[str] | None = option(None, several=True)


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


def _reader(spec, metadata: Mapping, options: Options):
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
    options_lib.check(options)
    paths_lib.check(options)
    paths = files.find(options.input)
    metadata = exported.read_metadata(options.saved_model)
    spec = registry.get_with_answers(metadata["task"])
    reader = _reader(spec, metadata, options)
    are_texts = text_files.are_texts(paths, getattr(reader, "used", ()))
    if are_texts:
        request = _text_request(spec, paths[0], options)
        reader = text_files.make_format(paths, request["query"])
    else:
        _check_no_text_options(options)
    prefix, _ = os.path.splitext(options.metrics or "")
    if options.metrics and spec.plots:
        module, _, _ = spec.plots.partition(":")
        for ending in load(f"{module}:ENDINGS"):
            check_file(f"{prefix}{ending}", options.overwrite)
    from etcmodel.serving import answers

    saved = answers.load_answers(options.saved_model, spec)
    if are_texts and saved.answer_text is None:
        raise UserError(
            f"{options.saved_model} has no signature `text`, which answers "
            f"{paths[0]}. Export the model again."
        )
    bad_records = BadRecords(options.skip_bad_records)
    predictions, gold, counts = {}, {}, collections.Counter()
    with (
        atomic_file(options.output) as stream,
        reporter.files(paths, "Predicting") as progress,
    ):
        records = files.limited(
            options.max_record_bytes,
            reader.read,
            paths,
            "predict",
            bad_records,
            progress.at,
        )
        to_raw = load(spec.preprocessor).raw
        if are_texts:
            to_raw = lambda record: {**request, "text": record.text}  # noqa: E731
        for record, prediction in saved.predict_records(
            records, to_raw, options.batch_size, progress.done, are_texts
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
            raise UserError(
                f"{options.input}: no usable record was found. "
                f"{bad_records.summary()}"
            )
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


def _text_request(spec, path: str, options: Options) -> dict[str, str]:
    """Returns the request for a plain text, with "" in place of the text."""
    preprocessor = load(spec.preprocessor)
    names = preprocessor.TEXT_REQUEST
    given = ", ".join(f"`reading={x}`" for x in options.reading or ())
    if not names:
        raise UserError(
            f"{path}: {spec.name} does not answer plain texts. Give records in "
            f"the format of its data files: {spec.dataset.FORMAT.example}."
        )
    if given:
        raise UserError(f"{given}: {path} is a plain text, without fields.")
    query = (options.query or "").strip()
    if preprocessor.NEEDS_QUERY and not query:
        raise UserError(
            f"{path} is a plain text, and {spec.name} answers questions: give "
            '`query`, such as "Who lives in Krakow?".'
        )
    request = {"query": query, "text": ""}
    candidates = [x.strip() for x in options.candidate or ()]
    if "candidates" in names:
        if not candidates:
            raise UserError(
                f"{path} is a plain text, and {spec.name} chooses from "
                "candidates: give `candidate` several times."
            )
        if not all(candidates) or any("\n" in x for x in candidates):
            raise UserError(
                f"`candidate={show(candidates)}`: expected some text in one "
                "line each."
            )
        request["candidates"] = "\n".join(candidates)
    elif candidates:
        raise UserError(f"`candidate`: {spec.name} has no candidates.")
    return request


def _check_no_text_options(options: Options) -> None:
    """Raises an error for an option that applies only to plain texts."""
    for name in ("query", "candidate"):
        if getattr(options, name) is not None:
            raise UserError(
                f"`{name}` applies to plain texts ({_SUFFIXES}), but "
                f"`input={options.input}` has records."
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
