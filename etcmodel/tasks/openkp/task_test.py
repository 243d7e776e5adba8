"""Tests of OpenKP's sizes and experiments."""

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.tasks.openkp.task import TASK


class TaskTest(tf.test.TestCase):
    def test_sizes_that_do_not_fit(self):
        for size, message in ((-3, "0 or more"), (7, "512 blocks of 7 have")):
            with self.assertRaisesRegex(UserError, message):
                TASK.make_preprocessing_config({"fixed_block_size": size})


if __name__ == "__main__":
    tf.test.main()
