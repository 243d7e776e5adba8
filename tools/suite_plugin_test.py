import json
import os
import pathlib
import sys
import tempfile
import types
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
        for keras, module in ((2, "tf_keras"), (3, "keras")):
            library = mock.Mock()
            modules = {module: library, "tensorflow": mock.Mock()}
            with (
                mock.patch.dict(sys.modules, modules),
                mock.patch.dict(
                    os.environ, TF_USE_LEGACY_KERAS=str(int(keras == 2))
                ),
            ):
                suite_plugin.pytest_runtest_setup()
            library.utils.set_random_seed.assert_called_once_with(1)

    def test_record(self):
        # These two files are there.
        first, second = "testing/helpers_test.py", "etcmodel/imports_test.py"
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "seconds.json"
        old = {"seconds": 4.0, "tests": {"a": 4.0}}
        path.write_text(
            json.dumps({"files": {second: old, "gone_test.py": old}})
        )
        recorder = suite_plugin.Recorder(path)
        for name, duration in (
            ("A::test_x", 0.25),
            ("A::test_x", 1.5),
            ("A::test_y", 0.01),
        ):
            recorder.pytest_runtest_logreport(
                types.SimpleNamespace(
                    nodeid=f"{first}::{name}", duration=duration
                )
            )
        clock = types.SimpleNamespace(process=lambda: {"seconds": 9.0})
        manager = mock.Mock(**{"get_plugin.return_value": clock})
        recorder.pytest_sessionfinish(
            mock.Mock(**{"config.pluginmanager": manager})
        )
        self.assertEqual(
            {
                "processes": {"main": {"seconds": 9.0}},
                "files": {
                    second: old,
                    first: {"seconds": 1.76, "tests": {"A::test_x": 1.75}},
                },
            },
            json.loads(path.read_text()),
        )


if __name__ == "__main__":
    unittest.main()
