import concurrent.futures
import contextlib
import gzip
import http.client
import inspect
import json
import os
import re
import socket
import threading
import time
from unittest import mock

import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.serving import rest
from etcmodel.serving import server
from etcmodel.serving import versions
from testing import served_models


@contextlib.contextmanager
def serving(directory, limits=None, **settings):
    """Runs a server in a thread; yields a function that sends requests."""
    models = versions.Versions(
        directory,
        1,
        limits or versions.Limits(),
        lambda task: served_models.REQUEST,
    )

    async def make_app():
        await models.update()
        return server.make_app("mine", models, server.Settings(**settings))

    def send(path, content=None, method=None, headers=()):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        body = content
        if content is not None and not isinstance(content, bytes):
            body = json.dumps(content).encode()
        method = method or ("GET" if body is None else "POST")
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if text and answer.headers["content-type"] == "application/json":
            text = json.loads(text)
        send.headers = answer.headers
        return answer.status, text

    send.models = models
    with served_models.running(make_app) as port:
        send.port = port
        yield send


_POLICY = "content-security-policy"
PREDICT = "/v1/models/mine:predict"


def ask(*texts):
    return {"instances": [{"texts": [*texts]}]}


def one(text):
    """Returns the answer that the model gives for a text."""
    return {"predictions": [{"answer": text, "lengths": [len(text)]}]}


class ServerTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.get_temp_dir(), "model")
        if not os.path.exists(self.directory):
            served_models.write_model(os.path.join(self.directory, "1"))

    def test_tensorflow_servings_addresses(self):
        with serving(self.directory) as send:
            for place in ("", "/versions/1"):
                path = f"/v1/models/mine{place}"
                self.assertEqual(
                    (200, one("abc")), send(f"{path}:predict", ask("abc"))
                )
                code, status = send(path)
                self.assertEqual(
                    {
                        "model_version_status": [
                            {
                                "version": "1",
                                "state": "AVAILABLE",
                                "status": {
                                    "error_code": "OK",
                                    "error_message": "",
                                },
                            }
                        ]
                    },
                    status,
                )
                code, metadata = send(f"{path}/metadata")
                self.assertEqual(200, code)
                self.assertEqual("1", metadata["model_spec"]["version"])
                signatures = metadata["metadata"]["signature_def"]
                signature = signatures["signature_def"]["serving_default"]
                self.assertEqual(
                    {
                        "dtype": "DT_STRING",
                        "tensor_shape": {
                            "dim": [
                                {"size": "-1", "name": ""},
                                {"size": "-1", "name": ""},
                            ],
                            "unknown_rank": False,
                        },
                        "name": "texts",
                    },
                    signature["inputs"]["texts"],
                )
                self.assertEqual(
                    "DT_INT32", signature["outputs"]["lengths"]["dtype"]
                )
            self.assertEqual(
                (200, {"outputs": {"answer": ["ab"], "lengths": [[1, 1]]}}),
                send(PREDICT, {"inputs": {"texts": [["a", "b"]]}}),
            )
            self.assertEqual((200, {"status": "ok"}), send("/healthz"))
            code, page = send("/docs")
            self.assertEqual(200, code)
            self.assertIn("/v1/models/mine:predict", page.decode())
            self.assertIn("/openapi.json", page.decode())
            for path in ("/healthz", "/v1/models/mine", "/docs"):
                self.assertEqual((200, b""), send(path, method="HEAD"))

    def test_errors_have_a_code_and_a_sentence(self):
        with serving(
            self.directory,
            max_body_bytes=1000,
            max_records=2,
            max_text_bytes=10,
        ) as send:
            for path, content, code, message in (
                (PREDICT, b"{", 400, "is not JSON"),
                (PREDICT, {"instances": []}, 400, "without any"),
                (PREDICT, {"instances": [{}]}, 400, "'texts' is missing"),
                (PREDICT, ask("bad"), 400, "The text is bad."),
                (PREDICT, ask("a" * 11), 400, "texts has a text of 11 bytes"),
                (
                    PREDICT,
                    {"instances": [{"texts": ["a"]}] * 3},
                    400,
                    "has 3 records, but at most 2",
                ),
                (PREDICT, ask("a" * 1000), 413, "larger than 1000 bytes"),
                ("/v1/models/other:predict", ask("a"), 404, "has mine"),
                (
                    "/v1/models/mine/versions/2:predict",
                    ask("a"),
                    404,
                    "sions 1",
                ),
                ("/v1/models/other", None, 404, "other is not served"),
                ("/v1/models/mine/versions/2", None, 404, "version 2"),
                ("/v1/models/mine/versions/2/metadata", None, 404, "version 2"),
                (PREDICT, None, 400, "Malformed request: GET"),
                (f"{PREDICT[:-8]}/versions/a:predict", ask("a"), 400, "'a'"),
                (f"{PREDICT[:-8]}/versions/{'9' * 5000}", None, 400, "no num"),
                (f"{PREDICT[:-8]}/labels/a:predict", ask("a"), 400, "Malform"),
                ("/healthz", {}, 405, "Method Not Allowed: POST /healthz"),
                ("/other", None, 404, "Not Found: GET /other"),
                ("/v1/models/mine:classify", ask("a"), 400, "Malformed"),
            ):
                found, answer = send(path, content)
                self.assertEqual(code, found, path)
                self.assertEqual(["error"], [*answer])
                self.assertIn(message, answer["error"])
            self.assertEqual((200, one("a")), send(PREDICT, ask("a")))
            text = send("/metrics")[1].decode()
            for line in (
                'etcmodel_requests_total{code="400",model="mine"} 7.0',
                'etcmodel_requests_total{code="200",model="mine"} 1.0',
                'etcmodel_request_seconds_count{model="mine"} 11.0',
            ):
                self.assertIn(line, text)

    def test_page(self):
        with serving(self.directory, max_text_bytes=10) as send:
            code, content = send("/")
            self.assertEqual(200, code)
            self.assertIn(b"<!doctype html>", content)
            self.assertIn("default-src 'none'", send.headers[_POLICY])
            for name in re.findall(rb'(?:src|href)="(page/.*?)"', content):
                self.assertEqual(200, send(f"/{name.decode()}")[0])
            self.assertEqual(
                {"name": "mine", "task": "counting", "inputs": []}
                | {"example": {}},
                send("/page/model")[1],
            )
            code, answer = send("/page/other.js")
            self.assertEqual((404, ["error"]), (code, [*answer]))
            code, answer = send("/page/document", b"a" * 11)
            self.assertEqual(413, code)
            self.assertIn("larger than 10 bytes", answer["error"])
            code, answer = send("/page/document", b"a")
            self.assertEqual(400, code)
            self.assertIn("no known type", answer["error"])

    def test_what_reads_versions_runs_in_the_event_loop(self):
        """No version changes while such a function runs."""
        app = server.make_app("mine", mock.Mock(), server.Settings())
        in_threads = {
            x.path
            for x in app.routes
            if not inspect.iscoroutinefunction(x.endpoint)
        }
        self.assertEqual({"/", "/page/{file}"}, in_threads)

    def test_features_that_are_longer_than_the_model(self):
        """Too many tokens are refused, because they could fill the memory."""
        for name, sizes in (
            ("long_token_ids", {"long_length": 8, "global_length": 9}),
            ("global_token_ids", {"long_length": 9, "global_length": 8}),
            ("token_ids", {"block_length": 8}),
        ):
            for signature, length, is_refused in (
                ("features", 8, False),
                ("features", 9, True),
                ("serving_default", 9, False),
            ):
                inputs = {name: np.zeros([1, length])}
                request = rest.Request(signature, inputs, True)
                context = contextlib.nullcontext()
                if is_refused:
                    context = self.assertRaisesRegex(
                        UserError, f"{name} has 9 tokens .* at most 8"
                    )
                with context:
                    server._check_lengths(request, sizes)

    def test_bodies(self):
        body = json.dumps(ask("ab")).encode()
        with serving(self.directory, body_timeout=0.2) as send:
            # Any content type is accepted, as in TensorFlow Serving, and so are
            # chunked bodies.
            for content, headers in (
                (body, {"Content-Type": "text/plain"}),
                (body, {"Content-Encoding": "identity"}),
                (iter([body[:5], body[5:]]), {"Transfer-Encoding": "chunked"}),
            ):
                connection = http.client.HTTPConnection("127.0.0.1", send.port)
                connection.request(
                    "POST",
                    PREDICT,
                    content,
                    headers,
                    encode_chunked="Transfer-Encoding" in headers,
                )
                answer = json.loads(connection.getresponse().read())
                connection.close()
                self.assertEqual(one("ab"), answer)
            code, answer = send(
                PREDICT,
                gzip.compress(body),
                headers={"Content-Encoding": "gzip"},
            )
            self.assertEqual(400, code)
            self.assertIn("the encoding 'gzip'. Send JSON", answer["error"])
            # The rest of this body never arrives.
            head = f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Length: 9"
            with socket.create_connection(("127.0.0.1", send.port)) as stream:
                stream.sendall(f"{head}\r\n\r\nabc".encode())
                answer = stream.recv(1000).decode()
            self.assertStartsWith(answer, "HTTP/1.1 408 ")
            # The client disconnects before it has sent the body.
            with socket.create_connection(("127.0.0.1", send.port)) as stream:
                stream.sendall(f"{head}\r\n\r\nabc".encode())
            self.assertEqual((200, one("ab")), send(PREDICT, ask("ab")))

    def test_a_failure_of_the_server_has_a_sentence(self):
        with serving(self.directory) as send:
            with (
                mock.patch.object(
                    send.models.get(), "predict", side_effect=KeyError("odd")
                ),
                mock.patch.object(server, "_log") as log,
            ):
                code, answer = send(PREDICT, ask("a"))
            self.assertEqual(500, code)
            self.assertIn("its log says why", answer["error"])
            log.exception.assert_called_once()
            self.assertIn(b'{code="500",model="mine"} 1.0', send("/metrics")[1])

    def test_concurrent_requests_get_their_own_answers(self):
        limits = versions.Limits(max_batch_size=4, timeout=0.01)
        texts = ["bad" if i % 10 == 9 else "x" * (i % 7 + 1) for i in range(60)]
        with (
            serving(self.directory, limits) as send,
            concurrent.futures.ThreadPoolExecutor(8) as pool,
        ):
            found = pool.map(lambda text: send(PREDICT, ask(text)), texts)
            for text, (code, answer) in zip(texts, found, strict=True):
                if text == "bad":
                    self.assertEqual(400, code)
                    self.assertIn("The text is bad.", answer["error"])
                else:
                    self.assertEqual(one(text), answer)

    def test_a_full_queue_is_an_error_to_try_again(self):
        limits = versions.Limits(max_batch_size=8, timeout=1.0, max_waiting=1)
        with (
            serving(self.directory, limits) as send,
            concurrent.futures.ThreadPoolExecutor(1) as pool,
        ):
            first = pool.submit(send, PREDICT, ask("a"))
            time.sleep(0.3)
            code, answer = send(PREDICT, ask("b"))
            self.assertEqual(503, code)
            self.assertIn("wait", answer["error"])
            self.assertEqual("1", send.headers["retry-after"])
            self.assertEqual((200, one("a")), first.result())

    def test_a_new_version_replaces_the_old_one(self):
        directory = os.path.join(self.get_temp_dir(), "watched")
        served_models.write_model(os.path.join(directory, "1"))
        codes, is_done = [], threading.Event()

        def ask_on(send):
            while not is_done.is_set():
                code, answer = send(PREDICT, ask("ab"))
                codes.append((code, answer["predictions"][0]["lengths"][0]))

        with (
            serving(directory, watch_interval=0.05) as send,
            concurrent.futures.ThreadPoolExecutor(1) as pool,
        ):
            asking = pool.submit(ask_on, send)
            # Directories without a complete model are ignored.
            os.makedirs(os.path.join(directory, "3"))
            served_models.write_model(os.path.join(directory, "2"), factor=10)
            deadline = time.monotonic() + 30
            states = {}
            while states.get("1") != "END" and time.monotonic() < deadline:
                status = send("/v1/models/mine")[1]["model_version_status"]
                states = {x["version"]: x["state"] for x in status}
            time.sleep(0.1)
            is_done.set()
            asking.result()
        self.assertEqual({"1": "END", "2": "AVAILABLE"}, states)
        self.assertEqual({(200, 2), (200, 20)}, {*codes})
        self.assertEqual(sorted(codes), codes)

    def test_a_client_that_disconnects_is_not_answered(self):
        limits = versions.Limits(max_batch_size=8, timeout=1.0)
        body = json.dumps(ask("ab"))
        head = f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Length: "
        with serving(self.directory, limits) as send:
            with socket.create_connection(("127.0.0.1", send.port)) as stream:
                stream.sendall(f"{head}{len(body)}\r\n\r\n{body}".encode())
                # The request waits for a batch.
                time.sleep(0.2)
            deadline = time.monotonic() + 20
            text = ""
            while "requests_total{" not in text:
                self.assertLess(time.monotonic(), deadline)
                text = send("/metrics")[1].decode()
            self.assertIn('requests_total{code="499",model="mine"} 1.0', text)
            self.assertEqual((200, one("ab")), send(PREDICT, ask("ab")))

    def test_a_version_is_replaced_while_a_body_arrives(self):
        """The request is answered by the new version."""
        directory = os.path.join(self.get_temp_dir(), "replaced")
        served_models.write_model(os.path.join(directory, "1"))
        body = json.dumps(ask("ab")).encode()
        head = (
            f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        with serving(directory, watch_interval=0.1) as send:
            address = ("127.0.0.1", send.port)
            with socket.create_connection(address, timeout=20) as stream:
                stream.sendall(head.encode() + body[:5])
                served_models.write_model(
                    os.path.join(directory, "2"), factor=10
                )
                deadline = time.monotonic() + 30
                while send.models.states.get(1) != "END":
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.05)
                stream.sendall(body[5:])
                with stream.makefile("rb") as answer:
                    text = answer.read().decode()
        self.assertStartsWith(text, "HTTP/1.1 200 ")
        answer = json.loads(text.partition("\r\n\r\n")[2])
        self.assertEqual([[20]], [x["lengths"] for x in answer["predictions"]])

    def test_raw_text_is_warmed_up(self):
        """Each signature for raw text answers a request before clients ask."""
        asked = {}

        def signature(name, *inputs):
            call = mock.Mock(
                side_effect=lambda **given: asked.update({name: given})
            )
            specs = dict.fromkeys(inputs, tf.TensorSpec([None], tf.string))
            call.structured_input_signature = ((), specs)
            return call

        signatures = {
            "serving_default": signature("serving_default", "texts"),
            "text": signature("text", "query", "text"),
            "features": signature("features", "ids"),
        }
        model = mock.Mock(signatures=signatures)
        versions.warm_up(model, served_models.REQUEST)
        self.assertEqual({"serving_default", "text"}, {*asked})
        self.assertAllEqual([["a"]], asked["serving_default"]["texts"])
        self.assertEqual((1,), asked["text"]["query"].shape)
        # Tasks without plain texts have no signature `text`.
        del signatures["text"]
        asked.clear()
        versions.warm_up(model, served_models.REQUEST)
        self.assertEqual({"serving_default"}, {*asked})

    def test_stopping_answers_what_was_asked(self):
        limits = versions.Limits(max_batch_size=8, timeout=0.5)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with serving(self.directory, limits) as send:
                asked = pool.submit(send, PREDICT, ask("a"))
                time.sleep(0.2)
            self.assertEqual((200, one("a")), asked.result())


if __name__ == "__main__":
    tf.test.main()
