import tensorflow as tf

from etcmodel.engine import train
from etcmodel.errors import UserError
from testing.models import small_records
from testing.tasks import CommandTestCase

_ONE_LAYER = {"task.model.encoder.num_hidden_layers": 1}


class TrainTest(CommandTestCase):
    def _options(self, **options):
        values = {
            "experiment": "etc/wikihop",
            "model_dir": self.path("run"),
            "train_data": small_records("wikihop"),
            "small": True,
            "batch_size": 3,
            "params_override": _ONE_LAYER,
            **options,
        }
        return train.Options(**values)

    def test_resolves_the_configuration(self):
        """Dicts override parameters like texts on the command line."""
        values = train.resolve(
            self._options(
                params_override={
                    **_ONE_LAYER,
                    "trainer": {"train_steps": 20},
                },
                learning_rate=0.25,
                optimizer="lamb",
                schedule="cosine",
            )
        )
        self.assertEqual(20, values["trainer"]["train_steps"])
        encoder = values["task"]["model"]["encoder"]
        # The preset sets the first value; an override sets the second one.
        self.assertEqual(32, encoder["hidden_size"])
        self.assertEqual(1, encoder["num_hidden_layers"])
        chosen = values["trainer"]["optimizer_config"]
        self.assertEqual("lamb", chosen["optimizer"]["type"])
        # The experiment sets the weight decay.
        self.assertEqual(0.1, chosen["optimizer"]["lamb"]["weight_decay_rate"])
        self.assertEqual("cosine", chosen["learning_rate"]["type"])
        self.assertEqual(
            (0.25, 20),
            tuple(
                chosen["learning_rate"]["cosine"][x]
                for x in ("initial_learning_rate", "decay_steps")
            ),
        )

    def test_restores_the_dtype_policy(self):
        """A run in bfloat16 does not change the dtype of later models."""
        precision = tf.keras.mixed_precision
        before = precision.global_policy().name
        result = train.train(
            self._options(
                schedule="constant",
                params_override={
                    **_ONE_LAYER,
                    "trainer.train_steps": 2,
                    "trainer.summary_interval": 1,
                    "runtime.mixed_precision_dtype": "bfloat16",
                },
            )
        )
        self.assertEqual(before, precision.global_policy().name)
        self.assertTrue(result.is_trained)
        self.assertEqual([1, 2], [*result.losses])
        self.assertEqual(("wikihop", 2), (result.task, result.steps))

    def test_errors_name_options(self):
        for name, value, message in (
            ("params_override", {"task.x": 1}, "`params_override`: there is"),
            ("params_override", "x", "`params_override`='x' holds no"),
            ("preset", "huge", "`preset=huge`: "),
            ("schedule", "square", "`schedule` is 'square'"),
        ):
            options = self._options(small=False, **{name: value})
            with self.assertRaisesRegex(UserError, message):
                train.train(options)


if __name__ == "__main__":
    tf.test.main()
