"""Base class of tests that send requests to each task's SavedModel."""

from unittest import mock

import tensorflow as tf
from absl.testing import parameterized
from tensorflow.python.framework import random_seed

from etcmodel.pipeline.spec import load
from etcmodel.tasks import registry
from testing import task_runs
from testing.saved_models import read_warmup_requests

# Task -> name of an axis -> inputs that share the axis.
SAME_SIZES = {
    **dict.fromkeys(
        ("answer", "classify", "select"), {"paragraphs": ("titles", "texts")}
    ),
    "hotpotqa": {"paragraphs": ("titles", "sentences")},
    "nq": {
        "words": ("tokens", "is_html"),
        "candidates": ("candidate_starts", "candidate_ends"),
    },
    "openkp": {"nodes": ("node_starts", "node_ends", "node_features")},
}


def preprocessor_of(task):
    """Returns the class of a task's preprocessor."""
    return load(registry.get(task).preprocessor)


def features_request(task):
    """Returns a request for `features`, and axis -> inputs that share it."""
    requests = dict(read_warmup_requests(task_runs.run_of(task).saved_model))
    request = requests["features"]
    if task in task_runs.READ_TWICE:
        mentions = [x for x in request if x.startswith("annotation_")]
        return request, {"mentions": mentions}
    return request, {
        "long tokens": [x for x in request if x.startswith("long_")],
        "global tokens": [x for x in request if x.startswith("global_")],
    }


class TaskTestCase(tf.test.TestCase, parameterized.TestCase):
    """Sends requests to SavedModels, and compares answers."""

    def setUp(self):
        # Setting a seed would make TensorFlow optimize all loaded functions
        # again.
        with mock.patch.object(random_seed, "set_random_seed"):
            super().setUp()

    def records(self, task):
        """Returns the records of the task's data file."""
        spec = registry.get(task)
        return list(
            spec.dataset.FORMAT.read(task_runs.run_of(task).input, "dev")
        )

    def ask(self, task, inputs):
        """Returns the answers to a request."""
        signatures, *_ = task_runs.load_of(task)
        outputs = signatures["serving_default"](
            **{name: tf.constant(x) for name, x in inputs.items()}
        )
        return {name: x.numpy() for name, x in outputs.items()}

    def serve(self, task, records):
        """Returns the answers to raw records."""
        return self.ask(task, preprocessor_of(task).raw_batch(records))

    def check_same(self, expected, actual):
        """Checks that two answers have equal texts and close numbers."""
        self.assertEqual(set(expected), set(actual))
        for name, value in expected.items():
            if value.dtype.kind == "f":
                self.assertAllClose(value, actual[name], 1e-5, 1e-5, name)
            else:
                self.assertAllEqual(value, actual[name], name)
