import json
import os
import shutil
import tempfile

import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.ops import custom_gradients
from etcmodel.serving import exported
from etcmodel.serving import saved_model as saved_model_lib
from testing import saved_models

# The model's description, without checksums.
_NOTE = {"task": "words", "options": {}}


@custom_gradients.custom_gradient
def _same(x):
    """Returns its input; has a custom gradient."""
    return tf.identity(x), lambda gradient: gradient


def _module():
    """Makes a Keras model that scores ids, with a lookup table as resource."""
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
        return {"score": _same(model(tf.cast(ids, tf.int32))[:, 0])}

    def serving_default(text):
        return score(tf.repeat(words.table.lookup(text)[:, None], 3, axis=1))

    return saved_model_lib.ServingModule(
        saved_model_lib.model_variables(model),
        [words],
        {
            "serving_default": (
                serving_default,
                {"text": tf.TensorSpec([None], tf.string)},
            ),
            "features": (
                score,
                {"ids": tf.TensorSpec([None, None], tf.int64)},
            ),
        },
    )


class ExportTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.module = _module()
        cls.path = os.path.join(cls.root, "out", "model")
        cls.write()

    @classmethod
    def write(cls, **kwargs):
        options = {
            "model_name": "words",
            "metadata": _NOTE,
            "warmup_inputs": {
                "serving_default": {"text": np.array([b"b"], dtype=object)},
                "features": {"ids": np.array([[1, 2, 0]])},
            },
            **kwargs,
        }
        saved_model_lib.export_saved_model(cls.module, cls.path, **options)

    def test_signatures_answer(self):
        loaded = tf.saved_model.load(self.path)
        self.assertEqual(
            {"serving_default", "features"}, set(loaded.signatures)
        )
        answer = loaded.signatures["serving_default"]
        # The sum of three ids, times two.
        self.assertAllClose(
            [12.0, 6.0, 0.0],
            answer(text=tf.constant(["b", "a", "zebra"]))["score"],
        )
        # The signatures accept the warm-up requests.
        requests = saved_models.read_warmup_requests(self.path)
        self.assertLen(requests, 2)
        for (name, inputs), expected in zip(requests, (12.0, 6.0), strict=True):
            outputs = loaded.signatures[name](
                **{key: tf.constant(value) for key, value in inputs.items()}
            )
            self.assertAllClose([expected], outputs["score"])

    def test_stores_no_gradients(self):
        self.assertNotEmpty(saved_models.stored_functions(self.path))
        self.assertEmpty(saved_models.names_of_stored_gradients(self.path))

    def test_files(self):
        # There is no keras_metadata.pb.
        names = "assets assets.extra fingerprint.pb saved_model.pb variables"
        self.assertCountEqual(
            [".etcmodel_files.json", *names.split()], os.listdir(self.path)
        )
        self.assertEqual(_NOTE, self.read_note())

    def read_note(self):
        note = exported.read_metadata(self.path)
        files = note.pop("files")
        self.assertIn("saved_model.pb", files)
        exported.check_files(self.path, {"files": files})
        return note

    def test_existing_directories(self):
        with self.assertRaisesRegex(UserError, "`overwrite`"):
            self.write()
        # The old model stays usable until the new one is complete.
        inputs = {"features": {"ids": np.ones([1, 4], np.int64)}}
        for bad, error in (
            ({"metadata": {"not": json}}, TypeError),
            ({"warmup_inputs": inputs}, tf.errors.InvalidArgumentError),
        ):
            with self.assertRaises(error):
                self.write(**bad, overwrite=True)
            self.assertEqual(["model"], os.listdir(os.path.dirname(self.path)))
            self.assertEqual(_NOTE, self.read_note())
        self.write(overwrite=True)
        self.assertEqual(["model"], os.listdir(os.path.dirname(self.path)))


if __name__ == "__main__":
    tf.test.main()
