import os

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory
from tensorflow.core.framework import tensor_pb2

from etcmodel.tasks import serving_warmup

_MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
_STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_REPEATED = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
_PACKAGE = "tensorflow.serving.copy"


def _prediction_log_class():
    """The messages as tensorflow-serving-api defines them, as far as used.

    From prediction_log.proto, predict.proto and model.proto of
    https://github.com/tensorflow/serving. Tensors are taken as bytes.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="copy.proto", package=_PACKAGE, syntax="proto3"
    )

    def message(name, *fields, parent=None):
        added = (parent.nested_type if parent else file.message_type).add(
            name=name
        )
        for field_name, number, kind, type_name in fields:
            field = added.field.add(name=field_name, number=number, type=kind)
            if type_name:
                field.type_name = f".{_PACKAGE}.{type_name}"
        return added

    message(
        "ModelSpec",
        ("name", 1, _STRING, None),
        ("signature_name", 3, _STRING, None),
    )
    request = message(
        "PredictRequest",
        ("model_spec", 1, _MESSAGE, "ModelSpec"),
        ("inputs", 2, _MESSAGE, "PredictRequest.InputsEntry"),
    )
    request.field[1].label = _REPEATED
    entry = message(
        "InputsEntry",
        ("key", 1, _STRING, None),
        ("value", 2, _BYTES, None),
        parent=request,
    )
    entry.options.map_entry = True
    message("PredictLog", ("request", 1, _MESSAGE, "PredictRequest"))
    message("PredictionLog", ("predict_log", 6, _MESSAGE, "PredictLog"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{_PACKAGE}.PredictionLog")
    )


def read_warmup_requests(saved_model_dir):
    """Pairs of signature name and inputs, read by the protobuf library."""
    path = os.path.join(saved_model_dir, serving_warmup.WARMUP_FILE)
    requests = []
    for serialized in tf.data.TFRecordDataset(path).as_numpy_iterator():
        log = _prediction_log_class().FromString(serialized)
        request = log.predict_log.request
        inputs = {
            name: tf.make_ndarray(tensor_pb2.TensorProto.FromString(value))
            for name, value in request.inputs.items()
        }
        requests.append((request.model_spec.signature_name, inputs))
    return requests


class ServingWarmupTest(tf.test.TestCase):
    def test_protobuf_reads_what_was_written(self):
        directory = self.get_temp_dir()
        expected = [
            (
                "serving_default",
                {
                    "query": np.array([b"caf\xc3\xa9 " * 99], dtype=object),
                    "supports": np.array([[b"a", b""]], dtype=object),
                },
            ),
            ("features", {"ids": np.arange(600, dtype=np.int64)[None]}),
        ]
        serving_warmup.write_warmup_requests(directory, "wikihop", expected)
        found = read_warmup_requests(directory)
        self.assertLen(found, 2)
        for (name, inputs), (found_name, found_inputs) in zip(
            expected, found, strict=True
        ):
            self.assertEqual(name, found_name)
            self.assertEqual(set(inputs), set(found_inputs))
            for key, value in inputs.items():
                self.assertEqual(value.tolist(), found_inputs[key].tolist())

    def test_known_bytes(self):
        log = serving_warmup.prediction_log("m", "s", {})
        # predict_log (6) > request (1) > model_spec (1) > name, signature_name.
        self.assertEqual(b"\x32\x0a\x0a\x08\x0a\x06\x0a\x01m\x1a\x01s", log)


if __name__ == "__main__":
    tf.test.main()
