"""Tests of `own_documents`: what is trained on what, and SQuAD's folds."""

import json
import os
from unittest import mock

import numpy as np
import tensorflow as tf

from benchmarks import own_documents
from benchmarks import plain_bert
from benchmarks import program
from benchmarks import training_runs
from etcmodel import checkpoints
from testing import benchmark_commands
from testing.tasks import write_json


def _article(title, *ids):
    """An article with a question for each id, and two answers to it."""
    answers = [
        {"text": "Brno", "answer_start": 12},
        {"text": "in Brno", "answer_start": 9},
    ]
    questions = [
        {"id": x, "question": "Where?", "answers": answers} for x in ids
    ]
    paragraph = {"context": "Jan lives in Brno.", "qas": questions}
    return {"title": title, "paragraphs": [paragraph]}


class OwnDocumentsTest(tf.test.TestCase):
    def _run(self, *arguments, **outputs):
        """Returns the lines, and the commands with their flags."""
        values = program.parse(
            own_documents.PROGRAM, "--lift=BERT", "--seeds=4,5", *arguments
        )
        with (
            benchmark_commands.fake_commands(**outputs) as seen,
            mock.patch.object(checkpoints, "read_bert"),
            mock.patch.object(
                plain_bert,
                "mean_vectors",
                lambda bert, texts: np.array([[x.count("a")] for x in texts]),
            ),
            mock.patch.object(
                plain_bert, "read_squad", side_effect=self._read_squad
            ),
        ):
            self.read, self.policies = [], set()
            lines = program.run(own_documents.PROGRAM, values)
        commands = {
            name: [given for x, given in seen if x == name] for name, _ in seen
        }
        return lines, commands

    def _read_squad(self, bert, train_file, dev_file, **given):
        files = []
        for name in (train_file, dev_file):
            with open(name, encoding="utf-8") as stream:
                files.append(json.load(stream)["data"])
        self.read.append(files)
        self.policies.add(tf.keras.mixed_precision.global_policy().name)
        return {x: "Brno" for x in _ids(files[1])}

    def test_authors(self):
        rows = [
            {"id": str(i), "paragraphs": [word] * 400, "label": word}
            for i, word in enumerate(["aa", "bb"] * 2)
        ]
        path = os.path.join(self.get_temp_dir(), "rows.jsonl")
        with open(path, "w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(x) + "\n" for x in rows)
        lines, commands = self._run(
            *("--part=authors", f"--train={path}", f"--dev={path}"),
            *("--layers=2", "--epochs=2", "--batch_size=1"),
            *("--label_smoothing=0.25", "--units=paragraphs"),
            evaluate=benchmark_commands.write_metrics(accuracy=0.5),
        )
        self.assertEqual("2", str(commands["lift"][0]["num_hidden_layers"]))
        # Three others, which know the words; two lengths, with words and
        # without, and two seeds.
        self.assertLen(lines, 3 + 2 * 2 * 2)
        self.assertEqual([1.0] * 3 + [0.5] * 8, [x["accuracy"] for x in lines])
        lengths = [x.get("long_length") for x in commands["preprocess"]]
        self.assertEqual([4096, None, 384, None], lengths)
        self.assertEqual("paragraphs", commands["preprocess"][0]["units"])
        for given in commands["train"]:
            self.assertEqual(8, given["config"]["trainer"]["train_steps"])
            task = given["config"]["task"]
            self.assertTrue(task["trim_batches"])
            self.assertEqual(0.25, task["label_smoothing"])
        words = [
            x["config"]["task"]["model"]["word_counts"]
            for x in commands["train"]
        ]
        self.assertEqual([True, True, False, False] * 2, words)

    def test_squad(self):
        """No model has learned from an article that it is measured on."""
        articles = [_article(f"T{i}", f"q{i}a", f"q{i}b") for i in range(12)]
        path = os.path.join(self.get_temp_dir(), "squad.json")
        write_json(path, {"version": "1.1", "data": articles})
        answers = {x: "in Brno" for x in _ids(articles)} | {"q3a": "Jan"}
        lines, commands = self._run(
            *("--part=squad", f"--train={path}", "--dev=unused"),
            "--dtype=float32",
            predict=lambda stream: json.dump(answers, stream),
        )
        # Each of five folds, and all of them.
        self.assertLen(lines, 2 * (5 + 1) * 2)
        totals = [x for x in lines if x["name"] in ("answer", "windows")]
        self.assertLen(totals, 4)
        for line in totals:
            self.assertEqual(24, line["questions"])
            right = 1.0 if line["name"] == "windows" else 23 / 24
            self.assertAllClose(right, line["f1"])
            self.assertAllClose(right, line["exact_match"])
        # The wrong answer counts in its own fold, which has few questions.
        wrong = [x for x in lines if x["f1"] < 1 and x not in totals]
        self.assertLen(wrong, 2)
        for line in wrong:
            self.assertAllClose(1 - 1 / line["questions"], line["f1"])
        self.assertLen(commands["train"], 2 * 5)
        # Answers are in files of their own: `predict` replaces none.
        self.assertNoCommonElements(
            [x["config_file"] for x in commands["train"]],
            [x["output"] for x in commands["predict"]],
        )
        # The baseline uses the same dtype as `answer`.
        self.assertEqual({"float32"}, self.policies)
        self.assertEqual(
            {"runtime.mixed_precision_dtype=float32"},
            {x["params_override"] for x in commands["train"]},
        )
        # Sizes and files are the same for both seeds.
        self.assertLen(commands["preprocess"], 2 * 2 * 5)
        self.assertLen(self.read, 2 * 5)
        measured = []
        for train, dev in self.read[:5]:
            self.assertNoCommonElements(_ids(train), _ids(dev))
            self.assertLen(_ids(train) + _ids(dev), 24)
            measured += _ids(dev)
            for qa in train[0]["paragraphs"][0]["qas"]:
                self.assertLen(qa["answers"], 1)
        self.assertCountEqual(_ids(articles), measured)
        # Or some folds alone.
        lines, _ = self._run(
            *("--part=squad", f"--train={path}", "--folds=1,4"),
            predict=lambda stream: json.dump(answers, stream),
        )
        number = sum(len(_ids(dev)) for _, dev in self.read[:2])
        totals = [x for x in lines if x["name"] == "windows"]
        self.assertEqual([number] * 2, [x["questions"] for x in totals])
        self.assertLess(number, 24)

    def test_select(self):
        record = {
            **{"_id": "a", "question": "Who?", "answer": "Jan"},
            "context": [["Jan", ["Jan sings.", " He is old."]]],
            # The last two are not in the context.
            "supporting_facts": [["Jan", 0], ["Jan", 2], ["Eva", 0]],
            "type": "bridge",
            "level": "hard",
        }
        path = os.path.join(self.get_temp_dir(), "hotpotqa.json")
        write_json(path, [record])
        write = training_runs.Runs.write
        patch = mock.patch.object(
            training_runs.Runs, "write", autospec=True, side_effect=write
        )
        rows = self.enterContext(patch).call_args_list
        lines, commands = self._run(
            *("--part=select", f"--train={path}", f"--train={path}"),
            *(f"--dev={path}", "--init=RUN", "--batch_size=1"),
            "--threshold=0.4",
            evaluate=benchmark_commands.write_metrics(
                f1=0.5, precision=0.25, recall=1.0, loss=3.0
            ),
        )
        self.assertEqual([0.5] * 2, [x["f1"] for x in lines])
        self.assertNotIn("loss", lines[0])
        for call in rows:
            for row in call.args[2]:
                self.assertEqual([("Jan", 0)], row["supporting_facts"])
        for given in commands["train"]:
            self.assertEqual(os.path.abspath("RUN"), given["init_checkpoint"])
            self.assertEqual(6, given["config"]["trainer"]["train_steps"])
            self.assertEqual(0.4, given["config"]["task"]["threshold"])


def _ids(articles):
    return [
        qa["id"]
        for article in articles
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]


if __name__ == "__main__":
    tf.test.main()
