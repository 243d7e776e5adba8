"""Finds the modules of the project, their imports and their tests."""

import ast
import functools
import importlib.metadata
import pathlib
import re
from collections.abc import Iterable
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("benchmarks", "etcmodel", "examples", "testing", "tools")

# Packages of etcmodel ("rooms") by level, from top to bottom. A room may import
# rooms of lower levels, and modules that are in no room.
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

# Packages of the Model Garden, which needs Keras 2, and the number of levels,
# from the top, that use it.
_ENGINE = ("official", "orbit", "tf_keras")
_ENGINE_LEVELS = 5


def module_files() -> list[pathlib.Path]:
    """Lists all Python files of the project, sorted, relative to the root."""
    return sorted(
        path.relative_to(ROOT)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    )


def distribution_names() -> dict[str, str]:
    """Maps each installed module to its package's name in requirements.txt."""
    found = importlib.metadata.packages_distributions()
    return {
        module: re.sub(r"[-_.]+", "-", names[0]).lower()
        for module, names in found.items()
    } | {"google": "protobuf"}


def target_of(path: pathlib.Path) -> str:
    """Returns a module's target: its relative path without `.py`."""
    return path.with_suffix("").as_posix()


class _Source(NamedTuple):
    """A module's imports, and whether it uses Keras."""

    imports: frozenset[str]  # Imported dotted names, as `module.name`.
    strings: frozenset[str]  # Dotted names of the project in strings.
    uses_keras: bool


@functools.cache
def _source(target: str) -> _Source:
    # `imports` maps the module's local names to dotted names.
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
        # Includes the attributes of imported modules that the module uses.
        frozenset(imports.values())
        | {f"{imports[x]}.{y}" for x, y in attributes if x in imports},
        frozenset(strings),
        ("tf", "keras") in attributes,
    )


def imported_names(target: str) -> frozenset[str]:
    """Returns the dotted names that a module imports, as `module.name`."""
    return _source(target).imports


@functools.cache
def _target_of_name(name: str) -> str | None:
    """Returns the module that a dotted name stands for, or that defines it.

    If a package imports the name from one of its modules, returns that module:
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
    """Returns the project's modules that a module imports names from.

    With `strings`, includes modules that it names in strings, as registries do
    (`"etcmodel.tasks.nq.pipeline:make"`). A package's `__init__` counts only if
    the module imports the package itself.
    """
    source = _source(target)
    names = {x for x in source.imports if x.split(".")[0] in FOLDERS}
    if strings:
        names |= source.strings
    found = {_target_of_name(name) for name in names}
    return frozenset(found - {None, target})


def closure(target: str) -> frozenset[str]:
    """Returns a module and all its direct and indirect dependencies."""
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
    """Determines the Keras version that a test module runs under.

    Returns:
        A version and a bool. The version is 2 if the test needs the Model
        Garden or the packages that use it (such as tasks and the command line),
        else 3. The bool tells whether the test depends on Keras at all.
    """
    modules = closure(test)
    return (
        2 if any(map(_uses_engine, modules)) else 3,
        any(_source(module).uses_keras for module in modules),
    )


def own_test(target: str) -> str:
    """Returns the test of a module; for a test, returns the test itself."""
    return target if target.endswith("_test") else f"{target}_test"


def tests_of(changed: Iterable[str], all_dependents: bool = False) -> list[str]:
    """Returns the tests of changed modules and of their importers, sorted.

    `all_dependents` adds the tests of indirect importers.
    """
    targets = [target_of(path) for path in module_files()]
    known = set(targets)
    wanted = set(changed)
    # Includes modules that import a deleted module, since they would fail.
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
