"""The modules of the project and which of them import which."""

import ast
import functools
import importlib.metadata
import pathlib
import re
from collections.abc import Iterable
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("benchmarks", "etcmodel", "examples", "testing", "tools")

# Rooms from top to bottom: each may import those of lower levels, and modules
# that are in none.
LEVELS = (
    ("cli", "estimators"),
    ("engine", "demo"),
    ("tasks",),
    ("training", "serving", "inspection"),
    ("pipeline",),
    ("checkpoints",),
    ("models",),
    ("datasets", "feature_utils", "layers"),
    ("ops", "readers"),
)

# The Model Garden, which runs on Keras 2, and the levels built on it.
_ENGINE = ("official", "orbit", "tf_keras")
_ENGINE_LEVELS = 5


def module_files() -> list[pathlib.Path]:
    """Returns all Python files of the project, relative to the root, sorted."""
    return sorted(
        path.relative_to(ROOT)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    )


def distribution_names() -> dict[str, str]:
    """Returns module -> name of its distribution in requirements.txt."""
    found = importlib.metadata.packages_distributions()
    return {
        module: re.sub(r"[-_.]+", "-", names[0]).lower()
        for module, names in found.items()
    } | {"google": "protobuf"}


def target_of(path: pathlib.Path) -> str:
    """Returns a module's path without the ending."""
    return path.with_suffix("").as_posix()


class _Source(NamedTuple):
    """Imports of a module, and whether it uses Keras."""

    imports: frozenset[str]  # Dotted names it takes, as `module.name`.
    strings: frozenset[str]  # Dotted names of the project in its strings.
    uses_keras: bool


@functools.cache
def _source(target: str) -> _Source:
    # Dotted names by those that stand for them, of imports and in the text.
    imports, attributes, strings = {}, set(), set()
    for node in ast.walk(ast.parse((ROOT / f"{target}.py").read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imports |= {x.asname or x.name: x.name for x in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imports |= {
                x.asname or x.name: f"{node.module}.{x.name}"
                for x in node.names
            }
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            match = re.match(
                r"(?:etcmodel|benchmarks|examples)(?:\.\w+)+", node.value
            )
            strings |= {match.group()} if match else set()
        elif isinstance(node, ast.Attribute) and isinstance(
            node.value, ast.Name
        ):
            attributes.add((node.value.id, node.attr))
    return _Source(
        # What a module takes from a package that it imports as a whole.
        frozenset(imports.values())
        | {f"{imports[x]}.{y}" for x, y in attributes if x in imports},
        frozenset(strings),
        ("tf", "keras") in attributes,
    )


def imported_names(target: str) -> frozenset[str]:
    """Returns dotted names that a module imports, as `module.name`."""
    return _source(target).imports


@functools.cache
def _target_of_name(name: str) -> str | None:
    """Returns the module that a dotted name is, or that defines it.

    A name that a package takes from one of its modules is that module's:
    `etcmodel.layers.RelativeAttention` is in `etcmodel/layers/attention`.
    """
    path = name.replace(".", "/")
    if (ROOT / f"{path}.py").exists():
        return path
    if (ROOT / path / "__init__.py").exists():
        return f"{path}/__init__"
    parent, _, last = name.rpartition(".")
    found = _target_of_name(parent) if parent else None
    if found and found.endswith("/__init__"):
        for other in imported_names(found):
            if other.endswith(f".{last}"):
                return _target_of_name(other)
    return found


@functools.cache
def imports_of(target: str, strings: bool = True) -> frozenset[str]:
    """Returns the modules of the project that a module imports names from.

    With `strings` also those that it names in strings, as registries do
    (`"etcmodel.tasks.nq.pipeline:make"`). A package's `__init__` counts where
    it is itself what is wanted.
    """
    source = _source(target)
    names = {x for x in source.imports if x.split(".")[0] in FOLDERS}
    if strings:
        names |= source.strings
    found = {_target_of_name(name) for name in names}
    return frozenset(found - {None, target})


def closure(target: str) -> frozenset[str]:
    """Returns a module and all that it depends on, directly or not."""
    seen, waiting = set(), [target]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting += imports_of(current)
    return frozenset(seen)


@functools.cache
def _uses_engine(target: str) -> bool:
    rooms = sum(LEVELS[:_ENGINE_LEVELS], ())
    return target.startswith(tuple(f"etcmodel/{x}/" for x in rooms)) or any(
        name.split(".")[0] in _ENGINE for name in imported_names(target)
    )


@functools.cache
def place_of(test: str) -> tuple[int, bool]:
    """Determines under which Keras a test module runs.

    Returns:
        The Keras: 2 if the test needs the Model Garden or what is built on it,
        the tasks and the command line, which run on that; else 3. And whether
        it has to do with Keras at all.
    """
    modules = closure(test)
    return (
        2 if any(map(_uses_engine, modules)) else 3,
        any(_source(module).uses_keras for module in modules),
    )


def own_test(target: str) -> str:
    """Returns the test of a module; a test is its own."""
    return target if target.endswith("_test") else f"{target}_test"


def tests_of(changed: Iterable[str], all_dependents: bool = False) -> list[str]:
    """Returns the tests of modules and of those that import them, sorted.

    With `all_dependents` also of what depends on them indirectly.
    """
    targets = [target_of(path) for path in module_files()]
    known = set(targets)
    wanted = set(changed)
    # What still takes names from a module that is gone fails.
    gone = tuple(f"{t}.".replace("/", ".") for t in wanted - known)
    wanted |= {
        target
        for target in targets
        if any(f"{x}.".startswith(gone) for x in imported_names(target))
    }
    while True:
        dependents = {t for t in targets if imports_of(t) & wanted} | wanted
        if not all_dependents or dependents == wanted:
            break
        wanted = dependents
    return sorted({own_test(t) for t in dependents} & known)
