"""Writes a small project to a temporary directory, for tests of the tools."""

import pathlib
import shutil
import tempfile
import unittest
from collections.abc import Mapping


def make_project(
    test: unittest.TestCase, files: Mapping[str, str]
) -> pathlib.Path:
    """Writes a project to a temporary directory; returns its root."""
    root = pathlib.Path(tempfile.mkdtemp())
    test.addCleanup(shutil.rmtree, root)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return root


def clear_caches(module) -> None:
    """Clears the caches of all functions in a module."""
    for function in vars(module).values():
        getattr(function, "cache_clear", lambda: None)()
