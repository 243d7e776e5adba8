import math

import tensorflow as tf
from absl.testing import parameterized
from official.core import exp_factory

from etcmodel.errors import UserError
from etcmodel.pipeline.record_keys import record_keys
from etcmodel.tasks import registry
from etcmodel.training import divergence
from etcmodel.training import trainer
from testing import models


class CheckTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("wikihop", 4, {}, 4),
        ("wikihop", 4, {"trim_batches": True}, 4),
        # A ReadTwice example holds several records.
        ("read_twice_hotpotqa", 8, {}, None),
    )
    def test_names_the_records_of_a_step(self, name, size, options, count):
        experiment = f"etc/{name}" if count else "read_twice/hotpotqa"
        registry.register_experiments(name)
        params = models.shrink_experiment(
            exp_factory.get_exp_config(experiment),
            models.small_records(name),
            size,
            **options,
        )
        data = params.task.train_data
        data.seed = 1
        task_class, _ = trainer.task_classes(registry.get(name))
        task = task_class(params.task)
        divergence.check(task, 0.5, 1, 1)
        keys = {
            tuple(x)
            for _, labels in task.build_inputs(data).take(3).skip(1)
            for x in labels["record"].numpy().tolist()
        }
        for loss in (math.nan, math.inf):
            with self.assertRaisesRegex(
                UserError, f"The loss is {loss} at step 3.*`learning_rate`"
            ) as raised:
                divergence.check(task, loss, 3, 3)
            _, ids = str(raised.exception).split("Records of steps 2 to 3: ")
            ids = ids.rstrip(".").split(", ")
            if count:
                self.assertLen(ids, 2 * count)
            found = record_keys(tf.constant(ids)).numpy()
            self.assertEqual(keys, {tuple(x) for x in found.tolist()})
        with self.assertRaisesRegex(
            UserError, "at step 4.*Records of steps 2 to 4"
        ) as raised:
            divergence.check(task, math.nan, 3, 4)
        data.seed = None
        with self.assertRaisesRegex(UserError, "elsewhere.$"):
            divergence.check(task, math.nan, 3, 3)


if __name__ == "__main__":
    tf.test.main()
