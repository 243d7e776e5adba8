"""Reads the files of a training run that describe its encoder."""

import glob
import os
from typing import Any

import tensorflow as tf

from etcmodel import json_objects
from etcmodel import run_paths

# Arguments of `build_encoder`. The configuration has its own file.
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
        advice = (
            f"but {os.path.basename(others[0])}. Use that file's "
            "configuration class"
        )
    elif tf.io.gfile.exists(os.path.join(folder, run_paths.PARAMS_FILE)):
        advice = (
            "because an older version trained it. Set the values of "
            "task.model.encoder in params.yaml yourself, or resume training "
            "with more `epochs`, which writes the file"
        )
    else:
        advice = "so it is not a run. Pass the `model_dir` of `train`"
    raise FileNotFoundError(f"{folder or '.'} has no {name}, {advice}.")


def encoder_options(model_dir: str | os.PathLike) -> dict[str, Any]:
    """Returns the arguments of `build_encoder` that a run was trained with.

    For a ReadTwice run, returns the arguments of `build_read_twice_encoder`.
    Lengths are not included. `model_dir` is the run, or a checkpoint in it.

    Example:
        config = EtcConfig.from_run("runs/1")
        encoder = build_encoder(config, **encoder_options("runs/1"))

    Raises:
        FileNotFoundError: the directory is not a run, or an older version wrote
            the run without this file.
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
            f"{path}: {problem}. Copy the file again, or resume training with "
            "more `epochs`, which writes it."
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
            f"value_layers is {layers!r}, expected a JSON object of layers, "
            f"each with {', '.join(sorted(_LAYER_KEYS))}"
        )
    return options


def describe_options(encoder: tf.keras.Model) -> dict[str, Any]:
    """Returns the options of a `StructuredEtcModel` as JSON values.

    `encoder_options` reads them back. A layer that embeds a value becomes a
    dict of its registered Keras name (`class`), its `module` and its `config`.
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
                # A rebuilt layer takes the dtype policy of its new model.
                "config": {
                    key: x
                    for key, x in layer.get_config().items()
                    if key != "dtype"
                },
            }
            for name, layer in layers.items()
        }
    return options
