import pathlib
import tarfile
import tempfile
import unittest
import zipfile
from unittest import mock

from tools import release


class VersionsTest(unittest.TestCase):
    def test_this_version(self):
        """Files agree, but for the newest section before its release."""
        found = release.find_versions()
        number = found["etcmodel/__init__.py"]
        self.assertEqual(number, found["CITATION.cff"])
        self.assertIn(found["CHANGELOG.md"], (number, "unreleased"))

    def test_check(self):
        self.assertEqual(
            "1.2.3", release.check_versions({"a": "1.2.3", "b": "1.2.3"})
        )
        for found, message in (
            ({"a": "1.2.3", "b": "1.2.4"}, "1.2.3 a, 1.2.4 b"),
            ({"a": "1.2.3", "b": "unreleased"}, "unreleased b"),
            ({"a": "1.2"}, "such as 1.2.3"),
        ):
            with self.assertRaisesRegex(SystemExit, message):
                release.check_versions(found)


class PackagesTest(unittest.TestCase):
    """Builds and installs the packages, and runs the wheel with few others."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.wheel, cls.source = release.build(cls.folder)
        cls.python = release.install(cls.wheel, cls.folder / "from_wheel")

    def test_files(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
        for name in (
            "etcmodel/py.typed",
            "etcmodel/inspection/web/page.html",
            "etcmodel/tasks/answer/experiments.yaml",
        ):
            self.assertIn(name, names)
        tops = {x.split("/")[0].split("-")[0] for x in names}
        self.assertEqual({"etcmodel"}, tops)
        self.assertEqual([], [x for x in names if x.endswith("_test.py")])
        with tarfile.open(self.source) as source:
            names = {x.partition("/")[2] for x in source.getnames()}
        for name in ("README.md", "run_tests.sh", "etcmodel/readme_test.py"):
            self.assertIn(name, names)

    def test_the_source_distribution_installs_the_same(self):
        release.install(self.source, self.folder / "from_source")
        files = [
            {
                path.relative_to(self.folder / name): path.read_bytes()
                for path in (self.folder / name).glob("lib/*/*/etcmodel/**/*")
                if path.is_file() and "__pycache__" not in path.parts
            }
            for name in ("from_wheel", "from_source")
        ]
        self.assertGreater(len(files[0]), 100)
        self.assertEqual(*files)

    def test_each_extra_has_what_its_program_needs(self):
        for extra in release.PROGRAMS:
            with self.subTest(extra):
                release.try_out(self.python, extra)

    def test_a_missing_package_is_an_error(self):
        program = release.PROGRAMS["tasks"]
        with (
            mock.patch.dict(release.PROGRAMS, text=program),
            self.assertRaisesRegex(SystemExit, r"etcmodel\[tasks\]"),
        ):
            release.try_out(self.python, "text")


if __name__ == "__main__":
    unittest.main()
