import importlib
import sys
import unittest
from unittest import mock

import tensorflow_text

from etcmodel import extras
from etcmodel.feature_utils.text import tf_text


class TfTextTest(unittest.TestCase):
    def test_is_tensorflow_text(self):
        self.assertIs(tensorflow_text, tf_text.tf_text)

    def test_without_it_names_the_extra(self):
        with (
            mock.patch.dict(sys.modules, tensorflow_text=None),
            self.assertRaisesRegex(
                extras.MissingExtraError, r"pip install 'etcmodel\[text\]'"
            ),
        ):
            importlib.reload(tf_text)


if __name__ == "__main__":
    unittest.main()
