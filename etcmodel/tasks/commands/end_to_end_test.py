"""Every task from a data file to answers, on generated records."""

import concurrent.futures
import json
import os

import numpy as np
import tensorflow as tf

from etcmodel.datasets.hotpotqa import metrics as hotpotqa_metrics
from etcmodel.tasks import task_testing
from etcmodel.tasks.frame import exported
from etcmodel.tasks.wikihop.features import WikiHopFeatureBuilder

_NUM_RECORDS = 8


class Learning:
    """What holds for all tasks; `names` are metrics, from 0 to 1."""

    names = ()
    learning_rate = 0.005
    overrides = {
        "task.train_data.global_batch_size": 8,
        "task.model.encoder.hidden_size": 64,
        "task.model.encoder.num_attention_heads": 4,
        "task.model.encoder.local_radius": 16,
    }

    @classmethod
    def write_data(cls):
        write, cls.features = task_testing.SMALL_RECORDS[cls.task]
        return write(cls.root, _NUM_RECORDS)

    def raw_records(self):
        """The records of the data file as they stand there."""
        with open(self.input, encoding="utf-8") as stream:
            first, *others = map(json.loads, stream.read().splitlines())
        return first if isinstance(first, list) else [first, *others]

    def test_learns_by_heart(self):
        metrics = self.evaluate()
        self.assertEqual(self.steps, metrics["step"])
        for name in self.names:
            self.assertBetween(metrics[name], 0.95, 1.0, name)
        self.assertIn(f"{self.steps} steps, of which", self.train_output)
        self.assertIn("tensorboard --logdir", self.train_output)
        stats = self.read_stats()
        self.assertEqual(len(self.raw_records()), stats["records_written"])


class WikiHop(Learning):
    task = "wikihop"
    mode = "train_and_eval"
    names = ("accuracy",)

    def test_leaves_what_others_need(self):
        self.assertContainsSubset(
            ["best_ckpt", "train", "validation"], os.listdir(self.model_dir)
        )
        metadata = exported.read_metadata(self.saved_model)
        self.assertEqual("wikihop", metadata["task"])
        note = task_testing.read_json(self.path("records", "features.json"))
        self.assertEqual(note["features"], metadata["features"])

    def test_predicts_from_raw_text(self):
        out, predictions = self.predict(self.input, "--batch_size=3")
        raw = self.raw_records()
        self.assertEqual({x["id"]: x["answer"] for x in raw}, predictions)
        self.assertIn(
            f"Of {len(raw)} records with an answer:\naccuracy: 1", out
        )


class WikiHopTest(WikiHop, task_testing.EndToEndTestCase):
    """Beside that, how a SavedModel serves."""

    def test_serves_many_at_once(self):
        """Each as alone, whatever the sizes of the others and their faults."""
        signatures = tf.saved_model.load(self.saved_model).signatures
        rng = np.random.default_rng(0)
        requests = []
        for _ in range(12):
            rows, long, short = rng.integers(1, 5), *rng.integers(3, 20, 2)
            ids = {
                name: rng.integers(
                    0, 2, [rows, long if name.startswith("l") else short]
                )
                for name in WikiHopFeatureBuilder.SCHEMA.input_specs()
            }
            requests.append(("features", ids))
            texts = rng.choice(["paris", "jan is here.", "rome", ""], [rows, 9])
            texts = {
                "query": texts[:, 0],
                "candidates": texts[:, 1 : 1 + short % 4 + 1],
                "supports": texts[:, 5:],
            }
            requests.append(("serving_default", texts))
        bad = []
        for name, wrong in (
            ("long_token_ids", 10**6),
            ("global_token_ids", -1),
        ):
            ids = requests[0][1][name].copy()
            ids[-1, -1] = wrong
            bad.append(("features", {**requests[0][1], name: ids}))

        def answer(request):
            name, inputs = request
            outputs = signatures[name](
                **{key: tf.constant(value) for key, value in inputs.items()}
            )
            return {key: value.numpy() for key, value in outputs.items()}

        def fails(request):
            try:
                answer(request)
            except tf.errors.InvalidArgumentError:
                return True
            return False

        alone = [answer(request) for request in requests]
        with concurrent.futures.ThreadPoolExecutor(8) as executor:
            futures = []
            for _ in range(3):
                for i in rng.permutation(len(requests)):
                    futures.append((i, executor.submit(answer, requests[i])))
                    wrong = bad[i % len(bad)]
                    futures.append((None, executor.submit(fails, wrong)))
            for i, future in futures:
                if i is None:
                    self.assertTrue(future.result())
                    continue
                for name, value in alone[i].items():
                    self.assertAllEqual(value, future.result()[name])


class HotpotQA(Learning):
    task = "hotpotqa"
    names = ("f1", "sp_f1", "joint_f1")

    def test_predicts_from_raw_text(self):
        """Without answers in the file, and scored as the official ones are."""
        raw = self.raw_records()
        questions = self.path("questions.json")
        kept = ("_id", "question", "context")
        task_testing.write_json(
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


class HotpotQATest(HotpotQA, task_testing.EndToEndTestCase):
    pass


class NQ(Learning):
    task = "nq"
    overrides = {
        **Learning.overrides,
        "task.train_data.global_batch_size": 16,
        # The type of an answer is told by the CLS, and what it is told of the
        # page comes through the global tokens.
        "task.model.encoder.num_hidden_layers": 2,
    }
    names = ("long_best_threshold_f1", "short_best_threshold_f1")

    def test_predicts_from_raw_pages(self):
        out, predictions = self.predict(self.input, "--batch_size=2")
        raw = self.raw_records()
        for name in ("long", "short", "average"):
            self.assertIn(f"{name}_best_threshold_f1: 1\n", out)
        entries = predictions["predictions"]
        self.assertLen(entries, len(raw))
        for page, entry in zip(raw, entries, strict=True):
            self.assertEqual(page["example_id"], entry["example_id"])
            (gold,) = page["annotations"]
            self.assertEqual(gold["yes_no_answer"], entry["yes_no_answer"])
            told = [entry["long_answer"], *entry["short_answers"]]
            spans = [gold["long_answer"], *gold["short_answers"]]
            for kind in ("start_token", "end_token"):
                if spans[0]["start_token"] >= 0:
                    self.assertEqual(
                        [span[kind] for span in spans],
                        [span[kind] for span in told],
                    )
            for score in ("long_answer_score", "short_answers_score"):
                self.assertEqual(spans[0]["start_token"] >= 0, entry[score] > 0)


class NQTest(NQ, task_testing.EndToEndTestCase):
    overrides = {**NQ.overrides, "task.model.encoder.local_radius": 31}
    # What is yes and what is no comes last.
    learning_rate = 0.003
    steps = 120


class PretrainTest(Learning, task_testing.EndToEndTestCase):
    task = "read_twice_pretrain"
    experiment = "read_twice/pretrain"
    exports = False
    overrides = {
        "task.train_data.global_batch_size": 48,
        "task.validation_data.global_batch_size": 48,
        "task.max_predictions_per_block": task_testing.SEGMENT_LENGTH,
        "task.model.encoder.hidden_size": 64,
        "task.model.encoder.num_attention_heads": 4,
        "trainer.optimizer_config.optimizer.type": "adamw",
    }
    names = ("entity_accuracy",)


if __name__ == "__main__":
    tf.test.main()
