"""Options for data files and vocabularies, shared by several commands."""

import dataclasses
import os
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from etcmodel.errors import UserError
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.options import option
from etcmodel.readers import files
from etcmodel.training import runs

# Options that set the tokenizer.
_SETTINGS = ("lower_case", "strip_accents", "tokenize_chinese_chars")
# Options that name a field which files may lack.
_OPTIONAL = ("title_field", "query_field", "id_field", "evidence_field")


@dataclasses.dataclass(kw_only=True)
class InputOptions:
    """Options for data files.

    Attributes:
        input: the data files: paths or patterns such as nq-train-*.jsonl.gz,
            separated by commas. They have the task's format, and may be
            compressed.
        skip_bad_records: skip and count records that cannot be used; by default
            they are errors.
        max_record_bytes: maximum size of a record: a JSON line, a row of a
            table, an element of a JSON array, or a document in a file of its
            own. A larger record is an error. 0 for no limit.
    """

    input: Any = option(path="data")
    skip_bad_records: bool = False
    max_record_bytes: int = option(files.MAX_RECORD_BYTES, min_value=0)


@dataclasses.dataclass(kw_only=True)
class VocabularyOptions:
    """The vocabulary and the settings of its tokenizer.

    Attributes:
        vocab_file: the vocabulary: a WordPiece vocab.txt with one token a line,
            or a SentencePiece model. For WordPiece, tokenizer_config.json and
            tokenizer.json beside the vocabulary set the defaults of
            `lower_case`, `strip_accents` and `tokenize_chinese_chars`.
        lower_case: convert text to lower case; on by default, unless the
            vocabulary has capital letters.
        strip_accents: remove accents; on by default if text is lower-cased.
        tokenize_chinese_chars: make each Chinese character a word; on by
            default.
    """

    vocab_file: str = option(path="file")
    lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None


@dataclasses.dataclass(kw_only=True)
class ReadingOptions:
    """Options for data files that differ from the training files.

    Attributes:
        reading: an option of `preprocess` whose value differs for these files,
            such as text_field=body, or data_split=valid for NarrativeQA; may be
            given several times.
    """

    reading: list[str] | None = option(None, several=True)


def parse_reading(task, values: Sequence[str] | None) -> dict[str, str]:
    """Parses `reading` into name -> value; rejects unknown options."""
    found = {}
    for text in values or ():
        name, is_set, value = text.partition("=")
        if name not in task.reading or not is_set:
            known = ", ".join(task.reading) or "none"
            raise UserError(
                f"`reading={text}`: {task.name} has no such option. Give "
                f"NAME=VALUE, with one of: {known}."
            )
        found[name] = value
    return found


def with_like(task, options: Any) -> tuple[dict | None, Any]:
    """Reads the metadata of `like`, and takes `vocab_file` from it if unset.

    Returns:
        Pair of the metadata (None without `like`) and the options.

    Raises:
        UserError: there is no metadata or vocabulary, or `like` has records of
            another task.
    """
    like = options.like
    if not like:
        if not options.vocab_file:
            raise UserError(f"{task.name} needs `vocab_file` or `like`.")
        return None, options
    from etcmodel.pipeline import shards

    note = shards.read_note(like) or runs.read_records(like)
    if note is None:
        raise UserError(
            f"`like={like}` has no {shards.METADATA_FILE}. Give the "
            "`output_dir` of an earlier `preprocess`, or the `model_dir` of "
            "`train`."
        )
    if note["task"] != task.name:
        raise UserError(
            f"`like={like}` has records of the task {note['task']!r}, expected "
            f"{task.name!r}."
        )
    if not options.vocab_file:
        vocab_file = os.path.join(like, note["vocab_file"])
        options = dataclasses.replace(options, vocab_file=vocab_file)
    return note, options


def preprocessing_config(
    task, given: Mapping[str, Any], like: dict | None = None
):
    """Makes the preprocessing configuration from a task's options.

    `like` is the metadata of other records: its values are the defaults, and
    replace "auto".
    """
    noted = {}
    if like:
        noted = {**like["preprocessing_config"], **like.get("reading", {})}
    given = {
        name: value
        for name, value in given.items()
        if name not in noted or value != "auto"
    }
    config = task.make_preprocessing_config({**noted, **given})
    options_lib.check(config)
    return config


def read_format(task, config, noted: Collection[str] = ()):
    """Returns the `readers.records.Format` of data files.

    `noted` has the options, such as "query_field", that come from other
    records' metadata. Files may lack the fields that they name.
    """
    found = task.format(config)
    names = [x.removesuffix("_field") for x in _OPTIONAL if x in noted]
    if not names:
        return found
    fields = dataclasses.replace(found.fields, **dict.fromkeys(names))
    return dataclasses.replace(found, fields=fields)


def format_of_model(
    task,
    sizes: Mapping[str, Any],
    noted: Mapping[str, Any],
    given: Mapping[str, Any],
):
    """Returns the format of data files for a trained model.

    Args:
        task: the task.
        sizes: the preprocessing configuration of the model.
        noted: the reading options that are stored with the model.
        given: options that override `sizes` and `noted`.
    """
    config = task.make_preprocessing_config({**sizes, **noted, **given})
    return read_format(task, config, noted.keys() - given.keys())


def make_example_maker(task, config, options: Any):
    """Makes the `ExampleMaker` with the tokenizer that the options set."""
    from etcmodel.feature_utils.text import tokenizer_settings
    from etcmodel.pipeline import example_maker

    settings = tokenizer_settings.TokenizerSettings(
        **{name: getattr(options, name, None) for name in _SETTINGS}
    )
    return example_maker.of_task(task, config, options.vocab_file, settings)


def describe_tokenizer(tokenizer, options: Any) -> str:
    """Describes the tokenizer's settings and their source, for users."""
    from etcmodel.feature_utils.text import tokenizer_settings

    settings = tokenizer.settings
    if not settings:
        return ""
    sources = tokenizer_settings.settings_files(
        os.path.dirname(options.vocab_file)
    )
    if any(getattr(options, name, None) is not None for name in _SETTINGS):
        sources.insert(0, "options")
    return (
        f"Tokenizer: {settings.describe()} "
        f"(from {', '.join(sources) or 'the vocabulary itself'})."
    )


def check_split(task, split: str) -> None:
    """Raises a `UserError` if the task does not have the split."""
    splits = task.dataset.FORMAT.splits
    if split not in splits:
        raise UserError(
            f"`split={split}`: {task.name} has no such split. Choose one of: "
            f"{', '.join(splits)}."
        )
