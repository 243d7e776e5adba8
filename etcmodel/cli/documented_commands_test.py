"""Checks that commands in README.md and docs/ use flags that exist."""

import pathlib
import re
import shlex
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from benchmarks import program
from etcmodel.cli import command_line
from etcmodel.pipeline import options
from testing import tasks

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PAGES = sorted(
    path.relative_to(_ROOT).as_posix()
    for path in (_ROOT / "README.md", *(_ROOT / "docs").glob("*.md"))
    if "\npython -m etcmodel" in path.read_text("utf-8")
)


class DocumentedCommandsTest(parameterized.TestCase):
    @parameterized.parameters(*_PAGES)
    def test_flags_of(self, page):
        text = (_ROOT / page).read_text("utf-8")
        lines = re.findall(r"^python -m etcmodel (.+)$", text, re.MULTILINE)
        for line in lines:
            line, *_ = line.partition(" > ")
            command, *arguments = shlex.split(line, comments=True)
            module = command_line.load(command)
            with mock.patch.object(module, "run") as run:
                code, _, error = tasks.run_cli(command, *arguments)
            self.assertEqual((0, ""), (code, error), line)
            options.check(run.call_args.args[0])

    def test_flags_of_benchmarks(self):
        count = 0
        for path in (_ROOT / "README.md", *(_ROOT / "docs").glob("*.md")):
            # A command can go on in further lines.
            text = re.sub(r" \\\n +", " ", path.read_text("utf-8"))
            for name, line in re.findall(
                r"python -m benchmarks\.([a-z_]+)((?: --\w+=\S+)+)", text
            ):
                benchmark = program.load(name, lambda _: ())
                # Pages may write `...` for flags that must be given.
                required = [
                    f"--{flag}=x"
                    for flag, (default, *_) in benchmark.flags.items()
                    if default == "required"
                ]
                arguments = line.rstrip("`").split()
                program.parse(benchmark, *required, *arguments)
                count += 1
        self.assertGreater(count, 5)


if __name__ == "__main__":
    absltest.main()
