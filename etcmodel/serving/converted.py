"""Converts trained models to LiteRT and ONNX: token ids in, logits out.

Both formats have fixed shapes and no operations on text. So a converted model
contains only the encoder and the head, for one row of inputs (in ReadTwice, for
the segments that are read together). A SavedModel beside it converts text to
its inputs.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import Literal
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel import extras
from etcmodel.errors import UserError
from etcmodel.ops.attention import for_inference
from etcmodel.pipeline import metadata_files
from etcmodel.pipeline.atomic import atomic_directory
from etcmodel.pipeline.preprocessor import Preprocessor
from etcmodel.serving import exported
from etcmodel.serving import signatures
from etcmodel.serving.saved_model import ServingModule
from etcmodel.serving.saved_model import model_variables

Format = Literal["litert", "onnx"]
Arrays = Mapping[str, np.ndarray]
_Specs = dict[str, tf.TensorSpec]

# Subdirectory of the SavedModel that makes the inputs.
PREPROCESSOR = "preprocessor"
# Largest accepted difference between a converted model's outputs and
# TensorFlow's.
TOLERANCE = 1e-3
_OPSET = 17


class _Runtime(NamedTuple):
    """Functions that convert models to a format, and run them.

    Attributes:
        convert: converts a model, given the specs of its inputs, to the content
            of a file.
        load: returns a function that runs such a file, given its path and the
            number of threads.
    """

    convert: Callable[[tf.keras.Model, _Specs], bytes]
    load: Callable[[str, int | None], Callable[[Arrays], Arrays]]


def export_converted(
    model: tf.keras.Model,
    preprocessor: Preprocessor,
    output_dir: str,
    *,
    format: Format,
    metadata: Mapping[str, Any],
    vocab_file: str,
    overwrite: bool = False,
) -> None:
    """Converts a model, checks its outputs, and writes a directory.

    Args:
        model: the Keras model, built with static lengths.
        preprocessor: converts raw text to the model's inputs.
        output_dir: the directory to create. It contains the model, its
            description `etcmodel.json`, a copy of the vocabulary and the
            SavedModel `preprocessor`.
        format: "litert" or "onnx".
        metadata: description of the model, see `TrainedModel`.
        vocab_file: the vocabulary.
        overwrite: whether an existing directory may be replaced.

    Raises:
        UserError: the model cannot be converted, its outputs differ from
            TensorFlow's by more than `TOLERANCE`, or the directory cannot be
            written.
    """
    exported.check_packages(format)
    inputs = signatures.static_request(preprocessor)
    content, expected = convert(model, inputs, format)
    with atomic_directory(output_dir, overwrite=overwrite) as directory:
        path = os.path.join(directory, exported.CONVERTED[format])
        with open(path, "wb") as stream:
            stream.write(content)
        with _explained(format):
            outputs = load(path, format)(inputs)
        difference = _difference(expected, outputs)
        # Unlike `>`, this is true for NaN.
        if not difference <= TOLERANCE:
            raise UserError(
                f"With `format={format}`, the outputs of the model differ from "
                f"TensorFlow's by {difference:.2g}; at most {TOLERANCE:g} is "
                "accepted. Nothing was written. Export with "
                "`format=saved_model`."
            )
        vocabulary = os.path.basename(vocab_file)
        tf.io.gfile.copy(vocab_file, os.path.join(directory, vocabulary))
        made = signatures.make_preprocessing_module(preprocessor)
        tf.saved_model.save(
            made,
            os.path.join(directory, PREPROCESSOR),
            signatures=made.signatures(),
        )
        metadata_files.write(
            os.path.join(directory, exported.CONVERTED_METADATA_FILE),
            {
                **metadata,
                "format": format,
                "file": exported.CONVERTED[format],
                "inputs": _describe(inputs),
                "outputs": _describe(expected),
                "vocabulary": vocabulary,
                "tokenizer": _tokenizer_settings(preprocessor.tokenizer),
                "difference": difference,
            },
        )


def convert(
    model: tf.keras.Model, inputs: Arrays, format: Format
) -> tuple[bytes, dict[str, np.ndarray]]:
    """Converts a model, for inputs with the shapes and dtypes of `inputs`.

    Returns the content of the file, and TensorFlow's outputs for the inputs.
    Raises a `UserError` if the model cannot be converted.
    """
    specs = {
        name: tf.TensorSpec(x.shape, x.dtype, name)
        for name, x in inputs.items()
    }
    # The expected outputs come from the graph that SavedModels have. The
    # converted graph computes attention in another way. GPUs may round more
    # than CPUs.
    with for_inference(), tf.device("CPU:0"):
        expected = tf.function(
            lambda inputs: model(inputs, training=False), autograph=False
        )({name: tf.constant(x) for name, x in inputs.items()})
    with _explained(format), for_inference(inline=True):
        content = _RUNTIMES[format].convert(model, specs)
    return content, {name: np.asarray(x) for name, x in expected.items()}


def load(
    path: str, format: Format, num_threads: int | None = None
) -> Callable[[Arrays], Arrays]:
    """Returns a function that runs a converted file."""
    return _RUNTIMES[format].load(path, num_threads)


class ConvertedModel:
    """A converted model, run by its own runtime.

    `model(inputs)` maps arrays of the shapes and types in
    `metadata["inputs"]`, by name, to the outputs.

    Args:
        directory: the directory that `export` wrote.
        num_threads: number of threads; None lets the runtime choose.

    Raises:
        UserError: the directory has no converted model, or it is damaged.
        MissingExtraError: the runtime is not installed.
    """

    def __init__(self, directory: str, num_threads: int | None = None):
        self.metadata = exported.read_converted(directory)
        format = self.metadata["format"]
        extras.require(exported.PACKAGES[format][0])
        path = os.path.join(directory, self.metadata["file"])
        try:
            self._run = load(path, format, num_threads)
        except Exception as error:
            raise UserError(
                f"{path} cannot be read: {_first_line(error)} Export the model "
                "again."
            ) from error

    def __call__(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Runs the model; raises a `UserError` if an input does not fit."""
        for name, noted in self.metadata["inputs"].items():
            if name not in inputs:
                raise UserError(f"The input {name} is missing.")
            x = np.asarray(inputs[name])
            if [*x.shape] != noted["shape"] or x.dtype != noted["dtype"]:
                raise UserError(
                    f"The input {name} is {x.dtype} {[*x.shape]}, expected "
                    f"{noted['dtype']} {noted['shape']}."
                )
        return dict(
            self._run(
                {x: np.asarray(inputs[x]) for x in self.metadata["inputs"]}
            )
        )


def _describe(arrays: Arrays) -> dict[str, dict[str, Any]]:
    """Returns name -> shape and dtype of an array."""
    return {
        name: {"shape": [*x.shape], "dtype": x.dtype.name}
        for name, x in sorted(arrays.items())
    }


def _tokenizer_settings(tokenizer) -> dict[str, Any]:
    """Returns a tokenizer's kind, WordPiece settings and special ids."""
    settings = getattr(tokenizer, "settings", None)
    return {
        "kind": tokenizer.kind,
        **(settings._asdict() if settings else {}),
        "special_ids": dict(tokenizer.special_ids),
    }


def _difference(expected: Arrays, outputs: Arrays) -> float:
    """Returns the largest absolute difference; NaN if it is undefined.

    It is undefined if names or shapes differ, or if a value is NaN.
    """
    if set(expected) != set(outputs):
        return float("nan")
    differences = [0.0]
    for name, x in expected.items():
        y = np.asarray(outputs[name])
        if x.shape != y.shape:
            return float("nan")
        # Equal infinities have the difference 0, but their subtraction gives
        # NaN.
        with np.errstate(invalid="ignore"):
            found = np.where(x == y, 0.0, np.abs(x - y))
        differences.append(np.max(found, initial=0.0))
    return float(np.max(differences))


@contextlib.contextmanager
def _explained(format: Format) -> Iterator[None]:
    """Converts any error of a converter or runtime to a `UserError`."""
    try:
        yield
    except Exception as error:
        # LiteRT's message contains the whole graph, so only lines about
        # operations are kept.
        lines = str(error).splitlines()
        named = [x for x in lines if x.startswith(("TF Select ops", "Custom"))]
        reason = "; ".join(named) or _first_line(error)
        raise UserError(
            f"The model cannot be converted with `format={format}`: {reason} "
            "Nothing was written. Export with `format=saved_model`."
        ) from error


def _first_line(error: Exception) -> str:
    line = str(error).strip().partition("\n")[0][:300]
    return f"{(line or type(error).__name__).rstrip('.')}."


def _convert_to_litert(model: tf.keras.Model, specs: _Specs) -> bytes:
    """Converts to LiteRT, without operations of TensorFlow."""
    module = ServingModule(
        model_variables(model),
        [],
        {"model": (lambda **inputs: model(inputs, training=False), specs)},
    )
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [*module.signatures().values()], module
    )
    return converter.convert()


def _load_litert(path: str, num_threads: int | None):
    from ai_edge_litert import interpreter

    made = interpreter.Interpreter(path, num_threads=num_threads)
    runner = made.get_signature_runner()
    # Keeps the interpreter alive, which owns the memory of the runner.
    return lambda inputs, _=made: runner(**inputs)


def _convert_to_onnx(model: tf.keras.Model, specs: _Specs) -> bytes:
    """Converts to ONNX, without the log of tf2onnx."""
    import tf2onnx

    function = tf.function(
        lambda inputs: model(inputs, training=False), autograph=False
    )
    captures = function.get_concrete_function(specs).graph.captures
    log = logging.getLogger("tf2onnx")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        made, _ = tf2onnx.convert.from_function(function, [specs], opset=_OPSET)
    finally:
        log.setLevel(level)
    # tf2onnx mistakes the constants of a Keras model for inputs.
    constants = {
        placeholder.name: value.numpy()
        for value, placeholder in captures
        if value.dtype != tf.resource
    }
    for given in [x for x in made.graph.input if x.name in constants]:
        made.graph.input.remove(given)
        made.graph.initializer.add(
            name=given.name,
            data_type=given.type.tensor_type.elem_type,
            dims=constants[given.name].shape,
            raw_data=constants[given.name].tobytes(),
        )
    return made.SerializeToString()


def _load_onnx(path: str, num_threads: int | None):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads or 0
    # Logs only errors, because warnings would list all unused weights.
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    given = [x.name for x in session.get_inputs()]
    names = [x.name for x in session.get_outputs()]

    def run(inputs):
        outputs = session.run(names, {name: inputs[name] for name in given})
        return dict(zip(names, outputs, strict=True))

    return run


_RUNTIMES: dict[str, _Runtime] = {
    "litert": _Runtime(_convert_to_litert, _load_litert),
    "onnx": _Runtime(_convert_to_onnx, _load_onnx),
}
