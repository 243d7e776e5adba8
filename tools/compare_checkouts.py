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
With `--keep`, what the first one makes is kept and used again. All takes 25
minutes.
"""

import argparse
import itertools
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
    """A task, what it learns from, and what it is asked.

    Attributes:
        task: its name.
        train: the data file of `preprocess --split=train`.
        dev: that of `preprocess --split=dev`, and of `predict`.
        experiment: what is trained; nothing if empty.
        flags: of `preprocess`.
        overrides: of the configuration.
        answers: how many records of `dev` are answered; None for all.
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
    # What else is stored.
    Case("hotpotqa", "hotpotqa/2wiki_train_500.json"),
    Case("nq", _NQ[1], flags=("--fixed_block_size=97",)),
    Case("openkp", _OPENKP[0], flags=("--fixed_block_size=53",)),
    Case("read_twice_pretrain", _TEXT[0]),
    Case("read_twice_triviaqa", _TRIVIAQA[1]),
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


class Checkout(NamedTuple):
    """One of the two, where its results are, and old -> new of its names."""

    path: pathlib.Path
    folder: pathlib.Path
    renames: Mapping[str, str]

    def run(self, done: pathlib.Path, *arguments: str) -> None:
        """Runs a command of `etcmodel`.

        Args:
            done: a file beside its results that tells that it has been run;
                then it is not run again.
            *arguments: the command and its flags.

        Raises:
            RuntimeError: it fails.
        """
        if done.exists():
            return
        python = self.path / ".venv" / "bin" / "python"
        command = [str(python if python.exists() else sys.executable)]
        command += ["-m", "etcmodel", *map(self._rename, arguments)]
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
        done.touch()

    def _rename(self, text: str) -> str:
        for old, new in self.renames.items():
            text = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, text)
        return text


def stored(folder: pathlib.Path) -> Iterator[dict[str, list]]:
    """The examples of a folder of `preprocess`, as plain values."""
    for path in sorted(folder.glob("*.tfrecord.gz")):
        for serialized in tf.data.TFRecordDataset(str(path), "GZIP"):
            example = tf.train.Example.FromString(serialized.numpy())
            yield {
                name: list(getattr(x, x.WhichOneof("kind")).value)
                for name, x in example.features.feature.items()
                if x.WhichOneof("kind")
            }


def logged(folder: pathlib.Path) -> dict[str, dict[str, float]]:
    """What `train` logged after step 1: name -> step -> value."""
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
    """The content of a file of JSON, or of JSON in lines."""
    text = path.read_text("utf-8")
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


class Differences:
    """What differs, and what only one of two values has.

    Args:
        renames: old -> new name of fields.
        ignored: names of fields that need not agree.
        tolerance: how far apart numbers may be, relative to the larger one or
            to 1.

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
        self.different: list[str] = []
        self.only: dict[str, int] = {}
        self._renames = renames or {}
        self._ignored = {*ignored}
        self._tolerance = tolerance

    def compare(self, place: str, first: Any, second: Any) -> None:
        """Compares numbers, texts, lists or dicts, called `place`."""
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
                    # The first one of a list of numbers is enough.
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
    """The commands of one case in both checkouts."""

    def __init__(self, case: Case, checkouts: Sequence[Checkout], data):
        self._case = case
        self._data = data
        # Two runs of a task must not be in one folder.
        name = f"{CASES.index(case)}_{case.task}"
        self._both = [(x, x.folder / name) for x in checkouts]
        self._folders = [folder for _, folder in self._both]
        for folder in self._folders:
            folder.mkdir(parents=True, exist_ok=True)

    def _preprocess(self) -> None:
        for split in ("train", "dev"):
            file = getattr(self._case, split)
            for checkout, folder in self._both if file else ():
                checkout.run(
                    folder / split / "done",
                    *("preprocess", f"--task={self._case.task}", "--overwrite"),
                    f"--input={self._data / file}",
                    f"--vocab_file={self._data / _VOCABULARY}",
                    *(f"--output_dir={folder / split}", f"--split={split}"),
                    *("--num_shards=1", *self._case.flags),
                )

    def stored(self) -> list[dict]:
        """What `preprocess` wrote, in both."""
        self._preprocess()
        return [
            {
                split.name: {
                    **{path.name: _json(path) for path in split.glob("*.json")},
                    "examples": list(stored(split)),
                }
                for split in (folder / "train", folder / "dev")
            }
            for folder in self._folders
        ]

    def _train(self, steps: int) -> None:
        """Trains up to a step, from which both go on with the same weights."""
        blocks = re.search(r"num_blocks\w+=(\d+)", " ".join(self._case.flags))
        overrides = ",".join((*_OVERRIDES, *self._case.overrides)).format(
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
                f"--params_override={overrides}",
            )
        first, second = self._folders
        for path in (first / "run").glob(f"ckpt-{steps}.*"):
            shutil.copy(path, second / "run")

    def losses(self) -> list[dict]:
        """What `train` logged, in both."""
        self._preprocess()
        for steps in (1, _TRAIN_STEPS):
            self._train(steps)
        return [logged(folder / "run") for folder in self._folders]

    def metrics(self) -> list[dict]:
        """What `evaluate` measures, in both."""
        self.losses()
        for checkout, folder in self._both:
            checkout.run(
                folder / "evaluated",
                *("evaluate", f"--model_dir={folder / 'run'}"),
                *("--checkpoint=last", f"--output={folder / 'metrics.json'}"),
            )
        return [_json(folder / "metrics.json") for folder in self._folders]

    def answers(self) -> list:
        """What `predict` writes, in both."""
        if self._case.answers == 0:
            return [None, None]
        self.losses()
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
        return [_json(folder / "answers.json") for folder in self._folders]


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
    add("--compare", nargs="+", default=_STEPS, choices=_STEPS, metavar="WHAT")
    add(
        "--rename",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="what the second one calls a flag, an override or a field",
    )
    add("--ignore", nargs="+", default=[], help="fields that need not agree")
    add(
        "--tolerance",
        type=float,
        default=1e-4,
        help="of losses, metrics and scores; what is stored must be equal",
    )
    add("--keep", type=pathlib.Path, help="a folder for what the first makes")
    add(
        "--data",
        type=pathlib.Path,
        default=os.environ.get("ETCMODEL_TEST_DATA"),
        help="real records, if not in $ETCMODEL_TEST_DATA or ../shared/data",
    )
    options = parser.parse_args(arguments)
    options.data = (
        options.data or options.second.parent / "shared" / "data"
    ).resolve()
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
        cases = [x for x in CASES if x.task in options.tasks]
        for case, step in itertools.product(cases, _STEPS):
            if step not in options.compare:
                continue
            if step != "stored" and not case.experiment:
                continue
            tolerance = 0.0 if step == "stored" else options.tolerance
            found = Differences(renames, ignored, tolerance)
            comparison = Comparison(case, checkouts, options.data)
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
