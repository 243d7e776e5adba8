"""Names the extra to install when an optional package is missing."""

import functools
import importlib.util

from etcmodel.errors import UserError

# Extra of pyproject.toml -> the modules it brings. Of a module in several
# extras the first one is named.
EXTRAS = {
    "text": ("tensorflow_text", "safetensors", "sentencepiece"),
    "tasks": (
        "docstring_parser",
        "ijson",
        "matplotlib",
        "msgspec",
        "nltk",
        "official",
        "rouge_score",
        "sacrebleu",
        "tf_keras",
        "tqdm",
        "yaml",
    ),
}


class MissingExtraError(ModuleNotFoundError, UserError):
    """An optional package is missing, which one of the extras installs."""


def require(*modules: str) -> None:
    """Raises an error that names the extra if a module is not installed.

    Packages call it in `__init__`, so that this error comes before those of
    their modules; functions call it before their own imports. Imports nothing.

    Args:
        *modules: top-level modules of `EXTRAS`.

    Raises:
        MissingExtraError: one of them is not installed.
    """
    missing = [x for x in modules if importlib.util.find_spec(x) is None]
    if not missing:
        return
    # The extra "tasks" brings all that "text" does.
    extra = "text" if set(missing) <= set(EXTRAS["text"]) else "tasks"
    raise MissingExtraError(
        f"{', '.join(missing)}: not installed. Run `pip install "
        f"'etcmodel[{extra}]'`, or '.[{extra}]' in a checkout.",
        name=missing[0],
    )


@functools.cache
def require_extra(extra: str) -> None:
    """Raises an error that names the extra if any of its modules is missing.

    Args:
        extra: of `EXTRAS`; "tasks" has the modules of "text", too.

    Raises:
        MissingExtraError: a module is not installed.
    """
    modules = EXTRAS[extra]
    if extra == "tasks":
        modules += EXTRAS["text"]
    require(*modules)
