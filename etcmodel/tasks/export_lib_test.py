import json
import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks import export_lib
from etcmodel.tasks import serving_warmup_test
from etcmodel.tasks.errors import UserError


def _module():
    """A Keras model that scores ids, and a table as a resource."""
    dense = tf.keras.layers.Dense(1, kernel_initializer="ones")
    inputs = tf.keras.Input([3], dtype="int32", name="ids")
    model = tf.keras.Model(
        inputs, dense(tf.keras.layers.Rescaling(2.0)(inputs))
    )

    class Words(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    ["a", "b"], tf.constant([1, 2], tf.int64)
                ),
                default_value=0,
            )

    words = Words()

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
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.get_temp_dir(), "out", "model")

    def _export(self, **kwargs):
        options = {
            "model_name": "words",
            "metadata": {"task": "words"},
            "warmup_inputs": {
                "serving_default": {"text": np.array([b"b"], dtype=object)},
                "features": {"ids": np.ones([1, 3], np.int64)},
            },
            **kwargs,
        }
        export_lib.export_saved_model(_module(), self.path, **options)

    def test_signatures_answer(self):
        self._export()
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
        features = loaded.signatures["features"]
        self.assertAllClose(
            [12.0],
            features(ids=tf.constant([[1, 2, 3]], tf.int64))["score"],
        )

    def test_loads_through_the_session_loader(self):
        self._export()
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            meta = tf.compat.v1.saved_model.loader.load(
                session, ["serve"], self.path
            )
            signature = meta.signature_def["serving_default"]
            score = session.run(
                signature.outputs["score"].name,
                {signature.inputs["text"].name: ["b", "a"]},
            )
        self.assertAllClose([12.0, 6.0], score)

    def test_saves_no_keras_objects(self):
        self._export()
        self.assertNotIn("keras_metadata.pb", os.listdir(self.path))

    def test_metadata_and_warmup(self):
        self._export()
        self.assertEqual(
            {"task": "words"}, export_lib.read_export_metadata(self.path)
        )
        requests = serving_warmup_test.read_warmup_requests(self.path)
        loaded = tf.saved_model.load(self.path)
        self.assertLen(requests, 2)
        for name, inputs in requests:
            loaded.signatures[name](
                **{key: tf.constant(value) for key, value in inputs.items()}
            )

    def test_failure_leaves_nothing_behind(self):
        with self.assertRaises(Exception):  # noqa: B017  Any will do.
            self._export(metadata={"not": json})
        self.assertEmpty(os.listdir(os.path.dirname(self.path)))

    def test_does_not_replace_without_being_told(self):
        self._export()
        with self.assertRaisesRegex(UserError, "--overwrite"):
            self._export()
        self._export(overwrite=True)

    def test_other_directories(self):
        with self.assertRaisesRegex(UserError, "no saved_model.pb"):
            export_lib.read_export_metadata(self.get_temp_dir())
        tf.saved_model.save(tf.Module(), self.path)
        with self.assertRaisesRegex(UserError, "not one that `export`"):
            export_lib.read_export_metadata(self.path)


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

    @parameterized.product(rows=(0, 1, 3, 4, 5, 8, 11), known=(True, False))
    def test_equals_one_call(self, rows, known):
        rng = np.random.default_rng(rows)
        inputs = {
            "first": tf.constant(rng.normal(size=[rows, 5]), tf.float32),
            "second": tf.constant(rng.integers(0, 9, [rows, 3]), tf.int32),
        }
        expected = self._outputs(inputs)
        self.sizes.clear()

        @tf.function(
            input_signature=[
                {
                    name: tf.TensorSpec(
                        value.shape if known else [None, None], value.dtype
                    )
                    for name, value in inputs.items()
                }
            ]
        )
        def chunked(inputs):
            return export_lib._map_chunks(
                self._outputs,
                inputs,
                4,
                {"scalar": 1, "vector": 2, "matrix": 3},
            )

        actual = chunked(inputs)
        self.assertEqual(set(expected), set(actual))
        for name, value in expected.items():
            self.assertAllEqual(value, actual[name])
        # A static number of rows: the same program for all.
        self.assertEqual({4}, set(self.sizes))


if __name__ == "__main__":
    tf.test.main()
