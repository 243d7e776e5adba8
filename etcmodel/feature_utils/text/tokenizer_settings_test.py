import json
import os

import tensorflow as tf
import tokenizers
from absl.testing import parameterized

from etcmodel.feature_utils.text import tokenizer_settings
from etcmodel.feature_utils.text.tokenizer_settings import TokenizerSettings
from testing.helpers import write_file


def _tokenizer_json(**kwargs):
    """Returns the `tokenizer.json` that the library writes for BERT."""
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(**kwargs)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return json.loads(tokenizer.to_str())


class TokenizerSettingsTest(tf.test.TestCase, parameterized.TestCase):
    def _directory(self, config=None, tokenizer=None):
        """Writes `tokenizer_config.json` and `tokenizer.json`."""
        directory = os.path.dirname(write_file(self, b""))
        for name, content in (
            ("tokenizer_config.json", config),
            ("tokenizer.json", tokenizer),
        ):
            if content is not None:
                is_text = isinstance(content, str)
                with open(os.path.join(directory, name), "w") as stream:
                    stream.write(content if is_text else json.dumps(content))
        return directory

    def test_no_files(self):
        directory = self._directory()
        settings = tokenizer_settings.read_settings(directory)
        self.assertEqual(settings, TokenizerSettings())
        self.assertEqual(tokenizer_settings.settings_files(directory), [])
        self.assertEqual(
            settings.resolve(is_uncased=True),
            TokenizerSettings(True, True, True, True, 200),
        )
        self.assertEqual(
            settings.resolve(is_uncased=False),
            TokenizerSettings(False, False, True, True, 200),
        )

    def test_config(self):
        directory = self._directory(
            {
                "do_lower_case": True,
                "strip_accents": False,
                "tokenize_chinese_chars": None,
                "model_max_length": 512,
                "tokenizer_class": "BertTokenizer",
            }
        )
        settings = tokenizer_settings.read_settings(directory)
        self.assertEqual(
            settings, TokenizerSettings(True, False, None, None, 100)
        )
        self.assertEqual(
            settings.resolve(is_uncased=False).describe(),
            "lower case, accents kept, Chinese characters apart, words of up "
            "to 100 characters",
        )

    def test_tokenizer(self):
        content = _tokenizer_json(
            lowercase=False, strip_accents=True, handle_chinese_chars=False
        )
        settings = tokenizer_settings.read_settings(
            self._directory(tokenizer=content)
        )
        self.assertEqual(
            settings, TokenizerSettings(False, True, False, True, 100)
        )
        content["normalizer"] = None
        content["model"]["max_input_chars_per_word"] = 50
        settings = tokenizer_settings.read_settings(
            self._directory(tokenizer=content)
        )
        self.assertEqual(
            settings, TokenizerSettings(False, False, False, False, 50)
        )

    def test_config_wins(self):
        """`tokenizer.json` only adds settings that the config lacks."""
        directory = self._directory(
            {"do_lower_case": False, "strip_accents": None},
            _tokenizer_json(lowercase=True, strip_accents=False),
        )
        self.assertEqual(
            tokenizer_settings.read_settings(directory),
            TokenizerSettings(False, False, True, True, 100),
        )
        names = ("tokenizer_config.json", "tokenizer.json")
        self.assertEqual(
            tokenizer_settings.settings_files(directory),
            [os.path.join(directory, name) for name in names],
        )

    def test_written_settings_are_read(self):
        directory = self._directory()
        settings = TokenizerSettings(True, False, True, False, 200)
        tokenizer_settings.write_settings(directory, settings)
        self.assertEqual(tokenizer_settings.read_settings(directory), settings)

    @parameterized.parameters(
        ("{", "is not JSON"),
        ("[]", "it holds a list, not an object"),
        ("[" * 100_000, "it is not JSON .*nested too deep"),
        ({"do_lower_case": "yes"}, "do_lower_case is 'yes', expected bool"),
        ({"max_input_chars_per_word": True}, "word is True, expected int"),
        (
            {"tokenizer_class": "BertJapaneseTokenizer"},
            ".*BertJapaneseTokenizer, which this package does not support",
        ),
        ({"do_basic_tokenize": False}, "do_basic_tokenize is false"),
    )
    def test_other_configs_are_refused(self, config, message):
        directory = self._directory(config)
        with self.assertRaisesRegex(
            ValueError, f"tokenizer_config.json.*{message}"
        ):
            tokenizer_settings.read_settings(directory)

    @parameterized.parameters(
        ("normalizer", {"type": "NFKC"}, "'NFKC', not BertNormalizer"),
        ("pre_tokenizer", {"type": "Whitespace"}, "'Whitespace', not Bert"),
        ("pre_tokenizer", None, "there is no pre_tokenizer"),
        ("model", {"type": "BPE"}, "the model is 'BPE', not WordPiece"),
        (
            "model",
            {"continuing_subword_prefix": "@@"},
            "prefix is '@@', not ##",
        ),
    )
    def test_other_tokenizers_are_refused(self, part, value, message):
        directory = self._directory(
            tokenizer={**_tokenizer_json(), part: value}
        )
        with self.assertRaisesRegex(ValueError, f"tokenizer.json: .*{message}"):
            tokenizer_settings.read_settings(directory)


if __name__ == "__main__":
    tf.test.main()
