"""Reads the files of a run that describe its encoder."""

import glob
import os
from typing import Any

import tensorflow as tf

from etcmodel import json_objects
from etcmodel import run_paths

# Arguments of what builds the encoder; its configuration has a file of its own.
OPTIONS_FILE = "encoder_options.json"
_LAYER_KEYS = {"class", "module", "config"}


def find(model_dir: str | os.PathLike, name: str) -> str:
    """Returns the path of a file in a run, or raises a FileNotFoundError."""
    folder = run_paths.directory(model_dir)
    path = os.path.join(folder, name)
    if tf.io.gfile.exists(path):
        return path
    others = tf.io.gfile.glob(
        os.path.join(glob.escape(folder), "*_config.json")
    )
    if name != OPTIONS_FILE and others:
        advice = f"but {os.path.basename(others[0])}. Use the class of that"
    elif tf.io.gfile.exists(os.path.join(folder, run_paths.PARAMS_FILE)):
        advice = (
            "because an older version trained it. Set the values of "
            "task.model.encoder in params.yaml yourself, or train on, with "
            "more `epochs`, which writes the file"
        )
    else:
        advice = "and is no run. Give the `model_dir` of `train`"
    raise FileNotFoundError(f"{folder or '.'} has no {name}, {advice}.")


def encoder_options(model_dir: str | os.PathLike) -> dict[str, Any]:
    """Returns the arguments of `build_encoder` that a run was trained with.

    For ReadTwice, those of `build_read_twice_encoder`. Lengths are not
    included. `model_dir` may also be a checkpoint in the run.

    Example:
        config = EtcConfig.from_run("runs/1")
        encoder = build_encoder(config, **encoder_options("runs/1"))

    Raises:
        FileNotFoundError: the directory holds no run, or a run of an older
            version, which did not write the file.
        ValueError: the file is damaged, or a layer that embeds values is not
            registered with Keras.
    """
    path = find(model_dir, OPTIONS_FILE)
    options = _read_options(path)
    for value, layer in options.get("value_layers", {}).items():
        kind = tf.keras.utils.get_registered_object(layer["class"])
        if kind is None:
            raise ValueError(
                f"{path}: Keras does not know the layer {layer['class']}, "
                f"which embeds {value!r}. Import {layer['module']} first."
            )
        options["value_layers"][value] = kind.from_config(layer["config"])
    return options


def _read_options(path) -> dict[str, Any]:
    def fail(problem):
        raise ValueError(
            f"{path}: {problem}. Copy the file again, or train on, with more "
            "`epochs`, which writes it."
        ) from None

    try:
        with tf.io.gfile.GFile(path, "rb") as stream:
            options = json_objects.parse_note(stream.read())
    except ValueError as error:
        fail(error)
    layers = options.get("value_layers", {})
    if not isinstance(layers, dict) or not all(
        isinstance(layer, dict) and layer.keys() >= _LAYER_KEYS
        for layer in layers.values()
    ):
        fail(
            f"value_layers is {layers!r}, expected an object of layers, each "
            f"with {', '.join(sorted(_LAYER_KEYS))}"
        )
    return options


def describe_options(encoder: tf.keras.Model) -> dict[str, Any]:
    """Returns the options of a `StructuredEtcModel` as JSON.

    `encoder_options` reads them. A layer that embeds a value is a dict of its
    `class` as registered with Keras, its `module` and its `config`.
    """
    config = encoder.get_config()
    options = {name: config[name] for name in encoder.OPTIONS}
    layers = {
        name: encoder.value_layer(name) for name in config["value_layers"]
    }
    if layers:
        options["value_layers"] = {
            name: {
                "class": tf.keras.utils.get_registered_name(type(layer)),
                "module": type(layer).__module__,
                # The dtype follows the policy under which it is rebuilt.
                "config": {
                    key: x
                    for key, x in layer.get_config().items()
                    if key != "dtype"
                },
            }
            for name, layer in layers.items()
        }
    return options
