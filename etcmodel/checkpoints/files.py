"""Finds, compares and assigns the variables of checkpoints."""

import os
import re
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from etcmodel.checkpoints import bert_names
from etcmodel.models import ReadTwiceModel
from etcmodel.models.etc import encoder_layer
from etcmodel.weight_paths import get_weight_paths

# Entries of a TensorFlow 2 checkpoint that are not variables.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# Patterns that match only names of one encoder's variables, in the original and
# in the object-based format.
_MARKS = {
    "an EtcModel": r"(^|/)global_local_transformer_layers/",
    "a ReadTwiceModel": r"(^|/)(read_it_twice_bert|\w+_with_side_inputs)/",
}


class Checkpoint:
    """A TensorFlow checkpoint, name-based or object-based.

    `path` is the path of its files without their endings. `shapes` maps the
    name of each variable to its shape. The constructor raises a ValueError if
    the checkpoint is damaged.
    """

    def __init__(self, path: str):
        self.path = path
        self._reader = self._call(tf.train.load_checkpoint, path)
        self.shapes = self._reader.get_variable_to_shape_map()

    def read(self, name: str) -> np.ndarray:
        """Reads the value of a variable."""
        return self._call(self._reader.get_tensor, name)

    def _call(self, function, argument):
        try:
            return function(argument)
        # Errors of TensorFlow's reader for damaged files.
        except (tf.errors.OpError, ValueError, IndexError) as error:
            raise ValueError(
                f"{self.path} is damaged, or not a TensorFlow checkpoint "
                f"({error})."
            ) from None


def open_checkpoint(
    path: str | os.PathLike,
    advice: str = "Lift weights of BERT or RoBERTa first.",
) -> Checkpoint:
    """Opens a checkpoint.

    For a directory, opens its latest checkpoint, or its only one. `advice` is
    added to the error if there is no checkpoint.

    Raises:
        FileNotFoundError: the checkpoint, or one of its files, is missing.
        ValueError: the checkpoint is damaged.
    """
    path = os.fspath(path)
    found = path
    if tf.io.gfile.isdir(path):
        found = latest_checkpoint(path)
        indices = [x for x in tf.io.gfile.listdir(path) if x.endswith(".index")]
        if found is None and len(indices) == 1:
            found = os.path.join(path, indices[0].removesuffix(".index"))
    if found is None or not tf.io.gfile.exists(f"{found}.index"):
        raise FileNotFoundError(
            f"{path} has no TensorFlow checkpoint, or several but no "
            f"`checkpoint` file that names the latest. {advice}"
        )
    shards = _find_shards(found)
    if not _are_all(shards):
        raise FileNotFoundError(
            f"{found} is incomplete: its .index exists, but only "
            f"{len(shards)} of {shards[0][-5:] if shards else 'its'} .data-* "
            "files do."
        )
    return Checkpoint(found)


def _find_shards(path: str) -> list[str]:
    """Lists the names of a checkpoint's `.data-*` files."""
    folder, name = os.path.split(path)
    pattern = re.escape(name) + r"\.data-\d{5}-of-\d{5}"
    return [
        x
        for x in tf.io.gfile.listdir(folder or ".")
        if re.fullmatch(pattern, x)
    ]


def _are_all(shards: Sequence[str]) -> bool:
    """Returns whether the names of `.data-*` files show that all exist."""
    return bool(shards) and len(shards) == int(shards[0][-5:])


def whole_checkpoints(directory: str) -> list[str]:
    """Lists a directory's numbered checkpoints that have all their files.

    Returns paths, such as `"runs/1/ckpt-200"`, sorted by number.
    """
    if not tf.io.gfile.isdir(directory):
        return []
    found = []
    for name in tf.io.gfile.listdir(directory):
        match = re.fullmatch(r"(.+-(\d+))\.index", name)
        if match:
            path = os.path.join(directory, match[1])
            if _are_all(_find_shards(path)):
                found.append((int(match[2]), path))
    return [path for _, path in sorted(found)]


def latest_checkpoint(directory: str) -> str | None:
    """Finds the newest complete checkpoint in a directory, or None.

    The file `checkpoint` names the newest checkpoint. If this file is missing
    or damaged, or names an incomplete checkpoint, finds the complete checkpoint
    with the highest number.
    """
    found = named_checkpoint(directory)
    if found is None:
        found = next(reversed(whole_checkpoints(directory)), None)
    return found


def names_others(directory: str, state) -> bool:
    """Returns whether a `CheckpointState` names paths outside `directory`."""
    if state is None:
        return False
    named = [state.model_checkpoint_path, *state.all_model_checkpoint_paths]
    places = {os.path.realpath(os.path.dirname(path)) for path in named}
    return places != {os.path.realpath(directory)}


def named_checkpoint(directory: str) -> str | None:
    """Returns the checkpoint that the file `checkpoint` names, if complete.

    A file that names a checkpoint outside of its directory counts as damaged,
    since the trainer would delete that checkpoint.
    """
    try:
        state = tf.train.get_checkpoint_state(directory)
    # TensorFlow raises these errors for a damaged file.
    except ValueError:
        return None
    found = state.model_checkpoint_path if state else ""
    if names_others(directory, state):
        return None
    if not found or not tf.io.gfile.exists(f"{found}.index"):
        return None
    return found if _are_all(_find_shards(found)) else None


def find_encoder(model):
    """Returns the only `EtcModel` or `ReadTwiceModel` in a model.

    Raises a ValueError unless the model has exactly one encoder.
    """
    found = {}

    def visit(layer):
        if isinstance(layer, encoder_layer.EncoderLayer):
            found[id(layer)] = layer
        elif isinstance(layer, tf.keras.Model):
            for child in layer.layers:
                visit(child)

    visit(model)
    if len(found) != 1:
        names = ", ".join(x.name for x in found.values()) or "none"
        raise ValueError(
            f"{model.name} must have one EtcModel or ReadTwiceModel inside, "
            f"but has {len(found)} ({names}). Pass the encoder whose weights "
            "you want to load."
        )
    return next(iter(found.values()))


def check_kind(encoder, path: str, names: Collection[str]) -> None:
    """Raises a ValueError for variables of another encoder class.

    `names` are the variables' names; in an object-based checkpoint, their
    paths.
    """
    found = [
        kind
        for kind, pattern in _MARKS.items()
        if any(re.search(pattern, name) for name in names)
    ]
    own = (
        "a ReadTwiceModel"
        if isinstance(encoder, ReadTwiceModel)
        else "an EtcModel"
    )
    if found and own not in found:
        advice = f"Use a checkpoint of {own}, or build {found[0]}."
    elif not found and bert_names.is_bert(names):
        found = ["a BERT"]
        advice = (
            "Lift it first: `python -m etcmodel lift --from=DIR`, or "
            "`etcmodel.checkpoints.lift`."
        )
    else:
        return
    raise ValueError(
        f"The checkpoint {path} is of {found[0]}, but {encoder.name} is {own}, "
        f"and nothing has been loaded. {advice}"
    )


def without_new(
    encoder,
    weights: Mapping[str, tf.Variable],
    found: Collection[str],
) -> dict[str, tf.Variable]:
    """Returns `weights` without `added_layers` that a checkpoint lacks.

    This lets a model with visual features start from an encoder without them.
    `weights` maps names to weights, and `found` are the checkpoint's names.
    """
    weights = dict(weights)
    for layer in encoder.added_layers:
        added = get_weight_paths(layer).values()
        names = [k for k, x in weights.items() if any(x is y for y in added)]
        if not {*names} & {*found}:
            logging.warning(
                "The checkpoint has no weights for %s, which starts untrained.",
                layer.name,
            )
            for name in names:
                del weights[name]
    return weights


def assign(
    weights: Mapping[str, tf.Variable],
    shapes: Mapping[str, Sequence[int]],
    read: Callable[[str], np.ndarray],
    extra: Sequence[str],
    what: str,
) -> None:
    """Assigns values to all weights, or to none if a name or shape differs.

    Args:
        weights: name -> weight of the model.
        shapes: name -> shape in the checkpoint.
        read: returns the value of the variable with a name.
        extra: names that the checkpoint has, but the model lacks.
        what: start of the error message, naming the checkpoint and the model.

    Raises:
        ValueError: names or shapes differ; the message lists all of them.
    """
    problems = {
        "missing in the checkpoint": [x for x in weights if x not in shapes],
        "in the checkpoint, but not in the model": list(extra),
        "shapes differ": [
            f"{x} {list(shapes[x])}, in the model {list(weight.shape)}"
            for x, weight in weights.items()
            if x in shapes and list(shapes[x]) != list(weight.shape)
        ],
    }
    if any(problems.values()):
        raise ValueError(
            f"{what}, and nothing has been loaded. Build the model with the "
            "checkpoint's configuration."
            + "".join(
                f"\n{problem}:{listed(names)}"
                for problem, names in problems.items()
                if names
            )
        )
    values = {name: np.asarray(read(name)) for name in weights}
    for name, weight in weights.items():
        weight.assign(values[name])


def beside(path: str | os.PathLike, name: str) -> str:
    """Returns the path of file `name` in a checkpoint's directory."""
    path = os.fspath(path)
    folder = path if tf.io.gfile.isdir(path) else os.path.dirname(path)
    return os.path.join(folder, name)


def listed(names: Sequence[str]) -> str:
    """Formats names for the end of a message, each on its own line."""
    return "".join(f"\n  {name}" for name in names)
