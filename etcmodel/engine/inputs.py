"""What the functions of the engine read: files, vocabulary, sizes."""

import dataclasses
import os
from typing import Any

from etcmodel.errors import UserError
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.options import option
from etcmodel.readers import files

# Options about how text is prepared for the vocabulary.
_SETTINGS = ("lower_case", "strip_accents", "tokenize_chinese_chars")


@dataclasses.dataclass(kw_only=True)
class InputOptions:
    """What is read.

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


def preprocessing_config(task, options: Any, like: dict | None = None):
    """Makes the preprocessing configuration that `task_options` describe.

    `like` is what was noted about other records, whose values are the defaults;
    they also tell what "auto" stands for.
    """
    noted = like["preprocessing_config"] if like else {}
    given = {
        name: value
        for name, value in options.task_options.items()
        if name not in noted or value != "auto"
    }
    config = task.make_preprocessing_config({**noted, **given})
    options_lib.check(config)
    return config


def make_example_maker(task, config, options: VocabularyOptions):
    """Makes the `ExampleMaker`, with the vocabulary of the options."""
    from etcmodel.feature_utils.text import tokenizer_settings
    from etcmodel.pipeline import example_maker

    settings = tokenizer_settings.TokenizerSettings(
        **{name: getattr(options, name) for name in _SETTINGS}
    )
    return example_maker.of_task(task, config, options.vocab_file, settings)


def describe_tokenizer(tokenizer, options: VocabularyOptions) -> str:
    """Returns the settings of the tokenizer, and where they come from."""
    from etcmodel.feature_utils.text import tokenizer_settings

    settings = tokenizer.settings
    if not settings:
        return ""
    sources = tokenizer_settings.settings_files(
        os.path.dirname(options.vocab_file)
    )
    if any(getattr(options, name) is not None for name in _SETTINGS):
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
