import os

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory
from google.protobuf import text_format
from tensorflow.core.framework import tensor_pb2

from etcmodel.serving import warmup

# The messages as tensorflow-serving-api defines them, as far as used: from
# prediction_log.proto, predict.proto and model.proto of
# https://github.com/tensorflow/serving. Tensors are taken as bytes.
_MESSAGES = """
name: "copy.proto" package: "copy" syntax: "proto3"
message_type {
  name: "ModelSpec"
  field { name: "name" number: 1 type: TYPE_STRING }
  field { name: "signature_name" number: 3 type: TYPE_STRING }
}
message_type {
  name: "PredictRequest"
  field { name: "model_spec" number: 1 type_name: "ModelSpec" }
  field { name: "inputs" number: 2 label: LABEL_REPEATED type_name: "Entry" }
  nested_type {
    name: "Entry"
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_BYTES }
  }
}
message_type {
  name: "PredictLog"
  field { name: "request" number: 1 type_name: "PredictRequest" }
}
message_type {
  name: "PredictionLog"
  field { name: "predict_log" number: 6 type_name: "PredictLog" }
}
"""


def read_warmup_requests(saved_model_dir):
    """Returns pairs of signature name and inputs, as protobuf reads them."""
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto()
    pool.Add(text_format.Parse(_MESSAGES, file))
    log_class = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("copy.PredictionLog")
    )
    path = os.path.join(saved_model_dir, warmup.WARMUP_FILE)
    requests = []
    for serialized in tf.data.TFRecordDataset(path).as_numpy_iterator():
        request = log_class.FromString(serialized).predict_log.request
        inputs = {
            x.key: tf.make_ndarray(tensor_pb2.TensorProto.FromString(x.value))
            for x in request.inputs
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
        warmup.write_warmup_requests(directory, "wikihop", expected)
        found = read_warmup_requests(directory)
        self.assertEqual([x for x, _ in expected], [x for x, _ in found])
        for (_, inputs), (_, found_inputs) in zip(expected, found, strict=True):
            self.assertEqual(
                {name: value.tolist() for name, value in inputs.items()},
                {name: value.tolist() for name, value in found_inputs.items()},
            )

    def test_known_bytes(self):
        log = warmup.prediction_log("m", "s", {})
        # predict_log (6) > request (1) > model_spec (1) > name, signature_name.
        self.assertEqual(b"\x32\x0a\x0a\x08\x0a\x06\x0a\x01m\x1a\x01s", log)


if __name__ == "__main__":
    tf.test.main()
