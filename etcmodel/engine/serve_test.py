import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from unittest import mock

import tensorflow as tf

from etcmodel.engine import serve
from etcmodel.errors import UserError
from testing import served_models

_PROGRAM = """
import sys
from etcmodel.engine import serve
from etcmodel.engine.progress import Reporter
from testing import served_models
serve._request_of = lambda task: served_models.REQUEST
serve.serve(
    serve.Options(saved_model=sys.argv[1], port=0, batch_timeout=0.5),
    Reporter("lines"),
)
"""


class ServeTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def test_terminated_it_answers_what_was_asked(self):
        saved_model = os.path.join(self.folder, "model")
        served_models.write_model(saved_model)
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, saved_model],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.kill)
        while "Serving counting at" not in (line := process.stdout.readline()):
            self.assertNotEmpty(line)
        address = line.split("http://")[1].split("/")[0]
        self.assertStartsWith(address, "127.0.0.1:")
        connection = http.client.HTTPConnection(address, timeout=60)
        # The address is printed shortly before the server answers.
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        body = json.dumps({"instances": [{"texts": ["ab"]}]})
        connection.request("POST", "/v1/models/counting:predict", body)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(
            {"predictions": [{"answer": "ab", "lengths": [2]}]},
            json.loads(connection.getresponse().read()),
        )
        connection.close()
        self.assertEqual(0, process.wait(60))
        process.stdout.close()

    def test_options_that_cannot_be_used(self):
        saved_model = os.path.join(self.folder, "model")
        served_models.write_model(saved_model)
        example = os.path.join(self.folder, "example.json")
        with open(example, "w", encoding="utf-8") as stream:
            stream.write('{"text": 1}')
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            for options, message in (
                ({}, "either `saved_model` or `model_dir`"),
                ({"saved_model": self.folder}, "is no SavedModel, and has no"),
                ({"saved_model": saved_model, "port": 65536}, "at most 65535"),
                ({"saved_model": saved_model, "port": port}, "another port"),
                ({"saved_model": saved_model, "watch": 0.0}, "at least 0.1"),
                ({"saved_model": saved_model, "host": "no.host"}, "`host=no"),
                (
                    {"saved_model": saved_model, "example": example},
                    "example.json`: 'text' is 1, expected a text",
                ),
                (
                    {"saved_model": saved_model, "example": saved_model},
                    "example=",
                ),
                (
                    {"saved_model": saved_model, "model_name": "a/b"},
                    "name without",
                ),
            ):
                with self.assertRaisesRegex(UserError, message):
                    serve.serve(serve.Options(**options))
        self.assertLen(threading.enumerate(), threading.active_count())

    def test_an_example_with_other_inputs(self):
        names = ["query", "text"]
        serve._check_example("a.json", {"text": "a"}, names)
        with self.assertRaisesRegex(
            UserError, "a.json`: 'qurey' is no input .*Expected: query, text"
        ):
            serve._check_example("a.json", {"text": "", "qurey": ""}, names)
        saved_model = os.path.join(self.folder, "model")
        served_models.write_model(saved_model)
        example = os.path.join(self.folder, "example.json")
        with open(example, "w", encoding="utf-8") as stream:
            stream.write('{"text": "a"}')
        options = serve.Options(
            saved_model=saved_model, port=0, example=example
        )
        with (
            mock.patch.object(
                serve, "_request_of", lambda task: served_models.REQUEST
            ),
            self.assertRaisesRegex(UserError, "has no signature `text`"),
        ):
            serve.serve(options)


if __name__ == "__main__":
    tf.test.main()
