"""Overfits real records, from the official files to the predictions."""

import gzip
import json
import os

import tensorflow as tf

from etcmodel.datasets.hotpotqa import metrics as hotpotqa_metrics
from etcmodel.serving import exported
from testing import learning
from testing import tasks
from testing.helpers import real_data_path


def _shortest(path, number, is_wanted=lambda record: True):
    """Returns the shortest records of a file of WikiHop or HotpotQA."""
    records = tasks.read_json(real_data_path(path))
    records = [x for x in records if is_wanted(x)]
    records.sort(key=lambda x: len(str(x.get("supports") or x["context"])))
    return records[:number]


class _RealRecords(tasks.EndToEndTestCase):
    @classmethod
    def write_lines(cls, text):
        """Writes `text` as data file; returns its path and the vocabulary's."""
        path = cls.path("data")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        return path, real_data_path("vocab/bert_uncased_vocab.txt")


class WikiHopTest(learning.Learning, _RealRecords):
    task = "wikihop"
    mode = "train_and_eval"
    names = ("accuracy",)
    features = ("--long_length=256", "--global_length=96")
    overrides = {
        **learning.Learning.overrides,
        "task.validation_data.global_batch_size": 5,
    }

    @classmethod
    def write_data(cls):
        return cls.write_lines(
            json.dumps(_shortest("wikihop/train_22.json", 8))
        )

    def test_files_and_metadata_of_the_run(self):
        self.assertContainsSubset(
            ["best_ckpt", "train", "validation"], os.listdir(self.model_dir)
        )
        metadata = exported.read_metadata(self.saved_model)
        self.assertEqual("wikihop", metadata["task"])
        note = tasks.read_json(
            self.path("records", "preprocessing_config.json")
        )
        self.assertEqual(
            note["preprocessing_config"], metadata["preprocessing_config"]
        )

    def test_predicts_from_raw_text(self):
        out, predictions = self.predict(self.input, "--batch_size=3")
        raw = self.raw_records()
        self.assertEqual({x["id"]: x["answer"] for x in raw}, predictions)
        self.assertIn(
            f"Metrics of {len(raw)} records with an answer:\naccuracy: 1", out
        )


class HotpotQATest(learning.Learning, _RealRecords):
    task = "hotpotqa"
    names = ("f1", "sp_f1", "joint_f1")
    features = ("--long_length=944", "--global_length=96")
    overrides = {
        **learning.Learning.overrides,
        "task.train_data.global_batch_size": 6,
        "task.validation_data.global_batch_size": 4,
    }

    @classmethod
    def write_data(cls):
        path = "hotpotqa/train_200.json"
        closed = ("yes", "no")
        records = [
            *_shortest(path, 2, lambda x: x["answer"] in closed),
            *_shortest(path, 4, lambda x: x["answer"] not in closed),
        ]
        return cls.write_lines(json.dumps(records))

    def test_nothing_is_truncated(self):
        stats = self.read_stats()
        expected = {
            "answers_yes_or_no": 2,
            "answers_cut": 0,
            "answers_not_in_text": 0,
            "records_cut": 0,
            "supporting_facts_cut": 0,
            "tokens_cut": 0,
        }
        self.assertEqual(expected, {name: stats[name] for name in expected})

    def test_predicts_from_raw_text(self):
        """Predicts without answers in the file; then checks the metrics."""
        raw = self.raw_records()
        questions = self.path("questions.json")
        kept = ("_id", "question", "context")
        tasks.write_json(
            questions, [{name: x[name] for name in kept} for x in raw]
        )
        out, predictions = self.predict(questions, "--batch_size=5")
        self.assertIn(f"Wrote {len(raw)} answers", out)
        self.assertNotIn("f1", out)
        scores = hotpotqa_metrics.evaluate(
            predictions["answer"],
            predictions["sp"],
            {x["_id"]: (x["answer"], x["supporting_facts"]) for x in raw},
        )
        out, same = self.predict(self.input, "--batch_size=16")
        self.assertEqual(predictions, same)
        for name in self.names:
            self.assertBetween(scores[name], 0.95, 1.0, name)
            self.assertIn(f"\n{name}: {scores[name]:.6g}\n", out)

    def test_longer_inputs_than_in_training(self):
        # The same records, which are not truncated, in longer inputs.
        records = self.path("longer")
        features = ("--long_length=1040", "--global_length=96")
        tasks.preprocess_few(
            self.task, self.input, self.vocab_file, records, features
        )
        metrics = self.evaluate(
            f"--validation_data={records}",
            "--params_override=task.model.long_length=1040",
        )
        self.assertAllClose(self.evaluate(), metrics, rtol=1e-4)


class NQTest(learning.NQ, _RealRecords):
    """Overfits two pages, one with an answer and one without.

    The long answer has 1,424 words. One window of 2,048 tokens has all of it,
    and another one only its end.
    """

    features = ("--long_length=2048", "--global_length=128", "--stride=1800")
    overrides = {
        **learning.Learning.overrides,
        "task.train_data.global_batch_size": 4,
        "task.validation_data.global_batch_size": 3,
    }

    @classmethod
    def write_data(cls):
        lines = []
        for i in range(2):
            path = real_data_path(f"nq/nq-train-0{i}.jsonl.gz")
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                lines.append(next(stream))
        return cls.write_lines("".join(lines))

    def test_pages_and_windows(self):
        pages = self.raw_records()
        spans = [page["annotations"][0]["long_answer"] for page in pages]
        self.assertEqual(
            [1424, 0], [x["end_token"] - x["start_token"] for x in spans]
        )
        stats = self.read_stats()
        candidates = sum(len(x["long_answer_candidates"]) for x in pages)
        self.assertEqual(candidates, stats["candidates"])
        self.assertEqual(2, stats["windows"] - stats["windows_without_answer"])
        self.assertEqual(stats["windows"], stats["examples_written"])
        self.assertEqual(1, stats["answers"])
        self.assertEqual(0, stats["answers_in_no_window"])


class OpenKPTest(_RealRecords):
    """Overfits two pages with two keyphrases each."""

    task = "openkp"
    experiment = "etc/openkp_max_loss"
    features = ("--long_length=896", "--global_length=96")
    learning_rate = 0.002
    overrides = {
        "task.train_data.global_batch_size": 2,
        "task.validation_data.global_batch_size": 2,
        "task.model.encoder.initializer_range": 0.05,
    }

    @classmethod
    def write_data(cls):
        path = real_data_path("openkp/records_2.jsonl")
        with open(path, encoding="utf-8") as stream:
            return cls.write_lines(stream.read())

    def test_predicts_all_keyphrases(self):
        """Precision at 3 is at most 2/3, because a page has two keyphrases."""
        metrics = self.evaluate()
        out, predictions = self.predict(self.input)
        best = {
            **{"precision_at_1": 1, "recall_at_1": 1 / 2, "f1_at_1": 2 / 3},
            **{"precision_at_3": 2 / 3, "recall_at_3": 1, "f1_at_3": 0.8},
        }
        for name, value in best.items():
            self.assertAllClose(value, metrics[name], msg=name)
            self.assertIn(f"\n{name}: {value:.6g}\n", out)
        gold = (
            ("doctor appointment", "web application"),
            ("star trek", "discovery season"),
        )
        for expected, found in zip(gold, predictions, strict=True):
            phrases = [" ".join(x).lower() for x in found["KeyPhrases"]]
            self.assertLen({*phrases}, 5)
            self.assertCountEqual(expected, phrases[:2])
        stats = self.read_stats()
        self.assertEqual(
            (0, 4), (stats["tokens_cut"], stats["keyphrases_found"])
        )


if __name__ == "__main__":
    tf.test.main()
