"""Finds the sizes of a model's inputs from records and model parameters."""

from collections.abc import Mapping
from typing import Any

from etcmodel.errors import UserError
from etcmodel.feature_utils.etc_features import LENGTHS
from etcmodel.pipeline import shards
from etcmodel.pipeline.spec import TaskSpec

# Batches are padded to a multiple of this length.
_STEP = 8


def find_sizes(
    spec: TaskSpec, metadata: Mapping[str, Any] | None, model_params: Any
) -> dict[str, Any]:
    """Returns the records' preprocessing sizes, with the model's lengths.

    Args:
        spec: the task.
        metadata: the records' `preprocessing_config.json`; None if unknown.
        model_params: an object with `long_length` and `global_length`; 0 means
            the records' value. ReadTwice does not use them.

    Raises:
        UserError: sizes are missing, or differ from those of the task.
    """
    if metadata is None and not (spec.has_answers and not spec.reads_segments):
        raise UserError(
            f"{shards.METADATA_FILE} is missing beside the records, so their "
            "sizes are unknown. Copy it from where `preprocess` wrote it."
        )
    sizes = dict((metadata or {}).get("preprocessing_config", {}))
    if not spec.reads_segments:
        sizes |= {
            name: _length(name, sizes, getattr(model_params, name, 0))
            for name in LENGTHS
        }
    known = {*spec.size_names()} - {*spec.reading}
    optional = spec.optional_sizes()
    if metadata is not None and known - optional != {*sizes} - optional:
        raise UserError(
            f"The records' {shards.METADATA_FILE} has the sizes "
            f"{', '.join(sorted(sizes))}, but {spec.name} needs "
            f"{', '.join(sorted(known))}. Preprocess the data again."
        )
    return sizes


def shorten(
    lengths: Mapping[str, int], longest: Mapping[str, int]
) -> dict[str, int]:
    """Returns the static lengths of batches: those of the longest inputs.

    They are multiples of 8, and at most `lengths`. Padding does not change the
    model's outputs, but dropout depends on the length. Example: lengths of
    `{"long_length": 4096, "global_length": 512}` and longest inputs of
    `{"long_length": 83}` give `{"long_length": 88, "global_length": 512}`.
    """
    return dict(lengths) | {
        name: min(lengths[name], -(-length // _STEP) * _STEP)
        for name, length in longest.items()
        if name in lengths
    }


def _length(name: str, sizes: Mapping[str, Any], length: int) -> int:
    """Returns a model length; raises a `UserError` if records are longer."""
    if not length and name not in sizes:
        raise UserError(
            f"The {name} of the records is unknown: "
            f"{shards.METADATA_FILE} is missing beside them. Set "
            f"`params_override=task.model.{name}=N`."
        )
    if length and length < sizes.get(name, 0):
        raise UserError(
            f"task.model.{name} is {length}, but the records were preprocessed "
            f"with `{name}={sizes[name]}`. Use at least that, or 0 to take the "
            "records' value."
        )
    return length or sizes[name]
