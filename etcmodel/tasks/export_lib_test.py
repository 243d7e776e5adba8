import json
import os
import shutil
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.tasks import export_lib
from etcmodel.tasks import serving_warmup_test


def _module():
    """A Keras model that scores ids, and a table as a resource."""
    dense = tf.keras.layers.Dense(1, kernel_initializer="ones")
    inputs = tf.keras.Input([3], dtype="int32", name="ids")
    model = tf.keras.Model(
        inputs, dense(tf.keras.layers.Rescaling(2.0)(inputs))
    )

    words = tf.Module()
    words.table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            ["a", "b"], tf.constant([1, 2], tf.int64)
        ),
        default_value=0,
    )

    def score(ids):
        return {"score": model(tf.cast(ids, tf.int32))[:, 0]}

    def serving_default(text):
        return score(tf.repeat(words.table.lookup(text)[:, None], 3, axis=1))

    return export_lib.ServingModule(
        export_lib.model_variables(model),
        [words],
        {
            "serving_default": (
                serving_default,
                {"text": tf.TensorSpec([None], tf.string)},
            ),
            "features": (score, export_lib.features_signature(["ids"])),
        },
    )


class ExportLibTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.module = _module()
        cls.path = os.path.join(cls.root, "out", "model")
        cls.export()

    @classmethod
    def export(cls, **kwargs):
        options = {
            "model_name": "words",
            "metadata": {"task": "words"},
            "warmup_inputs": {
                "serving_default": {"text": np.array([b"b"], dtype=object)},
                "features": {"ids": np.array([[1, 2, 0]])},
            },
            **kwargs,
        }
        export_lib.export_saved_model(cls.module, cls.path, **options)

    def test_signatures_answer(self):
        loaded = tf.saved_model.load(self.path)
        self.assertEqual(
            {"serving_default", "features"}, set(loaded.signatures)
        )
        answer = loaded.signatures["serving_default"]
        # Sum of three ids, times two.
        self.assertAllClose(
            [12.0, 6.0, 0.0],
            answer(text=tf.constant(["b", "a", "zebra"]))["score"],
        )
        # Warm-up requests are such that they are answered.
        requests = serving_warmup_test.read_warmup_requests(self.path)
        self.assertLen(requests, 2)
        for (name, inputs), expected in zip(requests, (12.0, 6.0), strict=True):
            outputs = loaded.signatures[name](
                **{key: tf.constant(value) for key, value in inputs.items()}
            )
            self.assertAllClose([expected], outputs["score"])

    def test_what_is_in_the_directory(self):
        # And no keras_metadata.pb.
        names = "assets assets.extra fingerprint.pb saved_model.pb variables"
        self.assertCountEqual(names.split(), os.listdir(self.path))
        self.assertEqual(
            {"task": "words"}, export_lib.read_export_metadata(self.path)
        )

    def test_existing_directories(self):
        with self.assertRaisesRegex(UserError, "--overwrite"):
            self.export()
        # The old one stays until the new one is whole, and answers.
        inputs = {"features": {"ids": np.ones([1, 4], np.int64)}}
        for bad, error in (
            ({"metadata": {"not": json}}, TypeError),
            ({"warmup_inputs": inputs}, tf.errors.InvalidArgumentError),
        ):
            with self.assertRaises(error):
                self.export(**bad, overwrite=True)
            self.assertEqual(["model"], os.listdir(os.path.dirname(self.path)))
            self.assertEqual(
                {"task": "words"}, export_lib.read_export_metadata(self.path)
            )
        self.export(overwrite=True)
        self.assertEqual(["model"], os.listdir(os.path.dirname(self.path)))

    def test_other_directories(self):
        other = self.get_temp_dir()
        with self.assertRaisesRegex(UserError, "no saved_model.pb"):
            export_lib.read_export_metadata(other)
        tf.saved_model.save(tf.Module(), other)
        with self.assertRaisesRegex(UserError, "not one that `export`"):
            export_lib.read_export_metadata(other)


class MapChunksTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.sizes = []

    def _outputs(self, inputs):
        """Row by row: a scalar, a vector and a matrix."""
        first, second = inputs["first"], inputs["second"]
        self.sizes.append(first.shape[0])
        # [rows, 3, 2]
        matrix = tf.cast(second[..., tf.newaxis], tf.float32) * [1.0, 10.0]
        return {
            "scalar": tf.reduce_sum(first, axis=1),
            "vector": first + 1.0,
            "matrix": matrix + tf.reduce_max(first, 1)[:, None, None],
        }

    @parameterized.product(rows=(0, 1, 4, 11), known=(True, False))
    def test_equals_one_call(self, rows, known):
        rng = np.random.default_rng(rows)
        inputs = {
            "first": tf.constant(rng.normal(size=[rows, 5]), tf.float32),
            "second": tf.constant(rng.integers(0, 9, [rows, 3]), tf.int32),
        }
        expected = self._outputs(inputs)
        self.sizes.clear()

        spec = {
            name: tf.TensorSpec(x.shape if known else [None, None], x.dtype)
            for name, x in inputs.items()
        }

        @tf.function(input_signature=[spec])
        def chunked(inputs):
            ranks = {"scalar": 1, "vector": 2, "matrix": 3}
            return export_lib._map_chunks(self._outputs, inputs, 4, ranks)

        actual = chunked(inputs)
        self.assertEqual(set(expected), set(actual))
        for name, value in expected.items():
            self.assertAllEqual(value, actual[name])
        # A static number of rows: the same program for all.
        self.assertEqual({4}, set(self.sizes))


if __name__ == "__main__":
    tf.test.main()
