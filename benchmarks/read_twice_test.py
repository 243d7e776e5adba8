import json
from unittest import mock

import numpy as np
import tensorflow as tf

from benchmarks import measure
from benchmarks import program
from benchmarks import read_twice
from etcmodel import models

_OVERRIDES = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "max_seq_length": 16,
    "num_hidden_layers": 1,
    "vocab_size": 50,
}


class ReadTwiceTest(tf.test.TestCase):
    def test_batch(self):
        config = models.ReadTwiceConfig.from_preset("tiny", **_OVERRIDES)
        batch = read_twice.make_batch(config, 3, 5)
        self.assertEqual([3, 16], batch["token_ids"].shape)
        self.assertAllInRange(batch["token_ids"], 1, 49)
        self.assertAllEqual([1, 1, 1], batch["block_ids"])
        self.assertAllEqual([1, 2, 3], batch["block_pos"])
        sizes = batch["annotation_ends"] - batch["annotation_begins"]
        self.assertAllInRange(sizes, 0, 2)
        self.assertAllInRange(batch["annotation_ends"], 1, 15)
        self.assertAllGreaterEqual(batch["annotation_labels"], 2)

    def test_steps(self):
        """The first read is a part of the whole, and both can be trained."""
        config = models.ReadTwiceConfig.from_preset("tiny", **_OVERRIDES)
        model = models.ReadTwiceModel(config)
        model.build(None)

        def step(pass_name, reads_twice):
            return read_twice.make_step(
                "tiny", _OVERRIDES, 2, 3, pass_name, reads_twice, model
            )

        output = model(**read_twice.make_batch(config, 2, 3))
        self.assertAllClose(output.first_read, step("forward", False)())
        value = step("training", True)()
        self.assertTrue(np.isfinite(value))
        self.assertNotEqual(0.0, float(value))

    def test_program(self):
        values = program.parse(
            read_twice.PROGRAM,
            f"--overrides={json.dumps(_OVERRIDES)}",
            *"--preset=tiny --segments=1,2 --pass=training".split(),
        )
        # Milliseconds of both reads, and of the first alone.
        times = {
            True: measure.Timed([3.0, 2.0, 4.0], 7.5),
            False: measure.Timed([2.5, 2.0, 1.0], 5.0),
        }
        with mock.patch.object(
            measure, "time_in_processes", return_value=times
        ):
            lines = program.run(read_twice.PROGRAM, values)
        self.assertEqual([16, 32], [line["tokens"] for line in lines])
        for line in lines:
            self.assertEqual(1, line["grad_checkpointing_period"])
            self.assertAllClose(3e3 / line["tokens"], line["us_per_token"])
            self.assertAllClose(0.5, line["overhead"])
            self.assertEqual(7.5, line["peak_mb"])


if __name__ == "__main__":
    tf.test.main()
