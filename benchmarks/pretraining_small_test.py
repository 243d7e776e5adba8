"""Tests of `pretraining_small`."""

import json
import math
import os
import tempfile
import unittest
from unittest import mock

from absl import flags

from benchmarks import pretraining_small
from benchmarks import training_runs


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

    def test_what_is_held_out(self):
        """Every fifth article, or as the flag says; less of it each time."""
        corpus = [mock.Mock(text=f"{i}\nx") for i in range(11)]
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "dev"))
            with open(
                os.path.join(folder, "dev", "preprocessing_config.json"), "w"
            ) as file:
                file.write('{"vocab_size": 2}')
            for arguments, held_out in (
                (["--draws=3"], ["0\nx", "x", "5\nx", "x", "10\nx", "x"]),
                (["--held_out_every=10", "--draws=1"], ["0\nx", "10\nx"]),
            ):
                values = flags.FlagValues()
                pretraining_small.define_flags(values)
                values(["x", *arguments])
                with (
                    mock.patch.object(
                        pretraining_small.documents, "FORMAT"
                    ) as reader,
                    mock.patch.object(training_runs, "run_command"),
                    mock.patch.object(
                        pretraining_small, "_read_tokens", return_value=[1]
                    ),
                ):
                    reader.read.return_value = corpus
                    pretraining_small.prepare(values, folder)
                path = os.path.join(folder, "dev.jsonl")
                with open(path, encoding="utf-8") as file:
                    texts = [json.loads(x)["text"] for x in file]
                self.assertEqual(held_out, texts)

    def test_rows(self):
        """Next to the lifted model, its sizes with random weights."""
        values = flags.FlagValues()
        pretraining_small.define_flags(values)
        values(["x", "--steps=5", "--lift_steps=3", "--lift=bert"])
        runs = {}

        def pretrain(_, name, experiment, steps, rate, encoder, *options):
            runs[name] = (experiment, steps, encoder, options)
            return {"mlm_loss": 1.0, "seconds": 1.0}

        with (
            mock.patch.object(pretraining_small, "prepare", return_value=7.0),
            mock.patch.object(pretraining_small, "pretrain", pretrain),
            mock.patch.object(
                training_runs, "lift", return_value={"hidden_size": 24}
            ),
        ):
            rows = pretraining_small.measure(values, "folder")
        self.assertEqual(6, len(rows))
        start = ("--init_checkpoint=folder/lifted",)
        self.assertEqual(("etc/pretrain", 3, {}, start), runs["lifted"])
        self.assertEqual(
            ("etc/pretrain", 3, {"hidden_size": 24}, ()),
            runs["random_weights_of_a_BERT_s_sizes"],
        )
        self.assertEqual(5, runs["random_weights"][1])
        self.assertEqual(
            ("etc/pretrain_no_cpc", 3, {}, start), runs["lifted_no_CPC"]
        )


if __name__ == "__main__":
    unittest.main()
