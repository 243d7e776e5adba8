import os

import tensorflow as tf

from etcmodel.engine import evaluate
from etcmodel.engine import export
from etcmodel.engine import train
from etcmodel.errors import UserError
from testing.models import small_records
from testing.tasks import CommandTestCase
from testing.tasks import read_json


class EvaluateTest(CommandTestCase):
    """Evaluates and exports a run of one step."""

    def test_run(self):
        records, run = small_records("wikihop"), self.path("run")
        train.train(
            train.Options(
                experiment="etc/wikihop",
                model_dir=run,
                train_data=records,
                small=True,
                batch_size=3,
                params_override={
                    "trainer.train_steps": 1,
                    "task.model.encoder.num_hidden_layers": 1,
                },
            )
        )
        output = self.path("metrics.json")
        result = evaluate.evaluate(
            evaluate.Options(
                model_dir=run, validation_data=records, output=output
            )
        )
        self.assertEqual(1, result.metrics["step"])
        self.assertBetween(result.metrics["accuracy"], 0, 1)
        self.assertEqual(result.metrics, read_json(output))
        with self.assertRaisesRegex(UserError, "`validation_data=DIR`"):
            evaluate.evaluate(evaluate.Options(model_dir=run))
        exported = export.export(
            export.Options(
                model_dir=run,
                output_dir=self.path("saved_model"),
                params_override={"task.model.long_length": 64},
            )
        )
        self.assertEqual(result.checkpoint, exported.checkpoint)
        self.assertTrue(os.path.isdir(exported.saved_model))
        with open(os.path.join(exported.saved_model, "README.md")) as stream:
            self.assertIn("at most 64 tokens of text", stream.read())


if __name__ == "__main__":
    tf.test.main()
