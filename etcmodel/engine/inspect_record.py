"""Draws one record as a picture of who attends to whom."""

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from etcmodel.engine import inputs
from etcmodel.engine import paths
from etcmodel.errors import UserError
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.readers import files
from etcmodel.tasks import registry

_MODEL_FLAGS = (
    "local_radius",
    "relative_pos_max_distance",
    "use_hard_g2l_mask",
)


@dataclasses.dataclass(kw_only=True)
class Options(inputs.VocabularyOptions):
    """What `inspect` does.

    Attributes:
        task: the task; `python -m etcmodel experiments` lists them.
        input: the data files in the task's format, plain or compressed.
        output: the picture to write: .png, .svg or .pdf.
        record: which record: its position in the file, from 0, or its id.
        max_record_bytes: maximum size of a record; 0 for no limit.
        split: "predict" reads records without an answer, too; "train" does not.
        first_token: at which long token the picture begins.
        max_long_tokens: how many long tokens are drawn.
        max_global_tokens: how many global tokens are drawn.
        experiment: the experiment whose model is drawn; the first of the task
            by default.
        preset: the encoder's preset: tiny, small, base, base_shared or large;
            by default that of the experiment.
        local_radius: how many tokens a long token sees on each side; by default
            as in the experiment.
        relative_pos_max_distance: the distance at which labels are clipped; by
            default as in the experiment.
        use_hard_g2l_mask: whether global tokens see only their own sentence or
            paragraph; by default as in the experiment.
        task_options: the task's own options, its preprocessing configuration.
    """

    task: str
    input: str = option(path="data")
    output: str = option(path="picture")
    record: str = "0"
    max_record_bytes: int = option(files.MAX_RECORD_BYTES, min_value=0)
    split: str = "predict"
    first_token: int = 0
    max_long_tokens: int = 120
    max_global_tokens: int = 40
    experiment: str | None = None
    preset: str | None = None
    local_radius: int | None = None
    relative_pos_max_distance: int | None = option(None, min_value=0)
    use_hard_g2l_mask: bool | None = None
    task_options: Mapping[str, Any] = dataclasses.field(
        default_factory=dict, metadata={"is_flag": False}
    )


class Result(NamedTuple):
    """What `inspect_record` found and drew.

    Attributes:
        text: the parts of the record, in lines.
        tokenizer: the settings of the tokenizer; "" for SentencePiece.
        picture: the file.
    """

    text: str
    tokenizer: str
    picture: str


def _find_record(task, config, options: Options):
    path, wanted = options.input, options.record
    records = files.limited(
        options.max_record_bytes,
        task.format(config).read,
        path,
        options.split,
        merge=False,
    )
    last = ""
    for record in records:
        if wanted in (str(record.index), record.id):
            return record
        last = f": the last one is {record.index} (id {record.id})"
    raise UserError(f"{path} has no record {wanted!r}{last}.")


def _model_params(task: TaskSpec, name: str):
    """The parameters of the model that an experiment of the task trains."""
    owner = registry.task_of_experiment(name)
    if owner != task:
        raise UserError(
            f"`experiment={name}` is of the task {owner.name}, not {task.name}."
        )
    registry.register_experiments(task.name)
    from official.core import exp_factory

    return exp_factory.get_exp_config(name).task.model


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
            f"`task={task.name}`: there is no picture of it. `inspect` draws "
            "the attention of ETC, with global and long tokens."
        )
    inputs.check_split(task, options.split)
    config = inputs.preprocessing_config(task, options)
    record = _find_record(task, config, options)
    from etcmodel.inspection.attention_picture import draw_attention_picture
    from etcmodel.inspection.pictures import inspect
    from etcmodel.models import EtcConfig

    experiment = options.experiment or next(iter(task.experiments))
    params = _model_params(task, experiment)
    if options.preset:
        params.encoder.preset = options.preset
    try:
        values = params.encoder.to_config().to_dict()
    except UserError as error:
        raise UserError(f"`preset={options.preset}`: {error}") from error
    for name in _MODEL_FLAGS:
        if getattr(options, name) is not None:
            values[name] = getattr(options, name)
    values["relative_vocab_size"] = max(
        values["relative_vocab_size"],
        2 * values["relative_pos_max_distance"] + 4,
    )
    examples = inputs.make_example_maker(task, config, options)
    inspection = inspect(examples, record, EtcConfig.from_dict(values), params)
    summary = [("experiment", experiment), *inspection.summary]
    inspection = dataclasses.replace(inspection, summary=summary)
    num_tokens = len(inspection.long_labels)
    if options.first_token >= num_tokens:
        raise UserError(
            f"`first_token={options.first_token}`: record {record.id} has "
            f"the long tokens 0 to {num_tokens - 1}."
        )
    try:
        draw_attention_picture(
            inspection.side_inputs,
            inspection.long_labels,
            inspection.global_labels,
            options.output,
            title=f"{task.name}: {record.id}",
            first_long_token=options.first_token,
            max_long_tokens=options.max_long_tokens,
            max_global_tokens=options.max_global_tokens,
        )
    except (ValueError, ImportError) as error:
        raise UserError(str(error)) from error
    return Result(
        inspection.text(),
        inputs.describe_tokenizer(examples.preprocessor.tokenizer, options),
        options.output,
    )
