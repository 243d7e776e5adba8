"""Breaks the code in known ways, and sees that tests fail.

    python -m tools.mutate                            all of them
    python -m tools.mutate etcmodel/layers/dropout.py just that module's
    python -m tools.mutate --list

A mutation is a piece of a module and what replaces it; tools/mutations/ has
them. Each is made in a copy of the project, where the tests of the module and
of the modules that import it run until the first failure; what fails must pass
without the mutation. One that no test notices makes the exit code 1.
"""

import argparse
import collections
import pathlib
import re
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

    def applied_to(self, text: str) -> str:
        """The text of the module with the mutation."""
        return text.replace(self.old, self.new)


def read_mutations() -> list[Mutation]:
    """All mutations of tools/mutations/.

    Raises:
        ValueError: one does not fit the module as it is.
        SyntaxError: one is no Python.
    """
    mutations = []
    for path in sorted(FOLDER.glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text("utf-8")):
            entry["tests"] = tuple(entry.get("tests", ()))
            mutation = Mutation(**entry)
            file = modules.ROOT / mutation.module
            text = file.read_text("utf-8") if file.exists() else ""
            count = text.count(mutation.old)
            if count != 1 or mutation.old == mutation.new:
                raise ValueError(
                    f"{path.name}: the mutation {mutation.why!r} should change "
                    f"a text that {mutation.module} has once; it is there "
                    f"{count} times: {mutation.old!r}"
                )
            # What Python cannot even read would be noticed by any test.
            compile(mutation.applied_to(text), str(path), "exec")
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


def run_tests_of(
    root: pathlib.Path, keras: int, arguments: Sequence[str]
) -> list[str]:
    """Runs tests in a copy of the project.

    Args:
        root: the copy.
        keras: under which Keras.
        arguments: of pytest.

    Returns:
        The tests that have failed, or files that cannot be loaded.

    Raises:
        RuntimeError: they could not be run.
    """
    command = run_tests.command_of(keras, ["--placed", "--tb=no", *arguments])
    command["cwd"] = root
    command["env"]["PYTHONPATH"] = str(root)
    # Beside the project, not beside its copy.
    command["env"].setdefault(
        "ETCMODEL_TEST_DATA", str(modules.ROOT.parent / "shared/data")
    )
    done = subprocess.run(
        **command, capture_output=True, text=True, check=False
    )
    failed = re.findall(
        r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE
    )
    # Otherwise it has failed or could not load tests, and has said which.
    if done.returncode not in (0, run_tests.NO_TESTS) and not failed:
        raise RuntimeError(
            f"pytest under Keras {keras} ended with {done.returncode}: "
            f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
        )
    return failed


def who_notices(
    mutation: Mutation, root: pathlib.Path
) -> tuple[int, str] | None:
    """Runs the tests on a mutated copy of the project.

    Args:
        mutation: what to break.
        root: the copy, in which the module is mutated and put back.

    Returns:
        The Keras and the test that has failed first; None if none has.
    """
    file = root / mutation.module
    text = file.read_text("utf-8")
    file.write_text(mutation.applied_to(text), "utf-8")
    try:
        tests = tests_of(mutation)
        for keras in run_tests.KERASES:
            placed = [t for t in tests if run_tests.is_placed(t, keras)]
            if placed:
                for test in run_tests_of(root, keras, ["-x", *placed]):
                    return keras, test
    finally:
        file.write_text(text, "utf-8")
    return None


def run(mutations: Iterable[Mutation]) -> list[Mutation]:
    """Tries mutations in a copy of the project; returns the unnoticed.

    A test that fails without the mutation, too, has not noticed it.
    """
    unnoticed, noticed = [], collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory) / "etcmodel"
        shutil.copytree(
            modules.ROOT,
            root,
            ignore=shutil.ignore_patterns(".*", "__pycache__", "demo_output"),
        )
        for mutation in mutations:
            start = time.monotonic()
            found = who_notices(mutation, root)
            print(
                f"{'caught' if found else 'UNNOTICED'} "
                f"{time.monotonic() - start:.0f} s: {mutation.module}: "
                f"{mutation.why}: {found[1] if found else ''}",
                flush=True,
            )
            if found:
                noticed[found].append(mutation)
            else:
                unnoticed.append(mutation)
        for keras in run_tests.KERASES:
            tests = sorted({test for k, test in noticed if k == keras})
            for test in run_tests_of(root, keras, tests) if tests else ():
                print(f"UNNOTICED: {test} fails without a mutation, too")
                unnoticed += noticed[keras, test]
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
