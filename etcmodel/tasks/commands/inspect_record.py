"""`inspect`: one record as a picture of who attends to whom."""

from absl import flags

from etcmodel.errors import UserError
from etcmodel.tasks import registry
from etcmodel.tasks.commands import preprocess

DESCRIPTION = """
Draws the four attention masks and the relative labels of one record as in
Figure 3 of the ETC paper, with the tokens on the axes, and prints what the
record consists of, how much of it was cut and how many links there are.
"""

EXAMPLE = """
python -m etcmodel inspect --task=wikihop --input=train.json --record=0 \\
    --vocab_file=vocab.txt --output=record.png
"""

REQUIRED = ("task", "input", "vocab_file", "output")

_MODEL_FLAGS = (
    "local_radius",
    "relative_pos_max_distance",
    "use_hard_g2l_mask",
)


define_task_flags = preprocess.define_task_flags


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the command.

    Args:
        flag_values: where to define them.
    """
    preprocess.define_input_flags(flag_values)
    flags.DEFINE_string(
        "record",
        "0",
        "Which record: its position in the file, from 0, or its id.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "output",
        None,
        "The picture to write: .png, .svg or .pdf.",
        flag_values=flag_values,
    )
    preprocess.define_vocabulary_flag(flag_values)
    flags.DEFINE_string(
        "split",
        "predict",
        "`predict` reads records without an answer, too; `train` does not.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "first_token",
        0,
        "At which long token the picture begins.",
        lower_bound=0,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "max_long_tokens",
        120,
        "How many long tokens are drawn.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "max_global_tokens",
        40,
        "How many global tokens are drawn.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "preset",
        "base",
        "The encoder's preset, which says how far tokens see.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "local_radius",
        None,
        "How far a long token sees on each side, if not as in the preset.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "relative_pos_max_distance",
        None,
        "The distance at which labels are clipped, if not as in the preset.",
        lower_bound=0,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "use_hard_g2l_mask",
        None,
        "Whether global tokens see their own sentence or paragraph only.",
        flag_values=flag_values,
    )


def _find_record(pipeline, flag_values: flags.FlagValues):
    """The record that was asked for.

    Raises:
        UserError: there is no such record, or it is a bad one.
    """
    path, wanted = flag_values.input, flag_values.record
    records = pipeline.dataset.FORMAT.read(path, flag_values.split)
    last = None
    for record in records:
        if wanted in (str(record.index), record.id):
            return record
        last = record
    raise UserError(
        f"{path} has no record {wanted!r}"
        + (f": the last one is {last.index} (id {last.id})." if last else ".")
    )


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command.

    Args:
        flag_values: the parsed flags.

    Raises:
        UserError: the record, the vocabulary or a flag cannot be used.
    """
    from etcmodel.models import EtcConfig
    from etcmodel.tasks.attention_picture import draw_attention_picture

    pipeline = registry.get_task_pipeline(flag_values.task)
    preprocess.check_split(pipeline, flag_values.split)
    record = _find_record(pipeline, flag_values)
    config = preprocess.feature_config(pipeline, flag_values)
    try:
        values = EtcConfig.from_preset(flag_values.preset).to_dict()
    except (KeyError, ValueError) as error:
        raise UserError(f"--preset={flag_values.preset}: {error}") from error
    for name in _MODEL_FLAGS:
        if flag_values[name].value is not None:
            values[name] = flag_values[name].value
    values["relative_vocab_size"] = max(
        values["relative_vocab_size"],
        2 * values["relative_pos_max_distance"] + 4,
    )
    inspection = pipeline.inspect(
        record,
        config,
        EtcConfig.from_dict(values),
        flag_values.vocab_file,
    )
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
            title=f"{pipeline.name}: {record.id}",
            first_long_token=flag_values.first_token,
            max_long_tokens=flag_values.max_long_tokens,
            max_global_tokens=flag_values.max_global_tokens,
        )
    except (ValueError, ImportError) as error:
        raise UserError(str(error)) from error
    print(inspection.text())
    print(f"The picture is in {flag_values.output}.")
