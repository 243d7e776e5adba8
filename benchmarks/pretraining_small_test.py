import json
import math
import os
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from benchmarks import pretraining_small
from benchmarks import program
from benchmarks import training_runs
from testing import benchmark_commands


def _parse(*arguments):
    return program.parse(
        *(pretraining_small.PROGRAM, "--corpus=c", "--vocab_file=v"), *arguments
    )


class PretrainingSmallTest(tf.test.TestCase, parameterized.TestCase):
    def test_unigram_entropy_by_hand(self):
        self.assertAlmostEqual(
            -(math.log(2.5 / 4) + math.log(1.5 / 4)) / 2,
            pretraining_small.unigram_entropy([0, 0, 1], [0, 1], 2),
        )
        # One of four, all alike.
        self.assertAlmostEqual(
            math.log(4), pretraining_small.unigram_entropy(range(4), [3], 4)
        )

    @parameterized.parameters(
        (["--draws=3"], ["0\nx", "x", "5\nx", "x", "10\nx", "x"]),
        (["--held_out_every=10", "--draws=1"], ["0\nx", "10\nx"]),
    )
    def test_what_is_held_out(self, arguments, held_out):
        """Every fifth article, or as the flag says; less of it each time."""
        runs = training_runs.Runs(self.get_temp_dir())
        os.mkdir(runs.path("dev"))
        with open(runs.path("dev", "preprocessing_config.json"), "w") as file:
            file.write('{"vocab_size": 2}')
        corpus = [mock.Mock(text=f"{i}\nx") for i in range(11)]
        with (
            mock.patch.object(pretraining_small.documents, "FORMAT") as reader,
            mock.patch.object(
                pretraining_small, "_read_tokens", return_value=[1]
            ),
            benchmark_commands.fake_commands(),
        ):
            reader.read.return_value = corpus
            pretraining_small.prepare(_parse(*arguments), runs)
        with open(runs.path("dev.jsonl"), encoding="utf-8") as file:
            self.assertEqual(held_out, [json.loads(x)["text"] for x in file])

    def test_rows(self):
        """Next to the lifted model, its sizes with random weights."""
        values = _parse("--steps=5", "--lift_steps=30", "--lift=bert")
        metrics = benchmark_commands.write_metrics(mlm_loss=1.0)
        with (
            benchmark_commands.fake_commands(evaluate=metrics) as seen,
            mock.patch.object(pretraining_small, "prepare", return_value=7.0),
        ):
            first, *rows = program.run(pretraining_small.PROGRAM, values)
        self.assertEqual(7.0, first["mlm_loss"])
        self.assertLen(rows, 5)
        for row in rows:
            self.assertEqual(1.0, row["mlm_loss"])
            self.assertEqual(1.0, row["first_mlm_loss"])
        made = []
        for name, given in seen:
            if name == "train":
                encoder = (
                    given["config"]["task"].get("model", {}).get("encoder", {})
                )
                made.append(
                    (
                        given["experiment"].removeprefix("etc/"),
                        given["config"]["trainer"]["train_steps"],
                        encoder.get("hidden_size"),
                        given.get("init_checkpoint", "").split("/")[-1],
                    )
                )
        self.assertEqual(
            [
                ("pretrain", 5, 256, ""),
                ("pretrain_no_cpc", 5, 256, ""),
                ("pretrain", 30, 24, ""),
                ("pretrain", 30, None, "lifted"),
                ("pretrain_no_cpc", 30, None, "lifted"),
            ],
            made,
        )
        # At the end, and after a tenth of the steps.
        steps = [x["checkpoint"][-2:] for n, x in seen if n == "evaluate"]
        self.assertEqual(["-5", "-1"] * 2 + ["30", "-3"] * 3, steps)


if __name__ == "__main__":
    tf.test.main()
