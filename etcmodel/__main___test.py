import contextlib
import importlib.metadata
import io
import pathlib
import runpy
import sys
import unittest
from unittest import mock

import etcmodel
from etcmodel import __main__ as main_module
from etcmodel.cli import command_line


class MainTest(unittest.TestCase):
    def test_passes_on_arguments_and_exit_code(self):
        with (
            mock.patch.object(sys, "argv", ["etcmodel", "predict", "--x=1"]),
            mock.patch.object(command_line, "main", return_value=130) as main,
        ):
            self.assertEqual(130, main_module.run())
        main.assert_called_once_with(["predict", "--x=1"])

    def test_without_arguments_shows_help(self):
        output = io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["etcmodel"]),
            contextlib.redirect_stdout(output),
        ):
            self.assertEqual(0, main_module.run())
        self.assertIn("python -m etcmodel COMMAND", output.getvalue())

    def test_program_returns_the_exit_code(self):
        errors = io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["etcmodel", "no_such_command"]),
            contextlib.redirect_stderr(errors),
            self.assertRaises(SystemExit) as caught,
        ):
            runpy.run_path(main_module.__file__, run_name="__main__")
        self.assertEqual(1, caught.exception.code)
        self.assertIn(
            "There is no command 'no_such_command'", errors.getvalue()
        )

    def test_installed_program_runs_this_module(self):
        project = pathlib.Path(etcmodel.__file__).resolve().parents[1]
        text = (project / "pyproject.toml").read_text("utf-8")
        _, _, scripts = text.partition("[project.scripts]\n")
        name, _, target = scripts.splitlines()[0].partition(" = ")
        self.assertEqual("etcmodel", name)
        entry = importlib.metadata.EntryPoint(
            name, target.strip('"'), "console_scripts"
        )
        self.assertIs(main_module.run, entry.load())


if __name__ == "__main__":
    unittest.main()
