import os
import sys
import unittest
from unittest import mock

from tools import suite_plugin


class SuitePluginTest(unittest.TestCase):
    """What run_tests_test.py does not see; it runs pytest with this plugin."""

    def test_keras_in_use(self):
        for value, keras in (("1", 2), ("True", 2), ("0", 3), ("", 3)):
            with mock.patch.dict(os.environ, TF_USE_LEGACY_KERAS=value):
                self.assertEqual(keras, suite_plugin.keras_in_use())

    def test_random_numbers_do_not_depend_on_earlier_tests(self):
        for keras, module in (("1", "tf_keras"), ("0", "keras")):
            library = mock.Mock()
            modules = {module: library, "tensorflow": mock.Mock()}
            with (
                mock.patch.dict(sys.modules, modules),
                mock.patch.dict(os.environ, TF_USE_LEGACY_KERAS=keras),
            ):
                suite_plugin.pytest_runtest_setup()
            library.utils.set_random_seed.assert_called_once_with(1)


if __name__ == "__main__":
    unittest.main()
