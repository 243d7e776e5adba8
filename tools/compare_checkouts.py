"""Compares the results of two checkouts on the same data.

    python -m tools.compare_checkouts ../before . --keep=/tmp/before

For every task, runs `python -m etcmodel` in each checkout, with the checkout's
`.venv` if it has one, on real records in the official formats, at small sizes:

  stored    `preprocess`: every value of every example, and the metadata files
  losses    `train`: losses and metrics of each step, from the same weights
  metrics   `evaluate`: the metrics of the same weights
  answers   `export` and `predict`: the answers of the same weights

Prints the differences; the exit code is 1 if there are any. Fields that only
one checkout has are listed, but do not count as differences. The second
checkout uses the checkpoints of the first. `--rename=OLD=NEW` renames flags,
overrides and experiments in the second checkout's commands, and fields in the
first checkout's results. `--keep` stores the first checkout's results and
reuses them in later runs. A full run takes 25 minutes.
"""

import argparse
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402

_VOCABULARY = "vocab/bert_uncased_vocab.txt"
_STEPS = ("stored", "losses", "metrics", "answers")


class Case(NamedTuple):
    """A task and its data files.

    Attributes:
        task: name of the task.
        train: data file of `preprocess --split=train`.
        dev: data file of `preprocess --split=dev` and of `predict`.
        experiment: the experiment to train; empty for no training.
        flags: further flags of `preprocess`.
        overrides: overrides of the configuration.
        answers: number of records of `dev` to predict; None for all.
    """

    task: str
    train: str
    dev: str = ""
    experiment: str = ""
    flags: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    answers: int | None = None


_HOTPOTQA = ("hotpotqa/train_200.json", "hotpotqa/dev_95.json")
_NQ = ("nq/nq-train-00.jsonl.gz", "nq/nq-train-01.jsonl.gz")
_OPENKP = ("openkp/records_2.jsonl", "openkp/records_2.jsonl")
_TEXT = ("wikitext/wiki.valid.raw", "wikitext/wiki.valid.raw")
_TRIVIAQA = ("triviaqa/qa/wikipedia-train.json", "triviaqa/qa/web-train.json")
_WIKIHOP = ("wikihop/train_22.json", "wikihop/train_22.json")
_SEGMENTS = ("--block_length=128", "--num_blocks_per_example=16")
_QUESTIONS = (*_SEGMENTS, "--block_overlap=32", "--max_question_length=32")
_FACTS = ("task.supporting_fact_threshold=0.5",)
_SHORT = ("--long_length=1024", "--global_length=64")
_VALID = (*_QUESTIONS, "--data_split=valid")
_NARRATIVEQA = ("narrativeqa/qaps.csv", "narrativeqa/qaps.csv")
CASES = (
    Case("wikihop", *_WIKIHOP, "etc/wikihop_hard_g2l"),
    Case("hotpotqa", *_HOTPOTQA, "etc/hotpotqa", overrides=_FACTS),
    Case("nq", *_NQ, "etc/nq"),
    Case("openkp", *_OPENKP, "etc/openkp"),
    Case("pretrain", *_TEXT, "etc/pretrain", _SHORT, answers=0),
    Case(
        *("read_twice_pretrain", *_TEXT, "read_twice/pretrain"),
        *(_SEGMENTS, (), 0),
    ),
    Case("read_twice_hotpotqa", *_HOTPOTQA, "read_twice/hotpotqa", _QUESTIONS),
    Case("read_twice_triviaqa", *_TRIVIAQA, "read_twice/triviaqa", _QUESTIONS),
    Case(
        *("read_twice_narrativeqa", *_NARRATIVEQA, "read_twice/narrativeqa"),
        *(_VALID, (), 3),
    ),
    # In the following cases, only the stored records are compared.
    Case("hotpotqa", "hotpotqa/2wiki_train_500.json"),
    Case("nq", _NQ[1], flags=("--fixed_block_size=97",)),
    Case("openkp", _OPENKP[0], flags=("--fixed_block_size=53",)),
    Case("read_twice_pretrain", _TEXT[0]),
    Case("read_twice_triviaqa", _TRIVIAQA[1]),
)
# Initial weights are so large that answers differ between records.
_OVERRIDES = (
    "task.model.encoder.initializer_range=0.3",
    "task.train_data.global_batch_size={batch}",
    "task.validation_data.global_batch_size={batch}",
    "trainer.train_steps={steps}",
    "trainer.validation_steps=4",
    "trainer.steps_per_loop=1",
    "trainer.summary_interval=1",
    "trainer.checkpoint_interval=1",
    "trainer.optimizer_config.learning_rate.polynomial.decay_steps=100",
    "trainer.optimizer_config.warmup.linear.warmup_steps=2",
)
_TRAIN_STEPS = 4


class Checkout(NamedTuple):
    """A checkout, the folder of its results, and renames (old -> new name)."""

    path: pathlib.Path
    folder: pathlib.Path
    renames: Mapping[str, str]

    def run(self, done: pathlib.Path, *arguments: str) -> None:
        """Runs a command of `etcmodel` unless the file `done` already exists.

        Raises:
            RuntimeError: the command fails.
        """
        if done.exists():
            return
        python = self.path / ".venv" / "bin" / "python"
        command = [str(python if python.exists() else sys.executable)]
        command += ["-m", "etcmodel"]
        for text in arguments:
            for old, new in self.renames.items():
                text = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, text)
            command.append(text)
        # Training masks inputs at random, so its order must be reproducible.
        deterministic = str(int(arguments[0] == "train"))
        given = {
            "PYTHONPATH": str(self.path),
            "TF_DETERMINISTIC_OPS": deterministic,
        }
        finished = subprocess.run(
            command,
            cwd=self.path,
            env=os.environ | given,
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode:
            raise RuntimeError(
                f"{' '.join(command)}\nin {self.path}:\n"
                f"{finished.stdout[-1500:]}{finished.stderr[-3000:]}"
            )
        done.touch()


def stored(folder: pathlib.Path) -> Iterator[dict[str, list]]:
    """Yields the examples that `preprocess` wrote to a folder, as lists."""
    for path in sorted(folder.glob("*.tfrecord.gz")):
        for serialized in tf.data.TFRecordDataset(str(path), "GZIP"):
            example = tf.train.Example.FromString(serialized.numpy())
            yield {
                name: list(getattr(x, x.WhichOneof("kind")).value)
                for name, x in example.features.feature.items()
                if x.WhichOneof("kind")
            }


def logged(folder: pathlib.Path) -> dict[str, dict[str, float]]:
    """Returns the logs of `train` after step 1: name -> step -> value."""
    found = {}
    for path in sorted(folder.rglob("events.out.*")):
        for serialized in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(serialized.numpy())
            for value in event.summary.value:
                number = tf.make_ndarray(value.tensor)
                is_number = number.shape == () and number.dtype.kind == "f"
                if is_number and event.step > 1:
                    steps = found.setdefault(value.tag, {})
                    steps[f"step {event.step}"] = float(number)
    return found


def _json(path: pathlib.Path) -> Any:
    """Reads a JSON file or a file of JSON lines."""
    text = path.read_text("utf-8")
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


class Differences:
    """Collects the differences between the two checkouts' results.

    Args:
        renames: old -> new name of fields.
        ignored: names of fields that may differ.
        tolerance: allowed difference of numbers, absolute or relative to the
            larger one.

    Attributes:
        different: a line for each difference.
        only: field that only one checkout has -> number of occurrences.
    """

    def __init__(
        self,
        renames: Mapping[str, str] | None = None,
        ignored: Sequence[str] = (),
        tolerance: float = 0.0,
    ):
        self.different: list[str] = []
        self.only: dict[str, int] = {}
        self._renames = renames or {}
        self._ignored = {*ignored}
        self._tolerance = tolerance

    def compare(self, place: str, first: Any, second: Any) -> None:
        """Compares numbers, strings, lists or dicts found at `place`."""
        if isinstance(first, dict) and isinstance(second, dict):
            first = {self._renames.get(k, k): v for k, v in first.items()}
            for key in sorted((first.keys() | second.keys()) - self._ignored):
                if key in first and key in second:
                    self.compare(f"{place}: {key}", first[key], second[key])
                    continue
                which = "first" if key in first else "second"
                kind = re.sub(r"\d+", "N", place)
                name = f"only the {which} has {kind}: {key}"
                self.only[name] = self.only.get(name, 0) + 1
        elif isinstance(first, list) and isinstance(second, list):
            if len(first) != len(second):
                found = f"{place}: {len(first)} -> {len(second)} values"
                self.different.append(found)
            for i, (x, y) in enumerate(zip(first, second, strict=False)):
                before = len(self.different)
                self.compare(f"{place} [{i}]", x, y)
                if not isinstance(x, dict) and len(self.different) > before:
                    # Only the first difference in a list is reported.
                    break
        elif not self._are_same(first, second):
            self.different.append(f"{place}: {first!r:.80} -> {second!r:.80}")

    def _are_same(self, first: Any, second: Any) -> bool:
        if first == second or isinstance(first, str):
            return first == second
        return isinstance(second, (int, float)) and math.isclose(
            first, second, rel_tol=self._tolerance, abs_tol=self._tolerance
        )


def few_records(source: pathlib.Path, number: int, target: pathlib.Path):
    """Writes the first records of a CSV file; links folders beside it."""
    target.parent.mkdir(exist_ok=True)
    lines = source.read_bytes().splitlines(keepends=True)
    target.write_bytes(b"".join(lines[: number + 1]))
    for folder in source.parent.iterdir():
        link = target.parent / folder.name
        if folder.is_dir() and not link.exists():
            link.symlink_to(folder)


class Comparison:
    """Runs the commands of one case in both checkouts.

    Each method returns results of both checkouts; its name says which ones.
    """

    def __init__(self, case: Case, checkouts: Sequence[Checkout], data):
        self._case = case
        self._data = data
        # Two cases of a task need separate folders.
        name = f"{CASES.index(case)}_{case.task}"
        self._both = [(x, x.folder / name) for x in checkouts]
        for _, folder in self._both:
            folder.mkdir(parents=True, exist_ok=True)

    def stored(self) -> list[dict]:
        """Returns the output of `preprocess` in both checkouts."""
        case = self._case
        found = []
        for checkout, folder in self._both:
            found.append({})
            for split, file in (("train", case.train), ("dev", case.dev)):
                output = folder / split
                if file:
                    checkout.run(
                        output / "done",
                        *("preprocess", f"--task={case.task}", "--overwrite"),
                        f"--input={self._data / file}",
                        f"--vocab_file={self._data / _VOCABULARY}",
                        *(f"--output_dir={output}", f"--split={split}"),
                        *("--num_shards=1", *case.flags),
                    )
                found[-1][split] = {
                    **{x.name: _json(x) for x in output.glob("*.json")},
                    "examples": list(stored(output)),
                }
        return found

    def losses(self) -> list[dict]:
        """Returns the logs of `train` in both checkouts.

        Both resume training from the first checkout's weights.
        """
        blocks = re.search(r"num_blocks\w+=(\d+)", " ".join(self._case.flags))
        overrides = ",".join((*_OVERRIDES, *self._case.overrides))
        runs = [folder / "run" for _, folder in self._both]
        for steps in (1, _TRAIN_STEPS):
            given = overrides.format(
                steps=steps, batch=blocks[1] if blocks else 2
            )
            for checkout, folder in self._both:
                checkout.run(
                    folder / f"trained_{steps}",
                    *("train", f"--experiment={self._case.experiment}"),
                    *("--mode=train", "--small", "--seed=1"),
                    f"--model_dir={folder / 'run'}",
                    f"--train_data={folder / 'train'}",
                    f"--validation_data={folder / 'dev'}",
                    f"--params_override={given}",
                )
            for path in runs[0].glob(f"ckpt-{steps}.*"):
                shutil.copy(path, runs[1])
        return [logged(run) for run in runs]

    def metrics(self) -> list[dict]:
        """Returns the output of `evaluate` in both checkouts."""
        for checkout, folder in self._both:
            checkout.run(
                folder / "evaluated",
                *("evaluate", f"--model_dir={folder / 'run'}"),
                *("--checkpoint=last", f"--output={folder / 'metrics.json'}"),
            )
        return [_json(folder / "metrics.json") for _, folder in self._both]

    def answers(self) -> list:
        """Returns the output of `predict` in both checkouts."""
        if self._case.answers == 0:
            return [None, None]
        asked = self._data / self._case.dev
        for checkout, folder in self._both:
            checkout.run(
                folder / "exported",
                *("export", f"--model_dir={folder / 'run'}", "--overwrite"),
                *("--checkpoint=last", f"--output_dir={folder / 'model'}"),
            )
            if self._case.answers is not None:
                few_records(
                    self._data / self._case.dev,
                    self._case.answers,
                    asked := folder / "asked" / asked.name,
                )
            checkout.run(
                folder / "predicted",
                *("predict", f"--saved_model={folder / 'model'}"),
                *(f"--input={asked}", "--overwrite"),
                f"--output={folder / 'answers.json'}",
            )
        return [_json(folder / "answers.json") for _, folder in self._both]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    tasks = sorted({case.task for case in CASES})
    parser = argparse.ArgumentParser(
        prog="python -m tools.compare_checkouts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    for name in ("first", "second"):
        add(name, type=lambda path: pathlib.Path(path).resolve())
    add("--tasks", nargs="+", default=tasks, choices=tasks, metavar="TASK")
    add(
        "--rename",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="new name of a flag, override or field in the second checkout",
    )
    add("--ignore", nargs="+", default=[], help="fields that may differ")
    add(
        "--tolerance",
        type=float,
        default=1e-4,
        help="for losses, metrics and scores; stored values must be equal",
    )
    add(
        "--keep",
        type=pathlib.Path,
        help="folder that keeps the results of the first checkout",
    )
    add(
        "--data",
        type=pathlib.Path,
        default=os.environ.get("ETCMODEL_TEST_DATA"),
        help="folder of real records; default: $ETCMODEL_TEST_DATA or "
        "../shared/data",
    )
    options = parser.parse_args(arguments)
    options.data = (
        options.data or options.second.parent / "shared" / "data"
    ).resolve()
    if not (options.data / _VOCABULARY).exists():
        parser.error(
            f"--data: {options.data / _VOCABULARY} does not exist. Set the "
            "folder of real records."
        )
    return options


def main(arguments: Sequence[str]) -> int:
    """Compares two checkouts; returns the exit code."""
    options = _parse(arguments)
    renames = dict(x.split("=", 1) for x in options.rename)
    # Paths, sizes of compressed files and speed may differ.
    ignored = ["input", "shards", "steps_per_second", *options.ignore]
    count = 0
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        kept = (options.keep or work / "first").resolve()
        checkouts = (
            Checkout(options.first, kept, {}),
            Checkout(options.second, work / "second", renames),
        )
        steps = [
            (case, Comparison(case, checkouts, options.data), step)
            for case in CASES
            for step in (_STEPS if case.experiment else _STEPS[:1])
            if case.task in options.tasks
        ]
        for case, comparison, step in steps:
            tolerance = 0.0 if step == "stored" else options.tolerance
            found = Differences(renames, ignored, tolerance)
            try:
                found.compare(step, *getattr(comparison, step)())
            except RuntimeError as error:
                found.different.append(str(error))
            count += len(found.different)
            print(
                f"{case.task} {case.train} {' '.join(case.flags)}: {step}: "
                f"{len(found.different)} differences",
                *(f"  {line}" for line in found.different[:20]),
                *(f"  {x} ({n} times)" for x, n in sorted(found.only.items())),
                sep="\n",
                flush=True,
            )
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
