import os
import shutil
import subprocess
import sys
import unittest

from testing.small_project import make_project
from tools import modules

_KERAS = """
import os

KERAS = 2 if os.environ["TF_USE_LEGACY_KERAS"] == "1" else 3


def write(name):
    with open("log.txt", "a") as log:
        log.write(f"{name} {KERAS}\\n")
"""
FILES = {
    "conftest.py": 'pytest_plugins = ["tools.suite_plugin"]\n',
    "pyproject.toml": """
[tool.pytest.ini_options]
python_files = ["*_test.py"]
[tool.ruff]
line-length = 80
lint.select = ["E"]
""",
    "etcmodel/__init__.py": "",
    "etcmodel/log.py": _KERAS.lstrip(),
    "etcmodel/layer.py": "def use(tf):\n    return tf.keras\n",
    "etcmodel/layer_test.py": """\
import pytest

from etcmodel import layer
from etcmodel.log import write


def test_here():
    assert layer.use
    write("here")


@pytest.mark.both_kerases
def test_both():
    write("both")


def test_fails():
    write("fails")
    with open("fail.txt") as file:
        assert file.read() != "yes"
""",
    "etcmodel/tasks/__init__.py": "",
    "etcmodel/tasks/task_test.py": """\
from etcmodel.log import write


def test_task():
    write("task")
""",
    "fail.txt": "no",
    "etcmodel/imports_test.py": "",
    "tools/build_file_test.py": "",
    ".gitignore": "__pycache__/\n.pytest_cache/\n.ruff_cache/\nlog.txt\n",
}


class RunTestsTest(unittest.TestCase):
    """Runs the tool in the git checkout of a small project."""

    def setUp(self):
        self.root = make_project(self, FILES)
        for name in ("modules", "run_tests", "suite_plugin"):
            shutil.copy(
                modules.ROOT / "tools" / f"{name}.py", self.root / "tools"
            )

    def git(self, *arguments):
        names = ("author", "committer")
        subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            check=True,
            capture_output=True,
            env=dict(os.environ)
            | {f"GIT_{name.upper()}_NAME": "x" for name in names}
            | {f"GIT_{name.upper()}_EMAIL": "x@example.com" for name in names},
        )

    def run_tool(self, *arguments, code=0):
        """Returns the output, and each test with its Keras version."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST", "TF_USE"))
        }
        done = subprocess.run(
            [sys.executable, "-m", "tools.run_tests", *arguments],
            cwd=self.root,
            env=environment | {"PYTHONPATH": str(self.root)},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        log = self.root / "log.txt"
        ran = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return done.stdout + done.stderr, sorted(ran)

    def test_each_test_runs_under_its_keras_version(self):
        everything = ["both 2", "both 3", "fails 3", "here 3", "task 2"]
        here = ["both 2", "both 3", "here 3"]
        test = "etcmodel/layer_test.py"
        for arguments, expected in (
            (["etcmodel", "-v"], everything),
            (["etcmodel", "-k", "both"], ["both 2", "both 3"]),
            ([f"{test}::test_here"], ["here 3"]),
            (["--everywhere", f"{test}::test_here"], ["here 2", "here 3"]),
            (["--keras=2", "etcmodel", "-v"], ["both 2", "task 2"]),
            # An option's value may look like a path.
            ([test, "--deselect", f"{test}::test_fails"], here),
            (["-k", "layer_test.py and not fails", "etcmodel"], here),
        ):
            self.assertEqual(expected, self.run_tool(*arguments)[1], arguments)

    def test_everything_with_style(self):
        output, ran = self.run_tool()
        self.assertEqual(5, len(ran))
        self.assertIn("Style: ruff", output)
        self.assertRegex(output, "(?s)Keras 3.*3 passed.*Keras 2.*2 passed")
        # Two processes ran the tests.
        self.assertEqual(2, output.count("2 workers ["))
        (self.root / "etcmodel" / "log.py").write_text("x=1")
        output, ran = self.run_tool(code=1)
        self.assertEqual([], ran)
        self.assertIn("ruff format .", output)

    def test_exit_code_and_last_failed(self):
        (self.root / "fail.txt").write_text("yes")
        output, ran = self.run_tool("etcmodel", "-v", code=1)
        self.assertEqual(5, len(ran))
        self.assertEqual(["fails 3"], self.run_tool("--lf", code=1)[1])
        # No test is selected.
        self.run_tool("etcmodel", "-k", "no_such_test", code=5)

    def test_changed(self):
        self.git("init", "--initial-branch=main")
        self.git("add", ".")
        self.git("commit", "-m", "x")
        self.assertIn("Nothing differs", self.run_tool("--changed")[0])
        (self.root / "etcmodel/layer.py").write_text("def use(): tf.keras\n")
        ran = self.run_tool("--changed")[1]
        self.assertEqual(["both 2", "both 3", "fails 3", "here 3"], ran)
        self.git("commit", "-a", "-m", "y")
        self.assertEqual(ran, self.run_tool("--changed", "HEAD~1")[1])
        (self.root / "etcmodel/new_test.py").write_text(
            "from etcmodel.log import write\ndef test_new(): write('new')\n"
        )
        self.assertEqual(["new 3"], self.run_tool("--changed")[1])
        output, _ = self.run_tool("--changed=no_such_branch", code=1)
        self.assertIn("no_such_branch", output)


if __name__ == "__main__":
    unittest.main()
