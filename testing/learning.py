"""Tests in which a model memorizes a few records."""

import json

from testing import tasks

NUM_RECORDS = 8


class Learning:
    """Tests for all tasks; the metrics in `names` must be near 1."""

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
        write, cls.features = tasks.SMALL_RECORDS[cls.task]
        return write(cls.root, NUM_RECORDS)

    def raw_records(self):
        """Returns the data file's records as JSON objects."""
        with open(self.input, encoding="utf-8") as stream:
            first, *others = map(json.loads, stream.read().splitlines())
        return first if isinstance(first, list) else [first, *others]

    def test_learns_by_heart(self):
        """Checks metrics, and the output of `train` and `preprocess`."""
        metrics = self.evaluate()
        self.assertEqual(self.steps, metrics["step"])
        for name in self.names:
            self.assertBetween(metrics[name], 0.95, 1.0, name)
        self.assertIn(f"{self.steps} steps, of which", self.train_output)
        self.assertIn("tensorboard --logdir", self.train_output)
        last = f"Step {self.steps} of {self.steps}: loss "
        self.assertIn(last, self.train_output)
        stats = self.read_stats()
        self.assertEqual(len(self.raw_records()), stats["records_written"])


class NQ(Learning):
    """Natural Questions."""

    task = "nq"
    overrides = {
        **Learning.overrides,
        "task.train_data.global_batch_size": 16,
        # The answer type is predicted from [CLS]. [CLS] sees the page only
        # through global tokens, so one layer is not enough.
        "task.model.encoder.num_hidden_layers": 2,
    }
    names = ("long_best_threshold_f1", "short_best_threshold_f1")

    def test_predicts_from_raw_pages(self):
        """Checks that `predict` returns the gold answers of all pages."""
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
