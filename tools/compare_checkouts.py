"""Whether two checkouts make the same of the same data.

    python -m tools.compare_checkouts ../before . --keep=/tmp/before

For every task, on real records in the official formats, with small sizes:

  stored    `preprocess`: every value of every example, and the notes beside
  losses    `train`: losses and metrics of each step, from the same weights
  metrics   `evaluate`: the metrics of the same weights
  answers   `export` and `predict`: the answers of the same weights

Prints what differs; the exit code is 1 if anything does. Fields that only one
checkout has are listed, and are no difference.

It runs `python -m etcmodel` in each checkout, with its `.venv` if it has one.
The second is given the checkpoints of the first, so initial weights need not
agree. Names may differ: `--rename=OLD=NEW` replaces words of the commands for
the second one (flags, overrides, experiments), and names of what is compared.
With `--keep`, what the first one makes is kept and used again.
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
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

_VOCABULARY = "vocab/bert_uncased_vocab.txt"
_STEPS = ("stored", "losses", "metrics", "answers")


class Case(NamedTuple):
    """A task, what it learns from, and what it is asked.

    Attributes:
        task: its name.
        train: the data file of `preprocess --split=train`.
        dev: that of `preprocess --split=dev`, and of `predict`.
        flags: of `preprocess`.
        experiment: what is trained; nothing if empty.
        overrides: of the configuration.
        answers: how many records of `dev` are answered; None for all.
    """

    task: str
    train: str
    dev: str = ""
    flags: tuple[str, ...] = ()
    experiment: str = ""
    overrides: tuple[str, ...] = ()
    answers: int | None = None


_SEGMENTS = (
    "--block_length=128",
    "--block_overlap=32",
    "--max_question_length=32",
    "--num_blocks_per_example=16",
)
CASES = (
    Case(
        "wikihop",
        *("wikihop/train_22.json", "wikihop/train_22.json"),
        experiment="etc/wikihop_hard_g2l",
    ),
    Case(
        "hotpotqa",
        *("hotpotqa/train_200.json", "hotpotqa/dev_95.json"),
        experiment="etc/hotpotqa",
        overrides=("task.supporting_fact_threshold=0.5",),
    ),
    Case(
        "nq",
        *("nq/nq-train-00.jsonl.gz", "nq/nq-train-01.jsonl.gz"),
        experiment="etc/nq",
    ),
    Case(
        "openkp",
        *("openkp/records_2.jsonl", "openkp/records_2.jsonl"),
        experiment="etc/openkp",
    ),
    Case(
        "pretrain",
        *("wikitext/wiki.valid.raw", "wikitext/wiki.valid.raw"),
        flags=("--long_length=1024", "--global_length=64"),
        experiment="etc/pretrain",
        answers=0,
    ),
    Case(
        "read_twice_pretrain",
        *("wikitext/wiki.valid.raw", "wikitext/wiki.valid.raw"),
        flags=("--block_length=128", "--num_blocks_per_example=16"),
        experiment="read_twice/pretrain",
        answers=0,
    ),
    Case(
        "read_twice_hotpotqa",
        *("hotpotqa/train_200.json", "hotpotqa/dev_95.json"),
        flags=_SEGMENTS,
        experiment="read_twice/hotpotqa",
    ),
    Case(
        "read_twice_triviaqa",
        *("triviaqa/qa/wikipedia-train.json", "triviaqa/qa/web-train.json"),
        flags=_SEGMENTS,
        experiment="read_twice/triviaqa",
    ),
    Case(
        "read_twice_narrativeqa",
        *("narrativeqa/qaps.csv", "narrativeqa/qaps.csv"),
        flags=(*_SEGMENTS, "--data_split=valid"),
        experiment="read_twice/narrativeqa",
        answers=3,
    ),
    # What else is stored.
    Case("hotpotqa", "hotpotqa/2wiki_train_500.json"),
    Case("nq", "nq/nq-train-01.jsonl.gz", flags=("--fixed_block_size=97",)),
    Case("openkp", "openkp/records_2.jsonl", flags=("--fixed_block_size=53",)),
    Case("read_twice_pretrain", "wikitext/wiki.valid.raw"),
    Case("read_twice_triviaqa", "triviaqa/qa/web-train.json"),
)
# Random weights, but far enough from nothing that answers differ.
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


class Checkout:
    """One of the two, and a folder for what it makes.

    Commands whose results are there, from an earlier comparison with the same
    folder, are not run again.
    """

    def __init__(
        self,
        path: pathlib.Path,
        folder: pathlib.Path,
        renames: Mapping[str, str],
    ):
        """See `Checkout`; `renames` is old -> new word of its commands."""
        self.path = path.resolve()
        self.folder = folder
        self.renames = renames

    def run(self, done: pathlib.Path, *arguments: str) -> None:
        """Runs a command.

        Args:
            done: a file that tells that it has been run, beside its results.
            *arguments: those of `python -m etcmodel`.

        Raises:
            RuntimeError: it fails.
        """
        if done.exists():
            return
        python = self.path / ".venv" / "bin" / "python"
        command = [
            *(str(python) if python.exists() else sys.executable,),
            *("-m", "etcmodel", *(self._rename(x) for x in arguments)),
        ]
        finished = subprocess.run(
            command,
            cwd=self.path,
            env=dict(
                os.environ,
                PYTHONPATH=str(self.path),
                # The order in which inputs are masked is no accident then.
                TF_DETERMINISTIC_OPS=str(int(arguments[0] == "train")),
            ),
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode:
            raise RuntimeError(
                f"{' '.join(command)}\nin {self.path}:\n"
                f"{finished.stdout[-1500:]}{finished.stderr[-3000:]}"
            )
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()

    def _rename(self, text: str) -> str:
        for old, new in self.renames.items():
            text = re.sub(rf"(?<![\w]){re.escape(old)}(?![\w])", new, text)
        return text


def stored(folder: pathlib.Path) -> Iterator[dict[str, list]]:
    """The examples of a folder of `preprocess`, as plain values."""
    import tensorflow as tf

    for path in sorted(folder.glob("*.tfrecord.gz")):
        for serialized in tf.data.TFRecordDataset(str(path), "GZIP"):
            example = tf.train.Example.FromString(serialized.numpy())
            yield {
                name: list(getattr(x, x.WhichOneof("kind")).value)
                for name, x in example.features.feature.items()
                if x.WhichOneof("kind")
            }


def scalars(folder: pathlib.Path) -> dict[str, float]:
    """What `train` logged: `name, step` -> value."""
    import tensorflow as tf

    found = {}
    for path in sorted(folder.rglob("events.out.*")):
        for serialized in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(serialized.numpy())
            for value in event.summary.value:
                number = tf.make_ndarray(value.tensor)
                if number.shape == () and number.dtype.kind == "f":
                    found[f"{value.tag}, step {event.step}"] = float(number)
    return found


def _json(path: pathlib.Path) -> Any:
    """The content of a file of JSON, or of JSON in lines."""
    text = path.read_text("utf-8")
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


class Differences:
    """What differs, and what only one of two values has.

    Attributes:
        different: a line for each difference.
        only: names that only one of them has, with how often.
    """

    def __init__(
        self,
        renames: Mapping[str, str] | None = None,
        ignored: Sequence[str] = (),
        tolerance: float = 0.0,
    ):
        """Compares nothing yet.

        Args:
            renames: old -> new name of fields.
            ignored: names of fields that need not agree.
            tolerance: how far apart numbers may be, relative to the larger one
                or to 1.
        """
        self.different: list[str] = []
        self.only: dict[str, int] = {}
        self._renames = renames or {}
        self._ignored = {*ignored}
        self._tolerance = tolerance

    def compare(self, place: str, first: Any, second: Any) -> None:
        """Compares plain values.

        Args:
            place: what they are.
            first: a number, text, list or dict.
            second: that of the other checkout.
        """
        if isinstance(first, dict) and isinstance(second, dict):
            first = {self._renames.get(k, k): v for k, v in first.items()}
            for key in first.keys() | second.keys():
                if key in self._ignored:
                    continue
                if key in first and key in second:
                    self.compare(f"{place}: {key}", first[key], second[key])
                    continue
                which = "first" if key in first else "second"
                kind = re.sub(r"\d+", "N", place)
                name = f"only the {which} has {kind}: {key}"
                self.only[name] = self.only.get(name, 0) + 1
        elif isinstance(first, list) and isinstance(second, list):
            if len(first) != len(second):
                self.different.append(
                    f"{place}: {len(first)} -> {len(second)} values"
                )
            for i, (x, y) in enumerate(zip(first, second, strict=False)):
                before = len(self.different)
                self.compare(f"{place} [{i}]", x, y)
                if not isinstance(x, dict) and len(self.different) > before:
                    # The first one of a list of numbers is enough.
                    break
        elif not self._same(first, second):
            self.different.append(f"{place}: {_show(first)} -> {_show(second)}")

    def _same(self, first: Any, second: Any) -> bool:
        numbers = (int, float)
        if not isinstance(first, numbers) or not isinstance(second, numbers):
            return first == second
        return first == second or math.isclose(
            first, second, rel_tol=self._tolerance, abs_tol=self._tolerance
        )


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def few_records(source: pathlib.Path, number: int, target: pathlib.Path):
    """Writes the first records of a CSV file.

    Args:
        source: the file, with a heading.
        number: how many.
        target: the file to write; folders beside `source` are linked.
    """
    lines = source.read_bytes().splitlines(keepends=True)
    target.write_bytes(b"".join(lines[: number + 1]))
    for folder in source.parent.iterdir():
        link = target.parent / folder.name
        if folder.is_dir() and not link.exists():
            link.symlink_to(folder)


class Comparison:
    """The commands of one case in both checkouts."""

    def __init__(
        self,
        case: Case,
        name: str,
        checkouts: Sequence[Checkout],
        data: pathlib.Path,
        differences: Callable[..., Differences],
    ):
        """See `Comparison`; `differences` makes an empty `Differences`."""
        self._case = case
        self._checkouts = checkouts
        self._data = data
        self._differences = differences
        self._folders = [x.folder / name for x in checkouts]
        for folder in self._folders:
            folder.mkdir(parents=True, exist_ok=True)

    def _pairs(self):
        return zip(self._checkouts, self._folders, strict=True)

    def _preprocess(self, split: str) -> None:
        for checkout, folder in self._pairs():
            checkout.run(
                folder / split / "done",
                *("preprocess", f"--task={self._case.task}", "--overwrite"),
                f"--input={self._data / getattr(self._case, split)}",
                f"--vocab_file={self._data / _VOCABULARY}",
                *(f"--output_dir={folder / split}", f"--split={split}"),
                *("--num_shards=1", *self._case.flags),
            )

    def stored(self) -> Differences:
        """Compares what `preprocess` writes."""
        found = self._differences()
        for split in ("train", "dev")[: 2 if self._case.dev else 1]:
            self._preprocess(split)
            first, second = (folder / split for folder in self._folders)
            notes = [
                {
                    path.name: _json(path)
                    for path in folder.glob("*.json")
                    if path.name != "shards.json"
                }
                for folder in (first, second)
            ]
            found.compare(split, *notes)
            found.compare(
                f"{split}: example", *(list(stored(x)) for x in (first, second))
            )
        return found

    def _train(self, steps: int) -> None:
        """Trains up to a step; the second goes on from weights of the first."""
        for checkout, folder in self._pairs():
            run = folder / "run"
            blocks = [
                int(x.partition("=")[2])
                for x in self._case.flags
                if "num_blocks_per_example" in x
            ]
            overrides = [
                x.format(steps=steps, batch=(blocks or [2])[0])
                for x in (*_OVERRIDES, *self._case.overrides)
            ]
            checkout.run(
                run / f"trained_{steps}",
                *("train", f"--experiment={self._case.experiment}"),
                *("--mode=train", "--small", "--seed=1"),
                *(f"--model_dir={run}", f"--train_data={folder / 'train'}"),
                f"--validation_data={folder / 'dev'}",
                f"--params_override={','.join(overrides)}",
            )
        first, second = (folder / "run" for folder in self._folders)
        # Of a run that is used again, the earlier checkpoints are there, too.
        for path in first.glob(f"ckpt-{steps}.*"):
            shutil.copy(path, second / path.name)

    def losses(self) -> Differences:
        """Compares what `train` logs, after the first step."""
        self._preprocess("train")
        self._preprocess("dev")
        for steps in (1, _TRAIN_STEPS):
            self._train(steps)
        logged = [
            {
                name: value
                for name, value in scalars(folder / "run").items()
                if not name.endswith("step 1")
                and "steps_per_second" not in name
            }
            for folder in self._folders
        ]
        found = self._differences()
        found.compare("train", *logged)
        if not any("loss" in x for x in logged[0]):
            found.different.append(f"no losses: {', '.join(logged[0])}")
        return found

    def metrics(self) -> Differences:
        """Compares what `evaluate` measures."""
        self.losses()
        for checkout, folder in self._pairs():
            checkout.run(
                folder / "evaluated",
                *("evaluate", f"--model_dir={folder / 'run'}"),
                *("--checkpoint=last", f"--output={folder / 'metrics.json'}"),
            )
        found = self._differences()
        found.compare(
            "metrics", *(_json(x / "metrics.json") for x in self._folders)
        )
        return found

    def answers(self) -> Differences:
        """Compares what `predict` writes."""
        found = self._differences()
        if self._case.answers == 0:
            return found
        self.losses()
        for checkout, folder in self._pairs():
            checkout.run(
                folder / "exported",
                *("export", f"--model_dir={folder / 'run'}", "--overwrite"),
                *("--checkpoint=last", f"--output_dir={folder / 'model'}"),
            )
            asked = self._data / self._case.dev
            if self._case.answers is not None:
                asked = folder / "asked" / asked.name
                asked.parent.mkdir(exist_ok=True)
                few_records(
                    self._data / self._case.dev, self._case.answers, asked
                )
            checkout.run(
                folder / "predicted",
                *("predict", f"--saved_model={folder / 'model'}"),
                *(f"--input={asked}", "--overwrite"),
                f"--output={folder / 'answers.json'}",
            )
        found.compare(
            "answers", *(_json(x / "answers.json") for x in self._folders)
        )
        return found


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    tasks = sorted({case.task for case in CASES})
    parser = argparse.ArgumentParser(
        prog="python -m tools.compare_checkouts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("first", type=pathlib.Path)
    parser.add_argument("second", type=pathlib.Path)
    parser.add_argument(
        "--tasks", nargs="+", default=tasks, choices=tasks, metavar="TASK"
    )
    parser.add_argument(
        "--compare", nargs="+", default=_STEPS, choices=_STEPS, metavar="WHAT"
    )
    parser.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="what the second one calls a flag, an override or a field",
    )
    parser.add_argument(
        "--ignore", nargs="+", default=[], help="fields that need not agree"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="of losses, metrics and scores; what is stored must be equal",
    )
    parser.add_argument(
        "--keep",
        type=pathlib.Path,
        help="a folder for what the first one makes, to use it again",
    )
    parser.add_argument(
        "--data",
        type=pathlib.Path,
        default=os.environ.get("ETCMODEL_TEST_DATA"),
        help="real records, if not in $ETCMODEL_TEST_DATA or ../shared/data",
    )
    options = parser.parse_args(arguments)
    if options.data is None:
        options.data = options.second.resolve().parent / "shared" / "data"
    if not (options.data / _VOCABULARY).exists():
        parser.error(f"--data: there is no {options.data / _VOCABULARY}.")
    return options


def main(arguments: Sequence[str]) -> int:
    """Compares two checkouts; returns the exit code."""
    options = _parse(arguments)
    renames = dict(x.split("=", 1) for x in options.rename)
    # Paths, sizes of compressed files, and speed.
    ignored = ["input", "shards", "steps_per_second", *options.ignore]
    count = 0
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        kept = (options.keep or work / "first").resolve()
        checkouts = (
            Checkout(options.first, kept, {}),
            Checkout(options.second, work / "second", renames),
        )
        for i, case in enumerate(CASES):
            if case.task not in options.tasks:
                continue
            for step in _STEPS[: None if case.experiment else 1]:
                if step not in options.compare:
                    continue
                tolerance = 0.0 if step == "stored" else options.tolerance
                comparison = Comparison(
                    case,
                    f"{i}_{case.task}",
                    checkouts,
                    options.data.resolve(),
                    lambda tolerance=tolerance: Differences(
                        renames, ignored, tolerance
                    ),
                )
                try:
                    found = getattr(comparison, step)()
                except RuntimeError as error:
                    found = Differences()
                    found.different.append(str(error))
                count += len(found.different)
                flags = " ".join(case.flags)
                print(
                    f"{case.task} {case.train} {flags}: {step}: "
                    f"{len(found.different)} differences",
                    flush=True,
                )
                for line in found.different[:20]:
                    print(f"  {line}")
                for name, number in sorted(found.only.items()):
                    print(f"  {name} ({number} times)")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
