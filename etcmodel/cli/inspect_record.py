"""`inspect`: one record as a picture of who attends to whom."""

import dataclasses

from absl import flags

from etcmodel.cli import preprocess
from etcmodel.errors import UserError
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.readers import files
from etcmodel.tasks import registry

DESCRIPTION = """
Draws the four attention masks and the relative labels of one record as in
Figure 3 of the ETC paper, with the tokens on the axes, and prints what the
record consists of, how much of it was cut and how many links there are.
Masks and distances are those of an experiment.
"""

EXAMPLE = """
python -m etcmodel inspect --task=wikihop --input=train.json --record=0 \\
    --vocab_file=vocab.txt --output=record.png
"""

TASK_FLAGS = True
_MODEL_FLAGS = (
    "local_radius",
    "relative_pos_max_distance",
    "use_hard_g2l_mask",
)


@dataclasses.dataclass(kw_only=True)
class Flags(preprocess.VocabularyFlags):
    """The flags.

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


def _find_record(task, config, flag_values: flags.FlagValues):
    path, wanted = flag_values.input, flag_values.record
    records = files.limited(
        flag_values.max_record_bytes,
        *(task.format(config).read, path, flag_values.split),
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
            f"--experiment={name} is of the task {owner.name}, not {task.name}."
        )
    registry.register_experiments(task.name)
    from official.core import exp_factory

    return exp_factory.get_exp_config(name).task.model


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command."""
    task = registry.get_with_answers(flag_values.task)
    if task.reads_segments:
        raise UserError(
            f"--task={task.name}: there is no picture of it. `inspect` draws "
            "the attention of ETC, with global and long tokens."
        )
    preprocess.check_split(task, flag_values.split)
    config = preprocess.preprocessing_config(task, flag_values)
    record = _find_record(task, config, flag_values)
    from etcmodel.inspection.attention_picture import draw_attention_picture
    from etcmodel.inspection.pictures import inspect
    from etcmodel.models import EtcConfig

    experiment = flag_values.experiment or next(iter(task.experiments))
    params = _model_params(task, experiment)
    if flag_values.preset:
        params.encoder.preset = flag_values.preset
    try:
        values = params.encoder.to_config().to_dict()
    except UserError as error:
        raise UserError(f"--preset={flag_values.preset}: {error}") from error
    for name in _MODEL_FLAGS:
        if flag_values[name].value is not None:
            values[name] = flag_values[name].value
    values["relative_vocab_size"] = max(
        values["relative_vocab_size"],
        2 * values["relative_pos_max_distance"] + 4,
    )
    examples = preprocess.make_examples_maker(task, config, flag_values)
    inspection = inspect(examples, record, EtcConfig.from_dict(values), params)
    summary = [("experiment", experiment), *inspection.summary]
    inspection = dataclasses.replace(inspection, summary=summary)
    num_tokens = len(inspection.long_labels)
    if flag_values.first_token >= num_tokens:
        raise UserError(
            f"--first_token={flag_values.first_token}: record {record.id} has "
            f"the long tokens 0 to {num_tokens - 1}."
        )
    try:
        draw_attention_picture(
            inspection.side_inputs,
            inspection.long_labels,
            inspection.global_labels,
            flag_values.output,
            title=f"{task.name}: {record.id}",
            first_long_token=flag_values.first_token,
            max_long_tokens=flag_values.max_long_tokens,
            max_global_tokens=flag_values.max_global_tokens,
        )
    except (ValueError, ImportError) as error:
        raise UserError(str(error)) from error
    print(inspection.text())
    preprocess.print_tokenizer(examples.preprocessor.tokenizer, flag_values)
    print(f"The picture is in {flag_values.output}.")
