import json
import os
from unittest import mock

import msgspec
import tensorflow as tf
from absl import app
from absl import flags

from benchmarks import read_twice_by_heart
from benchmarks import training_runs
from etcmodel.datasets import narrativeqa
from testing import reading


class ReadTwiceByHeartTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.qaps, self.vocab = reading.write_small_narrativeqa(
            self.get_temp_dir(), 4
        )

    def test_best_spans(self):
        """Those that score best, as they are or nearly so; of the text."""
        record = next(narrativeqa.FORMAT.read(self.qaps))
        best = read_twice_by_heart.best_spans(
            [
                msgspec.structs.replace(record, id=str(i), answers=answers)
                for i, answers in enumerate(
                    (
                        # The first is there.
                        ("paris", "Lyon"),
                        # Two of three words, or two of two.
                        ("Jan always lives", "rains the whole day"),
                        ("Lyon", "Nice"),
                    )
                )
            ]
        )
        self.assertEqual({"0": "Paris", "1": "Jan lives", "2": ""}, best)

    def test_write_best_spans(self):
        """Questions without a span are left out, all else stays."""
        records = list(narrativeqa.FORMAT.read(self.qaps))
        best = {x.id: "" if i == 1 else "a, b" for i, x in enumerate(records)}
        folder = os.path.join(self.get_temp_dir(), "best")
        os.makedirs(folder)
        path = read_twice_by_heart.write_best_spans(records, best, folder)
        self.assertEqual(
            [
                (x.id, x.text, ("a, b",))
                for i, x in enumerate(records)
                if i != 1
            ],
            [(x.id, x.text, x.answers) for x in narrativeqa.FORMAT.read(path)],
        )

    def test_unknown_stages(self):
        """What is wrong with a stage is said before anything is read."""
        for task, stage in (
            ("narrativeqa", "8x9x1600"),
            ("narrativeqa", "8x0x1600x2e-3"),
            ("narrativeqa", "8x9x1600x2e-3xworst"),
            ("triviaqa", "8x9x1600x2e-3xbest"),
        ):
            values = flags.FlagValues()
            read_twice_by_heart.define_flags(values)
            values(
                [
                    *("x", f"--task={task}", "--input=missing"),
                    *("--vocab_file=missing", f"--stages={stage}"),
                ]
            )
            with self.assertRaisesRegex(app.UsageError, repr(stage)):
                read_twice_by_heart.run(values)

    def test_rows_of_a_lifted_bert(self):
        """Each row has the preset that its memories need."""
        values = flags.FlagValues()
        read_twice_by_heart.define_flags(values)
        records, vocab = reading.write_small_triviaqa(self.get_temp_dir(), 2)
        values(
            [
                *("x", "--task=triviaqa", f"--input={records}"),
                *(f"--lift={self.get_temp_dir()}", f"--vocab_file={vocab}"),
                "--variants=STS,SS",
            ]
        )
        seen = []

        def run_command(name, *arguments):
            given = dict(x[2:].split("=", 1) for x in arguments)
            keys = ("preset", "experiment", "init_checkpoint")
            seen.append(
                (name, *(given[x].split("/")[-1] for x in keys if x in given))
            )
            if name == "evaluate":
                with open(given["output"], "w") as stream:
                    json.dump({"span_loss": 0.5}, stream)
            elif name == "predict":
                with open(given["output"], "w") as stream:
                    json.dump({}, stream)

        with mock.patch.object(
            training_runs, "run_command", side_effect=run_command
        ):
            rows = read_twice_by_heart.run(values)
        self.assertEqual(
            [("STS", 0.0, 0.5), ("SS", 0.0, 0.5)],
            [(x["name"], x["exact_match"], x["span_loss"]) for x in rows],
        )
        self.assertSameElements(
            [("lift", "base"), ("lift", "base_sts")], seen[:2]
        )
        self.assertEqual(
            [
                ("train", "triviaqa_sts", "base_sts"),
                ("train", "triviaqa_single_segment", "base"),
            ],
            [x for x in seen if x[0] == "train"],
        )

    def test_rows(self):
        """The second one's numbers are those of the answers it was given."""
        values = flags.FlagValues()
        read_twice_by_heart.define_flags(values)
        output = os.path.join(self.get_temp_dir(), "rows.jsonl")
        values(
            [
                *("x", f"--input={self.qaps}", f"--vocab_file={self.vocab}"),
                *(f"--output={output}", "--stages=2x9x5x1e-3,4x1x5x1e-4xbest"),
            ]
        )
        ids = [x.id for x in narrativeqa.FORMAT.read(self.qaps)]
        commands = []

        def run_command(*arguments):
            commands.append(arguments[0])
            for x in arguments:
                if x.startswith("--output="):
                    path = x.removeprefix("--output=")
            if arguments[0] == "evaluate":
                with open(path, "w") as stream:
                    json.dump({"span_loss": 0.5, "rouge_l": 100.0}, stream)
            elif arguments[0] == "predict":
                # Right for one of four.
                answers = dict.fromkeys(ids, "Rome")
                # A line of the file all the same.
                answers[ids[0]] = "x\u2028y"
                with open(path, "w") as stream:
                    narrativeqa.write_predictions(answers, stream)

        with mock.patch.object(
            training_runs, "run_command", side_effect=run_command
        ):
            rows = read_twice_by_heart.run(values)
        self.assertEqual(
            [
                *("preprocess", "preprocess", "preprocess", "train", "train"),
                *("evaluate", "export", "predict"),
            ],
            commands,
        )
        self.assertAllClose([100, 25], [x["rouge_l"] for x in rows])
        with open(output) as stream:
            self.assertLen(stream.readlines(), 2)


if __name__ == "__main__":
    tf.test.main()
