import contextlib
import importlib
import io
import pathlib
import re
import unittest

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.both_kerases
class ReadmeTest(unittest.TestCase):
    def test_the_examples_run_and_print_what_they_say(self):
        for name, number in (
            ("README.md", 2),
            ("docs/architecture.md", 1),
            ("docs/layouts.md", 2),
        ):
            text = (ROOT / name).read_text("utf-8")
            examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
            self.assertEqual(number, len(examples))
            for example in examples:
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(example, name, "exec"), {})
                expected = re.findall(r"print\(.*\)  # (.*)", example)
                self.assertTrue(expected)
                self.assertEqual(printed.getvalue().splitlines(), expected)

    def test_what_the_table_names_is_there(self):
        text = (ROOT / "README.md").read_text("utf-8")
        paths = re.findall(r"^\| `(\S+)` \|", text, re.MULTILINE)
        self.assertTrue(paths)
        for path in paths:
            there = ROOT / path.replace(".", "/")
            module = there.with_name(f"{there.name}.py")
            self.assertTrue(there.is_dir() or module.is_file(), path)
        for name in ("etcmodel.layers", "etcmodel.models"):
            (row,) = re.findall(
                rf"^\| `{name}` \| (.*) \|$", text, re.MULTILINE
            )
            module = importlib.import_module(name)
            for exported in re.findall(r"`([A-Z]\w+)`", row):
                self.assertIn(exported, module.__all__)

    def test_guarantees_name_tests_that_exist(self):
        text = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
        named = set(re.findall(r"`([\w/]+\.py)`", text))
        self.assertTrue(named)
        folders = (ROOT, ROOT / "etcmodel")
        files = {}
        for path in named:
            (files[path],) = [x / path for x in folders if (x / path).is_file()]
        functions = re.findall(r"`([\w/]+\.py)`: `(\w+)`", text)
        self.assertTrue(functions)
        for path, name in functions:
            code = files[path].read_text("utf-8")
            self.assertIn(f"def {name}(", code, path)


if __name__ == "__main__":
    unittest.main()
