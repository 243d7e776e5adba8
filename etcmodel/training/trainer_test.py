import os
import shutil
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from official.core import config_definitions as cfg
from official.core import exp_factory
from official.core import task_factory

from etcmodel.errors import UserError
from etcmodel.pipeline import tfrecords
from etcmodel.training import trainer
from testing import toy_task as toy
from testing.toy_task import write_records

_TASK, _CONFIG = trainer.task_classes(toy.TASK)


def _write_note(directory, **note):
    tfrecords.write_json(
        directory,
        tfrecords.METADATA_FILE,
        {
            "task": "toy",
            "format": tfrecords.FORMAT,
            "split": "dev",
            "preprocessing_config": {"long_length": 4, "global_length": 2},
            "vocab_file": "vocab.txt",
            "vocab_fingerprint": "f",
            "tokenizer": None,
            "vocab_size": 200,
            "num_examples": 7,
            **note,
        },
    )


class ScaleModel(tf.keras.Model):
    """A model whose logit for each word is the word's token id."""

    def call(self, features, training=None):
        return {"logits": tf.cast(features["long_token_ids"], tf.float32)}


class EtcTaskTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        # Four records make seven windows.
        cls.records = write_records(directory)
        _write_note(cls.records)

    def _config(self, train=None, validation=None, **model):
        params = _CONFIG()
        params.model.encoder.preset = "tiny"
        params.train_data.input_path = train or ""
        params.validation_data.input_path = validation or ""
        params.validation_data.global_batch_size = 4
        params.model.override(model)
        return params

    def test_lengths_and_vocabulary(self):
        """Uses the records' lengths and vocabulary; lengths may be raised."""
        note = tfrecords.read_metadata(tfrecords.find_files(self.records))
        # `export` passes stored metadata: the records may have been deleted.
        given = {"long_length": 7, "global_length": 5}
        given = {"preprocessing_config": given, "vocab_size": 11}
        lengths = {"long_length": 40, "global_length": 20}
        for params, metadata, noted, expected in (
            (self._config(self.records), None, note, (4, 2, 200)),
            (self._config(None, self.records), None, note, (4, 2, 200)),
            (self._config(self.records, **lengths), None, note, (40, 20, 200)),
            (self._config(), given, given, (7, 5, 11)),
            # Without metadata, the preset's vocabulary size is used.
            (self._config(**lengths), None, None, (40, 20, 30522)),
        ):
            task = _TASK(params, metadata=metadata)
            vocab_size = task.encoder_config().vocab_size
            self.assertEqual(
                expected,
                (
                    task.sizes["long_length"],
                    task.sizes["global_length"],
                    vocab_size,
                ),
            )
            self.assertEqual(noted, task.metadata)
        task = _TASK(self._config(self.records, **lengths))
        features, _ = next(iter(task.build_inputs(task.task_config.train_data)))
        self.assertEqual(40, features["long_token_ids"].shape[1])
        self.assertEqual(20, features["global_token_ids"].shape[1])

    def test_pads_to_the_longest_record_of_all(self):
        """Lengths are static, and at most the model's; results are the same."""
        train = tempfile.mkdtemp(dir=self.get_temp_dir())
        dev = tempfile.mkdtemp(dir=self.get_temp_dir())
        lengths = {"long_length": 40, "global_length": 20}
        found = []
        for longest, of_dev, expected in (
            (None, None, (40, 20)),
            ({"long_length": 4}, {"long_length": 3}, (8, 20)),
            ({"long_length": 3}, {"long_length": 9}, (16, 20)),
            ({"long_length": 4, "global_length": 2}, None, (40, 20)),
            (
                {"long_length": 4, "global_length": 2},
                {"long_length": 3, "global_length": 33},
                (8, 20),
            ),
        ):
            for directory, known in ((train, longest), (dev, of_dev)):
                shutil.copytree(self.records, directory, dirs_exist_ok=True)
                shards = {
                    os.path.basename(path): {
                        name: number
                        for name, number in tfrecords.describe_shard(
                            path
                        ).items()
                        if name not in lengths
                    }
                    | (known or {})
                    for path in tfrecords.find_files(self.records)
                }
                _write_note(directory, shards=shards)
            task = _TASK(self._config(train, dev, **lengths))
            model = task.build_model()
            data = task.task_config.validation_data
            features, _ = next(iter(task.build_inputs(data)))
            names = ("long_token_ids", "global_token_ids")
            self.assertEqual(
                expected, tuple(features[x].shape[1] for x in names)
            )
            if not found:
                weights = model.get_weights()
            model.set_weights(weights)
            outputs = model(features, training=False)
            self.assertEqual(expected[0], outputs["logits"].shape[1])
            # The records have four long tokens.
            found.append(outputs["logits"][:, :4])
        self.assertAllClose([found[0]] * 5, found)
        self.assertEqual(40, task.sizes["long_length"])

    def test_trims_batches_to_their_longest_record(self):
        """Trims training batches, but not validation batches."""
        params = self._config(self.records, long_length=40, global_length=20)
        params.trim_batches = True
        task = _TASK(params)
        model = task.build_model()
        for is_training, long, short in ((False, 40, 20), (True, 4, 1)):
            data = params.train_data.replace(
                is_training=is_training, global_batch_size=7
            )
            features, labels = next(iter(task.build_inputs(data)))
            self.assertAllEqual([1.0] * 7, labels["weight"])
            self.assertEqual([7, long], features["long_token_ids"].shape)
            self.assertEqual([7, short], features["global_token_ids"].shape)
            logits = model(features, training=False)["logits"]
            self.assertEqual([7, long], logits.shape)

    def test_number_of_sorted_batches(self):
        """Sorts no more batches than there are whole ones, such as 7 // 2."""
        for size, number in ((2, 3), (4, 1), (8, 0)):
            params = self._config(self.records)
            params.trim_batches = True
            params.train_data.global_batch_size = size
            task = _TASK(params)
            with mock.patch.object(
                trainer.input_pipeline, "read_batches"
            ) as read:
                task.build_inputs(params.train_data)
            self.assertEqual(number, read.call_args.args[-2])

    @parameterized.parameters(
        (
            {"preprocessing_config": {"long_length": 64}},
            "preprocessed differently",
        ),
        ({"vocab_fingerprint": "g"}, "preprocessed differently"),
        ({"tokenizer": {"lower_case": True}}, "preprocessed differently"),
        ({"task": "nq"}, "preprocessed differently"),
        ({"split": "predict"}, "has no answers"),
        # The split "train" lacks some records, which validation needs.
        ({"split": "train"}, "too high.*`split=dev`"),
        ({"format": 1}, "another version.*Preprocess"),
    )
    def test_invalid_validation_records(self, note, message):
        other = tempfile.mkdtemp(dir=self.get_temp_dir())
        shutil.copytree(self.records, other, dirs_exist_ok=True)
        _write_note(other, **note)
        with self.assertRaisesRegex(UserError, message):
            _TASK(self._config(self.records, other))

    @parameterized.parameters(
        ("/no/such/dir", {}, "No TFRecord files"),
        (None, {"long_length": 3}, "is 3,.*`long_length=4`"),
        (None, {"global_length": 1}, "1,.*`global_length=2`"),
        ("", {}, "task.model.long_length=N"),
        ("", {"long_length": 32}, "task.model.global_length=N"),
    )
    def test_invalid_records(self, path, lengths, message):
        path = self.records if path is None else path
        with self.assertRaisesRegex(UserError, message):
            _TASK(self._config(path, **lengths))

    def test_records_of_another_task(self):
        other = tempfile.mkdtemp(dir=self.get_temp_dir())
        shutil.copytree(self.records, other, dirs_exist_ok=True)
        _write_note(other, task="nq")
        with self.assertRaisesRegex(UserError, "'nq', not for 'toy'"):
            _TASK(self._config(other))

    def test_options(self):
        """The task's model has the options of the configuration."""
        params = self._config(self.records, scale=3.0)
        params.threshold = 1.5
        task = _TASK(params)
        self.assertEqual(
            toy.ModelOptions(scale=3.0), task.task_model.model_options
        )
        self.assertEqual(toy.Options(threshold=1.5), task.task_model.options)
        self.assertIsInstance(task_factory.get_task(params), _TASK)

    def test_encoder_options(self):
        params = self._config(self.records, global_length=20)
        params.model.encoder.use_one_hot_embeddings = True
        params.model.encoder.num_hidden_layers = 1
        model = _TASK(params).build_model()
        encoder = model.get_layer("etc_encoder")
        self.assertIs(encoder, model.checkpoint_items["encoder"])
        inner = encoder.get_layer("etc_document_bert")
        self.assertTrue(inner.get_config()["use_one_hot_embeddings"])
        self.assertTrue(inner.get_config()["flat_sequence"])
        self.assertEqual(20, model.input["global_token_ids"].shape[1])

    def test_data_defaults(self):
        params = _CONFIG()
        self.assertIsInstance(params.train_data, cfg.DataConfig)
        self.assertTrue(params.train_data.is_training)
        self.assertFalse(params.validation_data.is_training)
        self.assertFalse(params.validation_data.drop_remainder)

    def test_losses_and_metrics(self):
        """The loss is the mean over real examples, without padding."""
        task = _TASK(self._config(self.records))
        losses = {
            "tokens": tf.constant([4.0, 8.0, 100.0]),
            "scaled": tf.constant([12.0, 4.0, 700.0]),
        }
        task.task_model.losses = mock.Mock(return_value=losses)
        task.task_model.loss_names = lambda: tuple(losses)
        task.task_model.metrics = lambda outputs, labels: {
            "accuracy": tf.constant([1.0, 0.0, 0.0])
        }
        labels = {"weight": tf.constant([1.0, 1.0, 0.0])}
        # The losses are (4 + 12) / 2 = 8 and (8 + 4) / 2 = 6; padding is
        # ignored.
        self.assertAllClose(7.0, task.build_losses(labels, {}), rtol=1e-4)
        self.assertAllClose(
            8.5,
            task.build_losses(labels, {}, [tf.constant(1.5)]),
            rtol=1e-4,
        )
        nothing = {"weight": tf.zeros([3])}
        self.assertAllClose(0.0, task.build_losses(nothing, {}))
        metrics = task.build_metrics(training=False)
        for _ in range(2):
            task.process_metrics(metrics, labels, {})
        # Padding examples in the last batch have no effect.
        task.process_metrics(metrics, nothing, {})
        self.assertAllClose(
            {
                "tokens_loss": 6.0,
                "scaled_loss": 8.0,
                "accuracy": 0.5,
                "validation_loss": 7.0,
            },
            {x.name: float(x.result()) for x in metrics},
        )
        names = [x.name for x in task.build_metrics()]
        self.assertNotIn("validation_loss", names)
        # The weights are 3 and 1: (3 * 4 + 12) / 4 = 6, (3 * 8 + 4) / 4 = 7.
        task.task_model.loss_factors = lambda: {
            "tokens_loss": 3.0,
            "scaled_loss": 1.0,
        }
        self.assertAllClose(6.5, task.build_losses(labels, {}), rtol=1e-4)
        metrics = task.build_metrics(training=False)
        task.process_metrics(metrics, labels, {})
        found = {x.name: float(x.result()) for x in metrics}
        self.assertAllClose(6.5, found["validation_loss"])

    def test_evaluation(self):
        task = _TASK(self._config(validation=self.records))
        metrics = task.build_metrics(training=False)
        state = None
        for batch in task.build_inputs(task.task_config.validation_data):
            logs = task.validation_step(batch, ScaleModel(), metrics)
            # A strategy returns a tuple with one element per replica.
            logs = tf.nest.map_structure(lambda x: (x,), logs)
            state = task.aggregate_logs(state, logs)
        self.assertLen(state, 2)
        weights = np.concatenate([batch["weight"] for batch in state])
        self.assertAllEqual([1] * 7 + [0], weights)
        # Longer words have greater ids in the vocabulary.
        scores = task.reduce_aggregated_logs(state)
        self.assertEqual({"right": 1.0, "given": 1.0, "threshold": 1.0}, scores)
        # The label of a window without the longest word is its first word.
        (accuracy,) = [x for x in metrics if x.name == "accuracy"]
        self.assertAllClose(5 / 7, accuracy.result())

    def test_collects_the_first_replica(self):
        """Collects one replica's values: each replica has those of all."""
        task = _TASK(self._config(self.records))
        state = None
        for step in range(2):
            pair = tuple(tf.constant([step]) for _ in range(2))
            state = task.aggregate_logs(state, {"candidates": {"a": pair}})
        self.assertEqual([[0], [1]], [x["a"].tolist() for x in state])


class ConfigureTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        trainer.register(toy.TASK)

    def test_options_of_task_model_and_encoder(self):
        params = exp_factory.get_exp_config("toy/scaled")
        self.assertIsInstance(params.task, _CONFIG)
        self.assertEqual(2.0, params.task.model.scale)
        self.assertEqual(1.5, params.task.threshold)
        self.assertEqual(32, params.task.model.encoder.hidden_size)
        self.assertEqual("tiny", params.task.model.encoder.preset)
        self.assertEqual(4, params.task.train_data.global_batch_size)
        # Two epochs of 100 examples in batches of 4.
        self.assertEqual(50, params.trainer.train_steps)
        self.assertEqual(25, params.trainer.validation_interval)
        warmup = params.trainer.optimizer_config.warmup.linear
        self.assertEqual(5, warmup.warmup_steps)
        plain = exp_factory.get_exp_config("toy/toy")
        self.assertEqual(1.0, plain.task.model.scale)
        self.assertIsNone(plain.task.threshold)

    def test_save_and_read(self):
        params = exp_factory.get_exp_config("toy/toy")
        params.override({"task": {"threshold": 0.5, "model": {"scale": 4.0}}})
        again = exp_factory.get_exp_config("toy/toy")
        again.override(params.as_dict())
        self.assertEqual(params.as_dict(), again.as_dict())
        self.assertEqual(4.0, again.task.model.scale)

    def test_unknown_option(self):
        with self.assertRaisesRegex(ValueError, "toy has no option 'scael'"):
            trainer.configure(toy.TASK, **toy.TASK.recipe, scael=1.0)


if __name__ == "__main__":
    tf.test.main()
