"""Reads what a SavedModel says of itself, without TensorFlow."""

import os

from etcmodel.errors import UserError
from etcmodel.pipeline import metadata_files

METADATA_FILE = os.path.join("assets.extra", "etcmodel.json")


def read_metadata(saved_model_dir: str) -> dict:
    """Reads what `export` noted; a `UserError` if there is no such note."""
    if not os.path.exists(os.path.join(saved_model_dir, "saved_model.pb")):
        raise UserError(
            f"{saved_model_dir} is not a SavedModel: it has no saved_model.pb. "
            "Give the --output_dir of `export`."
        )
    path = os.path.join(saved_model_dir, METADATA_FILE)
    if not os.path.exists(path):
        raise UserError(
            f"{saved_model_dir} is a SavedModel, but not one that `export` "
            f"wrote: it has no {METADATA_FILE}."
        )
    return metadata_files.read(
        path, {"task": str, "options": dict}, "Export the model again."
    )
