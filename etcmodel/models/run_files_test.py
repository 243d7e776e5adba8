import json
import os
import re
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from etcmodel import models
from etcmodel.feature_utils.layout import spec
from etcmodel.models import run_files


@tf.keras.utils.register_keras_serializable(package="run_files_test")
class Looks(tf.keras.layers.Dense):
    """A user's layer that embeds a value."""


class RunFilesTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.model_dir = tempfile.mkdtemp(dir=self.get_temp_dir())

    def _write(self, name, content):
        path = os.path.join(self.model_dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as stream:
            json.dump(content, stream)

    @parameterized.parameters(
        "", "/", "ckpt-3", "best_ckpt", "best_ckpt/", "best_ckpt/ckpt-3"
    )
    def test_configuration_of_a_run(self, place):
        """Reads the configuration from a run's directory or checkpoint."""
        config = models.EtcConfig.from_preset("tiny", vocab_size=7)
        self._write("etc_config.json", config.to_dict())
        self._write("best_ckpt/info.json", {})
        path = (
            os.path.join(self.model_dir, place)
            if place != "/"
            else (self.model_dir + "/")
        )
        self.assertEqual(config, models.EtcConfig.from_run(path))
        # file:// stands for remote paths such as gs://.
        self.assertEqual(config, models.EtcConfig.from_run(f"file://{path}"))

    @parameterized.parameters(
        (None, "so it is not a run. Pass the `model_dir` of `train`"),
        (
            "params.yaml",
            "because an older version.*task.model.encoder in params.yaml",
        ),
        (
            "read_twice_config.json",
            "but read_twice_config.json. Use that file's configuration class",
        ),
    )
    def test_no_configuration(self, name, reason):
        if name:
            self._write(name, {})
        for folder in (self.model_dir, f"{self.model_dir}[1]"):
            # Directory names may have characters that are special in globs.
            if folder != self.model_dir:
                os.rename(self.model_dir, folder)
            with self.assertRaisesRegex(
                FileNotFoundError,
                f"{re.escape(folder)} has no etc_config.json, {reason}",
            ):
                models.EtcConfig.from_run(folder)

    def test_no_options(self):
        """Weights that `lift` wrote, for example, have no options file."""
        self._write("etc_config.json", {})
        with self.assertRaisesRegex(
            FileNotFoundError, "no encoder_options.json, so it is not a run"
        ):
            models.encoder_options(self.model_dir)

    def test_described_encoder_is_rebuilt(self):
        """Uses a layout with its own link and value."""
        structure = spec.EncoderInputs(
            links=(
                spec.DEFAULT_LINK,
                spec.LinkFeature("refers", "long", "refers_to"),
            ),
            values=(
                spec.ValueFeature("looks", "long", (3,), "float32", ("long",)),
            ),
        )
        config = models.EtcConfig.from_preset("tiny", vocab_size=7)
        arguments = {
            "structure": structure,
            "flat_sequence": True,
            "use_links": False,
            "ignore_hard_g2l_types": (4, 5),
            "ignore_hard_l2g_types": (6,),
        }
        encoder = models.build_encoder(
            config,
            **arguments,
            value_layers={"looks": Looks(32, use_bias=False)},
        ).get_layer("etc_document_bert")
        self._write(run_files.OPTIONS_FILE, run_files.describe_options(encoder))
        options = models.encoder_options(self.model_dir)
        layers = options.pop("value_layers")
        self.assertIsInstance(layers["looks"], Looks)
        self.assertFalse(layers["looks"].use_bias)
        rebuilt = models.build_encoder(config, **options, value_layers=layers)
        inner = rebuilt.get_layer("etc_document_bert")
        for name, expected in arguments.items():
            self.assertEqual(expected, getattr(inner.side_inputs, name), name)
        self.assertIs(inner.looks_projection, layers["looks"])

    @parameterized.parameters(
        ('{"structure": ', "it is not JSON"),
        ("[" * 100_000, "it is not JSON .*nested too deep"),
        ("[]", "it holds a list, not an object"),
        ('{"value_layers": null}', "value_layers is None, expected"),
        ('{"value_layers": {"v": {"class": "x>Y"}}}', "value_layers is "),
        ('{"value_layers": {"v": 3}}', "value_layers is "),
    )
    def test_damaged_options(self, content, message):
        path = os.path.join(self.model_dir, "encoder_options.json")
        with open(path, "w") as stream:
            stream.write(content)
        with self.assertRaisesRegex(
            ValueError, f"^{path}: {message}.* Copy the file again, or resume"
        ):
            models.encoder_options(self.model_dir)

    def test_layer_that_keras_does_not_know(self):
        layer = {"class": "x>Y", "module": "a.b", "config": {}}
        self._write(run_files.OPTIONS_FILE, {"value_layers": {"v": layer}})
        with self.assertRaisesRegex(
            ValueError, "does not know the layer x>Y.*'v'. Import a.b first"
        ):
            models.encoder_options(self.model_dir)


if __name__ == "__main__":
    tf.test.main()
