"""Runs the tests, each under its Keras version.

    ./run_tests.sh                              style and all tests
    ./run_tests.sh etcmodel/layers -k dropout   some tests, by pytest's options
    ./run_tests.sh --changed                    tests of uncommitted changes
    ./run_tests.sh --changed main               tests of the difference to main
    ./run_tests.sh --lf                         tests that failed last time
    ./run_tests.sh --keras=2                    tests that run under Keras 2

With `--everywhere`, all tests run under Keras 2 and 3, or only under `--keras`.

`--changed` runs the tests of changed modules and of modules that import them;
`--all-dependents` adds indirect importers. It follows imports. (pytest-testmon
follows executed lines, so it would assign traced functions and shared runs to
the first test only.) All tests, or many files without options, run in two
processes with pytest-xdist.
"""

import argparse
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from tools import modules

KERASES = (3, 2)
NO_TESTS = 5  # The exit code of pytest if no tests are selected.
# Up to this many files run in one process: starting two would take longer.
_MANY_FILES = 8
# Any change may break these tests of the whole project.
_ALWAYS = ("etcmodel/imports_test", "tools/build_file_test")


def git(*arguments: str) -> list[str]:
    """Runs git; returns the lines that it prints.

    Raises:
        SystemExit: git fails.
    """
    done = subprocess.run(
        ["git", *arguments],
        cwd=modules.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(
            f"error: {done.stderr.strip()}. Pass a branch or commit of this "
            "checkout to --changed."
        )
    return done.stdout.splitlines()


def changed_tests(ref: str, all_dependents: bool) -> list[str]:
    """Returns the test files for the difference to a commit.

    Raises:
        SystemExit: the commit does not exist, or this is not a git checkout.
    """
    files = {
        *git("diff", "--name-only", "--relative", ref, "--"),
        *git("ls-files", "--others", "--exclude-standard"),
    }
    changed = [x.removesuffix(".py") for x in files if x.endswith(".py")]
    tests = modules.tests_of(changed, all_dependents)
    if files:
        tests += _ALWAYS
    if any(file.endswith(".md") for file in files):
        tests.append("etcmodel/readme_test")
    return [f"{test}.py" for test in dict.fromkeys(tests)]


def is_placed(test: str, keras: int) -> bool:
    """Returns whether any test of a file runs under a Keras version."""
    path = pathlib.Path(test.split("::")[0])
    own, _ = modules.place_of(modules.target_of(path))
    text = (modules.ROOT / path).read_text("utf-8")
    return own == keras or "both_kerases" in text


def command_of(keras: int, arguments: Sequence[str]) -> dict:
    """Returns `subprocess.run` arguments for pytest under a Keras version."""
    return dict(
        args=[
            *(sys.executable, "-m", "pytest"),
            *("-o", f"cache_dir=.pytest_cache/keras_{keras}"),
            # If no test failed last time, `--lf` runs no test.
            "--last-failed-no-failures=none",
            *arguments,
        ],
        cwd=modules.ROOT,
        env=dict(
            os.environ,
            TF_USE_LEGACY_KERAS=str(int(keras == 2)),
            # Operations in tests are too small to use several threads.
            TF_NUM_INTRAOP_THREADS="1",
        ),
    )


def check_style() -> None:
    """Checks the style of all files with ruff.

    Raises:
        SystemExit: ruff finds problems.
    """
    for arguments, advice in (
        (["format", "--check"], "Run: .venv/bin/ruff format ."),
        (["check"], "To fix many of them, run: .venv/bin/ruff check --fix ."),
    ):
        command = [sys.executable, "-m", "ruff", *arguments, "--quiet", "."]
        if subprocess.run(command, cwd=modules.ROOT, check=False).returncode:
            raise SystemExit(f"error: ruff found problems. {advice}")


def main(arguments: Sequence[str]) -> int:
    """Runs tests; returns 0 if all of them pass."""
    parser = argparse.ArgumentParser(
        prog="./run_tests.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--changed", nargs="?", const="HEAD", metavar="REF")
    parser.add_argument("--all-dependents", action="store_true")
    parser.add_argument("--everywhere", action="store_true")
    parser.add_argument("--keras", type=int, choices=KERASES)
    options, rest = parser.parse_known_args(arguments)
    # Only files are filtered here; pytest filters the tests in folders.
    files = [
        x
        for before, x in zip(["", *rest], rest, strict=False)
        if ".py" in x and x[0] != "-" and before not in ("-k", "--deselect")
    ]
    rest = [x for x in rest if x not in files]
    if options.changed is not None:
        files += changed_tests(options.changed, options.all_dependents)
        if not files:
            print(f"Nothing differs from {options.changed}.")
            return 0
    elif not files and not rest and not options.keras:
        print("Style: ruff", flush=True)
        check_style()
    codes = set()
    for keras in [options.keras] if options.keras else KERASES:
        chosen = [x for x in files if options.everywhere or is_placed(x, keras)]
        if files and not chosen:
            continue
        print(f"Tests under Keras {keras}", flush=True)
        chosen += rest
        if not options.everywhere:
            chosen.append("--placed")
        has_options = any(x.startswith("-") for x in rest)
        if not has_options and not 0 < len(files) <= _MANY_FILES:
            # `loadfile` keeps a file's tests in one process, since they share
            # the set-up of their classes. With reordering, files with few but
            # slow tests would run last, and one worker would idle.
            chosen += ["-n", "2", "--dist", "loadfile"]
            chosen.append("--no-loadscope-reorder")
        command = command_of(keras, chosen)
        codes.add(subprocess.run(**command, check=False).returncode)
    return max(codes - {0, NO_TESTS}, default=min(codes, default=NO_TESTS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
