"""Checks a release, and builds it in `dist`. Publishes nothing.

    ./release.sh

Needs no network once `.venv` exists. The steps: the checkout is clean; the
version in `etcmodel/__init__.py` is that of `CITATION.cff` and of the newest
section of `CHANGELOG.md`, which has a date; all tests pass; a wheel and a
source distribution are built; pip installs both in new environments; the wheel
runs, alone with the packages that each extra for users needs (`PROGRAMS`).
"""

import datetime
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml
from packaging.requirements import Requirement

import etcmodel
from tools import run_tests
from tools.modules import ROOT

# Extra -> a program that needs it, run with nothing else installed.
PROGRAMS = {
    "": "from etcmodel import layers; layers.LayerNormalization()",
    "text": "from etcmodel.feature_utils.text import tokenizers",
    "tasks": (
        "from etcmodel.cli import command_line;"
        "assert command_line.main(['experiments']) == 0;"
        "from etcmodel.engine import train; import etcmodel.training.trainer"
    ),
    "beam": "import etcmodel.engine.distributed, apache_beam",
    "hub": "import etcmodel.estimators.sources, huggingface_hub",
    "serve": "import etcmodel.serving.server",
    "onnx": "import etcmodel.serving.converted, tf2onnx",
    "docs": (
        "import mkdocs.commands.build, mkdocs_jupyter.plugin, material;"
        "import mkdocstrings, mkdocstrings_handlers.python"
    ),
}


def find_versions(root: pathlib.Path = ROOT) -> dict[str, str]:
    """Returns file -> the version in it; "unreleased" for an open section."""
    code = (root / "etcmodel/__init__.py").read_text("utf-8")
    log = (root / "CHANGELOG.md").read_text("utf-8")
    cited = yaml.safe_load((root / "CITATION.cff").read_text("utf-8"))
    (version,) = re.findall(r'^__version__ = "(.*)"$', code, re.MULTILINE)
    number, note = re.findall(r"^## (\S+) \((.*)\)$", log, re.MULTILINE)[0]
    return {
        "etcmodel/__init__.py": version,
        "CITATION.cff": str(cited["version"]),
        "CHANGELOG.md": number if note != "unreleased" else note,
    }


def check_versions(found: dict[str, str]) -> str:
    """Returns the version that all files have.

    Raises:
        SystemExit: files differ, or the version is not like 1.2.3.
    """
    shown = ", ".join(f"{x} {name}" for name, x in found.items())
    if len(set(found.values())) > 1:
        raise SystemExit(
            f"The versions differ: {shown}. Write the same everywhere, and "
            f"replace '(unreleased)' by '({datetime.date.today()})'."
        )
    (version,) = set(found.values())
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise SystemExit(f"{shown}: expected a version such as 1.2.3.")
    return version


def build(folder: pathlib.Path) -> list[pathlib.Path]:
    """Builds the wheel and the source distribution; returns their paths."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"The packages cannot be built:\n{done.stderr}")
    name = f"etcmodel-{etcmodel.__version__}"
    return [folder / f"{name}-py3-none-any.whl", folder / f"{name}.tar.gz"]


def requirements_of(extra: str, package: str = "etcmodel") -> set[str]:
    """Returns the installed packages that an extra needs, and theirs."""
    found: set[tuple[str, str]] = set()
    waiting = [(package, extra)]
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in found:
            continue
        found.add((name, wanted))
        for text in importlib.metadata.requires(name) or ():
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": wanted}):
                waiting += [(need.name, x) for x in ("", *need.extras)]
    return {name for name, _ in found} - {"etcmodel"}


def link(packages: set[str], folder: pathlib.Path) -> None:
    """Makes links to the files of installed packages."""
    owners = importlib.metadata.packages_distributions()
    for name in sorted(packages):
        distribution = importlib.metadata.distribution(name)
        places = set()
        for file in distribution.files or ():
            top, *_ = file.parts
            # Several packages have files in a folder such as `google`.
            is_shared = len(set(owners.get(top, ()))) > 1
            places.add(
                pathlib.PurePath(file) if is_shared else pathlib.PurePath(top)
            )
        for place in places:
            target = folder / place
            # Programs are in another folder.
            if ".." not in place.parts and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.symlink(distribution.locate_file(place), target)


def install(package: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Installs a wheel or a source distribution in a new environment.

    The environment has no other packages: `pip` and `hatchling`, which builds
    the source distribution, are those of this environment.

    Returns:
        The environment's interpreter.

    Raises:
        SystemExit: the package cannot be installed.
    """
    python = folder / "bin/python"
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True)
    command = [str(python), "-m", "pip", "install", "--no-index", "--no-deps"]
    command += ["--disable-pip-version-check", "--no-build-isolation"]
    tools = {"pip", *requirements_of("", "hatchling")}
    _run([*command, str(package)], tools, f"The installation of {package.name}")
    return python


def try_out(python: pathlib.Path, extra: str) -> None:
    """Runs the program of an extra with nothing but its packages.

    Args:
        python: interpreter of an environment with the wheel, see `install`.
        extra: the extra, or "".

    Raises:
        SystemExit: the program fails.
    """
    commands = [[str(python), "-c", PROGRAMS[extra]]]
    if extra == "tasks":
        commands.append([str(python.parent / "etcmodel"), "--version"])
    for command in commands:
        _run(command, requirements_of(extra), f"The extra {extra!r}")


def _run(command: list[str], packages: set[str], what: str) -> None:
    """Runs a command in a new folder, with links to packages."""
    with tempfile.TemporaryDirectory() as name:
        link(packages, pathlib.Path(name))
        keras = "1" if "tf-keras" in packages else "0"
        done = subprocess.run(
            command,
            env={
                **os.environ,
                "PYTHONPATH": name,
                "TF_USE_LEGACY_KERAS": keras,
            },
            cwd=name,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{what} fails:\n{done.stderr}")


def main() -> None:
    """Checks and builds a release."""
    changes = run_tests.git("status", "--porcelain")
    if changes:
        raise SystemExit(f"Commit these changes first: {', '.join(changes)}")
    version = check_versions(find_versions())
    # In CI, tests that lack real data fail instead of being skipped.
    subprocess.run(
        [sys.executable, "-m", "tools.run_tests"],
        check=True,
        env={**os.environ, "CI": "true"},
    )
    folder = ROOT / "dist"
    folder.mkdir(exist_ok=True)
    files = wheel, source = build(folder)
    with tempfile.TemporaryDirectory() as name:
        environments = pathlib.Path(name)
        install(source, environments / "source")
        python = install(wheel, environments / "wheel")
        for extra in PROGRAMS:
            try_out(python, extra)
    print(f"Version {version} is ready: {', '.join(map(str, files))}")
    print(f"Tag it: git tag v{version}")


if __name__ == "__main__":
    main()
