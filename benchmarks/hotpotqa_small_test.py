"""Tests of `hotpotqa_small`: its baselines, and its stages."""

import os
import random
from unittest import mock

import msgspec
import tensorflow as tf
from absl import app
from absl.testing import parameterized

from benchmarks import hotpotqa_small
from benchmarks import program
from benchmarks import training_runs
from etcmodel.datasets.hotpotqa.records import FORMAT
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.hotpotqa.records import Paragraph
from etcmodel.datasets.question_answering import squad
from testing import benchmark_commands

_RECORD = HotpotQARecord(
    id="a",
    question="Where does the cook Jan Novak live?",
    context=(
        Paragraph("Krakow", ("Krakow is a city.", " It has many cooks.")),
        Paragraph("Jan Novak", ("He is a cook.", " He lives in Krakow.")),
    ),
    answer="Krakow",
    supporting_facts=(("Jan Novak", 0), ("Jan Novak", 1)),
)
_YES = HotpotQARecord(
    id="b",
    question="Is Krakow a city?",
    context=(Paragraph("Krakow", ("Krakow is a city.",)),),
    answer="yes",
    supporting_facts=(("Krakow", 0),),
)


_PAINTER = HotpotQARecord(
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


class BaselinesTest(tf.test.TestCase):
    def test_words(self):
        self.assertEqual(
            {"jan", "novák", "1st"},
            hotpotqa_small.words_of("The 1st Jan-Novák is it."),
        )

    def test_sentences_are_ranked_by_shared_words(self):
        # cook, jan, novak; jan and novak; nothing; nothing ("cooks").
        self.assertEqual(
            [("Jan Novak", 0), ("Jan Novak", 1), ("Krakow", 0), ("Krakow", 1)],
            hotpotqa_small.rank_sentences(_RECORD),
        )

    def test_baselines(self):
        rows = hotpotqa_small.measure_baselines([_RECORD, _RECORD], [_RECORD])
        overlap, constant = rows.values()
        self.assertIn("word overlap, 2 sentences", rows)
        self.assertEqual(1.0, overlap["sp_f1"])
        self.assertEqual(1.0, overlap["sp_em"])
        # "Jan Novak", which is wrong.
        self.assertEqual(0.0, overlap["f1"])
        self.assertEqual(1.0, constant["answer_type_accuracy"])
        self.assertEqual(0.0, constant["em"])
        # The most frequent word is a right answer here.
        rows = hotpotqa_small.measure_baselines([_YES], [_RECORD, _YES])
        _, constant = rows.values()
        self.assertEqual(0.5, constant["answer_type_accuracy"])
        self.assertEqual(0.5, constant["em"])
        self.assertEqual(0.0, constant["sp_f1"])


class AddParagraphsTest(tf.test.TestCase):
    def _rows(self):
        """Three paragraphs of an article, and one of another."""
        rows = []
        for number, title in enumerate("AAAB"):
            text = f"Text {number} is of Brno {number}."
            answer = f"Brno {number}"
            rows.append(
                {
                    "id": str(number),
                    "context": [{"title": title, "text": text}],
                    "answers": [
                        {"text": answer, "answer_start": text.index(answer)}
                    ],
                }
            )
        return rows

    def test_answers_are_where_they_were(self):
        rng = random.Random(1)
        for _ in range(10):
            for row in hotpotqa_small.add_paragraphs(self._rows(), 3, rng):
                texts = [x["text"] for x in row["context"]]
                self.assertLen(set(texts), 3)
                (answer,) = row["answers"]
                self.assertEqual(f"Brno {row['id']}", answer["text"])
                # As if two characters stood between paragraphs.
                document = "\n\n".join(texts)
                start = answer["answer_start"]
                self.assertTrue(document[start:].startswith(answer["text"]))

    def test_of_the_same_article_if_it_has_as_many(self):
        rng = random.Random(1)
        made = hotpotqa_small.add_paragraphs(self._rows(), 3, rng)
        titles = ["".join(x["title"] for x in row["context"]) for row in made]
        self.assertEqual(["AAA"] * 3, titles[:3])
        self.assertIn("B", titles[3])


class StagesTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.runs = training_runs.Runs(self.get_temp_dir())

    def _run(self, *arguments):
        """Runs all stages; returns the flags of each command, by its name."""
        values = program.parse(hotpotqa_small.PROGRAM, "--dev=DEV", *arguments)
        metrics = benchmark_commands.write_metrics(sp_f1=0.25)
        with benchmark_commands.fake_commands(evaluate=metrics) as seen:
            stages = hotpotqa_small.Stages(values, self.runs, [_PAINTER])
            self.assertEqual({"sp_f1": 0.25}, stages.run())
        self.names = [name for name, _ in seen]
        return {
            command: [given for name, given in seen if name == command]
            for command in self.names
        }

    def _read(self, name):
        return list(FORMAT.read(self.runs.path(name)))

    def test_makes_some_of_each(self):
        records = [_PAINTER, msgspec.structs.replace(_PAINTER, id="b")]
        calls = []

        def make(record):
            calls.append(record.id)
            question = f"{record.id}{len(calls)}"
            if len(calls) != 2:
                return msgspec.structs.replace(record, question=question)

        made = hotpotqa_small.make_records(records, 2, make, seed=3)
        self.assertCountEqual(["a1", "b3", "b4"], [x.question for x in made])
        self.assertLen({x.id for x in made}, 3)

    def test_from_random_weights(self):
        commands = self._run("--vocab_file=V")
        self.assertEqual(
            ["preprocess", "train", "preprocess", "evaluate"], self.names
        )
        (train,) = commands["train"]
        self.assertEqual("etc/hotpotqa", train["experiment"])
        self.assertEqual("1", train["seed"])
        self.assertNotIn("init_checkpoint", train)
        encoder = train["config"]["task"]["model"]["encoder"]
        self.assertEqual(128, encoder["hidden_size"])
        (record,) = self._read("train.json")
        self.assertEqual(_PAINTER.context, record.context)
        for given in commands["preprocess"]:
            self.assertEqual(
                ("V", 2048), (given["vocab_file"], given["long_length"])
            )

    def test_every_stage_begins_with_the_one_before(self):
        commands = self._run(
            "--lift=BERT",
            "--pretrain_steps=1",
            "--pseudo_steps=1",
            "--copies=3",
            "--long_length=20",
            "--evaluated_length=64",
        )
        keys = ("model_dir", "experiment", "init_checkpoint")
        path = f"{self.runs.directory}/"
        self.assertEqual(
            [
                ["texts_run", "etc/pretrain", "lifted"],
                ["pseudo_run", "etc/hotpotqa", "texts_run"],
                ["train_run", "etc/hotpotqa", "pseudo_run"],
            ],
            [
                [x[k].removeprefix(path) for k in keys]
                for x in commands["train"]
            ],
        )
        for given in commands["train"]:
            model = given["config"]["task"].get("model", {})
            self.assertNotIn("encoder", model)
        # Room for 74 characters: one paragraph of these, or Krakow and one.
        # The facts' own is not chosen for pseudo-questions; none of one.
        self.assertEmpty(self._read("pseudo.json"))
        copies = self._read("train.json")
        self.assertLen(copies, 3)
        for copy in copies:
            self.assertLen(copy.context, 2)
            self.assertEqual(_PAINTER.question, copy.question)
        self.assertEqual(64, commands["preprocess"][-1]["long_length"])
        self.assertEqual(
            "task.model.long_length=64",
            commands["evaluate"][0]["params_override"],
        )

    def test_begins_with_squad(self):
        """Of 32 copies of a question, in batches of 16."""
        row = {"id": "q", "question": "Where?"}
        with (
            mock.patch.object(
                squad, "read_questions", lambda *_: iter([(0, row)])
            ),
            mock.patch.object(
                hotpotqa_small, "add_paragraphs", lambda rows, *_: rows
            ),
        ):
            commands = self._run(
                "--lift=BERT", "--squad=SQUAD", "--squad_epochs=32"
            )
        first, second = commands["train"]
        self.assertEqual("etc/answer", first["experiment"])
        self.assertEqual(2, first["config"]["trainer"]["train_steps"])
        self.assertEndsWith(second["init_checkpoint"], "/squad_run")
        with open(self.runs.path("squad.jsonl"), "rb") as stream:
            rows = [msgspec.json.decode(line) for line in stream]
        self.assertLen({row["id"] for row in rows}, 32)

    def test_begins_with_a_run(self):
        commands = self._run("--init=runs/squad")
        (train,) = commands["train"]
        path = os.path.abspath("runs/squad")
        self.assertEqual(path, train["init_checkpoint"])
        self.assertNotIn("encoder", train["config"]["task"]["model"])
        for given in commands["preprocess"]:
            self.assertEqual(f"{path}/vocab.txt", given["vocab_file"])

    def test_pseudo_questions_do_not_know_the_facts(self):
        # Room for 103 characters: Jan and Vltava are 98, with Krakow 110.
        self._run(
            "--lift=BERT",
            "--pseudo_steps=1",
            "--pseudo_questions=20",
            "--long_length=28",
        )
        records = self._read("pseudo.json")
        self.assertNotEmpty(records)
        for record in records:
            self.assertCountEqual(
                [("Jan", 0), ("Vltava", 0)], record.supporting_facts
            )

    @parameterized.parameters(
        (["--vocab_file=V"], "--train must"),
        (["--train=T"], "one of"),
        (["--train=T", "--vocab_file=V", "--lift=B"], "one of"),
        (["--train=T", "--init=R", "--lift=B"], "one of"),
        (
            ["--train=T", "--vocab_file=V", "--pretrain_steps=1"],
            "needs --lift",
        ),
    )
    def test_flags_that_do_not_fit(self, arguments, message):
        values = program.parse(hotpotqa_small.PROGRAM, "--dev=D", *arguments)
        with self.assertRaisesRegex(app.UsageError, message):
            program.run(hotpotqa_small.PROGRAM, values)


if __name__ == "__main__":
    tf.test.main()
