import os
import shutil
import subprocess
import sys

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.serving import answers
from etcmodel.tasks import registry
from testing.tasks import write_small_saved_model

_REQUEST = {"query": "q", "candidates": ["x", "y"], "supports": ["s"]}


_SCRIPT = """
import sys
import etcmodel.serving.answers
names = ("etcmodel.training", "official", "orbit")
print([x for x in sys.modules if x.startswith(names)])
"""


class AnswersTest(tf.test.TestCase):
    """Tests with a SavedModel that always answers with the first candidate."""

    def setUp(self):
        super().setUp()
        self.path = write_small_saved_model(self.get_temp_dir())

    def _load(self, path=None):
        return answers.load_answers(path or self.path, registry.get("wikihop"))

    def test_answers_a_batch(self):
        loaded = self._load()
        other = {**_REQUEST, "candidates": ["w"]}
        self.assertEqual(["x", "w"], loaded.predict([_REQUEST, other]))
        self.assertEqual((0, 0), (loaded.num_cut, loaded.num_refused))

    def test_damaged(self):
        path = os.path.join(self.get_temp_dir(), "other")
        shutil.copytree(self.path, path)
        os.remove(os.path.join(path, "saved_model.pb"))
        with self.assertRaisesRegex(UserError, "`output_dir` of `export`"):
            self._load(path)

    def test_training_is_not_needed(self):
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
            check=False,
            capture_output=True,
            text=True,
        )
        self.assertEqual(("[]\n", 0), (done.stdout, done.returncode))


if __name__ == "__main__":
    tf.test.main()
