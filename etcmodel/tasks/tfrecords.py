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

from etcmodel.errors import UserError

METADATA_FILE = "features.json"
# Of what is stored: what was stored otherwise is not read.
FORMAT = 3
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

    def write(self, serialized: bytes) -> None:
        """Appends one record.

        Args:
            serialized: a serialized `tf.train.Example`.
        """
        self._writers[self.count % len(self._writers)].write(serialized)
        self.count += 1


def find_files(input_path: str | Sequence[str]) -> list[str]:
    """TFRecord files named by a directory, a pattern, or a list of them.

    Args:
        input_path: comma-separated string, or list, of files, patterns with
            `*` or `?`, and directories. A directory stands for all the TFRecord
            files that `preprocess` wrote into it.

    Returns:
        The files, sorted within each pattern.

    Raises:
        UserError: a part matches nothing.
    """
    if isinstance(input_path, str):
        input_path = input_path.split(",")
    files = []
    for part in (part.strip() for part in input_path):
        if not part:
            continue
        if tf.io.gfile.isdir(part):
            found = tf.io.gfile.glob(os.path.join(part, "*" + _SUFFIX))
        else:
            found = tf.io.gfile.glob(part)
        if not found:
            raise UserError(
                f"{part}: no TFRecord files are there. Give the --output_dir "
                "of `preprocess`, or a pattern such as DIR/train-*.tfrecord.gz."
            )
        files.extend(sorted(found))
    if not files:
        raise UserError(
            "No input path was given. Give the --output_dir of `preprocess`."
        )
    return files


def compression_type(path: str) -> str:
    """Whether a TFRecord file is compressed, told by its first bytes.

    Args:
        path: the file.

    Returns:
        `"GZIP"` or `""`.
    """
    with tf.io.gfile.GFile(path, "rb") as stream:
        return "GZIP" if stream.read(2) == _GZIP_MAGIC else ""


def read_examples(
    input_path: str | Sequence[str],
) -> Iterator[tuple[str, int, Mapping[str, tf.train.Feature]]]:
    """Reads stored examples on the host, one by one.

    An example that several records were packed into comes for each of them.

    Args:
        input_path: as for `find_files`.

    Yields:
        The `example_id` of each, which of those of its example it is, and all
        features of the example.

    Raises:
        UserError: there are no such files.
    """
    files = find_files(input_path)
    dataset = tf.data.TFRecordDataset(files, compression_type(files[0]))
    for serialized in dataset.as_numpy_iterator():
        stored = tf.train.Example.FromString(serialized).features.feature
        for index, name in enumerate(stored["example_id"].bytes_list.value):
            yield name.decode("utf-8"), index, stored


def fingerprint(path: str) -> str:
    """Tells files of different content apart.

    Args:
        path: the file.

    Returns:
        The first 16 digits of its SHA-256.
    """
    with open(path, "rb") as stream:
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
    """What `preprocess` noted about some TFRecord files.

    Args:
        files: the files, as from `find_files`.

    Returns:
        The content of the `features.json` beside them, with the key
        `directory` added; None if a file has none beside it.

    Raises:
        UserError: files of different features are mixed, have no answers, or
            were written by another version.
    """
    metadata = None
    for directory in dict.fromkeys(os.path.dirname(path) for path in files):
        path = os.path.join(directory, METADATA_FILE)
        if not tf.io.gfile.exists(path):
            return None
        with tf.io.gfile.GFile(path) as stream:
            found = json.load(stream)
        if found.get("format") != FORMAT:
            raise UserError(
                f"{directory} was written by another version of etcmodel. "
                "Preprocess the data again."
            )
        if found["split"] == "predict":
            raise UserError(
                f"{directory} has no answers to learn from or to compare with: "
                "it was preprocessed with --split=predict. Use --split=train "
                "for what is learned, --split=dev for validation."
            )
        if metadata is None:
            metadata = dict(found, directory=directory)
            continue
        metadata["num_examples"] += found["num_examples"]
        for key in ("task", "features", "vocab_fingerprint", "tokenizer"):
            if found[key] != metadata[key]:
                raise UserError(
                    f"{directory} and {metadata['directory']} were "
                    f"preprocessed differently ({key}: {found[key]} against "
                    f"{metadata[key]}). Preprocess both with the same flags "
                    "and vocabulary."
                )
    return metadata
