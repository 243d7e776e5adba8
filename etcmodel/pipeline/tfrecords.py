"""Sharded, compressed TFRecord files and the note that describes them."""

import contextlib
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
from etcmodel.pipeline import shards

METADATA_FILE = shards.METADATA_FILE
FORMAT = shards.FORMAT
_SUFFIX = ".tfrecord.gz"
_GZIP_MAGIC = b"\x1f\x8b"


class ShardedWriter(contextlib.ExitStack):
    """Deals records out to a fixed number of gzipped TFRecord files.

    Record i goes to shard i modulo `num_shards`:

        with ShardedWriter("/data/out", "train", 2) as writer:
            writer.write(b"...")
        # -> /data/out/train-00000-of-00002.tfrecord.gz
        #    /data/out/train-00001-of-00002.tfrecord.gz

    Attributes:
        count: number of records written.
        paths: the files.
    """

    def __init__(self, directory: str, stem: str, num_shards: int):
        """Opens the files.

        Args:
            directory: an existing directory.
            stem: what the file names begin with.
            num_shards: number of files.

        Raises:
            UserError: `num_shards` is not positive.
        """
        super().__init__()
        if num_shards < 1:
            raise UserError(
                f"--num_shards={num_shards}: at least one shard is needed."
            )
        self.count = 0
        self.paths = [
            os.path.join(
                directory, f"{stem}-{i:05d}-of-{num_shards:05d}{_SUFFIX}"
            )
            for i in range(num_shards)
        ]
        options = tf.io.TFRecordOptions(compression_type="GZIP")
        self._writers = [
            self.enter_context(tf.io.TFRecordWriter(path, options))
            for path in self.paths
        ]
        self._counts = [0] * num_shards

    def write(self, serialized: bytes) -> None:
        """Appends one record.

        Args:
            serialized: a serialized `tf.train.Example`.
        """
        shard = self.count % len(self._writers)
        self._writers[shard].write(serialized)
        self._counts[shard] += 1
        self.count += 1

    def describe(self) -> dict[str, dict[str, int]]:
        """Describes the closed files, for `preprocessing_config.json`.

        Returns:
            Name of each file -> its number of `examples` and its size in
            `bytes`.
        """
        return {
            os.path.basename(path): {
                "examples": count,
                "bytes": os.path.getsize(path),
            }
            for path, count in zip(self.paths, self._counts, strict=True)
        }


def find_files(input_path: str | Sequence[str]) -> list[str]:
    """Finds TFRecord files, and checks that none is missing or truncated.

    Names and sizes are compared with `preprocessing_config.json` beside the
    files. Without this file, or if another program wrote it and lists no
    sizes, only the names are checked: `x-00000-of-00004`.

    Args:
        input_path: comma-separated string, or list, of files, patterns with
            `*` or `?`, and directories. A directory stands for all the TFRecord
            files that `preprocess` wrote into it.

    Returns:
        The files, sorted within each pattern.

    Raises:
        UserError: a part matches nothing, a file is missing, truncated, or not
            written by `preprocess`, or `preprocessing_config.json` is damaged.
    """
    if isinstance(input_path, str):
        input_path = input_path.split(",")
    files = []
    for part in (part.strip() for part in input_path):
        if not part:
            continue
        is_directory = tf.io.gfile.isdir(part)
        pattern = os.path.join(part, "*" + _SUFFIX) if is_directory else part
        found = tf.io.gfile.glob(pattern)
        if not found:
            raise UserError(
                f"{part}: no TFRecord files are there. Give the --output_dir "
                "of `preprocess`, or a pattern such as DIR/train-*.tfrecord.gz."
            )
        shards.check(pattern, found)
        files.extend(sorted(found))
    if not files:
        raise UserError(
            "No input path was given. Give the --output_dir of `preprocess`."
        )
    return files


def compression_type(paths: Sequence[str]) -> str:
    """Detects how TFRecord files are compressed, by their first bytes.

    Args:
        paths: the files.

    Returns:
        `"GZIP"` or `""`.

    Raises:
        UserError: some are compressed and others are not.
    """
    of_kind = {}
    for path in paths:
        with tf.io.gfile.GFile(path, "rb") as stream:
            is_gzipped = stream.read(2) == _GZIP_MAGIC
        of_kind.setdefault(is_gzipped, path)
    if len(of_kind) > 1:
        raise UserError(
            f"{of_kind[True]} is gzipped, but {of_kind[False]} is not: it is "
            "damaged, or from another data set. Name files of one kind."
        )
    return "GZIP" if True in of_kind else ""


def read_stored(
    input_path: str | Sequence[str],
) -> Iterator[tuple[str, int, Mapping[str, tf.train.Feature]]]:
    """Reads stored examples on the host, one by one, and counts them.

    Args:
        input_path: as for `find_files`.

    Yields:
        The file, the position in it, from 0, and all features of the example.

    Raises:
        UserError: a file is missing or damaged, or has more or fewer records
            than `preprocessing_config.json` says.
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
    """Reads the records in stored examples; see `read_stored`.

    An example that several records are packed into is yielded once for each.

    Args:
        input_path: as for `find_files`.

    Yields:
        The `example_id` of the record, its index within the example, and all
        features of the example.
    """
    for _, _, stored in read_stored(input_path):
        for index, name in enumerate(stored["example_id"].bytes_list.value):
            yield name.decode("utf-8"), index, stored


def fingerprint(path: str) -> str:
    """Tells files of different content apart.

    Args:
        path: the file.

    Returns:
        The first 16 digits of its SHA-256.
    """
    with tf.io.gfile.GFile(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()[:16]


def write_json(directory: str, name: str, content: object) -> None:
    """Writes a JSON file for people and programs: indented, sorted, UTF-8.

    Args:
        directory: an existing directory.
        name: name of the file.
        content: anything that JSON can hold.
    """
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=2, sort_keys=True, ensure_ascii=False)
        stream.write("\n")


def read_metadata(files: Iterable[str]) -> dict | None:
    """Reads `preprocessing_config.json` of some TFRecord files.

    Args:
        files: the files, as from `find_files`.

    Returns:
        The content of the `preprocessing_config.json` beside them, with the key
        `directory` added, and the number of examples in these files as
        `num_examples`; None if a file has none beside it.

    Raises:
        UserError: `preprocessing_config.json` is damaged, or files of different
            configurations are mixed, have no answers, or were written by
            another version.
    """
    metadata = None
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
                f"{directory} has no answers to learn from or to compare with: "
                "it was preprocessed with --split=predict. Use --split=train "
                "for what is learned, --split=dev for validation."
            )
        if "shards" in found:
            # Only some of the files may be read.
            counts = [
                found["shards"][name]["examples"] for name in in_directory
            ]
            found["num_examples"] = sum(counts)
        if metadata is None:
            metadata = dict(found, directory=directory)
            continue
        metadata["num_examples"] += found["num_examples"]
        for key in (
            *("task", "preprocessing_config"),
            *("vocab_fingerprint", "tokenizer"),
        ):
            if found[key] != metadata[key]:
                raise UserError(
                    f"{directory} and {metadata['directory']} were "
                    f"preprocessed differently ({key}: {found[key]} against "
                    f"{metadata[key]}). Preprocess both with the same flags "
                    "and vocabulary."
                )
    return metadata
