"""Reports the pip extra to install when an optional package is missing."""

import functools
import importlib.util

from etcmodel.errors import UserError

# Extra in pyproject.toml -> the modules that it installs.
EXTRAS = {
    "text": ("tensorflow_text", "safetensors", "sentencepiece"),
    "tasks": (
        "ai_edge_litert",
        "docstring_parser",
        "fsspec",
        "ijson",
        "matplotlib",
        "msgspec",
        "nltk",
        "official",
        "pyarrow",
        "rouge_score",
        "sacrebleu",
        "scipy",
        "sklearn",
        "tf_keras",
        "tqdm",
        "yaml",
    ),
    "beam": ("apache_beam", "google_crc32c"),
    "serve": (
        "fastapi",
        "lxml",
        "markdown_it",
        "prometheus_client",
        "starlette",
        "uvicorn",
    ),
    "onnx": ("onnxruntime", "tf2onnx"),
}


class MissingExtraError(ModuleNotFoundError, UserError):
    """Raised if an optional package is missing; names the extra to install."""


def require(*modules: str) -> None:
    """Raises a `MissingExtraError` if one of the modules is not installed.

    Imports nothing. Packages call it in `__init__`, so that its error comes
    before that of a failing import.
    """
    missing = [x for x in modules if importlib.util.find_spec(x) is None]
    if not missing:
        return
    # Each extra includes those before it.
    extra = next(
        name for name in reversed(EXTRAS) if set(missing) & set(EXTRAS[name])
    )
    raise MissingExtraError(
        f"{', '.join(missing)}: not installed. Run `pip install "
        f"'etcmodel[{extra}]'`, or '.[{extra}]' in a checkout.",
        name=missing[0],
    )


@functools.cache
def require_extra(extra: str) -> None:
    """Calls `require` for all modules of an extra; "tasks" includes "text"."""
    modules = EXTRAS[extra]
    if extra == "tasks":
        modules += EXTRAS["text"]
    require(*modules)
