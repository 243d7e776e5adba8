"""Whether two checkouts make the same of the same data files.

    python -m tools.compare_checkouts ../before .

Runs `preprocess` of every task in both, on real records of every official
file (see `testing.helpers.real_data_path`), and compares what is stored:
every value of every example, and the counts. Prints what differs; the exit code
is 1 if anything does.

With `--predict`, a small model of random weights is exported by both, the
second gets the weights of the first, and what `predict` writes is compared.
"""

import argparse
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from testing import helpers


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
    Data("openkp", "openkp/records_2.jsonl"),
    Data("read_twice_pretrain", "wikitext/wiki.valid.raw"),
)
VOCABULARY = "vocab/bert_uncased_vocab.txt"
# What is predicted: the experiment, records to train on and to answer.
PREDICTIONS = {
    "wikihop": ("wikihop/train_22.json", "wikihop/train_22.json", ()),
    "hotpotqa": (
        "hotpotqa/train_200.json",
        "hotpotqa/dev_95.json",
        ("task.supporting_fact_threshold=0.5",),
    ),
    "nq": ("nq/nq-train-00.jsonl.gz", "nq/nq-train-01.jsonl.gz", ()),
}
# Random, but far enough from nothing that answers differ.
OVERRIDES = (
    "task.model.encoder.preset=tiny",
    "task.model.encoder.initializer_range=0.3",
    "task.train_data.global_batch_size=2",
    "trainer.train_steps=1",
    "trainer.steps_per_loop=1",
    "trainer.summary_interval=1",
    "trainer.checkpoint_interval=1",
)


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
    for name in ("stats.json", "preprocessing_config.json"):
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


def export(checkout: pathlib.Path, task: str, folder: pathlib.Path) -> None:
    """Trains a step of a small model and exports it to a folder."""
    train, _, overrides = PREDICTIONS[task]
    vocabulary = helpers.real_data_path(VOCABULARY)
    run(
        checkout,
        *("preprocess", f"--task={task}", f"--vocab_file={vocabulary}"),
        f"--input={helpers.real_data_path(train)}",
        *(f"--output_dir={folder / 'data'}", "--num_shards=1"),
    )
    overrides = [f"task.train_data.input_path={folder / 'data'}", *overrides]
    run(
        checkout,
        *("train", f"--experiment=etc/{task}", "--mode=train"),
        f"--model_dir={folder / 'run'}",
        f"--params_override={','.join([*OVERRIDES, *overrides])}",
    )
    run(
        checkout,
        *("export", f"--model_dir={folder / 'run'}"),
        f"--output_dir={folder / 'model'}",
    )


def compare_predictions(
    checkouts: Sequence[pathlib.Path], task: str, work: pathlib.Path
) -> list[str]:
    """What differs in the predictions of two checkouts with the same weights.

    Args:
        checkouts: two of them.
        task: the task.
        work: an empty folder.

    Returns:
        A line for each difference.
    """
    folders = [work / str(i) for i in range(2)]
    for checkout, folder in zip(checkouts, folders, strict=True):
        export(checkout, task, folder)
    weights = [folder / "model" / "variables" for folder in folders]
    variables = [
        tf.train.list_variables(str(path / "variables")) for path in weights
    ]
    if variables[0] != variables[1]:
        return [f"variables: {variables[0]} -> {variables[1]}"]
    shutil.rmtree(weights[1])
    shutil.copytree(*weights)
    for checkout, folder in zip(checkouts, folders, strict=True):
        run(
            checkout,
            *("predict", f"--saved_model={folder / 'model'}"),
            f"--input={helpers.real_data_path(PREDICTIONS[task][1])}",
            f"--output={folder / 'predictions'}",
        )
    first, second = (
        (folder / "predictions").read_text("utf-8").splitlines()
        for folder in folders
    )
    return [
        f"line {i}: {x} -> {y}"
        for i, (x, y) in enumerate(
            itertools.zip_longest(first, second, fillvalue="nothing"), 1
        )
        if x != y
    ]


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
    parser.add_argument(
        "--predict", action="store_true", help="compare predictions"
    )
    options = parser.parse_args(arguments)
    checkouts = options.first, options.second
    count = 0

    def report(title, found):
        nonlocal count
        count += len(found)
        print(f"{title}: {len(found)} differences", flush=True)
        for line in found[:20]:
            print(f"  {line}")

    if options.predict:
        for task in PREDICTIONS:
            with tempfile.TemporaryDirectory() as work:
                report(
                    f"predictions of {task}",
                    compare_predictions(checkouts, task, pathlib.Path(work)),
                )
        return 1 if count else 0
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        for data in DATA:
            for i, checkout in enumerate(checkouts):
                run(
                    checkout,
                    *("preprocess", f"--task={data.task}", "--overwrite"),
                    f"--input={helpers.real_data_path(data.file)}",
                    f"--vocab_file={helpers.real_data_path(VOCABULARY)}",
                    *(f"--output_dir={work / str(i)}", "--num_shards=1"),
                    *data.options,
                )
            found = differences(
                work / "0", work / "1", options.ignore.split(",")
            )
            report(" ".join([data.task, data.file, *data.options]), found)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
