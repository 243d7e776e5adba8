import os
import unittest
from unittest import mock

from testing import helpers


def _fail(how):
    print("printed in the process", flush=True)
    if how == "exit":
        os._exit(7)
    raise ValueError("failed with 7")


class HelpersTest(unittest.TestCase):
    """Tests that missing data and failing processes are reported."""

    def test_missing_data_skips_or_fails(self):
        for ci, error in (("", unittest.SkipTest), ("true", FileNotFoundError)):
            with (
                mock.patch.dict(os.environ, ETCMODEL_TEST_DATA="/no", CI=ci),
                self.assertRaisesRegex(error, "/no/x.json"),
            ):
                helpers.real_data_path("x.json")

    def test_failure_message_has_the_output(self):
        for how, message in (("fail", "failed with 7"), ("exit", "Broken")):
            with self.assertRaisesRegex(AssertionError, message) as caught:
                helpers.call_in_fresh_process(_fail, how)
            self.assertIn("printed in the process", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
