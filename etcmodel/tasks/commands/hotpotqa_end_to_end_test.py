import json
import os
import shutil
import tempfile
import unittest

import tensorflow as tf

from etcmodel.tasks.commands.cli_test import run_cli
from etcmodel.tasks.experiment_lib_test import KERAS_2
from etcmodel.tasks.hotpotqa import metrics
from etcmodel.tasks.task_testing import run_without_package
from etcmodel.testing import real_data_path

_NUM_RECORDS = 16
_STEPS = 100
# A model that is large enough to learn these records by heart.
_OVERRIDES = {
    "task.train_data.global_batch_size": 8,
    "task.validation_data.global_batch_size": 6,
    "task.model.encoder.preset": "tiny",
    "task.model.encoder.hidden_size": 64,
    "task.model.encoder.num_attention_heads": 4,
    "task.model.encoder.local_radius": 16,
    "task.model.encoder.hidden_dropout_prob": 0.0,
    "task.model.encoder.attention_probs_dropout_prob": 0.0,
    "trainer.train_steps": _STEPS,
    "trainer.steps_per_loop": _STEPS // 2,
    "trainer.summary_interval": _STEPS // 2,
    "trainer.checkpoint_interval": _STEPS,
    "trainer.validation_interval": _STEPS,
    (
        "trainer.optimizer_config.learning_rate.polynomial."
        "initial_learning_rate"
    ): 0.003,
}


def _length(record):
    """Number of characters of a record's text."""
    texts = [record["question"]]
    for title, sentences in record["context"]:
        texts.extend([title, *sentences])
    return sum(map(len, texts))


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class HotpotQAEndToEndTest(tf.test.TestCase):
    """From the official file to answers: real records, learned by heart."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        path = real_data_path("hotpotqa/train_200.json")
        vocab_file = real_data_path("vocab/bert_uncased_vocab.txt")
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.input = cls._path("short.json")
        with open(path, encoding="utf-8") as stream:
            cls.raw = sorted(json.load(stream), key=_length)[:_NUM_RECORDS]
        with open(cls.input, "w", encoding="utf-8") as stream:
            json.dump(cls.raw, stream)
        cls.records = cls._path("records")
        cls.model_dir = cls._path("run")
        cls.saved_model = cls._path("saved_model")
        cls._run(
            "preprocess",
            "--task=hotpotqa",
            f"--input={cls.input}",
            f"--vocab_file={vocab_file}",
            f"--output_dir={cls.records}",
            "--long_length=944",
            "--global_length=96",
            "--num_shards=2",
        )
        paths = {
            f"task.{data}.input_path": cls.records
            for data in ("train_data", "validation_data")
        }
        overrides = ",".join(
            f"{key}={value}" for key, value in {**paths, **_OVERRIDES}.items()
        )
        cls._run(
            "train",
            "--experiment=etc/hotpotqa",
            "--mode=train",
            f"--model_dir={cls.model_dir}",
            f"--params_override={overrides}",
        )
        cls._run(
            "export",
            f"--model_dir={cls.model_dir}",
            f"--output_dir={cls.saved_model}",
        )

    @classmethod
    def _path(cls, *names):
        return os.path.join(cls.root, *names)

    @staticmethod
    def _run(*arguments):
        code, out, err = run_cli(*arguments)
        if code:
            raise AssertionError(err)
        return out

    def test_the_records_are_those_described(self):
        """Nothing that holds an answer or is a fact is cut."""
        with open(
            os.path.join(self.records, "stats.json"), encoding="utf-8"
        ) as stream:
            stats = json.load(stream)
        closed = sum(x["answer"] in ("yes", "no") for x in self.raw)
        self.assertBetween(closed, 1, _NUM_RECORDS // 2)
        expected = {
            "records_read": _NUM_RECORDS,
            "records_written": _NUM_RECORDS,
            "answers_yes_or_no": closed,
            "answers_cut": 0,
            "answers_not_in_text": 0,
            "records_cut": 0,
            "supporting_facts_cut": 0,
            "tokens_cut": 0,
        }
        self.assertEqual(expected, {name: stats[name] for name in expected})

    def test_evaluates(self):
        output = self._path("metrics.json")
        self._run(
            "evaluate", f"--model_dir={self.model_dir}", f"--output={output}"
        )
        with open(output, encoding="utf-8") as stream:
            result = json.load(stream)
        self.assertEqual(_STEPS, result["step"])
        self.assertGreaterEqual(result["f1"], 0.95)
        self.assertGreaterEqual(result["sp_f1"], 0.95)
        self.assertGreaterEqual(result["joint_f1"], 0.95)
        self.assertBetween(result["supporting_fact_threshold"], 0.0, 0.9)

    def test_predicts_all_from_raw_text(self):
        """Without answers in the file, and scored as the official ones are."""
        questions, output = self._path("questions.json"), self._path("out.json")
        with open(questions, "w", encoding="utf-8") as stream:
            json.dump(
                [
                    {name: x[name] for name in ("_id", "question", "context")}
                    for x in self.raw
                ],
                stream,
            )
        out = self._run(
            "predict",
            f"--saved_model={self.saved_model}",
            f"--input={questions}",
            f"--output={output}",
            "--batch_size=5",
        )
        self.assertIn(f"Wrote {_NUM_RECORDS} answers", out)
        self.assertNotIn("f1", out)
        with open(output, encoding="utf-8") as stream:
            predictions = json.load(stream)
        self.assertEqual({"answer", "sp"}, set(predictions))
        scores = metrics.evaluate(
            predictions["answer"],
            predictions["sp"],
            {x["_id"]: (x["answer"], x["supporting_facts"]) for x in self.raw},
        )
        self.assertGreaterEqual(scores["f1"], 0.95)
        self.assertGreaterEqual(scores["sp_f1"], 0.95)
        # The same, with answers in the file.
        out = self._run(
            "predict",
            f"--saved_model={self.saved_model}",
            f"--input={self.input}",
            f"--output={output}",
            "--batch_size=16",
        )
        with open(output, encoding="utf-8") as stream:
            self.assertEqual(predictions, json.load(stream))
        for name in ("f1", "sp_f1", "joint_f1"):
            self.assertRegex(
                out,
                rf"(?m)^{name}: {scores[name]:.4f} \({_NUM_RECORDS} records",
            )

    def test_answers_without_this_package(self):
        record = next(x for x in self.raw if x["answer"] not in ("yes", "no"))
        context = record["context"]
        most = max(len(sentences) for _, sentences in context)
        result = run_without_package(
            self.saved_model,
            {
                "question": [record["question"]],
                "titles": [[title for title, _ in context]],
                "sentences": [
                    [
                        sentences + [""] * (most - len(sentences))
                        for _, sentences in context
                    ]
                ],
            },
        )
        for loader in ("python", "session"):
            self.assertEqual([record["answer"]], result[loader]["answer"])
            self.assertEqual([0], result[loader]["answer_type"])


if __name__ == "__main__":
    tf.test.main()
