import functools
import os

import msgspec
import tensorflow as tf
from absl import app
from absl.testing import parameterized

from benchmarks import program
from benchmarks import read_twice_by_heart
from etcmodel.datasets import narrativeqa
from testing import benchmark_commands
from testing import reading


class ReadTwiceByHeartTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.get_temp_dir()
        self.qaps, self.vocab = reading.write_small_narrativeqa(self.folder, 4)

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
        folder = os.path.join(self.folder, "best")
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

    def _run(self, *arguments, **outputs):
        values = program.parse(read_twice_by_heart.PROGRAM, *arguments)
        metrics = benchmark_commands.write_metrics(span_loss=0.5, rouge_l=99.0)
        with benchmark_commands.fake_commands(
            evaluate=metrics, **outputs
        ) as seen:
            return program.run(read_twice_by_heart.PROGRAM, values), seen

    @parameterized.parameters(
        ("narrativeqa", "8x9x1600"),
        ("narrativeqa", "8x0x1600x2e-3"),
        ("narrativeqa", "8x9x1600x2e-3xworst"),
        ("triviaqa", "8x9x1600x2e-3xbest"),
    )
    def test_unknown_stages(self, task, stage):
        """What is wrong with a stage is said before anything is read."""
        with self.assertRaisesRegex(app.UsageError, repr(stage)):
            self._run(f"--task={task}", "--input=x", f"--stages={stage}")

    def test_rows_of_a_lifted_bert(self):
        """Each row has the preset that its memories need."""
        records, vocab = reading.write_small_triviaqa(self.folder, 2)
        rows, seen = self._run(
            *("--task=triviaqa", f"--input={records}", "--lift=bert"),
            *(f"--vocab_file={vocab}", "--variants=STS,SS"),
            predict=lambda stream: stream.write("{}"),
        )
        self.assertEqual(
            [("STS", 0.0, 0.5), ("SS", 0.0, 0.5)],
            [(x["name"], x["exact_match"], x["span_loss"]) for x in rows],
        )
        presets = [given["preset"] for name, given in seen if name == "lift"]
        self.assertCountEqual(["base", "base_sts"], presets)
        keys = ("experiment", "init_checkpoint")
        self.assertEqual(
            [
                ["triviaqa_sts", "base_sts"],
                ["triviaqa_single_segment", "base"],
            ],
            [
                [given[key].split("/")[-1] for key in keys]
                for name, given in seen
                if name == "train"
            ],
        )

    def test_rows(self):
        """The second one's numbers are those of the answers it was given."""
        ids = [x.id for x in narrativeqa.FORMAT.read(self.qaps)]
        # Right for one of four; one that is a line of the file all the same.
        answers = dict.fromkeys(ids, "Rome") | {ids[0]: "x\u2028y"}
        rows, seen = self._run(
            *(f"--input={self.qaps}", f"--vocab_file={self.vocab}"),
            "--stages=2x9x5x1e-3,4x1x5x1e-4xbest",
            predict=functools.partial(narrativeqa.write_predictions, answers),
        )
        self.assertEqual(
            [
                *("preprocess", "preprocess", "preprocess", "train", "train"),
                *("evaluate", "export", "predict"),
            ],
            [name for name, _ in seen],
        )
        self.assertAllClose([100, 25], [x["rouge_l"] for x in rows])


if __name__ == "__main__":
    tf.test.main()
