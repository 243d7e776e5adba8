"""Messages of TensorFlow Serving, with the names and numbers of its fields.

Defines the fields that docs/tensorflow_serving.md uses, copied from
model_server_config.proto, file_system_storage_path_source.proto,
session_bundle_config.proto, monitoring_config.proto, model.proto and
predict.proto of https://github.com/tensorflow/serving.
"""

from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory
from google.protobuf import text_format
from google.protobuf import wrappers_pb2
from tensorflow.core.framework import tensor_pb2

_PACKAGE = "copy_of_serving"
# Message -> its fields: number, name and type; "*" for a list. A type with a
# space is a map.
_MESSAGES = {
    "ModelServerConfig": ["1 model_config_list ModelConfigList"],
    "ModelConfigList": ["1 config *ModelConfig"],
    "ModelConfig": [
        "1 name string",
        "2 base_path string",
        "4 model_platform string",
        "7 model_version_policy ServableVersionPolicy",
        "8 version_labels map string int64",
    ],
    "ServableVersionPolicy": [
        "100 latest Latest",
        "101 all All",
        "102 specific Specific",
    ],
    "Latest": ["1 num_versions uint32"],
    "All": [],
    "Specific": ["1 versions *int64"],
    "BatchingParameters": [
        "1 max_batch_size .google.protobuf.Int64Value",
        "2 batch_timeout_micros .google.protobuf.Int64Value",
        "3 max_enqueued_batches .google.protobuf.Int64Value",
        "4 num_batch_threads .google.protobuf.Int64Value",
        "6 allowed_batch_sizes *int64",
        "7 pad_variable_length_inputs bool",
    ],
    "MonitoringConfig": ["1 prometheus_config PrometheusConfig"],
    "PrometheusConfig": ["1 enable bool", "2 path string"],
    "ModelSpec": ["1 name string", "3 signature_name string"],
    "PredictRequest": [
        "1 model_spec ModelSpec",
        "2 inputs map string .tensorflow.TensorProto",
    ],
    "PredictResponse": ["1 outputs map string .tensorflow.TensorProto"],
}
_FIELD = descriptor_pb2.FieldDescriptorProto


def _set_type(field, kind: str) -> None:
    scalar = f"TYPE_{kind.upper()}"
    if scalar in _FIELD.Type.keys():
        field.type = _FIELD.Type.Value(scalar)
        return
    field.type = _FIELD.TYPE_MESSAGE
    field.type_name = kind if kind[0] == "." else f".{_PACKAGE}.{kind}"


def _add_field(message, text: str) -> None:
    number, name, kind, *of_map = text.split()
    is_list = kind.startswith("*") or kind == "map"
    field = message.field.add(name=name, number=int(number))
    field.label = _FIELD.LABEL_REPEATED if is_list else _FIELD.LABEL_OPTIONAL
    if not of_map:
        _set_type(field, kind.lstrip("*"))
        return
    words = name.title().replace("_", "")
    entry = message.nested_type.add(name=f"{words}Entry")
    entry.options.map_entry = True
    for number, (part, kind) in enumerate(
        zip(("key", "value"), of_map, strict=True), 1
    ):
        _add_field(entry, f"{number} {part} {kind}")
    _set_type(field, f"{message.name}.{entry.name}")


def _make_pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(
        name="copy_of_serving.proto", package=_PACKAGE, syntax="proto3"
    )
    for module in (wrappers_pb2, tensor_pb2):
        file.dependency.append(module.DESCRIPTOR.name)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields:
            _add_field(message, text)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _make_pool()


def message_class(name: str) -> type:
    """Returns the class of a message, such as "PredictRequest"."""
    found = _POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    return message_factory.GetMessageClass(found)


def parse(name: str, text: str):
    """Parses a configuration file; raises an error for an unknown field."""
    return text_format.Parse(text, message_class(name)())
