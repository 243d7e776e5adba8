import ast
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import layers
from etcmodel import models
from etcmodel import registration
from etcmodel.layers import activations

_PACKAGE = pathlib.Path(__file__).resolve().parent
_IMPORTS = {
    "etcmodel first": "import etcmodel\nimport tensorflow as tf\n",
    "tensorflow first": "import tensorflow as tf\nimport etcmodel\n",
    # Keras 3 imports TensorFlow itself.
    "keras alone": "import etcmodel\nimport keras\n",
}
_LOAD = """
import sys
import numpy as np
names = ("etcmodel.layers", "etcmodel.models", "etcmodel.tasks")
assert not set(names) & set(sys.modules)
keras = globals().get("keras") or tf.keras
model = keras.models.load_model(sys.argv[1])
inputs = np.load(sys.argv[2])
np.save(sys.argv[3], model({x: inputs[x] for x in inputs.files}))
# A loaded model can be saved again.
model.save(sys.argv[1])
"""


def _small_model():
    """Returns an encoder with a head, layers and functions of this package."""
    config = models.EtcConfig.from_preset(
        "tiny", vocab_size=11, num_hidden_layers=1
    )
    encoder = models.build_encoder(config, long_length=8, global_length=3)
    output = encoder.output["long_output"]
    output = layers.RecomputingDropout(0.1)(output)
    output = tf.keras.layers.Dense(4, activation=activations.tanh_gelu)(output)
    return tf.keras.Model(encoder.input, output)


class RegistrationTest(parameterized.TestCase):
    def test_every_class_is_in_the_table(self):
        found = {}
        for path in _PACKAGE.rglob("*.py"):
            if path.name.endswith("_test.py"):
                continue
            module = path.relative_to(_PACKAGE).with_suffix("")
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                for decorator in getattr(node, "decorator_list", ()):
                    text = ast.unparse(decorator)
                    if "register_keras_serializable" in text:
                        self.assertIn("(package='etcmodel')", text)
                        names = found.setdefault(".".join(module.parts), set())
                        names.add(node.name)
        table = {x: set(y) for x, y in registration.SERIALIZABLE.items()}
        self.assertEqual(found, table)

    @pytest.mark.both_kerases
    @parameterized.parameters(*_IMPORTS)
    def test_files_load_after_importing_the_package(self, imports):
        is_keras_3 = hasattr(tf.keras, "Operation")
        if imports == "keras alone" and not is_keras_3:
            self.skipTest("The package keras is Keras 3.")
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        paths = [folder / x for x in ("x.keras", "inputs.npz", "outputs.npy")]
        model = _small_model()
        model.save(paths[0])
        rng = np.random.default_rng(0)
        inputs = {
            name: rng.integers(1, size=[2, *x.shape[1:]], dtype=np.int32)
            for name, x in model.input.items()
        }
        np.savez(paths[1], **inputs)
        done = subprocess.run(
            [sys.executable, "-c", _IMPORTS[imports] + _LOAD, *paths],
            env={**os.environ, "TF_USE_LEGACY_KERAS": str(int(not is_keras_3))},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(0, done.returncode, done.stderr)
        expected = np.asarray(model(inputs))
        np.testing.assert_allclose(np.load(paths[2]), expected, atol=1e-5)
        again = tf.keras.models.load_model(paths[0])
        np.testing.assert_allclose(again(inputs), expected, atol=1e-5)


if __name__ == "__main__":
    tf.test.main()
