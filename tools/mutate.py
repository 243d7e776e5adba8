"""Mutation testing: breaks the code in listed ways, and expects tests to fail.

    python -m tools.mutate                    all mutations
    python -m tools.mutate ops datasets       mutations of these rooms
    python -m tools.mutate etcmodel/layers/dropout.py
    python -m tools.mutate --list

tools/mutations/ lists the mutations, which are chosen by hand. Tools that
generate all small mutations take too long: cosmic-ray finds 39,000 mutations in
the package, and each takes at least ten seconds, since tests load TensorFlow.

Each mutation is applied in a copy of the project. Its tests run there until the
first failure; the failing test must pass without the mutation. The exit code is
1 if any mutation goes unnoticed.
"""

import argparse
import ast
import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import yaml

from tools import modules
from tools import run_tests

FOLDER = modules.ROOT / "tools" / "mutations"


class Mutation(NamedTuple):
    """One way to break a function.

    Attributes:
        function: `package.module:Class.method`, or a module alone.
        why: short description of the fault.
        replace: code to replace in the function: an expression, a keyword
            argument `name=value`, or a statement. It is compared as syntax, so
            line breaks and comments do not matter. A single capital letter
            matches any expression.
        by: the replacement. A capital letter stands for the expression that it
            matched.
        tests: test files, at least one of which must fail.
        occurrence: index of the match to replace, from 1; 0 if the code must
            match only once.
    """

    function: str
    why: str
    replace: str
    by: str
    tests: tuple[str, ...]
    occurrence: int = 0

    @property
    def file(self) -> str:
        """Path of the module's file, relative to the root."""
        return self.function.partition(":")[0].replace(".", "/") + ".py"

    def applied_to(self, text: str) -> str:
        """Returns the mutated text of the module, without its comments.

        Raises:
            ValueError: the function does not exist, or `replace` does not match
                exactly once (or `occurrence` times).
        """
        tree = ast.parse(text)
        pattern = _parse(self.replace)
        places = [
            (place, found)
            for place, node in _places(self._find_function(tree))
            if (found := _match(pattern, node, {})) is not None
        ]
        number = self.occurrence or 1
        if len(places) < number or (len(places) > 1 and not self.occurrence):
            raise ValueError(
                f"{self.function}: {self.why!r} matches {len(places)} times, "
                f"expected once. Change `replace`, or set `occurrence`: "
                f"{self.replace}"
            )
        (parent, field, index), found = places[number - 1]
        new = _Fill(found).visit(_parse(self.by))
        values = getattr(parent, field)
        old = values if index is None else values[index]
        if isinstance(old, ast.keyword):
            new = ast.keyword(new.targets[0].id, new.value)
        if index is None:
            setattr(parent, field, new)
        else:
            values[index] = new
        return ast.unparse(ast.fix_missing_locations(tree))

    def _find_function(self, tree: ast.Module) -> ast.AST:
        node = tree
        for name in filter(None, self.function.partition(":")[2].split(".")):
            inside = [
                child
                for child in ast.walk(node)
                if getattr(child, "name", None) == name and child is not node
            ]
            if not inside:
                raise ValueError(f"{self.function}: {name} does not exist.")
            node = inside[0]
        return node


def _parse(text: str) -> ast.AST:
    """Parses an expression or a statement."""
    (statement,) = ast.parse(text.strip()).body
    return statement.value if isinstance(statement, ast.Expr) else statement


def _places(root: ast.AST) -> Iterator[tuple[tuple, ast.AST]]:
    """Yields ((parent, field, index), node) for each node below `root`."""
    for field, value in ast.iter_fields(root):
        many = isinstance(value, list)
        for index, node in enumerate(value if many else [value]):
            if isinstance(node, ast.AST):
                yield (root, field, index if many else None), node
                yield from _places(node)


def _match(pattern, node, found: dict[str, ast.AST]) -> dict | None:
    """Returns letter -> matched node; None if the pattern does not match."""
    if isinstance(pattern, ast.Name) and re.fullmatch("[A-Z]", pattern.id):
        if not isinstance(node, ast.expr):
            return None
        before = found.setdefault(pattern.id, node)
        return found if ast.dump(before) == ast.dump(node) else None
    if isinstance(pattern, ast.Assign) and isinstance(node, ast.keyword):
        is_named = ast.unparse(pattern.targets[0]) == node.arg
        return _match(pattern.value, node.value, found) if is_named else None
    if isinstance(pattern, list):
        if not isinstance(node, list) or len(pattern) != len(node):
            return None
        pairs = zip(pattern, node, strict=True)
    elif isinstance(pattern, ast.AST):
        if type(pattern) is not type(node):
            return None
        # `ctx` (load or store) may differ between a pattern and its match.
        names = [x for x in pattern._fields if x != "ctx"]
        pairs = ((getattr(pattern, x), getattr(node, x)) for x in names)
    else:
        is_same = type(pattern) is type(node) and pattern == node
        return found if is_same else None
    for x, y in pairs:
        if _match(x, y, found) is None:
            return None
    return found


class _Fill(ast.NodeTransformer):
    """Replaces letters by the expressions that they matched."""

    def __init__(self, found: dict[str, ast.AST]):
        self._found = found

    def visit_Name(self, node: ast.Name) -> ast.AST:  # noqa: N802
        return self._found.get(node.id, node)


def read_mutations() -> list[Mutation]:
    """Reads all mutations of tools/mutations/.

    Raises:
        ValueError: a mutation does not match its function, changes nothing, or
            names a file that does not exist.
    """
    mutations = []
    for path in sorted(FOLDER.glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text("utf-8")):
            entry["tests"] = tuple(entry["tests"])
            mutation = Mutation(**entry)
            for name in (mutation.file, *mutation.tests):
                if not (modules.ROOT / name).exists():
                    raise ValueError(
                        f"{path.name}: {mutation.why!r}: {name} does not "
                        "exist. Correct the name."
                    )
            text = (modules.ROOT / mutation.file).read_text("utf-8")
            if mutation.applied_to(text) == ast.unparse(ast.parse(text)):
                raise ValueError(
                    f"{path.name}: {mutation.why!r} changes nothing. Use "
                    "another `by`."
                )
            mutations.append(mutation)
    return mutations


def run_tests_of(
    root: pathlib.Path, keras: int, arguments: Sequence[str]
) -> list[str]:
    """Runs tests in a copy of the project.

    Returns:
        The failed tests, or the files that pytest could not load.

    Raises:
        RuntimeError: pytest failed without naming a test.
    """
    command = run_tests.command_of(keras, ["--placed", "--tb=no", *arguments])
    command["cwd"] = root
    command["env"]["PYTHONPATH"] = str(root)
    # The data is beside the project, not beside its copy.
    command["env"].setdefault(
        "ETCMODEL_TEST_DATA", str(modules.ROOT.parent / "shared/data")
    )
    done = subprocess.run(
        **command, capture_output=True, text=True, check=False
    )
    failed = re.findall(
        r"^(?:FAILED|ERROR|SUBFAILED.*?) (\S+?(?:::.+?)?)(?: - .*)?$",
        done.stdout,
        re.MULTILINE,
    )
    # If tests failed, pytest has printed their names.
    if done.returncode not in (0, run_tests.NO_TESTS) and not failed:
        raise RuntimeError(
            f"pytest under Keras {keras} ended with {done.returncode}: "
            f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
        )
    return failed


def who_notices(
    mutation: Mutation, root: pathlib.Path
) -> tuple[int, str] | None:
    """Runs the tests while a module of the copy is mutated.

    Returns:
        The Keras version and the first failing test; None if no test fails.
    """
    file = root / mutation.file
    text = file.read_text("utf-8")
    file.write_text(mutation.applied_to(text), "utf-8")
    try:
        for keras in run_tests.KERASES:
            tests = [t for t in mutation.tests if run_tests.is_placed(t, keras)]
            if tests:
                for test in run_tests_of(root, keras, ["-x", *tests]):
                    return keras, test
    finally:
        file.write_text(text, "utf-8")
    return None


def run(mutations: Iterable[Mutation]) -> list[Mutation]:
    """Tries mutations in a copy of the project; returns the unnoticed ones.

    A test that fails even without a mutation does not count as noticing it.
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
                f"{time.monotonic() - start:.0f} s: {mutation.function}: "
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
    """Tries the mutations that the arguments select; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("places", nargs="*", help="rooms, folders or modules")
    parser.add_argument("--list", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    mutations = [
        mutation
        for mutation in read_mutations()
        if not options.places
        or any(
            f"{mutation.file}/".startswith((f"{x}/", f"etcmodel/{x}/"))
            for x in options.places
        )
    ]
    if options.list:
        for mutation in mutations:
            print(f"{mutation.function}: {mutation.why}")
        return 0
    unnoticed = run(mutations)
    print(f"{len(mutations)} mutations, {len(unnoticed)} unnoticed")
    return 1 if unnoticed or not mutations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
