import json
import os
import pathlib
import time
import unittest
from unittest import mock

import etcmodel
from testing import helpers


class RealDataPathTest(unittest.TestCase):
    def test_folder_of_the_environment(self):
        # Any file that is there will do.
        folder = pathlib.Path(helpers.__file__).parent
        with mock.patch.dict(os.environ, ETCMODEL_TEST_DATA=str(folder)):
            path = helpers.real_data_path("conformance/__init__.py")
        self.assertEqual(str(folder / "conformance" / "__init__.py"), path)
        self.assertTrue(os.path.isabs(path))

    def test_missing_file_skips_and_says_which(self):
        with (
            mock.patch.dict(os.environ, ETCMODEL_TEST_DATA="/no/such", CI=""),
            self.assertRaisesRegex(
                unittest.SkipTest,
                "/no/such/wikihop/x.json.*set ETCMODEL_TEST_DATA",
            ),
        ):
            helpers.real_data_path("wikihop/x.json")

    def test_missing_file_fails_where_it_must_be(self):
        with (
            mock.patch.dict(
                os.environ, ETCMODEL_TEST_DATA="/no/such", CI="true"
            ),
            self.assertRaisesRegex(FileNotFoundError, "/no/such/x.json"),
        ):
            helpers.real_data_path("x.json")

    def test_default_folder_is_beside_the_checkout(self):
        environment = dict(os.environ)
        environment.pop("ETCMODEL_TEST_DATA", None)
        environment.pop("CI", None)
        checkout = pathlib.Path(etcmodel.__file__).resolve().parents[1]
        expected = checkout.parent / "shared" / "data" / "nothing.json"
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            self.assertRaises(unittest.SkipTest) as caught,
        ):
            helpers.real_data_path("nothing.json")
        self.assertIn(f"real data file {expected} ", str(caught.exception))


def _facts(name, value):
    print("printed in the process", flush=True)
    if name == "exit":
        os._exit(value)
    if name == "wait":
        time.sleep(value)
    if name == "fail":
        raise ValueError(f"failed with {value}")
    replicas = helpers.two_device_strategy().num_replicas_in_sync
    return os.getpid(), os.environ.get(name), replicas * value


def _cluster(value):
    config = json.loads(os.environ["TF_CONFIG"])
    return value, config["task"]["index"], config["cluster"]["worker"]


class CallInFreshProcessTest(unittest.TestCase):
    def test_devices_environment_and_result(self):
        with mock.patch.dict(os.environ, SOME_NAME="x"):
            first = helpers.call_in_fresh_process(_facts, "SOME_NAME", 3)
        second = helpers.call_in_fresh_process(_facts, "SOME_NAME", 4)
        self.assertEqual(("x", 6), first[1:])
        self.assertEqual((None, 8), second[1:])
        self.assertEqual(3, len({os.getpid(), first[0], second[0]}))

    def test_failure_tells_what_was_printed(self):
        for name, message in (("fail", "failed with 7"), ("exit", "Broken")):
            with self.assertRaises(AssertionError) as caught:
                helpers.call_in_fresh_process(_facts, name, 7)
            self.assertIn(message, str(caught.exception))
            self.assertIn("printed in the process", str(caught.exception))

    def test_a_process_that_does_not_end_is_ended(self):
        with (
            mock.patch.object(helpers, "_PATIENCE", 1),
            self.assertRaisesRegex(AssertionError, "TimeoutError"),
        ):
            helpers.call_in_fresh_process(_facts, "wait", 1e6)

    def test_two_workers_are_one_cluster(self):
        first, second = helpers.call_on_two_workers(_cluster, "x")
        self.assertEqual(("x", 0), first[:2])
        self.assertEqual(("x", 1), second[:2])
        self.assertEqual(2, len(set(first[2])))
        self.assertEqual(first[2], second[2])


if __name__ == "__main__":
    unittest.main()
