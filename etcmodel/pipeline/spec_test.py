import subprocess
import sys

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.pipeline import spec
from testing import toy_task as toy


class SpecTest(tf.test.TestCase):
    def test_tuned_value(self):
        tuned = spec.Tuned("x", (0.0, 0.4, 0.5, 0.9), 0.5, "f1")
        for scores, expected in (
            ({0.0: 0.1, 0.4: 0.7, 0.5: 0.2, 0.9: 0.3}, 0.4),
            # Among equal scores, the value nearest to the default is chosen.
            ({0.0: 0.7, 0.4: 0.7, 0.9: 0.7}, 0.4),
            ({0.4: 0.7, 0.5: 0.7}, 0.5),
        ):
            results = {x: {"f1": y, "other": -x} for x, y in scores.items()}
            self.assertEqual(expected, tuned.choose(results))

    def test_sizes(self):
        values = {"long_length": 7, "global_length": None}
        self.assertEqual(
            toy.Sizes(7, 2), toy.TASK.make_preprocessing_config(values)
        )
        with self.assertRaisesRegex(UserError, "`width=3`: toy has no such"):
            toy.TASK.make_preprocessing_config({"width": 3})

    def test_names_of_tasks_load_no_tensorflow(self):
        """Commands report unknown task names quickly, without TensorFlow."""
        script = (
            "import sys\n"
            "from etcmodel.tasks import registry\n"
            "assert {'hotpotqa', 'nq', 'wikihop'} < set(registry.tasks())\n"
            "for task in registry.tasks().values():\n"
            "    assert task.experiments and task.dataset.FORMAT.splits\n"
            "assert 'tensorflow' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True)


if __name__ == "__main__":
    tf.test.main()
