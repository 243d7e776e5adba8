"""Reads the description of an exported model without loading TensorFlow."""

import dataclasses
import os
from typing import Any

from etcmodel import extras
from etcmodel import json_objects
from etcmodel.errors import UserError
from etcmodel.pipeline import metadata_files

METADATA_FILE = os.path.join("assets.extra", "etcmodel.json")
# Format of a converted model -> its file. The other file describes the model.
CONVERTED = {"litert": "model.tflite", "onnx": "model.onnx"}
CONVERTED_METADATA_FILE = "etcmodel.json"
# Format -> the modules that run its models or convert to it.
PACKAGES = {
    "litert": ("ai_edge_litert",),
    "onnx": ("onnxruntime", "tf2onnx"),
}
_ADVICE = "Export the model again."
# TensorFlow itself stores and checks the checksums of these files.
_OWN_CHECKSUMS = "variables.data-"


def read_metadata(saved_model_dir: str) -> dict:
    """Reads the description of a SavedModel that `export` wrote.

    Raises a `UserError` if the description is missing or damaged.
    """
    if not os.path.exists(os.path.join(saved_model_dir, "saved_model.pb")):
        for format, name in CONVERTED.items():
            if os.path.exists(os.path.join(saved_model_dir, name)):
                raise UserError(
                    f"{saved_model_dir} is a model that `export` wrote with "
                    f"`format={format}`, not a SavedModel. Export the run with "
                    "`format=saved_model`."
                )
        raise UserError(
            f"{saved_model_dir} is not a SavedModel: it has no saved_model.pb. "
            "Give the `output_dir` of `export`."
        )
    path = os.path.join(saved_model_dir, METADATA_FILE)
    if not os.path.exists(path):
        raise UserError(
            f"{saved_model_dir} is a SavedModel, but not one that `export` "
            f"wrote: it has no {METADATA_FILE}. Give the `output_dir` of "
            "`export`."
        )
    keys = {"task": str, "options": dict}
    metadata = metadata_files.read(path, keys, _ADVICE)
    for key in {"files", "preprocessing_config", "reading"} & {*metadata}:
        metadata_files.check(path, metadata, {key: dict}, _ADVICE)
    return metadata


def read_converted(directory: str) -> dict:
    """Reads the description of a converted model that `export` wrote.

    Raises a `UserError` if the description is missing or damaged.
    """
    path = os.path.join(directory, CONVERTED_METADATA_FILE)
    keys = {
        "task": str,
        "format": str,
        "file": metadata_files.FileName,
        "inputs": dict,
        "outputs": dict,
    }
    metadata = metadata_files.read(path, keys, _ADVICE)
    if metadata["format"] not in CONVERTED:
        raise UserError(
            f"{path}: the format is {metadata['format']!r}, expected one of "
            f"{', '.join(CONVERTED)}. {_ADVICE}"
        )
    return metadata


def check_packages(format: str) -> None:
    """Raises a `MissingExtraError` if a format's packages are missing."""
    extras.require(*PACKAGES.get(format, ()))


def find_versions(directory: str) -> dict[int, str]:
    """Returns version -> path of the SavedModel that `export` wrote.

    `directory` is either a SavedModel, which gets the version 1, or has
    SavedModels in subdirectories whose names are numbers.

    Raises:
        UserError: `directory` has no SavedModel.
    """
    if os.path.exists(os.path.join(directory, "saved_model.pb")):
        return {1: directory}
    found = {}
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        path = os.path.join(directory, name)
        # Without this file, a SavedModel is still being copied.
        if name.isdecimal() and os.path.exists(
            os.path.join(path, METADATA_FILE)
        ):
            found[int(name)] = path
    if not found:
        raise UserError(
            f"{directory} is no SavedModel, and has none in directories whose "
            "names are numbers, such as 1. Give the `output_dir` of `export`, "
            "or the directory around it."
        )
    return found


def make_options(saved_model_dir: str, options_class: type, values: dict):
    """Makes a task's options from the stored values.

    Raises a `UserError` if an option is unknown.
    """
    names = [field.name for field in dataclasses.fields(options_class)]
    for name in values:
        if name not in names:
            raise UserError(
                f"{os.path.join(saved_model_dir, METADATA_FILE)}: unknown "
                f"option {name!r}, expected only {', '.join(names)}. "
                f"{_ADVICE}"
            )
    return options_class(**values)


def describe_files(saved_model_dir: str) -> dict[str, str]:
    """Returns file name -> checksum of a SavedModel's graph and assets."""
    found = {}
    for folder in ("", "assets", "variables"):
        place = os.path.join(saved_model_dir, folder)
        for name in os.listdir(place) if os.path.isdir(place) else ():
            path = os.path.join(place, name)
            if os.path.isfile(path) and not name.startswith(_OWN_CHECKSUMS):
                with open(path, "rb") as stream:
                    checksum = json_objects.digest(stream.read())
                found[f"{folder}/{name}".lstrip("/")] = checksum
    return found


def check_files(saved_model_dir: str, metadata: dict[str, Any]) -> None:
    """Raises a `UserError` if a file has changed since `export` wrote it."""
    # SavedModels of older versions have no checksums.
    found, noted = describe_files(saved_model_dir), metadata.get("files", {})
    for name in noted:
        if found.get(name) != noted[name]:
            path = os.path.join(saved_model_dir, name)
            problem = f"is damaged: its checksum differs from {METADATA_FILE}"
            if name not in found:
                problem = "is missing"
            raise UserError(
                f"{path} {problem}. Copy the SavedModel again, or export the "
                "model again."
            )
