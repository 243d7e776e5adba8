"""Checks that killed commands, run again, write the same output.

Each command first runs undisturbed, after the commands that it needs. Then it
is killed (SIGKILL) at random moments while it replaces its output, and run
again. The output under the final name must always be complete. The final output
must equal the undisturbed one bit for bit, and no temporary file may be left.

    python -m benchmarks.kills --kills=20
"""

import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from benchmarks import program
from benchmarks import training_runs
from etcmodel import json_objects
from etcmodel.serving import exported
from testing import tasks

_TASK = "wikihop"
# Number of records, training steps, and steps between checkpoints.
_RECORDS, _STEPS, _INTERVAL = 400, 120, 10
# Variable that counts saved checkpoints, which differs after a kill.
_SAVES = "save_counter"
# Matches temporary files in an output.
_LEFTOVER = re.compile(r".*(\.partial|\.old|_temp|\.tmp[0-9a-f]*)")
COMMANDS = ("preprocess", "train", "export", "predict")


def arguments(runs: training_runs.Runs, command: str, output: str) -> list:
    """Returns the command line of a command that writes `output`."""
    _, sizes = tasks.SMALL_RECORDS[_TASK]
    overrides = {
        "task.train_data.global_batch_size": 7,
        "task.model.encoder.preset": "tiny",
        "trainer.train_steps": _STEPS,
        "trainer.checkpoint_interval": _INTERVAL,
        "trainer.summary_interval": _INTERVAL,
    }
    given = ",".join(f"{name}={x}" for name, x in overrides.items())
    of_command = {
        "preprocess": [
            *(f"--task={_TASK}", f"--input={runs.path('small.json')}"),
            *(f"--vocab_file={runs.path('vocab.txt')}", *sizes),
            *("--overwrite", f"--output_dir={output}"),
        ],
        "train": [
            *(f"--experiment=etc/{_TASK}", f"--model_dir={output}", "--seed=1"),
            *(f"--train_data={runs.path('preprocess')}", "--mode=train"),
            f"--params_override={given}",
        ],
        "export": [
            *(f"--model_dir={runs.path('train')}", f"--output_dir={output}"),
            "--overwrite",
        ],
        "predict": [
            *(f"--saved_model={runs.path('export')}", "--overwrite"),
            *(f"--input={runs.path('small.json')}", f"--output={output}"),
        ],
    }
    return [sys.executable, "-m", "etcmodel", command, *of_command[command]]


def read(path: str) -> Mapping[str, Any]:
    """Reads an output: the bytes of files, or the variables of a checkpoint.

    Excludes graphs and their checksums, because names in graphs differ.
    """
    if os.path.isfile(path):
        with open(path, "rb") as stream:
            return {"": stream.read()}
    latest = tf.train.latest_checkpoint(path)
    if latest is not None:
        return read_checkpoint(latest)
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            place = os.path.join(folder, name)
            with open(place, "rb") as stream:
                content = stream.read()
            if place.endswith(exported.METADATA_FILE):
                content = {**json_objects.parse_note(content), "files": None}
            found[os.path.relpath(place, path)] = (
                name.endswith(".pb") or content
            )
    return found


def read_checkpoint(path: str) -> Mapping[str, bytes]:
    """Returns name -> bytes of the variables of a checkpoint."""
    reader = tf.train.load_checkpoint(path)
    values = {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if not name.startswith(_SAVES)
    }
    return {
        name: value.tobytes()
        for name, value in values.items()
        if not isinstance(value, bytes)
    }


def kill(command: list, log: str, seconds: float) -> bool:
    """Runs a command and kills it after `seconds`.

    Returns False if the command ended before.
    """
    with open(log, "ab") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return True
    return False


def _measure(values, runs) -> Iterator[program.Line]:
    """Kills the commands, and compares their outputs."""
    rng = random.Random(values.seed)
    tasks.write_small_wikihop(runs.directory, _RECORDS)
    seconds = {}
    # Each command needs the outputs of the commands before it.
    last = max(map(COMMANDS.index, values.commands))
    for command in COMMANDS[: last + 1]:
        start = time.perf_counter()
        subprocess.run(arguments(runs, command, runs.path(command)), check=True)
        seconds[command] = time.perf_counter() - start
    for number in range(values.kills):
        command = values.commands[number % len(values.commands)]
        yield kill_and_compare(runs, command, seconds[command], rng)


def kill_and_compare(runs, command, seconds, rng) -> program.Line:
    """Kills a command up to twice, lets it finish, and compares its output."""
    output, log = runs.path("killed"), runs.path("log.txt")
    expected = read(runs.path(command))
    with open(log, "ab"):
        names = {*os.listdir(runs.directory), "killed"}
    # `train` resumes its output; the other commands replace it.
    if os.path.isfile(runs.path(command)):
        shutil.copy(runs.path(command), output)
    elif command != "train":
        shutil.copytree(runs.path(command), output)
    moments, is_half = [], False
    for _ in range(2):
        moments.append(rng.uniform(0, seconds))
        if not kill(arguments(runs, command, output), log, moments[-1]):
            break
        # A killed training has earlier checkpoints, so it is only compared at
        # the end.
        if command != "train":
            is_half |= not os.path.exists(output) or read(output) != expected
    subprocess.run(arguments(runs, command, output), check=True)
    is_equal = read(output) == expected
    left = [x for x in os.listdir(runs.directory) if x not in names]
    for _, folders, files in os.walk(output):
        left += filter(_LEFTOVER.fullmatch, [*folders, *files])
    if os.path.isdir(output):
        shutil.rmtree(output)
    else:
        os.remove(output)
    return {
        "name": command,
        "seconds": [round(x, 1) for x in moments],
        "undisturbed_seconds": seconds,
        "is_half": is_half,
        "is_equal": is_equal,
        "left": len(left),
    }


PROGRAM = training_runs.make_program("kills", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
