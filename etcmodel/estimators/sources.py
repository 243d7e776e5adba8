"""Finds initial weights; lifts (converts) the weights of BERT for ETC."""

import difflib
import hashlib
import os
import re

from etcmodel import run_paths
from etcmodel.engine import lift
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.models import EtcConfig
from etcmodel.pipeline import metadata_files
from etcmodel.readers import files

# Matches a name in the Hugging Face Hub, such as
# "google-bert/bert-base-uncased", with an optional "@revision".
_HUB_NAME = re.compile(r"([\w-][\w.-]*/[\w.-]+)(?:@([\w./-]+))?")
_HUB_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
# A directory with one of these files already contains weights of ETC.
_OWN_FILES = ("lift.json", run_paths.RUN_FILE, "etc_config.json")


def find(source: str, reporter: Reporter | None = None) -> str:
    """Returns the path of the weights from which training can start.

    Lifts a Hugging Face model, given by its directory or its name in the hub,
    into `~/.cache/etcmodel` (or below `XDG_CACHE_HOME`), once per version of
    its files. The lifted model's positions restart in each paragraph. Returns
    any other source unchanged.

    Args:
        source: a path, or a name in the hub ("google-bert/bert-base-uncased",
            "owner/name@revision"), which needs the package huggingface_hub.
        reporter: shows a note when weights are lifted.

    Raises:
        UserError: the weights cannot be downloaded or lifted.
    """
    folder = source
    if not os.path.exists(source):
        match = _HUB_NAME.fullmatch(source)
        if match is None or os.path.exists(f"{source}.index"):
            return source
        folder = _download(*match.groups())
    own = any(os.path.exists(os.path.join(folder, x)) for x in _OWN_FILES)
    if own or not os.path.exists(os.path.join(folder, "config.json")):
        return source
    target = os.path.join(_cache(), f"lifted-{_fingerprint(folder)}")
    if os.path.isdir(target):
        return target
    os.makedirs(_cache(), exist_ok=True)
    result = lift.lift(
        lift.Options(
            from_=folder,
            output_dir=target,
            absolute_positions="paragraph",
            question_words_in_global=True,
        )
    )
    (reporter or Reporter()).note(
        f"Lifted {result.num_used} weights of {source} into {target}."
    )
    return target


def _cache() -> str:
    """Returns the directory that caches lifted weights."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(root, "etcmodel")


def _download(name: str, revision: str | None) -> str:
    """Downloads a model from the hub, unless cached; returns its directory."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise UserError(
            f"{name} is not a directory. To download models from the Hugging "
            "Face Hub, first run `pip install 'etcmodel[hub]'`."
        ) from error
    try:
        return huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=list(_HUB_FILES)
        )
    # The hub raises many types of errors: for the network, access rights and
    # names.
    except Exception as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise UserError(
            f"{name} is not a directory, and cannot be downloaded from the "
            f"Hugging Face Hub: {reason}. Check the name and the connection."
        ) from error


def _fingerprint(folder: str) -> str:
    """Returns a hash that changes whenever a file in the directory changes."""
    found = []
    for name in sorted(os.listdir(folder)):
        # The hub's cache has links, whose targets are named by their content.
        path = os.path.realpath(os.path.join(folder, name))
        status = os.stat(path)
        found.append((name, path, status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def check(source: str) -> None:
    """Raises a `UserError` if the initial weights do not exist."""
    presets = list(EtcConfig._PRESETS)
    if (
        source in presets
        or files.is_remote(source)
        or any(map(os.path.exists, (source, f"{source}.index")))
    ):
        return
    close = difflib.get_close_matches(source, presets, n=1)
    advice = f" Did you mean {close[0]!r}?" if close else ""
    raise UserError(
        f"from_pretrained({show(source)}): there is no such directory, "
        f"checkpoint or preset.{advice} Presets are {', '.join(presets)}."
    )


def vocabulary_beside(source: str) -> str | None:
    """Returns the path of the vocabulary beside weights, or None."""
    for name, keys in ((_OWN_FILES[0], ()), (run_paths.RUN_FILE, ("records",))):
        path = os.path.join(source, name)
        if metadata_files.exists(path):
            note = metadata_files.read(path)
            for key in keys:
                note = note.get(key) or {}
            if "vocab_file" in note:
                kind = {"vocab_file": metadata_files.FileName}
                metadata_files.check(path, note, kind)
                return os.path.join(source, note["vocab_file"])
    path = os.path.join(source, "vocab.txt")
    return path if metadata_files.exists(path) else None
