"""Describes the software versions of a run."""

import importlib.metadata
import os
import platform
import subprocess

import etcmodel

_PACKAGES = (
    "tensorflow",
    "tf-keras",
    "tf-models-official",
    "tensorflow-text",
    "numpy",
)


def describe() -> dict:
    """Returns software versions and the working directory's git commit.

    The result has the keys `versions` (name -> version) and `git`, which is
    missing outside a git repository. `git` has the keys `directory`, `commit`
    and `is_changed`: whether tracked files differ from the commit.
    """
    versions = {"python": platform.python_version()}
    versions["etcmodel"] = etcmodel.__version__
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found = {"versions": versions}
    commit = _git("rev-parse", "HEAD")
    if commit:
        changes = _git("status", "--porcelain", "--untracked-files=no")
        found["git"] = {
            "directory": os.getcwd(),
            "commit": commit,
            "is_changed": bool(changes),
        }
    return found


def _git(*arguments: str) -> str:
    """Runs git, and returns its output; "" if it fails."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
