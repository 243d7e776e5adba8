"""Options for data files and vocabulary; sizes and names of fields."""

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

# Options of the tokenizer.
_SETTINGS = ("lower_case", "strip_accents", "tokenize_chinese_chars")
# Fields that not all files have to name.
_OPTIONAL = ("query_field", "id_field", "evidence_field")


@dataclasses.dataclass(kw_only=True)
class InputOptions:
    """The data files.

    Attributes:
        input: the data files in the task's format, plain or compressed:
            names, or patterns such as nq-train-*.jsonl.gz, with commas between.
        skip_bad_records: leave records out that cannot be used, and count them,
            instead of ending with an error.
        max_record_bytes: maximum size of a record: of a line of JSON, a row of
            a table, an element of a JSON array, or a document in a file of its
            own. A larger one is an error. 0 for no limit.
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
        lower_case: lower-case text; by default, unless the vocabulary has
            capital letters.
        strip_accents: remove accents; by default, if text is lower-cased.
        tokenize_chinese_chars: make each Chinese character a word; on by
            default.
    """

    vocab_file: str = option(path="file")
    lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None


@dataclasses.dataclass(kw_only=True)
class ReadingOptions:
    """How data files are read.

    Attributes:
        reading: where the files differ from the training records: an option of
            `preprocess`, such as text_field=body, or data_split=valid for
            NarrativeQA; may be given several times.
    """

    reading: list[str] | None = option(None, several=True)


def parse_reading(task, values: Sequence[str] | None) -> dict[str, str]:
    """Returns `reading` as name -> value; a `UserError` if unknown."""
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
    """Reads the note about `like`, whose vocabulary is the default.

    Returns the note, or None without `like`, and the options. Raises a
    `UserError` if there is no note or vocabulary, or the task is another one.
    """
    like = options.like
    if not like:
        if not options.vocab_file:
            raise UserError(f"{task.name} needs `vocab_file`, or `like`.")
        return None, options
    from etcmodel.pipeline import shards

    note = shards.read_note(like) or runs.read_records(like)
    if note is None:
        raise UserError(
            f"`like={like}`: it has no {shards.METADATA_FILE}. Give the "
            "`output_dir` of an earlier `preprocess`, or the `model_dir` of "
            "`train`."
        )
    if note["task"] != task.name:
        raise UserError(
            f"`like={like}`: its records are those of the task "
            f"{note['task']!r}, not of {task.name!r}."
        )
    if not options.vocab_file:
        vocab_file = os.path.join(like, note["vocab_file"])
        options = dataclasses.replace(options, vocab_file=vocab_file)
    return note, options


def preprocessing_config(
    task, given: Mapping[str, Any], like: dict | None = None
):
    """Makes the preprocessing configuration that a task's options describe.

    `like` is the note about other records, whose values are the defaults; they
    also tell what "auto" stands for.
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
    """Returns how data files are read; see `readers.records.Format`.

    Files may lack the fields of the names in `noted`, which other records had.
    """
    found = task.format(config)
    names = [x.removesuffix("_field") for x in _OPTIONAL if x in noted]
    if not names:
        return found
    fields = dataclasses.replace(found.fields, **dict.fromkeys(names))
    return dataclasses.replace(found, fields=fields)


def make_example_maker(task, config, options: Any):
    """Makes the `ExampleMaker`, with the vocabulary of the options."""
    from etcmodel.feature_utils.text import tokenizer_settings
    from etcmodel.pipeline import example_maker

    settings = tokenizer_settings.TokenizerSettings(
        **{name: getattr(options, name, None) for name in _SETTINGS}
    )
    return example_maker.of_task(task, config, options.vocab_file, settings)


def describe_tokenizer(tokenizer, options: Any) -> str:
    """Returns the settings of the tokenizer, and where they come from."""
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
    """Raises a `UserError` if the task has no such split."""
    splits = task.dataset.FORMAT.splits
    if split not in splits:
        raise UserError(
            f"`split={split}`: {task.name} has {', '.join(splits)}."
        )
