"""Runs the tests, each under the Keras that it is about.

    ./run_tests.sh                              style and everything
    ./run_tests.sh etcmodel/layers -k dropout   some; pytest's own options
    ./run_tests.sh --changed                    tests of what is not committed
    ./run_tests.sh --changed main               ... of what differs from main
    ./run_tests.sh --lf                         what failed last time
    ./run_tests.sh --record                     everything; writes how long

`--changed` runs the tests of the modules that have changed and of those that
import them; with `--all-dependents` of all that depends on them. With
`--everywhere`, tests run under both Kerases, wherever they belong.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from tools import modules
from tools import suite_plugin

KERASES = (3, 2)
# Two processes are worth their start if the tests take longer, in seconds.
_WORTH_TWO_PROCESSES = 60
NO_TESTS = 5  # An exit code of pytest.
# Options of pytest whose values may look like paths of tests.
_OPTIONS_WITH_VALUES = (
    "-k",
    "-m",
    "-c",
    "--ignore",
    "--deselect",
    "--basetemp",
)
# Of the project as a whole: any change may break them.
_ALWAYS = ("etcmodel/imports_test", "tools/build_file_test")


def make_parser() -> argparse.ArgumentParser:
    """The command line's options; pytest's own are not among them."""
    parser = argparse.ArgumentParser(
        prog="./run_tests.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--changed", nargs="?", const="HEAD", metavar="REF")
    parser.add_argument("--all-dependents", action="store_true")
    parser.add_argument("--everywhere", action="store_true")
    parser.add_argument("--record", action="store_true")
    return parser


def changed_files(ref: str) -> list[str]:
    """Files that differ from a commit, and new ones; relative to the root.

    Raises:
        SystemExit: git does not know the commit, or this is no git checkout.
    """
    lines = []
    for command in (
        ["git", "diff", "--name-only", "--relative", ref, "--"],
        ["git", "ls-files", "--others", "--exclude-standard"],
    ):
        done = subprocess.run(
            command,
            cwd=modules.ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(
                f"error: --changed={ref}: {done.stderr.strip()}. Give a branch "
                "or a commit of this checkout."
            )
        lines += done.stdout.splitlines()
    return sorted(set(lines))


def changed_tests(files: Sequence[str], all_dependents: bool) -> list[str]:
    """Test files to run after a change.

    Args:
        files: what has changed, relative to the root.
        all_dependents: whether to run the tests of all that depends on it.

    Returns:
        Test files, relative to the root.
    """
    tests = modules.tests_of(
        [file.removesuffix(".py") for file in files if file.endswith(".py")],
        all_dependents,
    )
    if files:
        tests = [*tests, *_ALWAYS]
    if any(file.endswith(".md") for file in files):
        tests.append("etcmodel/readme_test")
    return [f"{test}.py" for test in dict.fromkeys(tests)]


def split_arguments(rest: Sequence[str]) -> tuple[list[str], list[str]]:
    """Test files or single tests, and options for pytest.

    Raises:
        SystemExit: a folder has no tests.
    """
    paths, options = [], []
    for before, argument in zip(["", *rest], rest, strict=False):
        path = modules.ROOT / argument.split("::")[0]
        is_option = argument.startswith("-") or before in _OPTIONS_WITH_VALUES
        if is_option or not path.exists():
            options.append(argument)
        elif path.is_dir():
            files = sorted(path.rglob("*_test.py"))
            if not files:
                raise SystemExit(f"error: there are no tests in {argument}.")
            paths += [f.relative_to(modules.ROOT).as_posix() for f in files]
        else:
            paths.append(argument)
    return paths, options


def is_placed(test: str, keras: int) -> bool:
    """Whether some of a file's tests run under a Keras."""
    path = pathlib.Path(test.split("::")[0])
    own, _ = modules.place_of(modules.target_of(path))
    text = (modules.ROOT / path).read_text("utf-8")
    return own == keras or "both_kerases" in text


class Plan:
    """Which tests run under which Keras, and how.

    Attributes:
        tests: Keras -> test files or single tests, the longest first.
        seconds: Keras -> how long they took when that was recorded.
    """

    def __init__(self, paths: Sequence[str], everywhere: bool = False):
        self.tests, self.seconds = {}, {}
        for keras in KERASES:
            path = suite_plugin.seconds_file(keras)
            files = suite_plugin.read_seconds(path).get("files", {})
            seconds = {file: entry["seconds"] for file, entry in files.items()}
            chosen = [p for p in paths if everywhere or is_placed(p, keras)]
            # What is new may take long.
            chosen.sort(key=lambda path: -seconds.get(path, 1e6))
            if chosen:
                self.tests[keras] = chosen
                self.seconds[keras] = sum(seconds.get(p, 5) for p in chosen)


def command_of(keras: int, arguments: Sequence[str]) -> dict:
    """Arguments of `subprocess.Popen` for pytest under a Keras."""
    return dict(
        args=[
            *(sys.executable, "-m", "pytest"),
            *("-o", f"cache_dir=.pytest_cache/keras_{keras}"),
            # Where nothing has failed, `--lf` runs nothing.
            "--last-failed-no-failures=none",
            *arguments,
        ],
        cwd=modules.ROOT,
        env=dict(
            os.environ,
            TF_USE_LEGACY_KERAS=str(int(keras == 2)),
            # What tests do is too small for several threads.
            TF_NUM_INTRAOP_THREADS="1",
        ),
    )


def run_one_after_another(plan: Plan, options: Sequence[str]) -> list[int]:
    """Two processes for each Keras; returns exit codes."""
    codes = []
    for keras, tests in plan.tests.items():
        print(f"Tests under Keras {keras}", flush=True)
        # Files in the order given: the longest first.
        two = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
        command = command_of(keras, [*two, *options, *tests])
        codes.append(subprocess.run(**command, check=False).returncode)
    return codes


def run_side_by_side(plan: Plan, options: Sequence[str]) -> list[int]:
    """A process for each Keras at the same time; returns exit codes."""
    with tempfile.TemporaryFile() as log:
        running = []
        for keras, tests in plan.tests.items():
            # The first one is watched, the other one's output comes behind.
            to = dict(stdout=log, stderr=log) if running else {}
            command = command_of(keras, [*options, *tests])
            running.append(subprocess.Popen(**command, **to))
        codes = [process.wait() for process in running]
        log.seek(0)
        sys.stdout.flush()
        shutil.copyfileobj(log, sys.stdout.buffer)
    return codes


def check_style() -> None:
    """Lets ruff look at all files.

    Raises:
        SystemExit: it has complaints.
    """
    print("Style: ruff", flush=True)
    for arguments, advice in (
        (["format", "--check"], "Run: .venv/bin/ruff format ."),
        (["check"], "Many of them are mended by: .venv/bin/ruff check --fix ."),
    ):
        command = [sys.executable, "-m", "ruff", *arguments, "--quiet", "."]
        if subprocess.run(command, cwd=modules.ROOT, check=False).returncode:
            raise SystemExit(f"error: ruff complains, see above. {advice}")


def main(arguments: Sequence[str]) -> int:
    """Runs tests.

    Args:
        arguments: the command line's.

    Returns:
        The exit code: 0 if all tests that ran have passed.
    """
    options, rest = make_parser().parse_known_args(arguments)
    paths, pytest_options = split_arguments(rest)
    if options.record and pytest_options:
        # A file would get the seconds of some of its tests.
        raise SystemExit("error: --record is for whole files: give no options.")
    is_everything = not rest and options.changed is None
    if options.changed is not None:
        files = changed_files(options.changed)
        paths += changed_tests(files, options.all_dependents)
        if not paths:
            print(f"Nothing differs from {options.changed}.")
            return 0
    elif not paths:
        paths, _ = split_arguments(modules.FOLDERS)
    if is_everything:
        check_style()

    plan = Plan(paths, options.everywhere)
    use_two = not pytest_options and (
        sum(plan.seconds.values()) > _WORTH_TWO_PROCESSES
    )
    if not options.everywhere:
        pytest_options.append("--placed")
    if options.record:
        pytest_options.append("--record-seconds")
    run = run_one_after_another if use_two else run_side_by_side
    codes = run(plan, pytest_options)
    failed = [code for code in codes if code not in (0, NO_TESTS)]
    if not failed and NO_TESTS in codes and 0 not in codes:
        return NO_TESTS
    return failed[0] if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
