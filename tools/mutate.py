"""Breaks the code in known ways, and sees that tests fail.

    python -m tools.mutate                            all of them
    python -m tools.mutate etcmodel/layers/dropout.py just that module's
    python -m tools.mutate --list

A mutation is a piece of a module and what replaces it; tools/mutations/ has
them. Each is made in a copy of the project, where the tests of the module and
of the modules that import it run until the first failure. A mutation that no
test notices is reported, and makes the exit code 1.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from collections.abc import Sequence
from typing import NamedTuple

import yaml

from tools import modules
from tools import run_tests

FOLDER = modules.ROOT / "tools" / "mutations"


class Mutation(NamedTuple):
    """One way to break a module.

    Attributes:
        module: its file, relative to the root.
        why: what is broken.
        old: a text that the module has once.
        new: what replaces it.
        tests: the test files to run; empty for those that follow from the
            imports.
    """

    module: str
    why: str
    old: str
    new: str
    tests: tuple[str, ...] = ()


def read_mutations() -> list[Mutation]:
    """All mutations of tools/mutations/.

    Raises:
        ValueError: one does not fit the module as it is.
    """
    mutations = []
    for path in sorted(FOLDER.glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text("utf-8")):
            entry["tests"] = tuple(entry.get("tests", ()))
            mutation = Mutation(**entry)
            file = modules.ROOT / mutation.module
            count = (
                file.read_text("utf-8").count(mutation.old)
                if file.exists()
                else 0
            )
            if count != 1 or mutation.old == mutation.new:
                raise ValueError(
                    f"{path.name}: the mutation {mutation.why!r} should change "
                    f"a text that {mutation.module} has once; it is there "
                    f"{count} times: {mutation.old!r}"
                )
            mutations.append(mutation)
    return mutations


def tests_of(mutation: Mutation) -> list[str]:
    """Test files that should notice, those of the module itself first."""
    if mutation.tests:
        return list(mutation.tests)
    target = mutation.module.removesuffix(".py")
    tests = modules.tests_of([target])
    tests.sort(key=lambda test: test != modules.own_test(target))
    return [f"{test}.py" for test in tests]


def is_noticed(mutation: Mutation, root: pathlib.Path) -> str:
    """Runs the tests on a mutated copy of the project.

    Args:
        mutation: what to break.
        root: the copy, in which the module is mutated and put back.

    Returns:
        The test that has failed first; empty if none has.
    """
    file = root / mutation.module
    text = file.read_text("utf-8")
    file.write_text(text.replace(mutation.old, mutation.new), "utf-8")
    try:
        tests = tests_of(mutation)
        for keras in run_tests.KERASES:
            placed = [t for t in tests if run_tests.is_placed(t, keras)]
            if not placed:
                continue
            command = run_tests.command_of(
                keras, ["--placed", "--exitfirst", "--tb=no", *placed]
            )
            command["cwd"] = root
            command["env"]["PYTHONPATH"] = str(root)
            # Beside the project, not beside its copy.
            command["env"].setdefault(
                "ETCMODEL_TEST_DATA", str(modules.ROOT.parent / "shared/data")
            )
            done = subprocess.run(
                **command, capture_output=True, text=True, check=False
            )
            if done.returncode not in (0, run_tests.NO_TESTS):
                lines = done.stdout.splitlines()
                failed = [x for x in lines if x.startswith(("FAILED", "ERROR"))]
                return [*failed, f"exit code {done.returncode}"][0]
    finally:
        file.write_text(text, "utf-8")
    return ""


def run(mutations: Iterable[Mutation]) -> list[Mutation]:
    """Tries mutations in a copy of the project; returns the unnoticed."""
    unnoticed = []
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory) / "etcmodel"
        shutil.copytree(
            modules.ROOT,
            root,
            ignore=shutil.ignore_patterns(".*", "__pycache__", "demo_output"),
        )
        for mutation in mutations:
            start = time.monotonic()
            noticed = is_noticed(mutation, root)
            if not noticed:
                unnoticed.append(mutation)
            print(
                f"{'caught' if noticed else 'UNNOTICED'} "
                f"{time.monotonic() - start:.0f} s: {mutation.module}: "
                f"{mutation.why}: {noticed}",
                flush=True,
            )
    return unnoticed


def main(arguments: Sequence[str]) -> int:
    """Tries the mutations that are asked for; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("modules", nargs="*", help="files; all by default")
    parser.add_argument("--list", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    mutations = [
        mutation
        for mutation in read_mutations()
        if not options.modules or mutation.module in options.modules
    ]
    if options.list:
        for mutation in mutations:
            print(f"{mutation.module}: {mutation.why}")
        return 0
    unnoticed = run(mutations)
    print(f"{len(mutations)} mutations, {len(unnoticed)} unnoticed")
    return 1 if unnoticed or not mutations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
