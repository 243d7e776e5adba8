import os
import sys
import unittest
from unittest import mock

from tools import suite_plugin


class SuitePluginTest(unittest.TestCase):
    """Tests parts of the plugin that run_tests_test.py does not cover."""

    def test_keras_in_use(self):
        for value, keras in (("1", 2), ("True", 2), ("0", 3), ("", 3)):
            with mock.patch.dict(os.environ, TF_USE_LEGACY_KERAS=value):
                self.assertEqual(keras, suite_plugin.keras_in_use())

    def test_random_numbers_do_not_depend_on_earlier_tests(self):
        for keras, module in (("1", "tf_keras"), ("0", "keras")):
            library, tensorflow = mock.Mock(), mock.Mock()
            modules = {module: library, "tensorflow": tensorflow}
            # The module in which this Keras version looks up TensorFlow.
            of_keras = {"1": tensorflow.compat.v2, "0": tensorflow}[keras]
            set_seed = of_keras.random.set_seed
            library.utils.set_random_seed.side_effect = (
                lambda seed, x=of_keras: x.random.set_seed(seed)
            )
            with (
                mock.patch.dict(sys.modules, modules),
                mock.patch.dict(os.environ, TF_USE_LEGACY_KERAS=keras),
            ):
                suite_plugin.pytest_runtest_setup()
            library.utils.set_random_seed.assert_called_once_with(1)
            set_seed.assert_not_called()


if __name__ == "__main__":
    unittest.main()
