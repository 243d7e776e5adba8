import contextlib
import importlib
import io
import pathlib
import re
import unittest

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Number of Python blocks of each page that print what they say.
_EXAMPLES = {
    "README.md": 1,
    "docs/architecture.md": 1,
    "docs/from_hugging_face.md": 1,
    "docs/layouts.md": 3,
    "docs/read_twice.md": 1,
}
# Page and language of blocks -> their test, which names the page. The other
# blocks have a comment: `<!-- tested: FILE -->` or `<!-- not run: REASON -->`,
# which also excepts a block from its page's test.
_TESTS = {
    ("docs/get_started.md", "sh"): "etcmodel/cli/get_started_page_test.py",
    ("docs/get_started.md", "text"): "etcmodel/cli/get_started_page_test.py",
    ("docs/serving.md", "json"): "etcmodel/tasks/conformance_test.py",
}


@pytest.mark.both_kerases
class ReadmeTest(unittest.TestCase):
    def test_examples(self):
        for name, number in _EXAMPLES.items():
            text = (ROOT / name).read_text("utf-8")
            examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
            # Programs, which have tests of their own, have the same code.
            examples = [x for x in examples if "from examples." not in x]
            self.assertEqual(number, len(examples))
            namespace = {}
            for example in examples:
                # README's examples stand alone. On other pages, an example may
                # use names of the one before.
                namespace = {} if name == "README.md" else namespace
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(example, name, "exec"), namespace)
                expected = re.findall(r"print\(.*\)  # (.*)", example)
                self.assertTrue(expected)
                self.assertEqual(printed.getvalue().splitlines(), expected)

    def test_readme_stays_short(self):
        text = (ROOT / "README.md").read_text("utf-8")
        self.assertLessEqual(len(text.splitlines()), 150)

    def test_examples_are_those_of_the_programs(self):
        """Comments show what is printed; tests of the programs check them."""
        text = (ROOT / "README.md").read_text("utf-8")
        examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        for name, example in zip(
            ("classify_documents", "answer_questions"), examples, strict=False
        ):
            code = (ROOT / f"examples/{name}.py").read_text("utf-8")
            program = {line.strip() for line in code.splitlines()}
            self.assertRegex(example, r"print\(.*\)  # ")
            for line in example.splitlines():
                if "import" not in line:
                    self.assertIn(line.strip(), program)

    def test_all_blocks_are_tested_or_say_why_not(self):
        for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
            page = path.relative_to(ROOT).as_posix()
            text = path.read_text("utf-8")
            for before, language, block in re.findall(
                r"(?ms)^([^\n]*)\n```([^\n]*)\n(.*?)^```$", text
            ):
                if language == "python" and page in _EXAMPLES:
                    continue
                test = _TESTS.get((page, language))
                kind, _, reason = before.strip("<!- >").partition(": ")
                if kind == "tested":
                    test = reason
                where = f"{page}: {block[:60]!r}"
                if test and kind != "not run":
                    code = (ROOT / test).read_text("utf-8")
                    self.assertIn(path.name, code, where)
                else:
                    self.assertEqual("not run", kind, where)
                    self.assertTrue(reason, where)

    def test_packages_and_their_exports(self):
        page = (ROOT / "docs/architecture.md").read_text("utf-8")
        text = page.partition("## Packages")[2].partition("\n## ")[0]
        paths = re.findall(r"^\| `(\S+)` \|", text, re.MULTILINE)
        self.assertTrue(paths)
        for path in paths:
            self.assertTrue((ROOT / path.replace(".", "/")).is_dir(), path)
        for name in ("etcmodel.layers", "etcmodel.models"):
            (row,) = re.findall(
                rf"^\| `{name}` \| (.*) \|$", text, re.MULTILINE
            )
            module = importlib.import_module(name)
            for exported in re.findall(r"`([A-Z]\w+)`", row):
                self.assertIn(exported, module.__all__)

    def test_pages_under_where_to_find_what(self):
        page = (ROOT / "docs/architecture.md").read_text("utf-8")
        text = page.partition("## Where to find what")[2].partition("\n## ")[0]
        places = re.findall(r"`(etcmodel/\S+\.py)`(?:: `(\w+)`)?", text)
        self.assertTrue(places)
        for path, name in places:
            code = (ROOT / path.replace("<task>", "wikihop")).read_text("utf-8")
            self.assertIn(f"def {name}(" if name else "", code, path)

    def test_links_and_files_exist(self):
        pages = {
            path: path.read_text("utf-8")
            for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
        }
        anchors = {
            path: {
                re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
                for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            }
            for path, text in pages.items()
        }
        rooms = "etcmodel|testing|benchmarks|tools|examples"
        for path, text in pages.items():
            for link in re.findall(r"\]\((?!http)([^)\s]+)\)", text):
                name, _, anchor = link.partition("#")
                target = (path.parent / name).resolve() if name else path
                self.assertTrue(target.exists(), f"{path.name}: {link}")
                if anchor:
                    self.assertIn(anchor, anchors[target], path.name)
            files = re.findall(rf"`((?:{rooms})/\w[\w/]*\.py)`", text)
            programs = re.findall(
                r"python -m ((?:benchmarks|tools)\.\w+)", text
            )
            files += [f"{x.replace('.', '/')}.py" for x in programs]
            for file in files:
                # Skips placeholders, which name no real file.
                if not file.endswith(("/x.py", "/x_test.py", "NAME.py")):
                    self.assertTrue((ROOT / file).exists(), file)

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
