"""Tests of training and evaluating ReadTwice on questions."""

import os
import shutil
import tempfile

import tensorflow as tf
from official.core import exp_factory
from official.core import task_factory

from etcmodel.errors import UserError
from etcmodel.pipeline.tfrecords import find_files
from etcmodel.tasks import registry
from etcmodel.training import damaged_records
from testing import tasks
from testing.tasks import read_json
from testing.tasks import write_json


class TrainerTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        registry.register_experiments("read_twice_triviaqa")
        cls.directory = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.written = tasks.write_small_records(
            cls.directory, 9, "read_twice_triviaqa"
        )

    def setUp(self):
        super().setUp()
        # Copied, since some tests change the files.
        self.records = os.path.join(
            tempfile.mkdtemp(dir=self.directory), "records"
        )
        shutil.copytree(self.written, self.records)
        self.params = exp_factory.get_exp_config("read_twice/triviaqa").task
        self.params.validation_data.input_path = self.records
        self.params.validation_data.global_batch_size = 8
        self.params.model.encoder.preset = "tiny"

    def _task(self):
        return task_factory.get_task(self.params)

    def test_documents_count_once(self):
        """The weights of each document sum to 1; padding has weight 0."""
        task = self._task()
        documents = segments = 0.0
        for inputs, labels in task.build_inputs(self.params.validation_data):
            self.assertAllEqual(inputs["block_ids"], labels["block_ids"])
            self.assertAllEqual(
                tf.cast(inputs["block_ids"] > 0, tf.int32),
                tf.minimum(labels["num_blocks"], 1),
            )
            documents += float(tf.reduce_sum(labels["weight"]))
            segments += float(tf.reduce_sum(tf.sign(inputs["block_ids"])))
        self.assertAllClose(9, documents)
        self.assertEqual(17, segments)

    def test_losses_and_metrics(self):
        """The losses of a batch are means over its documents."""
        task = self._task()
        model = task.build_model()
        metrics = task.build_metrics(training=False)
        inputs, labels = next(
            iter(task.build_inputs(self.params.validation_data))
        )
        outputs = model(inputs)
        task.process_metrics(metrics, labels, outputs)
        found = {x.name: float(x.result()) for x in metrics}
        losses = task.task_model.losses(outputs, labels)["span"].numpy()
        ids = inputs["block_ids"].numpy()
        by_document = {
            block_id: losses[ids == block_id] for block_id in {*ids} - {0}
        }
        values = [x[0] for x in by_document.values()]
        for document in by_document.values():
            self.assertAllClose(document, [document[0]] * len(document))
        self.assertAllClose(sum(values) / len(values), found["span_loss"])
        self.assertAllClose(
            found["span_loss"], task.build_losses(labels, outputs), 1e-4
        )
        for name, is_of in (
            ("multi", lambda x: len(x) > 1),
            ("single", lambda x: len(x) == 1),
        ):
            some = [x[0] for x in by_document.values() if is_of(x)]
            self.assertAllClose(
                sum(some) / max(len(some), 1), found[f"span_loss_{name}_blocks"]
            )

    def test_records_without_text_are_wrong(self):
        """Two records get the labelled answer; a third record has no text."""
        write, sizes = tasks.SMALL_RECORDS["read_twice_triviaqa"]
        directory = os.path.join(self.get_temp_dir(), "with_empty")
        path, vocab_file = write(directory, 3)
        page = os.path.join(directory, "evidence", "wikipedia", "1.txt")
        with open(page, "w", encoding="utf-8") as stream:
            stream.write(" \n")
        output = os.path.join(directory, "records")
        tasks.preprocess_few(
            "read_twice_triviaqa", path, vocab_file, output, sizes
        )
        self.params.validation_data.input_path = output
        task = self._task()
        ((inputs, labels),) = task.build_inputs(self.params.validation_data)
        self.assertAllClose(2, tf.reduce_sum(labels["weight"]))
        # [blocks, length, 2]
        logits = tf.stack(
            [
                tf.reduce_max(
                    tf.one_hot(labels[name], inputs["token_ids"].shape[1])
                    * tf.cast(labels["answer_labels"], tf.float32)[..., None],
                    axis=1,
                )
                for name in ("answer_begins", "answer_ends")
            ],
            axis=2,
        )
        step = task.validation_step(
            (inputs, labels), lambda *_, **__: {"span_logits": logits}
        )
        batch = {name: [x] for name, x in step["candidates"].items()}
        logs = task.aggregate_logs(step_outputs={"candidates": batch})
        metrics = task.reduce_aggregated_logs(logs)
        self.assertAllClose(200 / 3, metrics["exact_match"])

    def test_finds_a_damaged_example(self):
        """The error names one of several records in the example."""
        task = self._task()
        self.assertIsNone(damaged_records.find(task))
        (*_, path) = find_files(self.records)
        (first, *_) = tf.data.TFRecordDataset(path, "GZIP").as_numpy_iterator()
        example = tf.train.Example.FromString(first)
        example.features.feature["token_ids"].int64_list.value.pop()
        options = tf.io.TFRecordOptions(compression_type="GZIP")
        with tf.io.TFRecordWriter(path, options) as writer:
            writer.write(first)
            writer.write(example.SerializeToString())
        # Without this, the noted sizes of files would reveal the damage.
        note_file = os.path.join(self.records, "preprocessing_config.json")
        note = read_json(note_file)
        del note["shards"], note["checksum"]
        write_json(note_file, note)
        self.assertRegex(
            str(damaged_records.find(task)),
            rf"{path}, record 1 \(id .*token_ids.*task read_twice_triviaqa",
        )

    def test_configurations_that_do_not_fit(self):
        self.params.trim_batches = True
        with self.assertRaisesRegex(
            UserError, "trim_batches is not supported by"
        ):
            self._task()
        self.params.trim_batches = False
        self.params.model.cross_block_attention_mode = "page"
        with self.assertRaisesRegex(UserError, "mode is 'page'"):
            self._task()
        self.params.model.cross_block_attention_mode = "doc"
        self.params.model.encoder.max_seq_length = 20
        with self.assertRaisesRegex(UserError, "max_seq_length is 20"):
            self._task().build_model()
        (path,) = find_files(self.records)[:1]
        os.remove(
            os.path.join(os.path.dirname(path), "preprocessing_config.json")
        )
        with self.assertRaisesRegex(
            UserError, "preprocessing_config.json is missing beside"
        ):
            self._task()


if __name__ == "__main__":
    tf.test.main()
