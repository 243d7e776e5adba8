"""Writes the Bazel BUILD file from the modules and what they import.

Run from the root of the project after adding, moving or removing a module:

    python -m tools.write_build
"""

import pathlib
import sys

from tools import modules

# Import name -> distribution, as requirements.txt calls it.
DISTRIBUTIONS = {
    "absl": "absl-py",
    "docstring_parser": "docstring-parser",
    "google": "protobuf",
    "hypothesis": "hypothesis",
    "ijson": "ijson",
    "matplotlib": "matplotlib",
    "msgspec": "msgspec",
    "nltk": "nltk",
    "numpy": "numpy",
    "official": "tf-models-official",
    "orbit": "tf-models-official",
    "pytest": "pytest",
    "rouge_score": "rouge-score",
    "sacrebleu": "sacrebleu",
    "safetensors": "safetensors",
    "sentencepiece": "sentencepiece",
    "tensorflow": "tensorflow",
    "tensorflow_text": "tensorflow-text",
    "tf_keras": "tf-keras",
    "tokenizers": "tokenizers",
    "tqdm": "tqdm",
    "yaml": "pyyaml",
}

HEADER = """\
# One library and one test for every module. Written by
# tools/write_build.py; tools/write_build_test.py compares it with the files.

load("@pip//:requirements.bzl", "requirement")
load("@rules_python//python:defs.bzl", "py_library", "py_test")

package(default_visibility = ["//visibility:public"])

licenses(["notice"])

exports_files(["LICENSE"])
"""


def imports_of(target: str) -> tuple[set[str], set[str]]:
    """The targets and the distributions that a module imports.

    Args:
        target: the module, such as `"etcmodel/layers/dropout"`.

    Returns:
        The targets inside the project, and the distributions outside it; the
        standard library is left out.
    """
    targets, distributions = set(), set()
    for name in modules.imported_names(target):
        top = name.split(".")[0]
        if top in modules.FOLDERS:
            targets |= _targets_of_name(name)
        elif top in DISTRIBUTIONS:
            distributions.add(DISTRIBUTIONS[top])
        elif top not in sys.stdlib_module_names:
            raise ValueError(
                f"{target}.py imports {name}: add the distribution that {top} "
                "belongs to in tools/write_build.py and requirements.txt."
            )
    return targets - {target}, distributions


def _targets_of_name(name: str) -> set[str]:
    """The module that a dotted name is, or is in, and the packages above it."""
    parts = name.split(".")
    targets = set()
    for end in range(1, len(parts) + 1):
        path = pathlib.Path(*parts[:end])
        for file in (path / "__init__.py", path.with_suffix(".py")):
            if (modules.ROOT / file).exists():
                targets.add(modules.target_of(file))
    return targets


def rule_of(path: pathlib.Path) -> str:
    """The text of a file's rule."""
    target = modules.target_of(path)
    targets, distributions = imports_of(target)
    is_test = path.stem.endswith("_test")
    lines = [
        "py_test(" if is_test else "py_library(",
        f'    name = "{target}",',
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
    return "\n".join([HEADER, *map(rule_of, modules.module_files())])


if __name__ == "__main__":
    (modules.ROOT / "BUILD").write_text(build_text(), "utf-8")
