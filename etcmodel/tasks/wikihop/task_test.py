"""Tests of WikiHop's sizes and experiments, and of old files."""

import os

import tensorflow as tf
from official.core import exp_factory

from etcmodel.feature_utils import etc_features
from etcmodel.tasks import registry
from etcmodel.tasks.wikihop.task import TASK
from etcmodel.training import trainer


class TaskTest(tf.test.TestCase):
    def test_sizes_of_the_paper(self):
        config = TASK.make_preprocessing_config({})
        self.assertEqual(
            (4096, 430, 200),
            (
                config.long_length,
                config.global_length,
                config.max_num_sentences,
            ),
        )

    def test_names_tell_how_experiments_differ(self):
        registry.register_experiments("wikihop")
        for name in TASK.experiments:
            params = exp_factory.get_exp_config(name)
            encoder = params.task.model.encoder.to_config()
            lamb = params.trainer.optimizer_config.optimizer.type == "lamb"
            self.assertEqual("lamb" in name, lamb)
            large = encoder.num_hidden_layers == 24
            self.assertEqual("large" in name, large)
            self.assertEqual(int(large), encoder.grad_checkpointing_period)
            self.assertEqual("shared" in name, encoder.share_qkv_projections)
            self.assertEqual("flat" in name, params.task.model.flat_sequence)
            self.assertEqual(
                name not in ("etc/wikihop", "etc/wikihop_lamb"),
                encoder.use_hard_g2l_mask,
            )

    def test_reads_files_of_the_original_code(self):
        """Uncompressed, with padding, and no note beside them."""
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
