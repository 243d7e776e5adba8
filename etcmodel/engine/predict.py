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
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.atomic import atomic_file
from etcmodel.pipeline.atomic import check_file
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import load
from etcmodel.readers import files
from etcmodel.serving import exported
from etcmodel.tasks import registry


@dataclasses.dataclass(kw_only=True)
class Options(inputs.InputOptions, inputs.ReadingOptions):
    """Options of `predict`.

    Attributes:
        saved_model: the SavedModel: the `output_dir` of `export`.
        output: the prediction file to write.
        batch_size: number of records per batch.
        metrics: a JSON file to write the metrics to. For the labels of
            `classify`, a report and pictures are written beside it.
        overwrite: replace existing output files.
    """

    saved_model: str = option(path="saved_model")
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


def _reader(spec, metadata: Mapping, options: Options):
    """Returns the format of the training files, changed by `reading`."""
    given = inputs.parse_reading(spec, options.reading)
    noted = metadata.get("reading", {})
    sizes = metadata.get("preprocessing_config", {})
    try:
        config = spec.make_preprocessing_config({**sizes, **noted, **given})
        return inputs.read_format(spec, config, noted.keys() - given.keys())
    except (UserError, ValueError) as error:
        shown = ", ".join(f"`reading={x}`" for x in options.reading or ())
        reason = error.__cause__ or error
        raise UserError(f"{shown}: {spec.name}: {reason}") from error


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
    prefix, _ = os.path.splitext(options.metrics or "")
    if options.metrics and spec.plots:
        module, _, _ = spec.plots.partition(":")
        for ending in load(f"{module}:ENDINGS"):
            check_file(f"{prefix}{ending}", options.overwrite)
    from etcmodel.serving import answers

    saved = answers.load_answers(options.saved_model, spec)
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
        for record, prediction in saved.predict_records(
            records, to_raw, options.batch_size, progress.done
        ):
            counts.update(_remarks(saved, record))
            predictions[record.id] = prediction
            right = spec.dataset.gold(record)
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


def _remarks(saved, record) -> collections.Counter[str]:
    """Returns the counts of a record for `Result.counts`."""
    counts = collections.Counter(record.counts)
    if saved.sizes.get("units") == "texts":
        # The model was trained on documents that were lists of texts.
        counts["documents_not_split_into_texts"] += not record.has_units
    if saved.has_queries:
        counts["records_without_query"] += not record.query
    return counts
