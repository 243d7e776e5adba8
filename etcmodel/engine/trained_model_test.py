"""Tests that a loaded run answers as its SavedModel, in Keras 2 and 3."""

import json
import os
import subprocess
import sys

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.pipeline.spec import load
from etcmodel.serving import answers
from etcmodel.tasks import registry
from testing import task_runs

_SCRIPT = """
import json, sys
import tensorflow as tf
import etcmodel
run, requests = sys.argv[1:]
found = etcmodel.load(run)._load().predict(json.loads(requests))
print(tf.keras.__version__)
print(repr(found))
"""


class TrainedModelTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("wikihop", "read_twice_hotpotqa")
    def test_under_keras_3(self, task):
        run, spec = task_runs.run_of(task), registry.get(task)
        records = list(spec.dataset.FORMAT.read(run.input, "dev"))[:3]
        requests = [load(spec.preprocessor).raw(x) for x in records]
        expected = answers.load_answers(run.saved_model, spec).predict(requests)
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        environment.pop("TF_USE_LEGACY_KERAS", None)
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                _SCRIPT,
                run.model_dir,
                json.dumps(requests),
            ],
            env=environment,
            capture_output=True,
            check=False,
            text=True,
        )
        self.assertEqual(0, done.returncode, done.stderr)
        version, found = done.stdout.splitlines()
        self.assertStartsWith(version, "3.")
        self.assertEqual(repr(expected), found)


if __name__ == "__main__":
    tf.test.main()
