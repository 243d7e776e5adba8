"""Reads the custom gradients and warm-up requests of a SavedModel."""

import os

import tensorflow as tf
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory
from google.protobuf import text_format
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import saved_model_pb2

from etcmodel.serving import warmup


def stored_functions(saved_model):
    with open(os.path.join(saved_model, "saved_model.pb"), "rb") as file:
        stored = saved_model_pb2.SavedModel.FromString(file.read())
    return stored.meta_graphs[0].graph_def.library.function


def names_of_stored_gradients(saved_model):
    """Returns the names of operations with stored custom gradients."""
    return [
        (function.signature.name, node.name)
        for function in stored_functions(saved_model)
        for node in function.node_def
        if node.attr["_gradient_op_type"].s.startswith(b"CustomGradient")
    ]


# The messages of tensorflow-serving-api, cut to the parts used here. They come
# from prediction_log.proto, predict.proto and model.proto in
# https://github.com/tensorflow/serving. Tensors are declared as bytes.
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
    """Reads the signature's name and the inputs of each warm-up request."""
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
