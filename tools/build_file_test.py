"""Tests that BUILD lists all source files, and the imports of all packages."""

import pathlib
import sys
import unittest

from tools import modules

ROOT = pathlib.Path(__file__).resolve().parents[1]


def read_rules():
    """Returns the kind, name, srcs and deps of each rule in BUILD."""
    rules = []

    def rule(kind):
        return lambda **values: rules.append({"kind": kind, **values})

    def glob(patterns, exclude=()):
        files = {x for pattern in patterns for x in ROOT.glob(pattern)}
        files -= {x for pattern in exclude for x in ROOT.glob(pattern)}
        return sorted(
            x.relative_to(ROOT).as_posix()
            for x in files
            if x.is_file() and ".venv" not in x.parts
        )

    # BUILD files are written in Starlark, which Python can parse.
    names = {
        "glob": glob,
        "requirement": lambda name: f"@{name}",
        **{x: rule(x) for x in ("py_binary", "py_library", "py_test")},
        **{
            x: lambda *args, **kwargs: None
            for x in ("exports_files", "licenses", "load", "package")
        },
    }
    exec((ROOT / "BUILD").read_text("utf-8"), names)
    return rules


class BuildFileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rules = read_rules()
        cls.libraries = {
            rule["name"]: rule
            for rule in cls.rules
            if rule["kind"] != "py_test"
        }

    def test_every_file_is_in_one_rule_of_its_kind(self):
        sources = [
            (source, rule["kind"] == "py_test")
            for rule in self.rules
            for source in rule["srcs"]
        ]
        expected = [
            (path.as_posix(), path.name.endswith("_test.py"))
            for path in (*modules.module_files(), pathlib.Path("conftest.py"))
        ]
        self.assertEqual(sorted(expected), sorted(sources))

    def test_build_file_is_short(self):
        lines = (ROOT / "BUILD").read_text("utf-8").splitlines()
        self.assertLessEqual(len(lines), 340)

    def test_every_module_has_a_test_of_its_own(self):
        """Skips `testing/`, and skips benchmarks, which share a smoke test."""
        names = {modules.target_of(path) for path in modules.module_files()}
        for name in names:
            if not name.endswith(("_test", "/__init__")):
                if not name.startswith(("benchmarks/", "testing/")):
                    self.assertIn(f"{name}_test", names)

    def _closure(self, name):
        seen, waiting = set(), [name]
        while waiting:
            current = waiting.pop()
            if current not in seen:
                seen.add(current)
                waiting += [
                    x[1:]
                    for x in self.libraries[current].get("deps", ())
                    if x[0] == ":"
                ]
        return seen

    def test_a_package_depends_on_what_it_imports(self):
        owners = {
            source: name
            for name, rule in self.libraries.items()
            for source in rule["srcs"]
        }
        distributions = modules.distribution_names()
        for name, rule in self.libraries.items():
            reached = self._closure(name)
            given = {
                x for other in reached for x in self.libraries[other]["deps"]
            }
            for source in rule["srcs"]:
                target = source.removesuffix(".py")
                for other in modules.imports_of(target, strings=False):
                    self.assertIn(owners[f"{other}.py"], reached, source)
                for imported in modules.imported_names(target):
                    top = imported.split(".")[0]
                    if top not in {*modules.FOLDERS, *sys.stdlib_module_names}:
                        self.assertIn(f"@{distributions[top]}", given, source)

    def test_no_package_depends_on_itself(self):
        for name, rule in self.libraries.items():
            for other in rule["deps"]:
                if other[0] == ":":
                    self.assertNotIn(name, self._closure(other[1:]))

    def test_requirements_are_the_projects(self):
        lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
        known = {
            line.split(">")[0] for line in lines if line and line[0] != "#"
        }
        # TensorFlow installs the protobuf version that it needs.
        known.add("protobuf")
        for rule in self.rules:
            given = {x[1:] for x in rule["deps"] if x[0] == "@"}
            self.assertLessEqual(given, known, rule["name"])


if __name__ == "__main__":
    unittest.main()
