"""Checks that all shards of preprocessed data exist and are complete.

`preprocess` writes the number of examples and bytes of each shard, and the
length of its longest input, to `preprocessing_config.json`. `check` compares
only names and sizes, which is quick.
"""

import fnmatch
import os
import re
from collections.abc import Mapping
from collections.abc import Sequence

import tensorflow as tf

from etcmodel import json_objects
from etcmodel.errors import UserError
from etcmodel.feature_utils import etc_features
from etcmodel.pipeline import metadata_files

METADATA_FILE = "preprocessing_config.json"
# Format version. Files with another version are rejected.
FORMAT = 6
_KEYS = {
    "task": str,
    "split": str,
    "preprocessing_config": dict,
    "vocab_file": metadata_files.FileName,
    "vocab_fingerprint": str,
    "vocab_size": int,
    "num_examples": int,
    "tokenizer": dict | None,
}
ADVICE = "Copy it again from the original, or preprocess the data again."
# Example: `train-00000-of-00004.tfrecord.gz`.
_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\..+)?")
_MAX_NAMED = 3


def read_note(directory: str) -> dict | None:
    """Reads `preprocessing_config.json`; returns None if it does not exist.

    The key `shards` (file name -> result of `tfrecords.describe_shard`) may be
    missing if another program wrote the file.

    Raises:
        UserError: the file is damaged, or has another format version.
    """
    path = os.path.join(directory, METADATA_FILE)
    if not metadata_files.exists(path):
        return None
    note = metadata_files.read(path, advice=ADVICE)
    if note.get("format") != FORMAT:
        raise UserError(
            f"{directory} was written by another version of etcmodel. "
            "Preprocess the data again."
        )
    metadata_files.check(path, note, _KEYS, ADVICE)
    metadata_files.check_tokenizer(path, note, ADVICE)
    if "reading" in note:
        metadata_files.check(path, note, {"reading": dict}, ADVICE)
    if "shards" in note:
        metadata_files.check(path, note, {"shards": dict}, ADVICE)
        keys = {"examples": int, "bytes": int}
        optional = dict.fromkeys(etc_features.LENGTHS, int)
        for name, shard in note["shards"].items():
            place = f"{path}, shards, {name!r}"
            if not isinstance(shard, dict):
                raise UserError(f"{place}: expected an object. {ADVICE}")
            if not json_objects.is_file_name(name):
                raise UserError(
                    f"{place}: expected a file name without a directory. "
                    f"{ADVICE}"
                )
            stored = {x: y for x, y in optional.items() if x in shard}
            metadata_files.check(place, shard, keys | stored, ADVICE)
        total = sum(x["examples"] for x in note["shards"].values())
        if total != note["num_examples"]:
            raise UserError(
                f"{path}: 'num_examples' is {note['num_examples']}, but its "
                f"shards hold {total}. {ADVICE}"
            )
    return note


def damaged(path: str, number: int, reason: str) -> UserError:
    """Returns the error of a file that is damaged after `number` records."""
    directory, name = os.path.split(path)
    listed = (read_note(directory) or {}).get("shards", {})
    of_all = f" of {listed[name]['examples']}" if name in listed else ""
    return UserError(
        f"{path} is damaged: {reason.rstrip('.')}, after {number}{of_all} "
        f"records. {ADVICE}"
    )


def check_counts(counts: Mapping[str, int]) -> None:
    """Raises a `UserError` if record counts differ from the stored ones.

    `counts` maps the path of each file to the number of records read from it.
    `preprocessing_config.json` has the expected numbers.
    """
    directories = {}
    for path, count in counts.items():
        directory, name = os.path.split(path)
        directories.setdefault(directory, {})[name] = count
    for directory, found in directories.items():
        note = read_note(directory) or {}
        for name, shard in note.get("shards", {}).items():
            if found.get(name, shard["examples"]) != shard["examples"]:
                raise UserError(
                    f"{os.path.join(directory, name)} holds {found[name]} "
                    f"records, but {METADATA_FILE} says {shard['examples']}. "
                    f"{ADVICE}"
                )
        # Other programs may store only the total number of records.
        if note and "shards" not in note and {*_series([*found])} == {*found}:
            total = sum(found.values())
            if total != note["num_examples"]:
                raise UserError(
                    f"{directory} holds {total} records, but {METADATA_FILE} "
                    f"says {note['num_examples']}. {ADVICE}"
                )


def check(pattern: str, files: Sequence[str]) -> None:
    """Raises a `UserError` if a shard of a pattern is missing or truncated.

    Raises one as well if a file belongs to other data, or if
    `preprocessing_config.json` is damaged.

    Args:
        pattern: a file pattern. Shards that it does not match, as with
            `train-0000*`, may be missing.
        files: the files that match the pattern.
    """
    parent, last = os.path.split(pattern)
    names = {}
    for path in files:
        directory, name = os.path.split(path)
        names.setdefault(directory, []).append(name)
    if re.search(r"[*?\[]", parent):
        # Finds directories that lack all of their shards.
        notes = tf.io.gfile.glob(os.path.join(parent, METADATA_FILE))
        for path in notes:
            names.setdefault(os.path.dirname(path), [])
    for directory, found in names.items():
        note = read_note(directory) or {}
        listed = note.get("shards")
        expected = _series(found) if listed is None else list(listed)
        wanted = [x for x in expected if fnmatch.fnmatchcase(x, last)]
        _check_names(directory, found, wanted, expected, listed is not None)
        for name in found:
            path = os.path.join(directory, name)
            _check_size(path, None if listed is None else listed[name]["bytes"])


def _series(names: Sequence[str]) -> list[str]:
    """Returns the names of all shards in each series that `names` belong to."""
    found = {
        (match[1], match[3], match[4] or "")
        for match in map(_NAME.fullmatch, names)
        if match
    }
    return [
        f"{stem}-{i:05d}-of-{total}{suffix}"
        for stem, total, suffix in sorted(found)
        for i in range(int(total))
    ]


def _check_names(directory, found, wanted, expected, is_listed: bool) -> None:
    """Raises a `UserError` if shards are missing or belong to other data."""
    missing = [name for name in wanted if name not in found]
    if missing:
        shown = ", ".join(missing[:_MAX_NAMED])
        more = len(missing) - _MAX_NAMED
        raise UserError(
            f"{directory} lacks {len(missing)} of {len(wanted)} shards: "
            f"{shown}{f' and {more} more' if more > 0 else ''}. Copy them "
            "from the original, or preprocess the data again. To read only the "
            "other shards, list their paths."
        )
    foreign = [name for name in found if name not in expected]
    if foreign and is_listed:
        raise UserError(
            f"{os.path.join(directory, foreign[0])} is not one of the "
            f"{len(expected)} shards that {METADATA_FILE} lists, so it belongs "
            "to other data. Move it elsewhere, or preprocess again."
        )


def _check_size(path: str, expected: int | None) -> None:
    """Raises a `UserError` if a file is truncated."""
    size = tf.io.gfile.stat(path).length
    if expected is None and not size:
        raise UserError(f"{path} has 0 bytes, so it was truncated. {ADVICE}")
    if expected is not None and size != expected:
        raise UserError(
            f"{path} has {size} bytes, but {METADATA_FILE} says {expected}: it "
            f"was truncated or replaced. {ADVICE}"
        )
