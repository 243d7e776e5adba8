"""Tests of the stages of `hotpotqa_small`, without the commands."""

import json
import os
import tempfile
import unittest
from unittest import mock

import msgspec
from absl import flags

from benchmarks import hotpotqa_training
from benchmarks import training_runs
from etcmodel.datasets.hotpotqa.records import FORMAT
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.hotpotqa.records import Paragraph

_RECORD = HotpotQARecord(
    id="a",
    question="Where does Jan live?",
    context=(
        Paragraph("Jan", ("The painter was born in 1901 in a small town.",)),
        Paragraph("Vltava", ("A river through the region of South Bohemia.",)),
        Paragraph("Krakow", ("Short.",)),
    ),
    answer="Krakow",
    supporting_facts=(("Krakow", 0),),
)


class MakeRecordsTest(unittest.TestCase):
    def test_makes_some_of_each(self):
        records = [_RECORD, msgspec.structs.replace(_RECORD, id="b")]
        calls = []

        def make(record):
            calls.append(record.id)
            question = f"{record.id}{len(calls)}"
            if len(calls) != 2:
                return msgspec.structs.replace(record, question=question)

        made = hotpotqa_training.make_records(records, 2, make, seed=3)
        self.assertCountEqual(["a1", "b3", "b4"], [x.question for x in made])
        self.assertEqual(3, len({x.id for x in made}))


class TrainingTest(unittest.TestCase):
    def _run(self, *arguments):
        """Runs a training without its commands; what they are told."""
        values = flags.FlagValues()
        hotpotqa_training.define_flags(values)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        data, metrics = (
            os.path.join(self.folder, name)
            for name in ("given.json", "train_run_metrics.json")
        )
        with open(data, "wb") as stream:
            stream.write(msgspec.json.encode([_RECORD]))
        with open(metrics, "w") as stream:
            json.dump({"sp_f1": 0.25}, stream)
        values(["program", f"--train={data}", "--dev=DEV", *arguments])
        with mock.patch.multiple(
            training_runs,
            train=mock.DEFAULT,
            lift=mock.DEFAULT,
            run_command=mock.DEFAULT,
        ) as runs:
            result = hotpotqa_training.Training(values, self.folder).run()
        self.assertEqual({"sp_f1": 0.25}, result)
        self.commands = [x.args for x in runs["run_command"].call_args_list]
        return [x.args for x in runs["train"].call_args_list]

    def _read(self, name):
        return list(FORMAT.read(os.path.join(self.folder, name)))

    def test_from_random_weights(self):
        ((run, experiment, task, _, options),) = self._run("--vocab_file=V")
        self.assertEqual(f"{self.folder}/train_run", run)
        self.assertEqual("etc/hotpotqa", experiment)
        self.assertEqual(128, task["model"]["encoder"]["hidden_size"])
        self.assertEqual(["--mode=train", "--seed=1"], options)
        (record,) = self._read("train.json")
        self.assertEqual(_RECORD.context, record.context)
        names = [command[0] for command in self.commands]
        self.assertEqual(["preprocess", "preprocess", "evaluate"], names)
        for command in self.commands[:2]:
            self.assertIn("--vocab_file=V", command)
            self.assertIn("--long_length=2048", command)

    def test_every_stage_begins_with_the_one_before(self):
        stages = self._run(
            "--lift=BERT",
            "--pretrain_steps=1",
            "--pseudo_steps=1",
            "--copies=3",
            "--long_length=20",
            "--evaluated_length=64",
        )
        path = f"{self.folder}/"
        self.assertEqual(
            [
                ("texts_run", "etc/pretrain", "lifted"),
                ("pseudo_run", "etc/hotpotqa", "texts_run"),
                ("train_run", "etc/hotpotqa", "pseudo_run"),
            ],
            [
                (
                    run.removeprefix(path),
                    experiment,
                    options[-1].removeprefix(f"--init_checkpoint={path}"),
                )
                for run, experiment, _, _, options in stages
            ],
        )
        for *_, task, _, _ in stages:
            self.assertNotIn("encoder", task.get("model", {}))
        # Room for 74 characters: one paragraph of these, or Krakow and one.
        # The facts' own is not chosen for pseudo-questions; none of one.
        self.assertEqual([], self._read("pseudo.json"))
        copies = self._read("train.json")
        self.assertEqual(3, len(copies))
        for copy in copies:
            self.assertEqual(2, len(copy.context))
            self.assertEqual(_RECORD.question, copy.question)
        self.assertIn("--long_length=64", self.commands[-2])
        self.assertIn(
            "--params_override=task.model.long_length=64", self.commands[-1]
        )

    def test_pseudo_questions_do_not_know_the_facts(self):
        # Room for 103 characters: Jan and Vltava are 98, with Krakow 110.
        self._run(
            "--lift=BERT",
            "--pseudo_steps=1",
            "--pseudo_questions=20",
            "--long_length=28",
        )
        records = self._read("pseudo.json")
        self.assertGreater(len(records), 0)
        for record in records:
            self.assertCountEqual(
                [("Jan", 0), ("Vltava", 0)], record.supporting_facts
            )


if __name__ == "__main__":
    unittest.main()
