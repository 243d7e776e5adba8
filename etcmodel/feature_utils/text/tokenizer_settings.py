"""Settings of WordPiece tokenizers: case, accents, long words.

Hugging Face stores these settings beside the vocabulary, in
`tokenizer_config.json` and `tokenizer.json`. This module reads both files, and
writes `tokenizer_config.json`.
"""

import json
import os
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from etcmodel import json_objects

CONFIG_FILE = "tokenizer_config.json"
TOKENIZER_FILE = "tokenizer.json"
# The default of Hugging Face's tokenizers. The default of BERT's own code is
# 200.
_HUGGING_FACE_MAX_CHARS = 100


class TokenizerSettings(NamedTuple):
    """Settings of a WordPiece tokenizer; None means the default.

    Attributes:
        lower_case: whether text is lower-cased; True by default, unless the
            vocabulary has capital letters.
        strip_accents: whether accents are removed; by default equal to
            `lower_case`.
        tokenize_chinese_chars: whether each Chinese character is its own word;
            True by default.
        clean_text: whether control characters are removed; True by default.
        max_chars_per_word: maximum length of a word. Longer words become the
            unknown token. 200 by default, as in BERT's own code.
    """

    lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
    clean_text: bool | None = None
    max_chars_per_word: int | None = None

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "TokenizerSettings":
        """Makes settings from a dict; rejects unknown names."""
        unknown = sorted(set(content) - set(cls._fields))
        if unknown:
            raise ValueError(
                f"Unknown settings {', '.join(unknown)}. Expected names from "
                f"{', '.join(cls._fields)}."
            )
        return cls(**content)

    def override(self, other: "TokenizerSettings") -> "TokenizerSettings":
        """Returns these settings, replaced by those in `other` that are set."""
        return self._replace(
            **{k: v for k, v in other._asdict().items() if v is not None}
        )

    def resolve(self, is_uncased: bool) -> "TokenizerSettings":
        """Fills in the defaults for an uncased or a cased vocabulary."""
        lower_case = is_uncased if self.lower_case is None else self.lower_case
        return TokenizerSettings(
            lower_case, lower_case, True, True, 200
        ).override(self)

    def describe(self) -> str:
        """Describes resolved settings, such as "lower case, accents kept"."""
        parts = [
            "lower case" if self.lower_case else "case kept",
            "accents removed" if self.strip_accents else "accents kept",
            "Chinese characters apart"
            if self.tokenize_chinese_chars
            else "Chinese characters in words",
            f"words of up to {self.max_chars_per_word} characters",
        ]
        if not self.clean_text:
            parts.append("control characters kept")
        return ", ".join(parts)


# Setting -> its name in `tokenizer_config.json`, its name in the normalizer of
# `tokenizer.json`, and its type. Only this package writes
# "max_input_chars_per_word" to `tokenizer_config.json`.
_NAMES = {
    "lower_case": ("do_lower_case", "lowercase", bool),
    "strip_accents": ("strip_accents", "strip_accents", bool),
    "tokenize_chinese_chars": (
        "tokenize_chinese_chars",
        "handle_chinese_chars",
        bool,
    ),
    "clean_text": ("clean_text", "clean_text", bool),
    "max_chars_per_word": ("max_input_chars_per_word", None, int),
}


def read_settings(directory: str | os.PathLike) -> TokenizerSettings:
    """Reads settings from `tokenizer_config.json` and `tokenizer.json`.

    If they differ, `tokenizer_config.json` wins, as in Hugging Face's library.
    All settings are None if the directory has neither file.

    Raises:
        ValueError: a file is damaged, or needs a feature that this package
            does not support, such as a Japanese dictionary.
    """
    directory = os.fspath(directory)
    settings = TokenizerSettings()
    for name, read in (
        (TOKENIZER_FILE, _from_tokenizer),
        (CONFIG_FILE, _from_config),
    ):
        path = os.path.join(directory, name)
        if tf.io.gfile.exists(path):
            settings = settings.override(read(_read_json(path), path))
            if settings.max_chars_per_word is None:
                settings = settings._replace(
                    max_chars_per_word=_HUGGING_FACE_MAX_CHARS
                )
    return settings


def settings_files(directory: str | os.PathLike) -> list[str]:
    """Returns the paths of the files that `read_settings` reads."""
    paths = [
        os.path.join(os.fspath(directory), name)
        for name in (CONFIG_FILE, TOKENIZER_FILE)
    ]
    return [path for path in paths if tf.io.gfile.exists(path)]


def to_config(settings: TokenizerSettings) -> dict[str, Any]:
    """Returns the content of `tokenizer_config.json`."""
    return {
        _NAMES[name][0]: value
        for name, value in settings._asdict().items()
        if value is not None
    }


def write_settings(
    directory: str | os.PathLike,
    settings: TokenizerSettings,
    name: str = CONFIG_FILE,
) -> None:
    """Writes `tokenizer_config.json` into an existing directory."""
    path = os.path.join(os.fspath(directory), name)
    with tf.io.gfile.GFile(path, "w") as stream:
        json.dump(to_config(settings), stream, indent=2, sort_keys=True)
        stream.write("\n")


def _read_json(path: str) -> dict[str, Any]:
    with tf.io.gfile.GFile(path, "rb") as stream:
        try:
            return json_objects.parse(stream.read())
        except ValueError as error:
            raise ValueError(f"{path}: {error}.") from None


def _value(content, key, kind, path):
    """Returns a value after checking its type, or None if it is absent."""
    value = content.get(key)
    # Not `isinstance`, since True is an int, too.
    if value is None or type(value) is kind:
        return value
    raise ValueError(
        f"{path}: {key} is {value!r}, expected {kind.__name__} or null."
    )


def _refuse(path: str, what: str) -> ValueError:
    """Creates the error for a tokenizer that this package cannot reproduce."""
    return ValueError(
        f"{path}: {what}, which this package does not support: its tokens "
        "would differ. Use a tokenizer of BERT."
    )


def _from_config(content: dict[str, Any], path: str) -> TokenizerSettings:
    if content.get("tokenizer_class") == "BertJapaneseTokenizer":
        raise _refuse(path, "tokenizer_class is BertJapaneseTokenizer")
    if content.get("do_basic_tokenize") is False:
        raise _refuse(path, "do_basic_tokenize is false")
    return TokenizerSettings(
        **{
            name: _value(content, key, kind, path)
            for name, (key, _, kind) in _NAMES.items()
        }
    )


def _part(content, name, expected, path) -> dict[str, Any] | None:
    """Returns a part of `tokenizer.json` after checking its type, or None."""
    part = content.get(name)
    kind = part.get("type") if isinstance(part, dict) else part
    if kind not in (expected, None):
        raise _refuse(path, f"the {name} is {kind!r}, not {expected}")
    return part


def _from_tokenizer(content: dict[str, Any], path: str) -> TokenizerSettings:
    normalizer = _part(content, "normalizer", "BertNormalizer", path)
    if content.get("pre_tokenizer") is None:
        raise _refuse(path, "there is no pre_tokenizer")
    _part(content, "pre_tokenizer", "BertPreTokenizer", path)
    model = _part(content, "model", "WordPiece", path) or {}
    prefix = model.get("continuing_subword_prefix", "##")
    if prefix != "##":
        raise _refuse(path, f"continuing_subword_prefix is {prefix!r}, not ##")
    if normalizer is None:
        # Without a normalizer, the text is not changed.
        settings = TokenizerSettings(False, False, False, False)
    else:
        settings = TokenizerSettings(
            **{
                name: _value(normalizer, key, kind, path)
                for name, (_, key, kind) in _NAMES.items()
                if key
            }
        )
    return settings._replace(
        max_chars_per_word=_value(model, "max_input_chars_per_word", int, path)
    )
