import os
import shutil
import tempfile
import unittest

import numpy as np
import tensorflow as tf

from etcmodel.tasks import tfrecords
from etcmodel.tasks.errors import UserError
from etcmodel.tasks.experiment_lib_test import KERAS_2
from etcmodel.tasks.task_testing import write_small_records

if KERAS_2:
    from official.core import config_definitions as cfg

    from etcmodel.tasks import etc_task

    class CountingTask(etc_task.EtcTask):
        """The loss of an example is its number of tokens."""

        def parse(self, serialized):
            features = self.parse_features(
                serialized, {"example_id": tf.io.FixedLenFeature([], tf.string)}
            )
            ids = features.pop("example_id")
            return features, {
                "tokens": tf.reduce_sum(
                    tf.sign(features["long_token_ids"]), axis=1
                ),
                "number": tf.strings.to_number(
                    tf.strings.regex_replace(ids, "[^0-9]", ""), tf.int32
                ),
                "weight": tf.ones_like(ids, tf.float32),
            }

        def metric_names(self):
            return ["half_loss", "one"]

        def example_losses(self, labels, outputs):
            tokens = tf.cast(labels["tokens"], tf.float32)
            return {"tokens": tokens, "scaled": outputs["scale"] * tokens}

        def example_metrics(self, labels, outputs):
            losses = self.example_losses(labels, outputs)
            return {
                "half_loss": losses["tokens"] / 2,
                "one": tf.ones_like(losses["tokens"]),
            }

    class CollectingTask(CountingTask):
        """Collects the number of every example as well."""

        def predict_batch(self, outputs, labels):
            return {"number": labels["number"], "weight": labels["weight"]}

        def reduce_aggregated_logs(self, aggregated_logs, global_step=None):
            return {"batches": len(aggregated_logs)}


class ScaleModel(tf.keras.Model):
    """Gives 1 for every example."""

    def call(self, features, training=None):
        ids = features["long_token_ids"]
        return {"scale": tf.ones_like(ids[:, 0], tf.float32)}


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class EtcTaskTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        # Of 17 tokens each: four candidates, "city jan", "Jan is here." and
        # "Here is X. Jan is."
        cls.records = write_small_records(directory, 9)

    def _config(self, train=None, validation=None, **model):
        params = etc_task.EtcTaskConfig()
        params.model.encoder.preset = "tiny"
        params.train_data.input_path = train or ""
        params.validation_data.input_path = validation or ""
        params.validation_data.global_batch_size = 4
        params.model.override(model)
        return params

    def test_lengths_and_vocabulary_come_from_the_records(self):
        for paths in ((self.records, None), (None, self.records)):
            task = CountingTask(self._config(*paths))
            self.assertEqual(32, task.long_length)
            self.assertEqual(16, task.global_length)
            size = task.metadata["vocab_size"]
            self.assertLess(size, 200)
            self.assertEqual(size, task.encoder_config().vocab_size)
            self.assertEqual(self.records, task.metadata["directory"])

    def test_greater_lengths(self):
        task = CountingTask(
            self._config(self.records, long_length=40, global_length=20)
        )
        features, _ = next(iter(task.build_inputs(task.task_config.train_data)))
        self.assertEqual(40, features["long_token_ids"].shape[1])
        self.assertEqual(20, features["global_token_ids"].shape[1])
        options = task.encoder_options()
        self.assertEqual(40, options["long_length"])
        self.assertEqual(20, options["global_length"])

    def test_lengths_that_are_too_small(self):
        with self.assertRaisesRegex(UserError, "is 31,.*--long_length=32"):
            CountingTask(self._config(self.records, long_length=31))
        with self.assertRaisesRegex(UserError, "is 15,.*--global_length=16"):
            CountingTask(self._config(self.records, global_length=15))

    def test_nothing_known_about_the_records(self):
        with self.assertRaisesRegex(UserError, "task.model.long_length=N"):
            CountingTask(self._config())
        with self.assertRaisesRegex(UserError, "task.model.global_length=N"):
            CountingTask(self._config(long_length=32))
        task = CountingTask(self._config(long_length=32, global_length=16))
        self.assertIsNone(task.metadata)
        # The vocabulary is that of the preset.
        self.assertEqual(30522, task.encoder_config().vocab_size)
        self.assertEqual((32, 16), (task.long_length, task.global_length))

    def test_metadata_can_be_given(self):
        """As by `export`, which need not have the records."""
        task = CountingTask(
            self._config(),
            metadata={
                "features": {"long_length": 7, "global_length": 5},
                "vocab_size": 11,
            },
        )
        self.assertEqual((7, 5), (task.long_length, task.global_length))
        self.assertEqual(11, task.encoder_config().vocab_size)

    def test_missing_records(self):
        with self.assertRaisesRegex(UserError, "no TFRecord files"):
            CountingTask(self._config("/no/such/dir"))

    def test_records_of_other_features(self):
        other = os.path.join(self.get_temp_dir(), "other")
        shutil.copytree(self.records, other)
        path = os.path.join(other, tfrecords.METADATA_FILE)
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text.replace('"long_length": 32', '"long_length": 64'))
        with self.assertRaisesRegex(UserError, "preprocessed differently"):
            CountingTask(self._config(self.records, other))

    def test_encoder_options(self):
        params = self._config(self.records)
        params.model.encoder.use_one_hot_embeddings = True
        self.assertEqual(
            {
                "long_length": 32,
                "global_length": 16,
                "use_one_hot_embeddings": True,
                "use_one_hot_relative_embeddings": False,
            },
            CountingTask(params).encoder_options(),
        )
        self.assertEqual({}, CountingTask(params).decoding_options())

    def test_data_defaults(self):
        params = etc_task.EtcTaskConfig()
        self.assertIsInstance(params.train_data, cfg.DataConfig)
        self.assertTrue(params.train_data.is_training)
        self.assertFalse(params.validation_data.is_training)
        self.assertFalse(params.validation_data.drop_remainder)

    def test_losses_and_metrics(self):
        """The mean of the losses, over the real examples."""
        task = CountingTask(self._config(self.records))
        labels = {
            "tokens": tf.constant([4, 8, 100]),
            "weight": tf.constant([1.0, 1.0, 0.0]),
        }
        outputs = {"scale": tf.constant([3.0, 0.5, 7.0])}
        # Losses of (4 + 12) / 2 and (8 + 4) / 2.
        self.assertAllClose(7.0, task.build_losses(labels, outputs), rtol=1e-4)
        self.assertAllClose(
            8.5,
            task.build_losses(labels, outputs, [tf.constant(1.5)]),
            rtol=1e-4,
        )
        labels["weight"] = tf.zeros([3])
        self.assertAllClose(0.0, task.build_losses(labels, outputs))
        labels["weight"] = tf.constant([1.0, 1.0, 0.0])
        metrics = task.build_metrics()
        for _ in range(2):
            task.process_metrics(metrics, labels, outputs)
        self.assertEqual(
            ["half_loss", "one"], [metric.name for metric in metrics]
        )
        self.assertAllClose([3.0, 1.0], [x.result() for x in metrics])

    def _evaluate(self, task):
        metrics = task.build_metrics(training=False)
        model = ScaleModel()
        state, losses = None, []
        for features, labels in task.build_inputs(
            task.task_config.validation_data
        ):
            logs = task.validation_step((features, labels), model, metrics)
            losses.append(float(logs["loss"]))
            # As a strategy gives them: a tuple of replicas.
            logs = tf.nest.map_structure(lambda x: (x,), logs)
            state = task.aggregate_logs(state, logs)
        self.assertAllClose([17.0] * 3, losses, rtol=1e-4)
        self.assertAllClose([8.5, 1.0], [x.result() for x in metrics])
        return state

    def test_evaluation(self):
        task = CountingTask(self._config(validation=self.records))
        self.assertIsNone(self._evaluate(task))

    def test_evaluation_that_collects(self):
        task = CollectingTask(self._config(validation=self.records))
        state = self._evaluate(task)
        self.assertEqual({"batches": 3}, task.reduce_aggregated_logs(state))
        numbers = np.concatenate([batch["number"] for batch in state])
        weights = np.concatenate([batch["weight"] for batch in state])
        self.assertAllEqual([1] * 9 + [0] * 3, weights)
        self.assertCountEqual(range(9), numbers[weights > 0])

    def test_collects_from_all_replicas(self):
        task = CollectingTask(self._config(self.records))
        state = None
        for step in range(2):
            logs = {
                "loss": (1.0, 2.0),
                "predictions": {
                    "a": tuple(tf.constant([step, i]) for i in range(2)),
                    "b": tuple(tf.constant([[i]]) for i in range(2)),
                },
            }
            state = task.aggregate_logs(state, logs)
        self.assertEqual(
            [[0, 0], [0, 1], [1, 0], [1, 1]],
            [batch["a"].tolist() for batch in state],
        )
        self.assertEqual(
            [[[0]], [[1]], [[0]], [[1]]],
            [batch["b"].tolist() for batch in state],
        )


if __name__ == "__main__":
    tf.test.main()
