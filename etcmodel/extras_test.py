import pathlib
import re
import sys
import unittest
from unittest import mock

from etcmodel import extras
from tools.modules import distribution_names

ROOT = pathlib.Path(__file__).resolve().parents[1]


def listed():
    """Returns list name -> requirements for the lists in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    lists = re.findall(r"^(\w+) = \[(.*?)\]$", text, re.M | re.S)
    found = {name: re.findall(r'"([^"]+)"', x) for name, x in lists}
    names = "dependencies text tasks beam hub serve onnx docs test".split()
    return {name: found[name] for name in names}


class ExtrasTest(unittest.TestCase):
    def test_require_imports_nothing(self):
        before = set(sys.modules)
        extras.require("nltk", "sacrebleu")
        self.assertEqual(before, set(sys.modules))

    def test_the_error_names_the_package_and_the_extra(self):
        for missing, extra in (
            (["safetensors"], "text"),
            (["nltk"], "tasks"),
            (["msgspec", "tensorflow_text"], "tasks"),
            (["apache_beam", "msgspec"], "beam"),
            (["tf2onnx"], "onnx"),
        ):
            with (
                mock.patch.dict(sys.modules, dict.fromkeys(missing)),
                self.assertRaises(ModuleNotFoundError) as caught,
            ):
                extras.require("yaml", *missing)
            self.assertEqual(missing[0], caught.exception.name)
            self.assertEqual(
                f"{', '.join(missing)}: not installed. Run `pip install "
                f"'etcmodel[{extra}]'`, or '.[{extra}]' in a checkout.",
                str(caught.exception),
            )

    def test_extras_equal_pyproject(self):
        lists, names = listed(), distribution_names()
        for extra, modules in extras.EXTRAS.items():
            self.assertEqual(
                {names[x] for x in modules},
                {re.split("[><=[]", x)[0] for x in lists[extra]} - {"etcmodel"},
            )

    def test_the_documented_versions_are_those_of_pyproject(self):
        text = (ROOT / "pyproject.toml").read_text("utf-8")
        page = (ROOT / "docs/get_started.md").read_text("utf-8")
        (shown,) = re.findall(r"^\| Python \| (.*) \|$", page, re.MULTILINE)
        listed_versions = re.findall(r"Python :: (3\.\d+)", text)
        self.assertEqual(listed_versions, shown.split(", "))
        (low, high) = re.findall(
            r'^requires-python = ">=3\.(\d+),<3\.(\d+)"$', text, re.MULTILINE
        )[0]
        minors = [int(x.split(".")[1]) for x in listed_versions]
        self.assertEqual(list(range(int(low), int(high))), minors)
        (shown,) = re.findall(r"^\| TensorFlow, .* \| (.*) \|$", page, re.M)
        for name in ("tensorflow", "tensorflow-text", "tf-models-official"):
            self.assertIn(f'"{name}>={shown},<', text)

    def test_requirements_are_those_of_all_extras(self):
        lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
        required = [x for names in listed().values() for x in names]
        self.assertEqual(
            sorted(x for x in lines if x and x[0] != "#"),
            sorted(x for x in required if not x.startswith("etcmodel[")),
        )


if __name__ == "__main__":
    unittest.main()
