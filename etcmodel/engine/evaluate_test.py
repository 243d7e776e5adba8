import gc
import os

import tensorflow as tf

from etcmodel import checkpoints
from etcmodel import models
from etcmodel.engine import evaluate
from etcmodel.engine import export
from etcmodel.engine import train
from etcmodel.errors import UserError
from etcmodel.serving import small_weights
from etcmodel.weight_paths import get_weight_paths
from testing import models as models_lib
from testing.models import small_records
from testing.tasks import CommandTestCase
from testing.tasks import read_json


class RoundModelTest(CommandTestCase):
    def test_weights_with_lora_equal_the_exported_ones(self):
        def make():
            config = models.EtcConfig.from_preset(
                "tiny", vocab_size=9, num_hidden_layers=1, intermediate_size=512
            )
            encoder = models.EtcModel(config)
            encoder.build(None)
            return encoder

        trained, merged = make(), make()
        models.add_lora(trained, 8)
        models_lib.set_random_weights(trained, 0.2)
        path = tf.train.Checkpoint(model=trained).save(self.path("ckpt"))
        checkpoints.load_checkpoint(merged, path)
        evaluate.round_model(trained, "int8")
        small = small_weights.SmallWeights(merged.variables, "int8")
        # The copies of rounded matrices replace the variables in the graph.
        self.assertGreater(len(small.variables), len(merged.variables))
        read = tf.function(
            lambda: {x: y + 0.0 for x, y in get_weight_paths(merged).items()}
        )
        with small.in_use():
            exported = read()
        rounded = get_weight_paths(trained)
        for name, value in exported.items():
            self.assertAllClose(value, rounded[name], 1e-6, 1e-6, msg=name)
        for name, value in rounded.items():
            if name.endswith("lora_kernel_b"):
                self.assertAllEqual(tf.zeros_like(value), value, name)


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
        with self.assertRaisesRegex(
            UserError, "ckpt-1 lacks weights of the model, .*_layer_1/"
        ):
            evaluate.evaluate(
                evaluate.Options(
                    model_dir=run,
                    validation_data=records,
                    params_override={"task.model.encoder.num_hidden_layers": 2},
                )
            )
        # TensorFlow warns when it deletes an object.
        with self.assertNoLogs("tensorflow", "WARNING"):
            gc.collect()
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
