import os
import shutil
import tempfile

import numpy as np
import tensorflow as tf
from official.core import config_definitions as cfg

from etcmodel.errors import UserError
from etcmodel.tasks import etc_task
from etcmodel.tasks import tfrecords
from etcmodel.tasks.task_testing import write_small_records


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


class ScaleModel(tf.keras.Model):
    """Gives 1 for every example."""

    def call(self, features, training=None):
        ids = features["long_token_ids"]
        return {"scale": tf.ones_like(ids[:, 0], tf.float32)}


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

    def test_lengths_and_vocabulary(self):
        """Those of the records; the lengths may be greater."""
        note = tfrecords.read_metadata(tfrecords.find_files(self.records))
        size = note["vocab_size"]
        # As by `export`, which need not have the records.
        given = {"long_length": 7, "global_length": 5}
        given = {"features": given, "vocab_size": 11}
        lengths = {"long_length": 40, "global_length": 20}
        for params, metadata, noted, expected in (
            (self._config(self.records), None, note, (32, 16, size)),
            (self._config(None, self.records), None, note, (32, 16, size)),
            (self._config(self.records, **lengths), None, note, (40, 20, size)),
            (self._config(), given, given, (7, 5, 11)),
            # Nothing is known. The vocabulary is that of the preset.
            (self._config(**lengths), None, None, (40, 20, 30522)),
        ):
            task = CountingTask(params, metadata=metadata)
            vocab_size = task.encoder_config().vocab_size
            self.assertEqual(
                expected, (task.long_length, task.global_length, vocab_size)
            )
            self.assertEqual(noted, task.metadata)
        task = CountingTask(self._config(self.records, **lengths))
        features, _ = next(iter(task.build_inputs(task.task_config.train_data)))
        self.assertEqual(40, features["long_token_ids"].shape[1])
        self.assertEqual(20, features["global_token_ids"].shape[1])

    def test_records_that_do_not_fit(self):
        other = os.path.join(self.get_temp_dir(), "other")
        shutil.copytree(self.records, other)
        metadata = tfrecords.read_metadata(tfrecords.find_files(other))
        metadata["features"]["long_length"] = 64
        tfrecords.write_json(other, tfrecords.METADATA_FILE, metadata)
        for paths, lengths, message in (
            (["/no/such/dir"], {}, "no TFRecord files"),
            ([self.records, other], {}, "preprocessed differently"),
            ([self.records], {"long_length": 31}, "is 31,.*--long_length=32"),
            ([self.records], {"global_length": 15}, "15,.*--global_length=16"),
            ([], {}, "task.model.long_length=N"),
            ([], {"long_length": 32}, "task.model.global_length=N"),
        ):
            with self.assertRaisesRegex(UserError, message):
                CountingTask(self._config(*paths, **lengths))

    def test_encoder_options(self):
        params = self._config(self.records, global_length=20)
        params.model.encoder.use_one_hot_embeddings = True
        self.assertEqual(
            {
                "long_length": 32,
                "global_length": 20,
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
        nothing = {**labels, "weight": tf.zeros([3])}
        self.assertAllClose(0.0, task.build_losses(nothing, outputs))
        metrics = task.build_metrics()
        for _ in range(2):
            task.process_metrics(metrics, labels, outputs)
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
        task = CollectingTask(self._config(validation=self.records))
        state = self._evaluate(task)
        self.assertLen(state, 3)
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
        state = [(x["a"].tolist(), x["b"].tolist()) for x in state]
        self.assertEqual(
            [([step, i], [[i]]) for step in range(2) for i in range(2)], state
        )


if __name__ == "__main__":
    tf.test.main()
