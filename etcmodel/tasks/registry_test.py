import pytest
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.tasks import registry
from etcmodel.tasks.experiment_lib_test import KERAS_2


class RegistryTest(tf.test.TestCase):
    def test_pipelines_of_all_tasks(self):
        for name in registry.TASKS:
            pipeline = registry.get_pipeline(name)
            self.assertEqual(name, pipeline.name)
            self.assertNotEmpty(pipeline.dataset.FORMAT.splits)

    def test_unknown_names(self):
        with self.assertRaisesRegex(UserError, "squad.*one of: .*wikihop"):
            registry.get_pipeline("squad")
        with self.assertRaisesRegex(UserError, "squad.*experiments` lists"):
            registry.task_of_experiment("bert/squad")
        with self.assertRaisesRegex(UserError, "mean etc/wikihop or etc/wik"):
            registry.task_of_experiment("etc/wikihpo")

    @pytest.mark.both_kerases
    def test_task_of_experiment(self):
        if KERAS_2:
            entry = registry.task_of_experiment("etc/wikihop_lamb")
            self.assertEqual("wikihop", entry.name)
        else:
            with self.assertRaisesRegex(UserError, "TF_USE_LEGACY_KERAS=1"):
                registry.task_of_experiment("etc/wikihop_lamb")


if __name__ == "__main__":
    tf.test.main()
