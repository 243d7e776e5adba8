"""Writes and reads sharded TFRecord files and `preprocessing_config.json`."""

import contextlib
import glob
import hashlib
import json
import os
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import tensorflow as tf
from google.protobuf import message

from etcmodel.errors import UserError
from etcmodel.errors import without_stack
from etcmodel.feature_utils import etc_features
from etcmodel.pipeline import shards
from etcmodel.readers import files as data_files

METADATA_FILE = shards.METADATA_FILE
FORMAT = shards.FORMAT
SUFFIX = ".tfrecord.gz"
_GZIP_MAGIC = b"\x1f\x8b"


class ShardedWriter(contextlib.ExitStack):
    """Distributes records over a fixed number of gzipped TFRecord files.

    Record i goes to shard i modulo `num_shards`; the directory must exist:

        with ShardedWriter("/data/out", "train", 2) as writer:
            writer.write(b"...")
        # -> /data/out/train-00000-of-00002.tfrecord.gz
        #    /data/out/train-00001-of-00002.tfrecord.gz
    """

    def __init__(self, directory: str, stem: str, num_shards: int):
        super().__init__()
        if num_shards < 1:
            raise UserError(f"`num_shards={num_shards}`: expected at least 1.")
        self.count = 0
        self.paths = [
            os.path.join(
                directory, f"{stem}-{i:05d}-of-{num_shards:05d}{SUFFIX}"
            )
            for i in range(num_shards)
        ]
        options = tf.io.TFRecordOptions(compression_type="GZIP")
        self._writers = [
            self.enter_context(tf.io.TFRecordWriter(path, options))
            for path in self.paths
        ]
        self._counts = [_Counts() for _ in self.paths]

    def write(self, serialized: bytes) -> None:
        """Appends a serialized `tf.train.Example`."""
        shard = self.count % len(self._writers)
        self._writers[shard].write(serialized)
        self._counts[shard].add(serialized)
        self.count += 1

    def describe(self) -> dict[str, dict[str, int]]:
        """Returns file name -> its entry of `shards` in the metadata.

        Call this method after the files are closed.
        """
        return {
            os.path.basename(path): counts.describe(path)
            for path, counts in zip(self.paths, self._counts, strict=True)
        }


class _Counts:
    """Counts the examples of a shard, and finds the longest inputs."""

    def __init__(self):
        self._number = 0
        self._longest = {}

    def add(self, serialized: bytes) -> None:
        """Counts a serialized example."""
        self._number += 1
        for name, length in etc_features.measure(serialized).items():
            if length > self._longest.get(name, 0):
                self._longest[name] = length

    def describe(self, path: str) -> dict[str, int]:
        """Returns the entry of `shards` in the metadata, for a closed file."""
        size = tf.io.gfile.stat(path).length
        return {"examples": self._number, "bytes": size, **self._longest}


def describe_shard(path: str) -> dict[str, int]:
    """Reads a TFRecord file; returns its entry of `shards` in the metadata.

    Returns:
        The number of `examples` and of `bytes`, and the `long_length` and
        `global_length` of the longest inputs; records of other tasks than ETC's
        lack these lengths.
    """
    counts = _Counts()
    dataset = tf.data.TFRecordDataset(path, compression_type([path]))
    for serialized in dataset.as_numpy_iterator():
        counts.add(serialized)
    return counts.describe(path)


def find_files(input_path: str | Sequence[str]) -> list[str]:
    """Finds TFRecord files; checks that none is missing or truncated.

    Names and sizes are compared with `preprocessing_config.json` beside the
    files. If it does not exist, or another program wrote it without sizes, only
    names such as `x-00000-of-00004` are checked.

    Args:
        input_path: files, patterns with `*` or `?`, and directories that
            `preprocess` wrote: a list or a comma-separated string.

    Raises:
        UserError: a check fails, or a part of `input_path` matches no file.
    """
    if isinstance(input_path, str):
        input_path = data_files.split_paths(input_path)
    files = []
    for part in (part.strip() for part in input_path):
        if not part:
            continue
        is_directory = tf.io.gfile.isdir(part)
        pattern = part
        if is_directory:
            pattern = os.path.join(glob.escape(part), "*" + SUFFIX)
        found = tf.io.gfile.glob(pattern)
        if not found:
            raise UserError(
                f"No TFRecord files found in {part}. Give the `output_dir` of "
                "`preprocess`, or a pattern such as DIR/train-*.tfrecord.gz."
            )
        shards.check(pattern, found)
        files.extend(sorted(found))
    if not files:
        raise UserError(
            "The input path is empty. Give the `output_dir` of `preprocess`."
        )
    return files


def compression_type(paths: Sequence[str]) -> str:
    """Returns the compression of files, `"GZIP"` or `""`.

    Raises a `UserError` if some are compressed and others are not.
    """
    of_kind = {}
    for path in paths:
        with tf.io.gfile.GFile(path, "rb") as stream:
            is_gzipped = stream.read(2) == _GZIP_MAGIC
        of_kind.setdefault(is_gzipped, path)
    if len(of_kind) > 1:
        raise UserError(
            f"{of_kind[True]} is gzipped, but {of_kind[False]} is not: it is "
            "damaged or belongs to other data. Give files of one format."
        )
    return "GZIP" if True in of_kind else ""


def read_stored(
    input_path: str | Sequence[str],
) -> Iterator[tuple[str, int, Mapping[str, tf.train.Feature]]]:
    """Yields each stored example's file, its position there and its features.

    Raises a `UserError` if a file is missing or damaged, or if its number of
    records differs from `preprocessing_config.json`.
    """
    counts = {}
    for path in find_files(input_path):
        number = counts[path] = 0
        dataset = tf.data.TFRecordDataset(path, compression_type([path]))
        records = dataset.as_numpy_iterator()
        while True:
            try:
                serialized = next(records, None)
                if serialized is None:
                    break
                stored = tf.train.Example.FromString(serialized)
            except tf.errors.DataLossError as error:
                reason = " ".join(without_stack(error.message))
                raise shards.damaged(path, number, reason) from error
            except message.DecodeError as error:
                raise UserError(
                    f"{path}, record {number}: not a tf.train.Example. "
                    f"{shards.ADVICE}"
                ) from error
            yield path, number, stored.features.feature
            number += 1
            counts[path] = number
    shards.check_counts(counts)


def read_examples(
    input_path: str | Sequence[str],
) -> Iterator[tuple[str, int, Mapping[str, tf.train.Feature]]]:
    """Yields the `example_id`, index and features of each stored record.

    A packed example is yielded once for each of its records; the index is the
    record's position in it.
    """
    for _, _, stored in read_stored(input_path):
        for index, name in enumerate(stored["example_id"].bytes_list.value):
            yield name.decode("utf-8"), index, stored


def fingerprint(path: str) -> str:
    """Returns the first 16 hexadecimal digits of a file's SHA-256."""
    with tf.io.gfile.GFile(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()[:16]


def write_json(directory: str, name: str, content: object) -> None:
    """Writes a JSON file in UTF-8, indented and with sorted keys."""
    path = os.path.join(directory, name)
    with tf.io.gfile.GFile(path, "w") as stream:
        json.dump(content, stream, indent=2, sort_keys=True, ensure_ascii=False)
        stream.write("\n")


def read_metadata(files: Iterable[str]) -> dict | None:
    """Reads the `preprocessing_config.json` beside files from `find_files`.

    Returns:
        Its content, with the keys `directory` and `longest` added; `longest`
        has the `long_length` and `global_length` of the longest inputs, unless
        unknown. Both `longest` and `num_examples` count only the given files.
        None if some file has no `preprocessing_config.json`.

    Raises:
        UserError: a `preprocessing_config.json` is damaged or has another
            version, two of them differ, or records have no answers.
    """
    metadata, parts = None, []
    names = {}
    for path in files:
        directory, name = os.path.split(path)
        names.setdefault(directory, []).append(name)
    for directory, in_directory in names.items():
        found = shards.read_note(directory)
        if found is None:
            return None
        if found["split"] == "predict":
            raise UserError(
                f"{directory} has no answers: it was preprocessed with "
                "`split=predict`. Preprocess it with `split=train` for "
                "training, `split=dev` for validation."
            )
        # A pattern may select only some of the files.
        selected = [
            found["shards"][name] for name in in_directory if "shards" in found
        ]
        if selected:
            found["num_examples"] = sum(x["examples"] for x in selected)
        # Other programs may write no shards, so that lengths are unknown.
        parts += selected or [{}]
        if metadata is None:
            metadata = dict(found, directory=directory)
            continue
        metadata["num_examples"] += found["num_examples"]
        for key in (
            "task",
            "preprocessing_config",
            "vocab_fingerprint",
            "tokenizer",
        ):
            if found[key] != metadata[key]:
                raise UserError(
                    f"{directory} and {metadata['directory']} were "
                    f"preprocessed differently ({key}: {found[key]} and "
                    f"{metadata[key]}). Preprocess both with the same flags "
                    "and vocabulary."
                )
    if metadata is not None:
        metadata["longest"] = longest(parts)
    return metadata


def longest(lengths: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Returns the maximum of each length that all items with examples have.

    Example: `[{"long_length": 3}, {"long_length": 5, "examples": 1}]` gives
    `{"long_length": 5}`.
    """
    lengths = [x for x in lengths if x.get("examples", 1)]
    return {
        name: max(x[name] for x in lengths)
        for name in etc_features.LENGTHS
        if lengths and all(name in x for x in lengths)
    }
