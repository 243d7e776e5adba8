"""Overfits generated records, from the data file to the predictions.

`real_records_end_to_end_test` does the same with real records of other tasks
and of Natural Questions.
"""

import tensorflow as tf

from testing import learning
from testing import pretraining
from testing import tasks


class NQTest(learning.NQ, tasks.EndToEndTestCase):
    overrides = {**learning.NQ.overrides, "task.model.encoder.local_radius": 31}
    # The model needs most steps to tell yes from no.
    learning_rate = 0.003
    steps = 120


class PretrainTest(learning.Learning, tasks.EndToEndTestCase):
    task = "read_twice_pretrain"
    experiment = "read_twice/pretrain"
    exports = False
    # Masks differ at each step, so learning takes long: after 60 or 100 steps,
    # 2 of 30 seeds had wrong entities; after 150, none had.
    steps = 150
    overrides = {
        "task.train_data.global_batch_size": 48,
        "task.validation_data.global_batch_size": 48,
        "task.max_predictions_per_block": pretraining.SEGMENT_LENGTH,
        "task.model.encoder.hidden_size": 64,
        "task.model.encoder.num_attention_heads": 4,
        "trainer.optimizer_config.optimizer.type": "adamw",
    }
    names = ("entity_accuracy",)


class TriviaQATest(learning.Learning, tasks.EndToEndTestCase):
    task = "read_twice_triviaqa"
    experiment = "read_twice/triviaqa"
    steps = 40
    overrides = {
        # Batch sizes count segments: 16 are 2 examples of 8 segments. A record
        # fills at most 4 segments.
        "task.train_data.global_batch_size": 16,
        "task.validation_data.global_batch_size": 16,
        "task.model.encoder.second_read_num_new_layers": 1,
    }

    def raw_records(self):
        return tasks.read_json(self.input)["Data"]

    def test_answers_other_texts(self):
        """Answers the same question about new texts."""
        self.assertEqual(100, self.evaluate()["exact_match"])
        write, _ = tasks.SMALL_RECORDS[self.task]
        path, _ = write(self.path("more"), learning.NUM_RECORDS + 8)
        out, predictions = self.predict(path, "--batch_size=5")
        self.assertIn("\nexact_match: 100\n", out)
        self.assertEqual("Paris", predictions[f"small_{learning.NUM_RECORDS}"])


if __name__ == "__main__":
    tf.test.main()
