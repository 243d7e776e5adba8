"""The sizes of a model: those of its records, with its own lengths."""

from collections.abc import Mapping
from typing import Any

from etcmodel.errors import UserError
from etcmodel.pipeline import shards
from etcmodel.pipeline.spec import TaskSpec

# Lengths of ETC's inputs; those of a model can be greater than its records'.
LENGTHS = ("long_length", "global_length")


def find_sizes(
    spec: TaskSpec, metadata: Mapping[str, Any] | None, model_params: Any
) -> dict[str, Any]:
    """Returns the sizes of records, with the lengths of the model.

    Args:
        spec: the task.
        metadata: what `preprocess` noted about the records; None if unknown.
        model_params: has `long_length` and `global_length`, 0 for those of the
            records; not used for ReadTwice.

    Raises:
        UserError: sizes are missing, or do not fit the task.
    """
    if metadata is None and not (spec.has_answers and not spec.reads_segments):
        raise UserError(
            f"There is no {shards.METADATA_FILE} beside the records, so their "
            "sizes are not known. Keep it where `preprocess` wrote it."
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
            f"{shards.METADATA_FILE} of the records has the sizes "
            f"{', '.join(sorted(sizes))}, but {spec.name} has "
            f"{', '.join(sorted(known))}. Preprocess the data again."
        )
    return sizes


def _length(name: str, sizes: Mapping[str, Any], length: int) -> int:
    """Returns a length of the model, at least that of the records."""
    if not length and name not in sizes:
        raise UserError(
            f"The {name} of the records is not known: there is no "
            f"{shards.METADATA_FILE} beside them. Say it with "
            f"`params_override=task.model.{name}=N`."
        )
    if length and length < sizes.get(name, 0):
        raise UserError(
            f"task.model.{name} is {length}, but the records were made with "
            f"`{name}={sizes[name]}`. Use at least that, or 0 for what the "
            "records have."
        )
    return length or sizes[name]
