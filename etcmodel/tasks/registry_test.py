import pytest
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.pipeline.spec import load
from etcmodel.tasks import registry
from testing import tasks
from testing.keras_version import KERAS_2


class RegistryTest(tf.test.TestCase):
    def test_all_tasks_have_small_records(self):
        self.assertEqual(set(registry.tasks()), set(tasks.SMALL_RECORDS))
        for name in registry.tasks():
            self.assertEqual(name, registry.get(name).name)

    def test_unknown_names(self):
        with self.assertRaisesRegex(UserError, "squad.*one of: .*wikihop"):
            registry.get("squad")
        with self.assertRaisesRegex(UserError, "squad.*experiments` lists"):
            registry.task_of_experiment("bert/squad")
        with self.assertRaisesRegex(UserError, "mean etc/wikihop or etc/wik"):
            registry.task_of_experiment("etc/wikihpo")

    def test_pretraining_has_no_answers(self):
        self.assertEqual("nq", registry.get_with_answers("nq").name)
        with self.assertRaisesRegex(UserError, "is pre-training.*checkpoint"):
            registry.get_with_answers("read_twice_pretrain")

    def test_texts_returned_with_answers_have_known_axes(self):
        """A server cuts the padding of other requests' texts by these axes."""
        found = 0
        for name, spec in registry.tasks().items():
            preprocessor, model = load(spec.preprocessor), load(spec.model)
            request = preprocessor.TEXT_REQUEST
            if not request:
                continue
            inputs = {x: tf.constant(y) for x, y in request.items()}
            for part, value in preprocessor.of_text(**inputs)[1].items():
                axes = model.ANSWER_AXES.get(part, ())
                self.assertLen(axes, value.shape.rank - 1, f"{name}: {part}")
                found += 1
        self.assertGreater(found, 0)

    @pytest.mark.both_kerases
    def test_experiments_need_keras_2(self):
        task = registry.task_of_experiment("etc/wikihop_lamb")
        self.assertEqual("wikihop", task.name)
        if KERAS_2:
            registry.register_experiments(task.name)
        else:
            with self.assertRaisesRegex(UserError, "TF_USE_LEGACY_KERAS=1"):
                registry.register_experiments(task.name)


if __name__ == "__main__":
    tf.test.main()
