"""Builds the documentation's site, with warnings as errors."""

import html
import inspect
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

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

        cls.entries = {
            name
            for page, text in cls.pages.items()
            if page.startswith("reference/")
            for name in re.findall(r'id="(etcmodel\.[\w.]+)"', text)
        }

    def test_the_reference_has_all_public_names(self):
        found = {name.split(".")[-1] for name in self.entries}
        modules = {"checkpoints", "datasets", "estimators", "feature_utils"}
        modules |= {"layers", "models", "ops"}
        self.assertLessEqual({*etcmodel.__all__} - modules, found)
        for _, names in site_pages.REFERENCE.values():
            for module in names:
                self.assertLessEqual({*site_pages.public_names(module)}, found)

    def test_classes_have_their_methods(self):
        """Also those that a class inherits from others of the package."""
        found = {".".join(name.split(".")[-2:]) for name in self.entries}
        needed = set()
        for name in etcmodel.__all__:
            value = getattr(etcmodel, name)
            if not inspect.isclass(value):
                continue
            for base in value.__mro__:
                if not base.__module__.startswith("etcmodel."):
                    continue
                needed |= {
                    f"{name}.{method}"
                    for method, given in vars(base).items()
                    if not method.startswith("_")
                    and (
                        inspect.isroutine(given) or isinstance(given, property)
                    )
                }
        self.assertIn("DocumentClassifier.fit", needed)
        self.assertEqual(set(), needed - found)

    def test_the_reference_has_the_names_in_guides(self):
        """Also names in guides' code. A package has entries for its names."""
        missing = set()
        for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
            text = path.read_text("utf-8")
            names = re.findall(r"`(etcmodel(?:\.\w+){2,})[`(]", text)
            for module, imported in re.findall(
                r"(?m)^from (etcmodel\.[\w.]+) import ([\w, ]+)$", text
            ):
                names += [f"{module}.{x}" for x in imported.split(", ")]
            missing |= {
                f"{path.name}: {name}"
                for name in names
                if not any(
                    entry == name or entry.startswith(f"{name}.")
                    for entry in self.entries
                )
            }
        self.assertEqual(set(), missing)

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

    def test_links_lead_to_files_and_anchors(self):
        broken = []
        for page, text in self.pages.items():
            for link in re.findall(r'\b(?:href|src)="([^"]*)"', text):
                parts = urllib.parse.urlsplit(html.unescape(link))
                if parts.scheme or parts.netloc:
                    continue
                # Links on 404.html start at the root.
                path = urllib.parse.unquote(parts.path)
                target = page
                if path:
                    target = os.path.normpath(
                        os.path.join("/", os.path.dirname(page), path)
                    ).lstrip("/")
                if (self.site / target).is_dir():
                    target = os.path.join(target, "index.html")
                anchor = urllib.parse.unquote(parts.fragment)
                if not (self.site / target).exists() or (
                    anchor and f'id="{anchor}"' not in self.pages[target]
                ):
                    broken.append(f"{page}: {link}")
        self.assertEqual([], broken)

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
