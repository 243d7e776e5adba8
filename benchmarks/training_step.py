"""Compares a step of `train` with a minimal step of the same model.

Also measures the time spent waiting for batches. Needs Keras 2:

    TF_USE_LEGACY_KERAS=1 python -m benchmarks.training_step \
        --experiment=etc/hotpotqa --records=RECORDS --batch_size=1

*   `task_ms`: a step of `train`: the next batch, encoder and head, losses,
    metrics, gradients and optimizer.
*   `bare_ms`: a minimal step: encoder and head, with the mean of the outputs as
    the loss, and the same optimizer, always on the same batch.
*   `ratio`: `task_ms / bare_ms`, both medians.
*   `waiting`: the fraction of time that minimal steps wait for the next batch.
*   `trained`: number of weights that are trained, in millions.
*   `memory`: peak memory of the process after the first steps of `train` and
    before the minimal steps, in GB.

All are measured in one process. The two kinds of steps alternate.
`--options=--lora_rank=8` measures LoRA.
"""

import math
import resource
import tempfile
import time
from collections.abc import Iterator

from etcmodel.training import configuration  # noqa: F401  First: it explains Keras 3.

# isort: split
import numpy as np
import tensorflow as tf

from benchmarks import measure
from benchmarks import program
from etcmodel.engine import progress
from etcmodel.engine import run_options
from etcmodel.engine import runner
from etcmodel.engine import train
from etcmodel.training import runs
from testing import flags


def _make_runner(values, directory: str):
    """Builds the same runner as `train`, with the same seed."""
    given = flags.parse_options(
        train.Options,
        f"--train_data={values.records}",
        f"--batch_size={values.batch_size}",
        f"--model_dir={directory}",
        *values.options,
    )
    quiet = progress.Reporter("quiet")
    _, params = run_options.parse_params(given, values.experiment, quiet)
    tf.random.set_seed(runs.choose_seed(params, directory))
    return runner.make_runner(params, "train", directory)[1]


def _make_bare_step(made):
    """Returns a minimal training step: a function batch -> loss."""
    trainer = made.trainer
    model, optimizer = trainer.model, trainer.optimizer

    def compute(features, _):
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(model(features, training=True))
            loss = tf.add_n(
                [tf.reduce_mean(tf.cast(x, tf.float32)) for x in outputs]
            )
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(
            [
                (x, variable)
                for x, variable in zip(gradients, variables, strict=True)
                if x is not None
            ]
        )
        return loss

    return tf.function(lambda batch: made.strategy.run(compute, batch))


def measure_waiting(step, batches, number: int) -> float:
    """Returns the fraction of time that steps wait for their batches."""
    iterator = iter(batches)
    # Waiting for the first batch is unavoidable, so it is not measured.
    step(next(iterator))
    waited, start = 0.0, time.perf_counter()
    for _ in range(number):
        before = time.perf_counter()
        batch = next(iterator)
        waited += time.perf_counter() - before
        step(batch)
        tf.test.experimental.sync_devices()
    return waited / (time.perf_counter() - start)


def _measure(values) -> Iterator[program.Line]:
    with tempfile.TemporaryDirectory() as directory, runner.quiet(False):
        made = _make_runner(values, directory)
        trainer = made.trainer
        bare = _make_bare_step(made)
        batch = next(iter(trainer.train_dataset))
        steps = {
            "task": lambda: trainer.train(tf.constant(1)),
            "bare": lambda: bare(batch),
        }
        for name, step in steps.items():
            measure.warm_up(step)
            if name == "task":
                # Linux reports `ru_maxrss` in kilobytes.
                usage = resource.getrusage(resource.RUSAGE_SELF)
                memory = usage.ru_maxrss / 2**20
        weights = trainer.model.trainable_variables
        times = measure.time_interleaved(steps, values.repeats, untimed=1)
        task, own = (float(np.median(times[x])) for x in steps)
        features, *_ = batch
        tokens = features.get("long_token_ids", features.get("token_ids"))
        line = {
            "experiment": values.experiment,
            "shape": str(list(tokens.shape)),
            "task_ms": task,
            "bare_ms": own,
            "ratio": task / own,
            "waiting": measure_waiting(
                bare, trainer.train_dataset, values.repeats
            ),
            "trained": sum(math.prod(x.shape) for x in weights) / 1e6,
            "memory": memory,
            "milliseconds": times,
        }
    # The line is yielded here, because `runner.quiet` hides output above.
    yield line


PROGRAM = program.load("training_step", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
