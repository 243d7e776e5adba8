"""Runs all commands for each task, once for all tests."""

import atexit
import functools
import shutil
from unittest import mock

import tensorflow as tf

from etcmodel.pipeline import preprocessor
from etcmodel.serving import exported
from etcmodel.tasks import registry
from etcmodel.training import runs
from testing import tasks

NUM_RECORDS = 9
# NarrativeQA covers all code of ReadTwice's TriviaQA.
TASKS = tuple(x for x in registry.tasks() if x != "read_twice_triviaqa")
WITH_ANSWERS = tuple(x for x in TASKS if registry.get(x).has_answers)
# Builds encoders in Keras 3, with the code of docs/encoders.md.
BUILD_FROM_RUN = """
import os, sys
import numpy as np
import tensorflow as tf
assert not tf.keras.layers.Layer.__module__.startswith("tf_keras")
lines, *names = sys.argv[1:]
for name in names:
    os.chdir(name)
    of_task = lines
    if "read_twice" in name:
        of_task = of_task.replace("Etc", "ReadTwice")
        of_task = of_task.replace("build_", "build_read_twice_")
    values = {}
    exec(of_task, values)
    inputs = np.load("inputs.npz")
    encoder = values["encoder"]
    output = encoder({x: tf.constant(inputs[x]) for x in encoder.input})
    first = "final_hidden_states" if "read_twice" in name else "long_output"
    np.save("output.npy", output[first])
    os.chdir("..")
"""
# In these tasks, batch sizes count segments, and one example holds several
# records.
READ_TWICE = tuple(x for x in TASKS if x.startswith("read_twice"))


class Run(tasks.EndToEndTestCase):
    """Runs all commands for one task.

    Attributes:
        trained: the Model Garden task, and the trained model.
    """

    mode = "train_and_eval"
    steps = 2

    @classmethod
    def write_data(cls):
        write, cls.features = tasks.SMALL_RECORDS[cls.task]
        return write(cls.root, NUM_RECORDS)


@functools.cache
def run_of(task: str) -> type[Run]:
    """Returns a task's `Run` class, which is set up only once."""
    spec = registry.get(task)
    size = 48 if not spec.has_answers else 8 if task in READ_TWICE else 4
    made = type(
        "Run",
        (Run,),
        {
            "task": task,
            "experiment": next(iter(spec.experiments)),
            "exports": spec.has_answers,
            "overrides": {
                "task.train_data.global_batch_size": size,
                "task.validation_data.global_batch_size": size,
            },
        },
    )
    # With a small step, these short records are served at other lengths than
    # they are stored.
    with (
        mock.patch.object(preprocessor, "LENGTH_STEP", 4),
        mock.patch.object(runs, "save", side_effect=runs.save) as save,
    ):
        made.setUpClass()
    made.trained = save.call_args.args[:2]
    atexit.register(shutil.rmtree, made.root, ignore_errors=True)
    return made


@functools.cache
def metrics_of(task: str) -> dict[str, float]:
    """Returns name -> value of the metrics that `evaluate` prints."""
    return run_of(task).evaluate()


@functools.cache
def load_of(task: str):
    """Loads the SavedModel of a run.

    Returns the signatures, the task's model with the exported options, and the
    loaded object.
    """
    path = run_of(task).saved_model
    metadata = exported.read_metadata(path)
    spec = registry.get(task)
    task_model = spec.make_model(
        options=spec.options(**metadata["options"]),
        sizes=metadata["preprocessing_config"],
    )
    model = tf.saved_model.load(path)
    return model.signatures, task_model, model
