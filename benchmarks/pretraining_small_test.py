"""Tests of `pretraining_small`."""

import math
import os
import tempfile
import unittest

import tensorflow as tf

from benchmarks import pretraining_small


class PretrainingSmallTest(unittest.TestCase):
    def test_unigram_entropy_by_hand(self):
        self.assertAlmostEqual(
            -(math.log(2.5 / 4) + math.log(1.5 / 4)) / 2,
            pretraining_small.unigram_entropy([0, 0, 1], [0, 1], 2),
        )
        # One of four, all alike.
        self.assertAlmostEqual(
            math.log(4), pretraining_small.unigram_entropy(range(4), [3], 4)
        )

    def test_history(self):
        with tempfile.TemporaryDirectory() as folder:
            writer = tf.summary.create_file_writer(folder)
            with writer.as_default():
                for step, value in ((3, 0.5), (6, 0.25)):
                    tf.summary.scalar("mlm_loss", value, step)
            writer.close()
            self.assertEqual(
                {3: {"mlm_loss": 0.5}, 6: {"mlm_loss": 0.25}},
                pretraining_small.read_history(folder),
            )
            self.assertEqual(
                {},
                pretraining_small.read_history(os.path.join(folder, "none")),
            )


if __name__ == "__main__":
    unittest.main()
