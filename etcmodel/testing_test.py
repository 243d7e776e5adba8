import os
import pathlib
import unittest
from unittest import mock

import etcmodel
from etcmodel import testing


class RealDataPathTest(unittest.TestCase):
    def test_folder_of_the_environment(self):
        # Any file that is there will do.
        folder = pathlib.Path(testing.__file__).parent
        with mock.patch.dict(os.environ, ETCMODEL_TEST_DATA=str(folder)):
            path = testing.real_data_path("layers/__init__.py")
        self.assertEqual(str(folder / "layers" / "__init__.py"), path)
        self.assertTrue(os.path.isabs(path))

    def test_missing_file_skips_and_says_which(self):
        with (
            mock.patch.dict(os.environ, ETCMODEL_TEST_DATA="/no/such"),
            self.assertRaisesRegex(
                unittest.SkipTest,
                "/no/such/wikihop/x.json.*set ETCMODEL_TEST_DATA",
            ),
        ):
            testing.real_data_path("wikihop/x.json")

    def test_default_folder_is_beside_the_checkout(self):
        environment = dict(os.environ)
        environment.pop("ETCMODEL_TEST_DATA", None)
        checkout = pathlib.Path(etcmodel.__file__).resolve().parents[1]
        expected = checkout.parent / "shared" / "data" / "nothing.json"
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            self.assertRaises(unittest.SkipTest) as caught,
        ):
            testing.real_data_path("nothing.json")
        self.assertIn(f"real data file {expected} ", str(caught.exception))

    def test_skips_the_calling_test_only(self):
        class Example(unittest.TestCase):
            def test_needs_data(self):
                testing.real_data_path("x")

            def test_needs_none(self):
                pass

        suite = unittest.defaultTestLoader.loadTestsFromTestCase(Example)
        with mock.patch.dict(os.environ, ETCMODEL_TEST_DATA="/no/such"):
            result = suite.run(unittest.TestResult())
        self.assertTrue(result.wasSuccessful())
        self.assertEqual(2, result.testsRun)
        self.assertEqual(
            ["test_needs_data"],
            [test.id().rsplit(".")[-1] for test, _ in result.skipped],
        )


if __name__ == "__main__":
    unittest.main()
