"""Runs the tests, each under its Keras.

    ./run_tests.sh                              style and all tests
    ./run_tests.sh etcmodel/layers -k dropout   some; pytest's own options
    ./run_tests.sh --changed                    tests of uncommitted changes
    ./run_tests.sh --changed main               tests of the difference to main
    ./run_tests.sh --lf                         tests that failed last time
    ./run_tests.sh --keras=2                    tests of one Keras

With `--everywhere`, all tests run under both Kerases, or under the given one.

`--changed` runs the tests of the modules that have changed and of those that
import them; with `--all-dependents` of all that depends on them. It goes by
imports, not by the lines that a test runs: pytest-testmon would count traced
functions and shared runs for the first test only. All tests, or many files
without options, run in two processes of pytest-xdist.
"""

import argparse
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from tools import modules

KERASES = (3, 2)
NO_TESTS = 5  # An exit code of pytest.
# Fewer files are not worth the start of two processes.
_MANY_FILES = 8
# Of the project as a whole: any change may break them.
_ALWAYS = ("etcmodel/imports_test", "tools/build_file_test")


def _git(*arguments: str) -> list[str]:
    """Returns the lines that git prints.

    Raises:
        SystemExit: it fails.
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
            f"error: {done.stderr.strip()}. Give `--changed` a branch or a "
            "commit of this checkout."
        )
    return done.stdout.splitlines()


def changed_tests(ref: str, all_dependents: bool) -> list[str]:
    """Returns the test files for the difference to a commit.

    Raises:
        SystemExit: git does not know the commit, or this is no git checkout.
    """
    files = {
        *_git("diff", "--name-only", "--relative", ref, "--"),
        *_git("ls-files", "--others", "--exclude-standard"),
    }
    changed = [x.removesuffix(".py") for x in files if x.endswith(".py")]
    tests = modules.tests_of(changed, all_dependents)
    if files:
        tests += _ALWAYS
    if any(file.endswith(".md") for file in files):
        tests.append("etcmodel/readme_test")
    return [f"{test}.py" for test in dict.fromkeys(tests)]


def is_placed(test: str, keras: int) -> bool:
    """Tells whether some of a file's tests run under a Keras."""
    path = pathlib.Path(test.split("::")[0])
    own, _ = modules.place_of(modules.target_of(path))
    text = (modules.ROOT / path).read_text("utf-8")
    return own == keras or "both_kerases" in text


def command_of(keras: int, arguments: Sequence[str]) -> dict:
    """Returns arguments of `subprocess.run` for pytest under a Keras."""
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


def check_style() -> None:
    """Checks the style of all files.

    Raises:
        SystemExit: ruff complains.
    """
    for arguments, advice in (
        (["format", "--check"], "Run: .venv/bin/ruff format ."),
        (["check"], "Fix many of them: .venv/bin/ruff check --fix ."),
    ):
        command = [sys.executable, "-m", "ruff", *arguments, "--quiet", "."]
        if subprocess.run(command, cwd=modules.ROOT, check=False).returncode:
            raise SystemExit(f"error: ruff complains, see above. {advice}")


def main(arguments: Sequence[str]) -> int:
    """Runs tests; returns 0 if all that ran have passed."""
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
    # pytest collects folders, which may have tests of both.
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
            # The tests of a file share what their classes set up. By default
            # the files with the fewest tests, which can be the longest, would
            # run last, and one worker would wait for the other.
            chosen += ["-n", "2", "--dist", "loadfile"]
            chosen.append("--no-loadscope-reorder")
        command = command_of(keras, chosen)
        codes.add(subprocess.run(**command, check=False).returncode)
    return max(codes - {0, NO_TESTS}, default=min(codes, default=NO_TESTS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
