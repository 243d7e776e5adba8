"""Helpers shared by the tests of the tasks' models."""

import atexit
import functools
import shutil
import tempfile

import numpy as np

from testing.tasks import write_small_records


@functools.cache
def small_records(task: str = "wikihop") -> str:
    """Returns a shared, read-only directory of nine tiny records."""
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return write_small_records(directory, 9, task)


def shrink_experiment(params, records: str, batch_size: int = 4, **task):
    """Reduces an experiment to one layer and four steps on tiny records.

    Changes and returns the `ExperimentConfig`. `task` has further values of the
    task's configuration.
    """
    steps = 4
    data = {"input_path": records, "global_batch_size": batch_size}
    encoder = {
        "preset": "tiny",
        "num_hidden_layers": 1,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    params.override(
        {
            "task": {
                "train_data": data,
                "validation_data": data,
                "model": {"encoder": encoder},
                **task,
            },
            "trainer": {
                "train_steps": steps,
                "validation_interval": steps,
                "steps_per_loop": steps,
                "summary_interval": steps,
                "checkpoint_interval": steps,
                "optimizer_config": {
                    "learning_rate": {
                        "polynomial": {
                            "initial_learning_rate": 0.01,
                            "decay_steps": 10 * steps,
                        }
                    },
                    "warmup": {"linear": {"warmup_steps": 1}},
                },
            },
        }
    )
    return params


def set_random_weights(model, scale: float, seed: int = 0) -> None:
    """Sets random weights that depend only on the seed.

    `scale` is the standard deviation of matrices, and of the noise that is
    added to vectors.
    """
    rng = np.random.default_rng(seed)
    model.set_weights(
        [
            scale * rng.normal(size=x.shape) + (x if x.ndim < 2 else 0.0)
            for x in model.get_weights()
        ]
    )
