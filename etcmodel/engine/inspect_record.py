"""Shows a record as a model reads it, and which tokens attend to which."""

import dataclasses
import os
import types
from collections.abc import Sequence
from typing import NamedTuple

from etcmodel.engine import inputs
from etcmodel.engine import paths
from etcmodel.engine import plain_texts
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.readers import files
from etcmodel.readers import text_files
from etcmodel.tasks import registry
from etcmodel.training import runs


@dataclasses.dataclass(kw_only=True)
class Options(plain_texts.Options, inputs.ReadingOptions):
    """Options of `inspect`.

    Attributes:
        input: the data files in the task's format, plain or compressed. With
            `model_dir`, also plain texts (.txt, .md), as in `predict`.
        output: the file to write. With `model_dir`, a page (.html) or a picture
            (.png, .svg, .pdf) of the attention map; otherwise a picture of the
            masks.
        model_dir: a run of `train`, whose attention to the record is shown.
        task: the task; `python -m etcmodel experiments` lists them. By default
            that of `model_dir`.
        like: preprocessed records, or a run of `train`. The record is drawn
            with their sizes and vocabulary, and with the model of the run. By
            default the sizes are the paper's.
        vocab_file: the vocabulary; by default that of `like`.
        record: position of the record in the file, from 0, or its id.
        max_record_bytes: maximum size of a record; 0 for no limit.
        first_token: first long token of the picture, which shows up to 120.
        experiment: the experiment whose model is drawn; by default the run's,
            or the task's first one.
        token: number of the token whose attention a picture of the map shows,
            counting the global tokens first; by default a token of the answer.
        window: number of the window to show, from 0, if the record does not fit
            into the model's input at once.
    """

    input: str = option(path="data")
    output: str = option(path="picture_or_page")
    model_dir: str | None = option(None, path="run")
    task: str | None = None
    like: str | None = option(None, path="records")
    vocab_file: str | None = option(None, path="file")
    record: str = "0"
    max_record_bytes: int = option(files.MAX_RECORD_BYTES, min_value=0)
    first_token: int = 0
    experiment: str | None = None
    token: int | None = option(None, min_value=0)
    window: int = option(0, min_value=0)


# Options that only pictures of masks have, and that only attention maps have.
_OF_MASKS = ("like", "vocab_file", "experiment", "first_token")
_OF_MAPS = ("token", "window", "query", "candidate")


class Result(NamedTuple):
    """Description and picture of a record.

    Attributes:
        text: description of the record's parts, several lines.
        tokenizer: description of the tokenizer; "" for SentencePiece.
        picture: path of the page or picture.
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


def inspect_record(
    options: Options, reporter: Reporter | None = None
) -> Result:
    """Shows the attention of a record, and describes its parts.

    With `model_dir`, the result is the attention map of the trained model;
    otherwise it shows which tokens can attend to which.

    Raises:
        UserError: an option or the record cannot be used.
    """
    options_lib.check(options)
    paths.check(options)
    is_page = os.path.splitext(options.output)[1].lower() == ".html"
    if options.model_dir:
        _check_unused(options, _OF_MASKS, "The run in `model_dir` has its own")
        if is_page:
            _check_unused(options, ("token",), "Only pictures have a")
        return _draw_map(options, is_page, reporter or Reporter("quiet"))
    if is_page:
        raise UserError(
            f"`output={options.output}`: the page shows the attention of a "
            "trained model. Give its `model_dir`, or a name that ends in .png."
        )
    _check_unused(options, _OF_MAPS, "Only a trained model, `model_dir`, has a")
    if not options.task:
        raise UserError("`inspect` needs `task` or `model_dir`.")
    return _draw_masks(options)


def _check_unused(options: Options, names: Sequence[str], reason: str) -> None:
    """Raises a `UserError` for an option that has no effect."""
    defaults = {x.name: x.default for x in dataclasses.fields(options)}
    for name in names:
        value = getattr(options, name)
        if value != defaults[name]:
            raise UserError(
                f"`{name}={value}`: {reason} {name.replace('_', ' ')}. Leave "
                "out the option."
            )


def _draw_map(options: Options, is_page: bool, reporter: Reporter) -> Result:
    """Writes the attention map of a trained model."""
    note = runs.read(options.model_dir)
    task = registry.get_with_answers(note["task"])
    if options.task not in (None, task.name):
        raise UserError(
            f"`task={options.task}`: the run {options.model_dir} is of the "
            f"task {task.name}. Leave out the option."
        )
    given = inputs.parse_reading(task, options.reading)
    vocab_file = runs.find_vocabulary(options.model_dir)
    from etcmodel.engine import explain
    from etcmodel.engine import trained_model
    from etcmodel.inspection import map_page
    from etcmodel.inspection import map_picture
    from etcmodel.inspection import pictures
    from etcmodel.pipeline.spec import load

    reporter.note(f"Loading the model of {options.model_dir}.")
    try:
        trained = trained_model.load(
            task,
            options.model_dir,
            runs.read_params(options.model_dir),
            vocab_file,
        )
    except FileNotFoundError as error:
        raise UserError(str(error)) from error
    reader = inputs.format_of_model(
        task,
        trained.metadata["preprocessing_config"],
        trained.metadata["reading"],
        given,
    )
    files_ = files.find(options.input)
    if text_files.are_texts(files_, getattr(reader, "used", ())):
        request = plain_texts.make_request(task, files_[0], options)
        text = _find_record(text_files.make_format(files_), options)
        request["text"], name, record = text.text, text.id, None
        raw = plain_texts.read_raw(trained.preprocessor, request)
    else:
        plain_texts.check_unused(options)
        record = _find_record(reader, options)
        name, raw = record.id, load(task.preprocessor).raw(record)
    reporter.note("Computing the attention; a long text takes a minute.")
    found = explain.explain(
        *(trained, trained.answers(), raw, record, options.window)
    )
    found = dataclasses.replace(found, title=f"{task.name}: {name}")
    if is_page:
        map_page.write_page(found, options.output)
    else:
        try:
            map_picture.draw_map(found, options.output, options.token)
        except (ValueError, ImportError) as error:
            raise UserError(str(error)) from error
    shown = dataclasses.replace(options, vocab_file=vocab_file)
    return Result(
        pictures.as_lines([*found.answers, *found.summary]),
        inputs.describe_tokenizer(trained.preprocessor.tokenizer, shown),
        options.output,
    )


def _draw_masks(options: Options) -> Result:
    """Draws which tokens can attend to which."""
    task = registry.get_with_answers(options.task)
    if task.reads_segments:
        raise UserError(
            f"`task={task.name}`: without a model, `inspect` draws only the "
            "masks of ETC, but this task uses ReadTwice. Give the `model_dir` "
            "of a run, or choose a task of ETC."
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
