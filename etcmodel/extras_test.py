import pathlib
import re
import sys
import unittest
from unittest import mock

from etcmodel import extras
from tools import write_build

ROOT = pathlib.Path(__file__).resolve().parents[1]


class ExtrasTest(unittest.TestCase):
    def test_what_is_installed_is_not_imported(self):
        before = set(sys.modules)
        extras.require("nltk", "sacrebleu")
        self.assertEqual(before, set(sys.modules))

    def test_the_error_names_the_package_and_the_extra(self):
        for missing, extra in (
            (["safetensors"], "text"),
            (["nltk"], "tasks"),
            (["msgspec", "tensorflow_text"], "tasks"),
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

    def test_an_extra_brings_what_pyproject_says(self):
        text = (ROOT / "pyproject.toml").read_text("utf-8")
        for extra, modules in extras.EXTRAS.items():
            (listed,) = re.findall(rf"^{extra} = \[(.*?)\]$", text, re.M | re.S)
            brought = set(re.findall(r'"([\w-]+)[><=]', listed))
            if extra == "tasks":
                modules = (*modules, *extras.EXTRAS["text"])
            self.assertEqual(
                brought, {write_build.DISTRIBUTIONS[x] for x in modules}
            )


if __name__ == "__main__":
    unittest.main()
