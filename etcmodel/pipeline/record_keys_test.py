import tensorflow as tf

from etcmodel.pipeline.record_keys import record_keys


class RecordKeysTest(tf.test.TestCase):
    def test_pairs_of_numbers(self):
        keys = record_keys(tf.constant(["a", "b", "a", ""]))
        self.assertEqual((keys.shape, keys.dtype), ([4, 2], tf.int32))
        self.assertAllGreaterEqual(keys, 0)
        self.assertAllEqual(keys[0], keys[2])
        self.assertNotAllEqual(keys[0], keys[1])
        # The two numbers come from different hash functions.
        self.assertNotAllEqual(keys[:, 0], keys[:, 1])

    def test_ids_that_look_alike(self):
        ids = [str(number) for number in range(-50_000, 50_000)]
        keys = record_keys(tf.constant(ids)).numpy().tolist()
        self.assertLen(set(map(tuple, keys)), len(ids))

    def test_does_not_depend_on_the_batch_or_the_process(self):
        """Evaluation compares keys that different processes computed."""
        ids = tf.constant(["x", "-2543388002166163252"])
        keys = record_keys(ids)
        self.assertAllEqual(keys[1:], record_keys(ids[1:]))
        spec = tf.TensorSpec([None], tf.string)
        compiled = tf.function(record_keys, input_signature=[spec])
        self.assertAllEqual(compiled(ids), keys)
        self.assertEqual(compiled(ids[:0]).shape, [0, 2])


if __name__ == "__main__":
    tf.test.main()
