import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from official.core import config_definitions as cfg

from etcmodel.errors import UserError
from etcmodel.pipeline import tfrecords
from etcmodel.training import input_pipeline

_BLOCKS = 4


def _write_numbers(directory, num_shards):
    """Writes the numbers 1 to 5 in turn into the shards."""
    for shard in range(num_shards):
        name = f"x-{shard:05d}-of-{num_shards:05d}{tfrecords.SUFFIX}"
        path = os.path.join(directory, name)
        with tf.io.TFRecordWriter(path, "GZIP") as writer:
            for i in range(1 + shard, 6, num_shards):
                writer.write(b"%d" % i)


class ReadBatchesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.path = self.get_temp_dir()
        _write_numbers(self.path, 2)

    def _parse(self, serialized, seed=None):
        value = tf.strings.to_number(serialized, tf.int32)
        # [batch, 2]
        pair = tf.stack([value, value], axis=1)
        return {"pair": pair}, {"weight": tf.ones_like(value, tf.float32)}

    def _read(self, context=None, **kwargs):
        params = cfg.DataConfig(
            input_path=self.path, global_batch_size=4, **kwargs
        )
        return input_pipeline.read_batches(params, self._parse, context)

    def test_evaluation_reads_every_record_once(self):
        dataset = self._read(is_training=False)
        features, labels = dataset.element_spec
        self.assertEqual([4, 2], features["pair"].shape)
        self.assertEqual([4], labels["weight"].shape)
        values, weights = [], []
        for features, labels in dataset.as_numpy_iterator():
            values.extend(features["pair"][:, 1])
            weights.extend(labels["weight"])
        self.assertAllEqual([1] * 5 + [0] * 3, weights)
        self.assertCountEqual([1, 2, 3, 4, 5], values[:5])

    def test_every_replica_has_a_batch(self):
        context = tf.distribute.InputContext(num_replicas_in_sync=4)
        batches = list(self._read(context, is_training=False))
        # Each of the 5 records has a batch of its own. For 4 replicas, there
        # are 8 batches.
        self.assertGreaterEqual(len(batches) - len(batches) % 4, 5)
        weights = tf.concat([labels["weight"] for _, labels in batches], 0)
        self.assertEqual(5.0, tf.reduce_sum(weights))
        self.assertAllEqual([1.0] * 5, weights[:5])

    def test_training_repeats(self):
        dataset = self._read(is_training=True).take(10)
        seen = set()
        for features, labels in dataset.as_numpy_iterator():
            self.assertAllEqual([1, 1, 1, 1], labels["weight"])
            seen.update(features["pair"][:, 0].tolist())
        self.assertEqual({1, 2, 3, 4, 5}, seen)

    def test_resumed_training_continues_in_order(self):
        """A resumed run reads the records and seeds of an uninterrupted run."""

        def parse(serialized, seed):
            return serialized, seed

        def read(first_step, number, seed=3):
            params = cfg.DataConfig(
                input_path=self.path,
                global_batch_size=4,
                is_training=True,
                shuffle_buffer_size=5,
                seed=seed,
            )
            # Two replicas, and batches of records of similar length.
            context = tf.distribute.InputContext(num_replicas_in_sync=2)
            dataset = input_pipeline.read_batches(
                params, parse, context, 2, first_step
            )
            return list(dataset.take(2 * number).as_numpy_iterator())

        expected = read(0, 6)
        seeds = {tuple(seed) for _, seed in expected}
        self.assertLen(seeds, 12)
        self.assertAllEqual(expected[8:], read(4, 2))
        self.assertNotAllEqual([x for x, _ in read(0, 6, 4)], expected)
        params = cfg.DataConfig(
            input_path=self.path, is_training=True, shuffle_buffer_size=5
        )
        again = input_pipeline.read_examples(
            params.replace(seed=3), 2, 2 * 4, 2, 2
        )
        self.assertAllEqual(np.ravel([x for x, _ in expected[8:10]]), again)

    def test_examples_of_similar_length_make_a_batch(self):
        lengths = [5, 1, 4, 2, 8, 3, 7, 6]
        dataset = tf.data.Dataset.from_tensor_slices(["a" * n for n in lengths])
        made = input_pipeline.sort_by_length(dataset, 2, 4, seed=1).batch(2)
        batches = [
            [len(x) for x in batch] for batch in made.as_numpy_iterator()
        ]
        self.assertCountEqual([[1, 2], [3, 4], [5, 6], [7, 8]], batches)
        self.assertNotEqual(sorted(batches), batches)

    def test_sorts_training_records(self):
        for is_training, number in ((False, 2), (True, 1), (True, 2)):
            params = cfg.DataConfig(
                input_path=self.path,
                global_batch_size=4,
                is_training=is_training,
            )
            with mock.patch.object(
                input_pipeline, "sort_by_length", side_effect=lambda x, *_: x
            ) as sort:
                input_pipeline.read_batches(
                    params, self._parse, sorted_batches=number
                )
            self.assertEqual(is_training and number > 1, sort.called)

    def test_no_tuning_thread_keeps_iterators_alive(self):
        for is_training in (False, True):
            options = self._read(is_training=is_training).options()
            self.assertIs(False, options.autotune.enabled)


class ReadBlocksTest(tf.test.TestCase, parameterized.TestCase):
    """Example i, from 1 to 5, has the segments 10 i, ..., 10 i + 3."""

    def setUp(self):
        super().setUp()
        self.path = self.get_temp_dir()
        _write_numbers(self.path, 1)

    def _parse(self, serialized, seed=None):
        first = 10 * tf.strings.to_number(serialized, tf.int32)
        # [blocks]
        rows = first + tf.range(_BLOCKS)
        # Documents 9 and 5, and a padding segment.
        features = {"rows": rows, "block_ids": tf.constant([9, 5, 5, 0])}
        return features, {"weight": tf.ones_like(rows)}

    def _read(self, size, context=None, first_step=0, **kwargs):
        params = cfg.DataConfig(
            input_path=self.path, global_batch_size=size, **kwargs
        )
        dataset = input_pipeline.read_blocks(
            *(params, self._parse, _BLOCKS, context, first_step)
        )
        self.assertEqual(
            [size // (context.num_replicas_in_sync if context else 1)],
            dataset.element_spec[0]["rows"].shape,
        )
        return dataset

    @parameterized.parameters((4, 1), (8, 1), (8, 2), (4, 4), (16, 8))
    def test_evaluation(self, size, replicas):
        """Yields every segment once; a global batch holds whole examples."""
        context = tf.distribute.InputContext(num_replicas_in_sync=replicas)
        batches = list(self._read(size, context, is_training=False))
        self.assertEqual(0, len(batches) % replicas)
        rows = np.concatenate([x["rows"] for x, _ in batches])
        weights = np.concatenate([y["weight"] for _, y in batches])
        self.assertAllEqual(rows > 0, weights > 0)
        self.assertAllEqual(
            rows[rows > 0],
            [10 * i + j for i in range(1, 6) for j in range(_BLOCKS)],
        )

    def test_training(self):
        dataset = self._read(8, is_training=True, shuffle_buffer_size=5)
        seen = set()
        for features, _ in dataset.take(12).as_numpy_iterator():
            # Documents of different examples get different numbers, even if
            # their `block_ids` are equal.
            self.assertAllEqual([1, 2, 2, 0, 5, 6, 6, 0], features["block_ids"])
            rows = features["rows"].reshape(2, _BLOCKS)
            self.assertAllEqual(rows - rows[:, :1], [range(_BLOCKS)] * 2)
            seen.update(rows[:, 0].tolist())
        self.assertEqual({10, 20, 30, 40, 50}, seen)
        options = {"is_training": True, "seed": 1}
        *_, expected = self._read(8, **options).take(4).as_numpy_iterator()
        resumed = self._read(8, first_step=3, **options)
        features, _ = next(iter(resumed))
        self.assertAllEqual(expected[0]["rows"], features["rows"])

    def test_documents_of_hosts_have_different_numbers(self):
        numbers = []
        for host in (0, 1):
            context = tf.distribute.InputContext(2, host, 2)
            dataset = self._read(16, context, is_training=True)
            features, _ = next(iter(dataset))
            numbers.append(features["block_ids"])
        self.assertAllEqual(
            [[1, 2, 2, 0, 5, 6, 6, 0], [9, 10, 10, 0, 13, 14, 14, 0]], numbers
        )

    def test_number_documents(self):
        numbers = input_pipeline.number_documents(
            tf.constant([[7, 7, 8], [7, 9, 0]]), tf.constant([0, 5])
        )
        self.assertAllEqual([[1, 1, 3], [16, 17, 0]], numbers)

    @parameterized.parameters((6, 1, 1), (4, 3, 1), (4, 2, 2))
    def test_invalid_batch_sizes(self, size, replicas, hosts):
        context = tf.distribute.InputContext(
            num_input_pipelines=hosts, num_replicas_in_sync=replicas
        )
        with self.assertRaisesRegex(UserError, f"global_batch_size is {size}"):
            self._read(size, context)


if __name__ == "__main__":
    tf.test.main()
