import json
import unittest

import tensorflow as tf

from etcmodel.tasks import task_testing
from etcmodel.tasks.experiment_lib_test import KERAS_2
from etcmodel.tasks.hotpotqa import metrics
from etcmodel.tasks.task_testing import run_without_package
from etcmodel.testing import real_data_path

_NUM_RECORDS = 16
_STEPS = 100


def _length(record):
    """Number of characters of a record's text."""
    texts = [record["question"]]
    for title, sentences in record["context"]:
        texts.extend([title, *sentences])
    return sum(map(len, texts))


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class HotpotQAEndToEndTest(task_testing.EndToEndTestCase):
    """From the official file to answers: real records, learned by heart."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        path = real_data_path("hotpotqa/train_200.json")
        cls.input = cls.path("short.json")
        with open(path, encoding="utf-8") as stream:
            cls.raw = sorted(json.load(stream), key=_length)[:_NUM_RECORDS]
        with open(cls.input, "w", encoding="utf-8") as stream:
            json.dump(cls.raw, stream)
        cls.make_saved_model(
            "hotpotqa",
            ["--long_length=944", "--global_length=96"],
            {
                "task.train_data.global_batch_size": 8,
                "task.validation_data.global_batch_size": 6,
                "task.model.encoder.local_radius": 16,
            },
            real_data_path("vocab/bert_uncased_vocab.txt"),
            learning_rate=0.003,
            steps=_STEPS,
        )

    def test_the_records_are_those_described(self):
        """Nothing that holds an answer or is a fact is cut."""
        stats = self.read_stats()
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
        result = self.evaluate()
        self.assertEqual(_STEPS, result["step"])
        self.assertGreaterEqual(result["f1"], 0.95)
        self.assertGreaterEqual(result["sp_f1"], 0.95)
        self.assertGreaterEqual(result["joint_f1"], 0.95)
        self.assertBetween(result["supporting_fact_threshold"], 0.0, 0.9)

    def test_predicts_all_from_raw_text(self):
        """Without answers in the file, and scored as the official ones are."""
        questions = self.path("questions.json")
        with open(questions, "w", encoding="utf-8") as stream:
            json.dump(
                [
                    {name: x[name] for name in ("_id", "question", "context")}
                    for x in self.raw
                ],
                stream,
            )
        out, predictions = self.predict(questions, "--batch_size=5")
        self.assertIn(f"Wrote {_NUM_RECORDS} answers", out)
        self.assertNotIn("f1", out)
        self.assertEqual({"answer", "sp"}, set(predictions))
        scores = metrics.evaluate(
            predictions["answer"],
            predictions["sp"],
            {x["_id"]: (x["answer"], x["supporting_facts"]) for x in self.raw},
        )
        self.assertGreaterEqual(scores["f1"], 0.95)
        self.assertGreaterEqual(scores["sp_f1"], 0.95)
        # The same, with answers in the file.
        out, same = self.predict(self.input, "--batch_size=16")
        self.assertEqual(predictions, same)
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
