"""Runs commands such as `train` for the benchmarks that train models.

`Runs` has a method for each command, and `Training` has the settings of a run
of `train`. Each command runs in a new process, because training needs Keras 2,
which must be selected before TensorFlow is imported.
"""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import msgspec
from absl import flags

from benchmarks import program
from etcmodel.models import EtcConfig

# Attributes of an encoder's configuration that depend on the lifted BERT.
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
# Flags of `lift`.
LIFT = {
    "local_radius": 42,
    "absolute_positions": "paragraph",
    "own_text_bias": 4,
}
# Commands always select Keras 2, regardless of this process.
ENVIRONMENT = {"keras": importlib.metadata.version("tf_keras")}
_FLAGS = {
    "directory": [
        None,
        "Directory to create for all runs; by default runs are deleted.",
    ]
}


class Training(NamedTuple):
    """Settings of one run of `train`.

    The optimizer is AdamW, with warm-up for a tenth of the steps and then
    linear decay to 0.

    Attributes:
        name: name of the run.
        experiment: name of the experiment.
        records: name of the preprocessed records.
        steps: number of steps.
        rate: peak learning rate.
        batch_size: records per step.
        encoder, model, task: overrides of the configuration of the encoder, of
            the model and of the task.
        init: name of the run or the lifted model with the initial weights.
        options: further flags of `train`.
        interval: number of steps between logged losses.
        keep_all: whether to save and keep a checkpoint after each interval.
    """

    name: str
    experiment: str
    records: str
    steps: int
    rate: float
    batch_size: int
    encoder: Mapping[str, Any] = {}
    model: Mapping[str, Any] = {}
    task: Mapping[str, Any] = {}
    init: str | None = None
    options: Sequence[str] = ()
    interval: int = 50
    keep_all: bool = False

    def config(self, input_path: str) -> dict[str, Any]:
        """Returns the content of the run's configuration file."""
        size = {"global_batch_size": self.batch_size}
        encoder = {"encoder": self.encoder} if self.encoder else {}
        model = {**self.model, **encoder}
        interval = max(min(self.interval, self.steps), 1)
        kept = {"checkpoint_interval": self.steps}
        if self.keep_all:
            kept["checkpoint_interval"] = interval
            kept["max_to_keep"] = self.steps // interval + 1
        return {
            "task": {
                "train_data": {"input_path": input_path, **size},
                "validation_data": size,
                **({"model": model} if model else {}),
                **self.task,
            },
            "trainer": {
                "train_steps": self.steps,
                "steps_per_loop": interval,
                "summary_interval": interval,
                "validation_interval": interval,
                **kept,
                "optimizer_config": {
                    "optimizer": {"type": "adamw"},
                    "learning_rate": {
                        "polynomial": {
                            "initial_learning_rate": self.rate,
                            "decay_steps": self.steps,
                        }
                    },
                    "warmup": {"linear": {"warmup_steps": self.steps // 10}},
                },
            },
        }


class Runs:
    """Runs commands; all names are paths in its directory."""

    def __init__(self, directory: str):
        self.directory = directory

    def path(self, *names: str) -> str:
        """Returns the path of a name."""
        return os.path.join(self.directory, *names)

    def write(self, name: str, records: Iterable[Any], lines=False) -> str:
        """Writes records as JSON, or as JSON Lines; returns the path."""
        encoder = msgspec.json.Encoder()
        encode = encoder.encode_lines if lines else encoder.encode
        with open(self.path(name), "wb") as stream:
            stream.write(encode(list(records)))
        return self.path(name)

    def preprocess(
        self, name: str, task: str, split: str, *options: str, **given: Any
    ) -> None:
        """Runs `preprocess`, whose output is `name`."""
        run_command(
            "preprocess",
            *options,
            task=task,
            split=split,
            output_dir=self.path(name),
            num_shards=4,
            **given,
        )

    def lift(self, source: str, name: str, *options: str, **given: Any) -> str:
        """Runs `lift`, whose output is `name`; returns the vocabulary file."""
        options = (f"--from={source}", *options)
        run_command("lift", *options, output_dir=self.path(name), **given)
        return self.path(name, "vocab.txt")

    def sizes(self, name: str) -> dict[str, Any]:
        """Returns the sizes of a lifted BERT, as an encoder's configuration."""
        path = self.path(name, "etc_config.json")
        config = EtcConfig.from_json_file(path)
        return {name: getattr(config, name) for name in _SIZES}

    def train(self, training: Training) -> float:
        """Runs `train`; returns the seconds."""
        model_dir = self.path(training.name)
        config = training.config(self.path(training.records))
        init = training.init and self.path(training.init)
        with open(f"{model_dir}.json", "w", encoding="utf-8") as stream:
            json.dump(config, stream)
        return self.run_train(
            training.name,
            training.experiment,
            *training.options,
            config_file=f"{model_dir}.json",
            init_checkpoint=init,
        )

    def run_train(
        self, name: str, experiment: str, *options: str, **given: Any
    ) -> float:
        """Runs `train` with the given flags; returns the seconds."""
        start = time.perf_counter()
        run_command(
            "train",
            "--mode=train",
            *options,
            experiment=experiment,
            model_dir=self.path(name),
            **given,
        )
        return time.perf_counter() - start

    def evaluate(self, name: str, records: str, *options: str) -> dict:
        """Runs `evaluate` on other records; returns the metrics."""
        output = f"{self.path(name)}_metrics.json"
        run_command(
            "evaluate",
            *options,
            model_dir=self.path(name),
            validation_data=self.path(records),
            output=output,
        )
        with open(output, encoding="utf-8") as stream:
            return json.load(stream)

    def predict(self, name: str, input: str, **given: Any) -> str:
        """Runs `export` and `predict`; returns the prediction file."""
        saved_model, output = (
            self.path(f"{name}_{x}") for x in ("saved_model", "answers.json")
        )
        run_command("export", model_dir=self.path(name), output_dir=saved_model)
        run_command(
            "predict",
            saved_model=saved_model,
            input=input,
            output=output,
            **given,
        )
        return output

    def measure(
        self, rows: Mapping[str, tuple], *shared: Any, **given: Any
    ) -> Iterator[program.Line]:
        """Trains models on the records `train`, and evaluates them on `dev`.

        Args:
            rows: name -> experiment, overrides of the encoder, and the lifted
                model with the initial weights, or None.
            *shared: steps, learning rate and batch size of all runs.
            **given: further attributes of `Training` for all runs.

        Yields:
            A line per model. With `keep_all`, it also has the metrics of the
            first checkpoint, such as `first_f1`.
        """
        for name, (experiment, encoder, init) in rows.items():
            run = run_name(name)
            training = Training(
                *(run, experiment, "train", *shared),
                encoder=encoder,
                init=init,
                **given,
            )
            seconds = self.train(training)
            line = {"name": name, **self.evaluate(run, "dev")}
            if training.keep_all:
                first = self.path(run, f"ckpt-{training.interval}")
                found = self.evaluate(run, "dev", f"--checkpoint={first}")
                line |= {f"first_{x}": y for x, y in found.items()}
            yield {**line, "steps": training.steps, "seconds": seconds}


def make_program(
    name: str,
    measure: Callable[[flags.FlagValues, Runs], Iterator[program.Line]],
) -> program.Program:
    """Creates a benchmark that trains models.

    Args:
        name: name of the benchmark.
        measure: takes the parsed flags and a `Runs`, and yields lines. The
            runs are in `--directory`, or in a temporary directory.
    """

    def measure_in_directory(values):
        if values.directory is not None:
            os.makedirs(values.directory)
            yield from measure(values, Runs(values.directory))
        else:
            with tempfile.TemporaryDirectory() as directory:
                yield from measure(values, Runs(directory))

    made = program.load(name, measure_in_directory, environment=ENVIRONMENT)
    return made._replace(flags=_FLAGS | made.flags)


def run_name(label: str) -> str:
    """Returns the name of a row's run, which is valid as a file name."""
    return re.sub(r"\W+", "_", label) + "_run"


def run_command(name: str, *options: str, **given: Any) -> None:
    """Runs a command of the package in a new process.

    Args:
        name: name of the command.
        *options: complete flags, such as "--seed=1".
        **given: name -> value of further flags; flags that are None are left
            out.

    Raises:
        RuntimeError: the command failed.
    """
    options += tuple(f"--{k}={x}" for k, x in given.items() if x is not None)
    command = [sys.executable, "-m", "etcmodel", name, *options]
    if subprocess.run(command, check=False).returncode:
        raise RuntimeError(f"The command {name} failed (see above).")
