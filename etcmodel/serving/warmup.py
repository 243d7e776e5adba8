"""Writes warm-up requests for TensorFlow Serving.

A server replays the requests in `assets.extra/tf_serving_warmup_requests` of a
SavedModel before it accepts real ones. The file is a TFRecord file of
`tensorflow.serving.PredictionLog` messages.

To avoid a dependency on tensorflow-serving-api, this module writes the few
fields itself, in protocol buffer wire format: a tag, a length and the content.
The tag of a field with a length is `field number * 8 + 2`.
"""

import os
from collections.abc import Iterable
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")

# Field numbers in tensorflow_serving/apis/{prediction_log,predict,model}.proto.
_PREDICTION_LOG_PREDICT_LOG = 6
_PREDICT_LOG_REQUEST = 1
_PREDICT_REQUEST_MODEL_SPEC = 1
_PREDICT_REQUEST_INPUTS = 2
_MODEL_SPEC_NAME = 1
_MODEL_SPEC_SIGNATURE_NAME = 3
_MAP_KEY = 1
_MAP_VALUE = 2


def _varint(value: int) -> bytes:
    """Encodes a number as a varint (base 128): 300 becomes 0xAC 0x02."""
    digits = bytearray()
    while value >= 128:
        digits.append(value % 128 + 128)
        value //= 128
    digits.append(value)
    return bytes(digits)


def _field(number: int, content: bytes) -> bytes:
    """Encodes a length-delimited field: a string or a message."""
    return _varint(number * 8 + 2) + _varint(len(content)) + content


def prediction_log(
    model_name: str, signature_name: str, inputs: Mapping[str, np.ndarray]
) -> bytes:
    """Serializes one request as a `tensorflow.serving.PredictionLog`.

    Servers ignore `model_name`. Strings in `inputs` are `bytes` objects.
    """
    model_spec = _field(_MODEL_SPEC_NAME, model_name.encode()) + _field(
        _MODEL_SPEC_SIGNATURE_NAME, signature_name.encode()
    )
    request = _field(_PREDICT_REQUEST_MODEL_SPEC, model_spec)
    for name, value in sorted(inputs.items()):
        tensor = tf.make_tensor_proto(value).SerializeToString()
        entry = _field(_MAP_KEY, name.encode()) + _field(_MAP_VALUE, tensor)
        request += _field(_PREDICT_REQUEST_INPUTS, entry)
    log = _field(_PREDICT_LOG_REQUEST, request)
    return _field(_PREDICTION_LOG_PREDICT_LOG, log)


def write_warmup_requests(
    saved_model_dir: str,
    model_name: str,
    requests: Iterable[tuple[str, Mapping[str, np.ndarray]]],
) -> None:
    """Adds requests to a SavedModel: pairs of signature name and inputs."""
    path = os.path.join(saved_model_dir, WARMUP_FILE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tf.io.TFRecordWriter(path) as writer:
        for signature_name, inputs in requests:
            writer.write(prediction_log(model_name, signature_name, inputs))
