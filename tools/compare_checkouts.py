"""Whether two checkouts make the same of the same data files.

    python -m tools.compare_checkouts ../before .

Runs `preprocess` of every task in both, on real records of every official
file (see `etcmodel.testing.real_data_path`), and compares what is stored:
every value of every example, and the counts. Prints what differs; the exit code
is 1 if anything does.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from etcmodel import testing


class Data(NamedTuple):
    """A data file and how it is preprocessed."""

    task: str
    file: str
    options: tuple[str, ...] = ()


DATA = (
    Data("wikihop", "wikihop/train_22.json"),
    Data("hotpotqa", "hotpotqa/train_200.json"),
    Data("hotpotqa", "hotpotqa/dev_95.json", ("--split=dev",)),
    Data("hotpotqa", "hotpotqa/2wiki_train_500.json", ("--split=dev",)),
    Data("nq", "nq/nq-train-00.jsonl.gz"),
    Data("nq", "nq/nq-train-01.jsonl.gz", ("--split=dev",)),
    Data("nq", "nq/nq-train-01.jsonl.gz", ("--fixed_block_size=97",)),
    Data("read_twice_pretrain", "wikitext/wiki.valid.raw"),
)
VOCABULARY = "vocab/bert_uncased_vocab.txt"


def run(checkout: pathlib.Path, *arguments: str) -> None:
    """Runs a command of a checkout.

    Raises:
        RuntimeError: it fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", "etcmodel", *arguments],
        cwd=checkout,
        env=dict(os.environ, PYTHONPATH=str(checkout.resolve())),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"{checkout}: {' '.join(arguments)}\n{done.stderr[-3000:]}"
        )


def stored(folder: pathlib.Path) -> Iterator[dict]:
    """The examples of a folder of `preprocess`, as plain values."""
    for path in sorted(folder.glob("*.tfrecord.gz")):
        for serialized in tf.data.TFRecordDataset(str(path), "GZIP"):
            example = tf.train.Example.FromString(serialized.numpy())
            yield {
                name: list(getattr(x, x.WhichOneof("kind")).value)
                for name, x in example.features.feature.items()
                if x.WhichOneof("kind")
            }


def differences(
    first: pathlib.Path, second: pathlib.Path, ignored: Sequence[str] = ()
) -> list[str]:
    """What differs in two folders of `preprocess`.

    Args:
        first: a folder.
        second: another one.
        ignored: keys of the JSON files and names of stored values that need
            not agree.

    Returns:
        A line for each difference.
    """
    found = []
    for name in ("stats.json", "features.json"):
        before, after = (
            json.loads((x / name).read_text("utf-8")) for x in (first, second)
        )
        found += [
            f"{name}: {key}: {before.get(key)} -> {after.get(key)}"
            for key in sorted({*before, *after} - {*ignored})
            if before.get(key) != after.get(key)
        ]
    before, after = list(stored(first)), list(stored(second))
    if len(before) != len(after):
        found.append(f"examples: {len(before)} -> {len(after)}")
    for i, (x, y) in enumerate(zip(before, after, strict=False)):
        found += [
            f"example {i}: {key} differs"
            for key in sorted({*x, *y} - {*ignored})
            if x.get(key) != y.get(key)
        ]
    return found


def main(arguments: Sequence[str]) -> int:
    """Compares two checkouts; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.compare_checkouts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("first", type=pathlib.Path)
    parser.add_argument("second", type=pathlib.Path)
    parser.add_argument(
        "--ignore", default="", help="keys of JSON files, stored values"
    )
    options = parser.parse_args(arguments)
    checkouts = options.first, options.second
    count = 0
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        for data in DATA:
            for i, checkout in enumerate(checkouts):
                run(
                    checkout,
                    *("preprocess", f"--task={data.task}", "--overwrite"),
                    f"--input={testing.real_data_path(data.file)}",
                    f"--vocab_file={testing.real_data_path(VOCABULARY)}",
                    *(f"--output_dir={work / str(i)}", "--num_shards=1"),
                    *data.options,
                )
            found = differences(
                work / "0", work / "1", options.ignore.split(",")
            )
            count += len(found)
            title = " ".join([data.task, data.file, *data.options])
            print(f"{title}: {len(found)} differences", flush=True)
            for line in found[:20]:
                print(f"  {line}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
