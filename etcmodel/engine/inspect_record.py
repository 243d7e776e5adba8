"""Draws which tokens of a record can attend to which."""

import dataclasses
import types
from typing import NamedTuple

from etcmodel.engine import inputs
from etcmodel.engine import paths
from etcmodel.errors import UserError
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.readers import files
from etcmodel.tasks import registry
from etcmodel.training import runs


@dataclasses.dataclass(kw_only=True)
class Options(inputs.ReadingOptions):
    """Options of `inspect`.

    Attributes:
        task: the task; `python -m etcmodel experiments` lists them.
        input: the data files in the task's format, plain or compressed.
        output: the picture to write: .png, .svg or .pdf.
        like: preprocessed records, or a run of `train`. The record is drawn
            with their sizes and vocabulary, and with the model of the run. By
            default the sizes are the paper's.
        vocab_file: the vocabulary; by default that of `like`.
        record: position of the record in the file, from 0, or its id.
        max_record_bytes: maximum size of a record; 0 for no limit.
        first_token: first long token of the picture, which shows up to 120.
        experiment: the experiment whose model is drawn; by default that of the
            run, or the first of the task.
    """

    task: str
    input: str = option(path="data")
    output: str = option(path="picture")
    like: str | None = option(None, path="records")
    vocab_file: str | None = option(None, path="file")
    record: str = "0"
    max_record_bytes: int = option(files.MAX_RECORD_BYTES, min_value=0)
    first_token: int = 0
    experiment: str | None = None


class Result(NamedTuple):
    """Description and picture of a record.

    Attributes:
        text: description of the record's parts, several lines.
        tokenizer: description of the tokenizer; "" for SentencePiece.
        picture: path of the picture.
    """

    text: str
    tokenizer: str
    picture: str


def _find_record(read_format, options: Options):
    path, wanted = options.input, options.record
    records = files.limited(
        options.max_record_bytes, read_format.read, path, "predict", merge=False
    )
    last = ""
    for record in records:
        if wanted in (str(record.index), record.id):
            return record
        last = (
            f": the last one is {record.index} (id {record.id}). Give a "
            "position from 0, or an id"
        )
    raise UserError(f"{path} has no record {wanted!r}{last}.")


def _find_model(task: TaskSpec, options: Options):
    """Returns the experiment, the encoder's configuration and the parameters.

    Takes them from the run in `like`, unless `experiment` is given.
    """
    from etcmodel.models import EtcConfig

    run = runs.find(options.like) if options.like else None
    if run and not options.experiment:
        params = runs.read_params(options.like)["task"]["model"]
        try:
            config = EtcConfig.from_run(options.like)
        except FileNotFoundError as error:
            raise UserError(str(error)) from error
        return run["experiment"], config, types.SimpleNamespace(**params)
    name = options.experiment or next(iter(task.experiments))
    owner = registry.task_of_experiment(name)
    if owner != task:
        raise UserError(
            f"`experiment={name}` is of the task {owner.name}, not "
            f"{task.name}. Choose one of: {', '.join(task.experiments)}."
        )
    registry.register_experiments(task.name)
    from official.core import exp_factory

    params = exp_factory.get_exp_config(name).task.model
    return name, params.encoder.to_config(), params


def inspect_record(options: Options) -> Result:
    """Draws the attention of a record, and describes its parts.

    Raises:
        UserError: an option or the record cannot be used.
    """
    options_lib.check(options)
    paths.check(options)
    task = registry.get_with_answers(options.task)
    if task.reads_segments:
        raise UserError(
            f"`task={task.name}`: `inspect` draws only the attention of ETC, "
            "but this task uses ReadTwice. Choose a task of ETC."
        )
    like, options = inputs.with_like(task, options)
    given = inputs.parse_reading(task, options.reading)
    config = inputs.preprocessing_config(task, given, like)
    noted = {*(like or {}).get("reading", ())} - {*given}
    record = _find_record(inputs.read_format(task, config, noted), options)
    from etcmodel.inspection.attention_picture import draw_attention_picture
    from etcmodel.inspection.pictures import inspect

    experiment, model_config, params = _find_model(task, options)
    examples = inputs.make_example_maker(task, config, options)
    inspection = inspect(examples, record, model_config, params)
    summary = [("experiment", experiment), *inspection.summary]
    inspection = dataclasses.replace(inspection, summary=summary)
    num_tokens = len(inspection.long_labels)
    if options.first_token >= num_tokens:
        raise UserError(
            f"`first_token={options.first_token}`: expected at most "
            f"{num_tokens - 1}, the last long token of record {record.id}."
        )
    try:
        draw_attention_picture(
            inspection.side_inputs,
            inspection.long_labels,
            inspection.global_labels,
            options.output,
            title=f"{task.name}: {record.id}",
            first_long_token=options.first_token,
        )
    except (ValueError, ImportError) as error:
        raise UserError(str(error)) from error
    return Result(
        inspection.text(),
        inputs.describe_tokenizer(examples.preprocessor.tokenizer, options),
        options.output,
    )
