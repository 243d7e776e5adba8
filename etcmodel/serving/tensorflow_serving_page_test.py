"""Tests the files and the client of docs/tensorflow_serving.md."""

import json
import os
import pathlib
import re
import sys
import tempfile
import types
from unittest import mock

import numpy as np
import tensorflow as tf

import etcmodel
from etcmodel.serving import exported
from etcmodel.serving import rest
from etcmodel.serving import warmup
from testing import serving_messages

_PAGE = pathlib.Path(etcmodel.__file__).parents[1] / (
    "docs/tensorflow_serving.md"
)


def _block(name):
    """Returns the content of a block of the page."""
    (found,) = re.findall(
        rf"```{re.escape(name)}\n(.*?)```",
        _PAGE.read_text("utf-8"),
        re.DOTALL,
    )
    return found


class TensorFlowServingPageTest(tf.test.TestCase):
    def test_models_and_versions(self):
        made = serving_messages.parse(
            "ModelServerConfig", _block("models.config")
        )
        wikihop, answer = made.model_config_list.config
        self.assertEqual(
            [1, 2], [*wikihop.model_version_policy.specific.versions]
        )
        labels = dict(wikihop.version_labels)
        self.assertEqual({"stable": 1, "canary": 2}, labels)
        self.assertEqual(2, answer.model_version_policy.latest.num_versions)
        # The policies in the page's table are valid, but an unknown one is not.
        for policy in re.findall(
            r"`((?:latest|specific|all) \{.*?\})`", _PAGE.read_text("utf-8")
        ):
            serving_messages.parse("ServableVersionPolicy", policy)
        with self.assertRaisesRegex(Exception, "no field named"):
            serving_messages.parse("ServableVersionPolicy", "newest { }")

    def test_batching_and_monitoring(self):
        made = serving_messages.parse(
            "BatchingParameters", _block("batching.config")
        )
        self.assertEqual(8, made.max_batch_size.value)
        # TensorFlow Serving would pad with the first element of an input.
        self.assertFalse(made.pad_variable_length_inputs)
        made = serving_messages.parse(
            "MonitoringConfig", _block("monitoring.config")
        )
        self.assertTrue(made.prometheus_config.enable)

    def test_versions_are_directories_with_numbers(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("1", "2", "2.bad", "copying"):
                path = pathlib.Path(folder, name, exported.METADATA_FILE)
                path.parent.mkdir(parents=True)
                path.write_text("{}")
            self.assertEqual({1, 2}, {*exported.find_versions(folder)})

    def test_grpc_client(self):
        """Sends the request as `export` writes it for the warm-up."""
        inputs = {
            "texts": np.array([["Köln".encode(), b""]] * 2, object),
            "is_html": np.array([[True, False]] * 2),
            "starts": np.array([0, -1], np.int32),
            "features": np.array([0.1, 2.0], np.float32),
        }
        body = {"signature_name": "text", **rest.body_of("text", inputs)}
        sent = []

        def send(request, timeout):
            sent.append(request)
            answer = serving_messages.message_class("PredictResponse")()
            value = tf.make_tensor_proto([b"Krak\xc3\xb3w", b"Brno"])
            answer.outputs["answer"].CopyFrom(value)
            return answer

        stub = mock.Mock(Predict=send)
        predict = types.ModuleType("predict_pb2")
        predict.PredictRequest = serving_messages.message_class(
            "PredictRequest"
        )
        service = types.ModuleType("prediction_service_pb2_grpc")
        service.PredictionServiceStub = lambda channel: stub
        apis = types.ModuleType("tensorflow_serving.apis")
        apis.predict_pb2 = predict
        apis.prediction_service_pb2_grpc = service
        modules = {
            "grpc": mock.Mock(),
            "tensorflow_serving": types.ModuleType("tensorflow_serving"),
            "tensorflow_serving.apis": apis,
        }
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.get_temp_dir())
        pathlib.Path("request.json").write_text(json.dumps(body))
        with (
            mock.patch.dict(sys.modules, modules),
            mock.patch("builtins.print") as shown,
        ):
            exec(_block("python"), {})
        self.assertEqual(
            [mock.call("Kraków"), mock.call("Brno")], shown.mock_calls
        )
        (request,) = sent
        log = warmup.prediction_log("answer", "text", inputs)
        # Skips the headers of predict_log and request: a tag and a two-byte
        # length each.
        logged = predict.PredictRequest.FromString(log[6:])
        self.assertEqual(logged, request)


if __name__ == "__main__":
    tf.test.main()
