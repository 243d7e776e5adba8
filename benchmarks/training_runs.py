"""Runs of the package's own commands, for benchmarks of what is learned."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from absl import flags

from etcmodel.models import EtcConfig

# Of an encoder's configuration: what makes it as a BERT, but for its weights.
_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "local_radius",
    "hidden_act",
    "absolute_positions",
    "max_absolute_position_embeddings",
)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines where a program writes: its runs, and its table.

    Args:
        flag_values: where to define the flags.
    """
    for name, text in (
        ("directory", "New directory for all runs, if they are to be kept."),
        ("output", "File for the rows, as JSON lines."),
    ):
        flags.DEFINE_string(name, None, text, flag_values=flag_values)


@contextlib.contextmanager
def open_directory(values: flags.FlagValues) -> Iterator[str]:
    """A directory for all runs, which is kept if it was asked for.

    Args:
        values: the flags; see `define_flags`.

    Yields:
        The directory, empty.

    Raises:
        FileExistsError: there is one of that name.
    """
    if values.directory is not None:
        os.makedirs(values.directory)
        yield values.directory
    else:
        with tempfile.TemporaryDirectory() as directory:
            yield directory


def run_command(*arguments: str) -> None:
    """Runs a command of the package, in a process of its own as users do.

    Training needs Keras 2, which a process has to choose before it loads
    TensorFlow.

    Args:
        *arguments: the command and its flags.

    Raises:
        RuntimeError: it failed, and said why.
    """
    command = [sys.executable, "-m", "etcmodel", *arguments]
    if subprocess.run(command, check=False).returncode:
        raise RuntimeError(f"The command {arguments[0]} failed (see above).")


def lift(source: str, directory: str) -> dict[str, int]:
    """Lifts a BERT, with positions and means as global tokens.

    Args:
        source: the BERT's directory.
        directory: where the lifted model is written.

    Returns:
        Values of an encoder's configuration that give it the same sizes,
        positions and activation.

    Raises:
        RuntimeError: it failed, and said why.
    """
    run_command(
        "lift",
        f"--from={source}",
        f"--output_dir={directory}",
        "--local_radius=42",
        "--absolute_positions=paragraph",
        "--global_tokens=mean",
        "--own_text_bias=4",
    )
    path = os.path.join(directory, "etc_config.json")
    config = EtcConfig.from_json_file(path)
    return {name: getattr(config, name) for name in _SIZES}


def make_trainer(
    steps: int, learning_rate: float, interval: int
) -> dict[str, object]:
    """AdamW, a tenth of the steps warm-up, then a rate that falls to 0.

    Args:
        steps: how many.
        learning_rate: the highest.
        interval: steps between losses that are noted, and evaluations.

    Returns:
        The `trainer` of a configuration file.
    """
    interval = max(min(interval, steps), 1)
    return {
        "train_steps": steps,
        "steps_per_loop": interval,
        "summary_interval": interval,
        "validation_interval": interval,
        "checkpoint_interval": steps,
        "optimizer_config": {
            "optimizer": {"type": "adamw"},
            "learning_rate": {
                "polynomial": {
                    "initial_learning_rate": learning_rate,
                    "decay_steps": steps,
                }
            },
            "warmup": {"linear": {"warmup_steps": steps // 10}},
        },
    }


def train(
    model_dir: str,
    experiment: str,
    task: Mapping[str, object],
    trainer: Mapping[str, object],
    options: Sequence[str] = (),
) -> float:
    """Trains a model.

    Args:
        model_dir: directory of the run.
        experiment: name of the experiment.
        task: the `task` of a configuration file.
        trainer: see `make_trainer`.
        options: further flags of `train`, such as `--mode=train`.

    Returns:
        The seconds that it took.

    Raises:
        RuntimeError: it failed, and said why.
    """
    config_file = f"{model_dir}.json"
    with open(config_file, "w", encoding="utf-8") as stream:
        json.dump({"task": task, "trainer": trainer}, stream)
    start = time.perf_counter()
    run_command(
        "train",
        f"--experiment={experiment}",
        f"--model_dir={model_dir}",
        f"--config_file={config_file}",
        *options,
    )
    return time.perf_counter() - start


def train_and_evaluate(
    model_dir: str,
    experiment: str,
    task: Mapping[str, object],
    trainer: Mapping[str, object],
    validation_data: str,
    options: Sequence[str] = (),
) -> dict[str, float]:
    """Trains a model, and measures it on other records.

    Args:
        model_dir: directory of the run.
        experiment: name of the experiment.
        task: the `task` of a configuration file.
        trainer: see `make_trainer`.
        validation_data: preprocessed records to measure on.
        options: further flags of `train`.

    Returns:
        The metrics, and `seconds` of the training.

    Raises:
        RuntimeError: it failed, and said why.
    """
    options = ["--mode=train", *options]
    seconds = train(model_dir, experiment, task, trainer, options)
    return {**evaluate(model_dir, validation_data), "seconds": seconds}


def evaluate(
    model_dir: str, validation_data: str, *options: str
) -> dict[str, float]:
    """Measures a trained model.

    Args:
        model_dir: directory of the run.
        validation_data: preprocessed records to measure on.
        *options: further flags of `evaluate`.

    Returns:
        The metrics.

    Raises:
        RuntimeError: it failed, and said why.
    """
    output = f"{model_dir}_metrics.json"
    run_command(
        "evaluate",
        f"--model_dir={model_dir}",
        f"--validation_data={validation_data}",
        f"--output={output}",
        *options,
    )
    with open(output, encoding="utf-8") as stream:
        return json.load(stream)
