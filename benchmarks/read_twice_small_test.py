import json
import os
from unittest import mock

import tensorflow as tf
from absl import flags

from benchmarks import read_twice_small
from benchmarks import training_runs
from etcmodel.datasets.hotpotqa import answer_only


class ReadTwiceSmallTest(tf.test.TestCase):
    def test_another_paragraph_tells(self):
        """Where a person is, and who has the ring, are never together."""
        path = os.path.join(self.get_temp_dir(), "records.json")
        with open(path, "w") as stream:
            json.dump(
                [read_twice_small.make_record(i) for i in range(60)], stream
            )
        answers, places = set(), set()
        for record in answer_only.FORMAT.read(path):
            parts = record.text.split("\n\n")
            self.assertLen(parts, 5)
            (answer,) = record.answers
            (ring,) = [i for i, x in enumerate(parts) if "ring" in x]
            (place,) = [i for i, x in enumerate(parts) if answer in x]
            self.assertNotEqual(ring, place)
            self.assertEqual(parts[ring].split()[0], parts[place].split()[0])
            self.assertCountEqual([ring, place], record.supporting_parts)
            answers.add(answer)
            places.add(place)
        self.assertGreater(len(answers), 15)
        self.assertLen(places, 5)

    def test_rows(self):
        values = flags.FlagValues()
        read_twice_small.define_flags(values)
        output = os.path.join(self.get_temp_dir(), "rows.jsonl")
        values(["x", "--records=6", "--heldout=4", f"--output={output}"])
        commands = []

        def run_command(*arguments):
            commands.append(arguments)
            for x in arguments:
                if x.startswith("--output="):
                    with open(x.removeprefix("--output="), "w") as stream:
                        json.dump({"em": 0.5, "span_loss": 1.0}, stream)

        with mock.patch.object(
            training_runs, "run_command", side_effect=run_command
        ):
            rows = read_twice_small.run(values)
        self.assertEqual(
            [*read_twice_small.VARIANTS], [x["name"] for x in rows[1:]]
        )
        self.assertEqual([0.25, 0.5, 0.5, 0.5, 0.5], [x["em"] for x in rows])
        self.assertEqual(
            ["preprocess"] * 2 + ["train", "evaluate"] * 4,
            [x[0] for x in commands],
        )
        self.assertLen({x["steps"] for x in rows[1:]}, 1)
        with open(output) as stream:
            self.assertLen(stream.readlines(), 5)


if __name__ == "__main__":
    tf.test.main()
