"""Tests that the task reads files of the original code."""

import os

import tensorflow as tf

from etcmodel.feature_utils import etc_features
from etcmodel.tasks.wikihop.task import TASK
from etcmodel.training import trainer


class TaskTest(tf.test.TestCase):
    def test_reads_files_of_the_original_code(self):
        """The files are uncompressed and padded, and have no configuration."""
        task_class, config_class = trainer.task_classes(TASK)
        params = config_class()
        params.model.long_length, params.model.global_length = 6, 4
        values = {
            name: [1, 0, 0, 0, 0, 0] for name in etc_features.LONG_FEATURES
        } | {name: [6, 6, 0, 0] for name in etc_features.GLOBAL_FEATURES}
        values["global_paragraph_breakpoints"] = [0, 1, 0, 0]
        example = tf.train.Example()
        for name, value in values.items():
            example.features.feature[name].int64_list.value[:] = value
        example.features.feature["label_id"].float_list.value[:] = [1.0]
        example.features.feature["example_id"].bytes_list.value[:] = [b"a"]
        path = os.path.join(self.get_temp_dir(), "tf_examples.record")
        with tf.io.TFRecordWriter(path) as writer:
            writer.write(example.SerializeToString())
        data = params.validation_data
        data.input_path, data.global_batch_size = path, 2
        ((inputs, labels),) = task_class(params).build_inputs(data)
        self.assertAllEqual([1, 0], labels["label"])
        self.assertAllEqual([1.0, 0.0], labels["weight"])
        self.assertAllEqual(
            [[6, 6, 0, 0], [0, 0, 0, 0]], labels["global_token_type_ids"]
        )
        self.assertAllEqual([1, 0, 0, 0, 0, 0], inputs["l2g_linked_ids"][0])


if __name__ == "__main__":
    tf.test.main()
