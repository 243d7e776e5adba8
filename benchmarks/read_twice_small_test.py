import json
import os

import tensorflow as tf

from benchmarks import program
from benchmarks import read_twice_small
from etcmodel.datasets.hotpotqa import answer_only
from testing import benchmark_commands


class ReadTwiceSmallTest(tf.test.TestCase):
    def test_another_paragraph_tells(self):
        """Where a person is, and who has the ring, are never together."""
        path = os.path.join(self.get_temp_dir(), "records.json")
        with open(path, "w") as stream:
            json.dump([*map(read_twice_small.make_record, range(60))], stream)
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
        output = self.get_temp_dir()
        values = program.parse(
            read_twice_small.PROGRAM,
            *("--records=6", "--heldout=4", f"--output={output}"),
        )
        metrics = benchmark_commands.write_metrics(em=0.5, span_loss=1.0)
        with benchmark_commands.fake_commands(evaluate=metrics) as seen:
            rows = program.run(read_twice_small.PROGRAM, values)
        self.assertEqual(
            [*read_twice_small.VARIANTS], [x["name"] for x in rows[1:]]
        )
        self.assertEqual([0.25, 0.5, 0.5, 0.5, 0.5], [x["em"] for x in rows])
        self.assertEqual(
            ["preprocess"] * 2 + ["train", "evaluate"] * 4, [x for x, _ in seen]
        )
        self.assertLen({x["steps"] for x in rows[1:]}, 1)
        # Of Keras 2, whatever runs the test.
        self.assertEqual({"2"}, {x["keras"].split(".")[0] for x in rows})
        for name, columns in (("results.jsonl", 5), ("table.txt", 6)):
            with open(os.path.join(output, name)) as stream:
                self.assertLen(stream.readlines(), columns)


if __name__ == "__main__":
    tf.test.main()
