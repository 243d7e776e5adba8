"""Writes the Bazel BUILD file from the modules and what they import.

Run from the root of the project after adding, moving or removing a module:

    python tools/write_build.py
"""

import ast
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("etcmodel", "benchmarks")

# Import name -> distribution, as requirements.txt calls it.
DISTRIBUTIONS = {
    "absl": "absl-py",
    "google": "protobuf",
    "ijson": "ijson",
    "matplotlib": "matplotlib",
    "numpy": "numpy",
    "official": "tf-models-official",
    "orbit": "tf-models-official",
    "tensorflow": "tensorflow",
    "tensorflow_text": "tensorflow-text",
    "tqdm": "tqdm",
    "yaml": "tf-models-official",
}

HEADER = """\
# One library and one test for every module. Written by
# tools/write_build.py; etcmodel/build_file_test.py compares it with the files.

load("@pip//:requirements.bzl", "requirement")
load("@rules_python//python:defs.bzl", "py_library", "py_test")

package(default_visibility = ["//visibility:public"])

licenses(["notice"])

exports_files(["LICENSE"])
"""


def module_files() -> list[pathlib.Path]:
    """All Python files of the package, relative to the root, sorted."""
    return sorted(
        path.relative_to(ROOT)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    )


def target_of(path: pathlib.Path) -> str:
    """The target of a file: its path without the ending."""
    return path.with_suffix("").as_posix()


def imports_of(path: pathlib.Path) -> tuple[set[str], set[str]]:
    """The targets and the distributions that a file imports.

    Args:
        path: a file, relative to the root.

    Returns:
        The targets inside the project, and the distributions outside it; the
        standard library is left out.
    """
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    targets, distributions = set(), set()
    for name in names:
        top = name.split(".")[0]
        if top in FOLDERS:
            targets |= _targets_of_name(name)
        elif top in DISTRIBUTIONS:
            distributions.add(DISTRIBUTIONS[top])
        elif top not in sys.stdlib_module_names:
            raise ValueError(
                f"{path} imports {name}: add the distribution that {top} "
                "belongs to in tools/write_build.py and requirements.txt."
            )
    return targets - {target_of(path)}, distributions


def _targets_of_name(name: str) -> set[str]:
    """The module that a dotted name is, or is in, and the packages above it."""
    parts = name.split(".")
    targets = set()
    for end in range(1, len(parts) + 1):
        base = ROOT.joinpath(*parts[:end])
        if (base / "__init__.py").exists():
            targets.add(target_of((base / "__init__.py").relative_to(ROOT)))
        elif base.with_suffix(".py").exists():
            targets.add(target_of(base.relative_to(ROOT)))
    return targets


def rule_of(path: pathlib.Path) -> str:
    """The text of a file's rule."""
    targets, distributions = imports_of(path)
    is_test = path.stem.endswith("_test")
    lines = [
        "py_test(" if is_test else "py_library(",
        f'    name = "{target_of(path)}",',
        f'    srcs = ["{path.as_posix()}"],',
    ]
    deps = [f'"{target}"' for target in sorted(targets)]
    deps += [f'requirement("{name}")' for name in sorted(distributions)]
    if deps:
        lines.append("    deps = [")
        lines += [f"        {dep}," for dep in deps]
        lines.append("    ],")
    return "\n".join([*lines, ")"]) + "\n"


def build_text() -> str:
    """The whole BUILD file."""
    return "\n".join([HEADER, *map(rule_of, module_files())])


if __name__ == "__main__":
    (ROOT / "BUILD").write_text(build_text(), "utf-8")
