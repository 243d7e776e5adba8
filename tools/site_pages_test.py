"""Builds the documentation's site, with warnings as errors."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import etcmodel
from etcmodel.cli import command_line
from tools import site_pages
from tools.modules import ROOT


class SiteTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.site = pathlib.Path(folder.name) / "site"
        command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
        done = subprocess.run(
            [*command, f"--site-dir={cls.site}"],
            cwd=ROOT,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise AssertionError(done.stdout)
        cls.pages = {
            path.relative_to(cls.site).as_posix(): path.read_text("utf-8")
            for path in cls.site.rglob("*.html")
        }

    def test_the_reference_has_all_public_names(self):
        found = {
            name.split(".")[-1]
            for page, text in self.pages.items()
            if page.startswith("reference/")
            for name in re.findall(r'id="(etcmodel\.[\w.]+)"', text)
        }
        modules = {"checkpoints", "datasets", "estimators", "feature_utils"}
        modules |= {"layers", "models", "ops"}
        self.assertLessEqual({*etcmodel.__all__} - modules, found)
        for _, names in site_pages.REFERENCE.values():
            for module in names:
                self.assertLessEqual({*site_pages.public_names(module)}, found)

    def test_all_commands_have_their_flags(self):
        page = self.pages["reference/commands/index.html"]
        for name in command_line.COMMANDS:
            self.assertIn(f'id="{name}"', page)
        for part in ("--init_checkpoint", "preprocess --task=nq", "--stride"):
            self.assertIn(part, page)

    def test_files_of_the_repository(self):
        """The README and notebooks are pages; programs are files."""
        self.assertIn("Two commands", self.pages["index.html"])
        notebook = self.pages["examples/classify_documents/index.html"]
        self.assertIn("DocumentClassifier", notebook)
        self.assertTrue((self.site / "examples/clauses.py").exists())

    def test_links_lead_to_pages(self):
        for page, text in self.pages.items():
            links = re.findall(r'href="([^":]*\.md)[#"]', text)
            self.assertEqual([], links, page)

    def test_pages_need_no_network(self):
        for page, text in self.pages.items():
            loaded = re.findall(
                r'<(?:script|img|iframe)[^>]*\bsrc="(https?:[^"]*)'
                r'|<link[^>]*rel="stylesheet"[^>]*href="(https?:[^"]*)',
                text,
            )
            self.assertEqual([], loaded, page)


if __name__ == "__main__":
    unittest.main()
