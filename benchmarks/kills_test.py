import os
import random
import sys
import tempfile
from unittest import mock

import tensorflow as tf

from benchmarks import kills
from benchmarks import program
from benchmarks import training_runs

# Writes a file in two halves: whole under its name at last, or not.
_CAREFUL = """
import os, sys, time
with open(sys.argv[1] + ".partial", "w") as stream:
    stream.write("a")
    stream.flush()
    time.sleep(0.4)
    stream.write("b")
os.replace(sys.argv[1] + ".partial", sys.argv[1])
"""
_CARELESS = _CAREFUL.replace(' + ".partial"', "")


class KillsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.runs = training_runs.Runs(folder)

    def test_flags(self):
        values = program.parse(kills.PROGRAM, "--kills=3", "--commands=export")
        self.assertEqual((3, ["export"]), (values.kills, values.commands))
        for name in kills.COMMANDS:
            command = kills.arguments(self.runs, name, "out")
            self.assertIn(name, command)
            self.assertTrue(any(x.endswith("=out") for x in command))

    def test_half_files_are_noticed(self):
        for script, is_half in ((_CAREFUL, False), (_CARELESS, True)):
            with open(self.runs.path("predict"), "w") as stream:
                stream.write("ab")

            def arguments(runs, command, output, script=script):
                del runs, command
                return [sys.executable, "-c", script, output]

            rng = mock.create_autospec(random.Random, instance=True)
            rng.uniform.return_value = 0.25
            with mock.patch.object(kills, "arguments", arguments):
                line = kills.kill_and_compare(self.runs, "predict", 0.5, rng)
            self.assertEqual(is_half, line["is_half"])
            self.assertTrue(line["is_equal"])
            self.assertEqual(0, line["left"])
            self.assertFalse(os.path.exists(self.runs.path("killed")))

    def test_leftovers_of_any_kind_are_counted(self):
        """Beside the output, and in the directory of a run."""
        script = (
            "import os, sys\n"
            "os.makedirs(sys.argv[1] + '/ckpt-1_temp')\n"
            "os.makedirs(sys.argv[1] + '/../tmp1.old')\n"
        )
        os.mkdir(self.runs.path("train"))
        with mock.patch.object(
            kills,
            "arguments",
            lambda runs, command, output: [
                *(sys.executable, "-c", script, output)
            ],
        ):
            rng = random.Random(1)
            line = kills.kill_and_compare(self.runs, "train", 0.0, rng)
        self.assertEqual(2, line["left"])

    def test_reads_what_must_be_equal(self):
        path = self.runs.path("run")
        variable = tf.Variable(1)
        checkpoint = tf.train.Checkpoint(x=variable)
        found = []
        for value in (1, 1, 2):
            variable.assign(value)
            checkpoint.save(os.path.join(path, "ckpt"))
            found.append(kills.read(path))
        # Which checkpoint it is does not matter.
        self.assertEqual(found[0], found[1])
        self.assertNotEqual(found[0], found[2])
        folder = self.runs.path("saved_model")
        os.mkdir(folder)
        for name in ("a.txt", "saved_model.pb"):
            with open(os.path.join(folder, name), "w") as stream:
                stream.write(name)
        self.assertEqual(
            {"a.txt": b"a.txt", "saved_model.pb": True}, kills.read(folder)
        )


if __name__ == "__main__":
    tf.test.main()
