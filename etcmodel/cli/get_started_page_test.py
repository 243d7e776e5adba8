"""Follows the page for the first ten minutes, and compares what it shows."""

import json
import os
import pathlib
import re
import shlex
import shutil
import tempfile

import tensorflow as tf

from testing import tasks

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs/get_started.md"


def _mask(text):
    """Replaces numbers with decimals, which differ between machines."""
    return re.sub(r"\d+\.\d+|\d+:\d+| nan", "N", text)


class GetStartedPageTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(tempfile.mkdtemp(dir=self.get_temp_dir()))
        # A copy: the removal of the directory would follow a link.
        shutil.copytree(_ROOT / "examples/data", "examples/data")

    def test_commands_print_what_the_page_shows(self):
        page = _PAGE.read_text("utf-8")
        # All blocks, except those after `<!-- not run: REASON -->`.
        blocks = re.findall(
            r"(?ms)^(?!<!--)[^\n]*\n```(sh|text)\n(.*?)^```$", page
        )
        # The first block shows a record.
        seen = pathlib.Path("examples/data/notices.jsonl").read_text("utf-8")
        count = 0
        for kind, block in blocks:
            lines = block.strip().split("\n")
            if kind == "text":
                seen = _mask(seen)
                for line in lines:
                    self.assertIn(_mask(line), seen)
                    count += 1
                continue
            for line in lines:
                command, *arguments = shlex.split(line)
                if command == "echo":
                    text, _, name = arguments
                    pathlib.Path(name).write_text(f"{text}\n", "utf-8")
                    continue
                code, seen, error = tasks.run_cli(*arguments[2:])
                self.assertEqual((0, ""), (code, error), line)
            if os.path.exists("answer.jsonl"):
                answer = json.loads(pathlib.Path("answer.jsonl").read_text())
                for label, value in answer["probabilities"].items():
                    answer["probabilities"][label] = round(value, 3)
                seen += json.dumps(answer)
        self.assertGreater(count, 8)


if __name__ == "__main__":
    tf.test.main()
