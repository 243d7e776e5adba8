import dataclasses
import os

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import json_config


@dataclasses.dataclass
class _Config(json_config.JsonConfig):
    _PRESETS = {"large": {"hidden_size": 64}, "small": {}}
    _PRESET_VOCAB_SIZE = 77
    _MINIMA = {"top": 2}

    vocab_size: int | None
    hidden_size: int = 6
    num_heads: int = 2
    top: int | None = None
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1

    def validate(self):
        self._check_fields()
        self._check_heads("num_heads", "do something")


class JsonConfigTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, text):
        path = os.path.join(self.get_temp_dir(), "config.json")
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_presets(self):
        self.assertEqual(
            _Config(77, hidden_size=64, num_heads=4),
            _Config.from_preset("large", num_heads=4),
        )
        with self.assertRaisesRegex(
            ValueError, "'huge' does not.*one of large, small"
        ):
            _Config.from_preset("huge")
        with self.assertRaisesRegex(ValueError, "_Config has no attribute x"):
            _Config.from_preset("small", x=1)

    def test_round_trip(self):
        config = _Config(9, top=3)
        path = self._write(config.to_json_string())
        self.assertEqual(config, _Config.from_json_file(path))
        self.assertEqual(config, _Config.from_dict(config.to_dict()))
        config.validate()

    def test_a_dict_is_copied_and_not_validated(self):
        with self.assertLogs("absl", "WARNING") as logs:
            config = _Config.from_dict({"top": 0, "b": 1, "a": 2})
        self.assertIn("_Config ignores unknown keys: ", logs.output[0])
        self.assertEqual(["a", "b"], config.unknown_keys)
        self.assertEqual((None, 0), (config.vocab_size, config.top))

    @parameterized.parameters(
        ("{", "it is not JSON.*attributes of _Config"),
        ("3", "it holds a number.*Expected one JSON object"),
        ("[" * 100_000, "it is not JSON .*nested too deep"),
        ("{}", "vocab_size is None. Expected an int of at least 1"),
    )
    def test_bad_files(self, text, message):
        path = self._write(text)
        with self.assertRaisesRegex(ValueError, message) as raised:
            _Config.from_json_file(path)
        self.assertStartsWith(str(raised.exception), path)

    def test_file_that_is_not_text(self):
        path = self._write("")
        with open(path, "wb") as stream:
            stream.write(b"\xff\xfe")
        with self.assertRaisesRegex(ValueError, f"^{path}: it is not text"):
            _Config.from_json_file(path)

    @parameterized.parameters(
        (dict(num_heads=0), "num_heads is 0"),
        (dict(num_heads=2.0), "num_heads is 2.0"),
        (dict(hidden_size=True), "hidden_size is True"),
        (dict(top=1), "top is 1. Expected an int of at least 2"),
        (dict(hidden_act="x"), "hidden_act: "),
        (dict(hidden_dropout_prob=-0.1), "hidden_dropout_prob is -0.1"),
        (
            dict(attention_probs_dropout_prob=1),
            "attention_probs_dropout_prob is 1",
        ),
        (
            dict(num_heads=4),
            r"hidden_size \(6\) is not a multiple of num_heads \(4\); do some",
        ),
    )
    def test_validation(self, kwargs, message):
        with self.assertRaisesRegex(ValueError, message):
            _Config(5, **kwargs).validate()


if __name__ == "__main__":
    tf.test.main()
