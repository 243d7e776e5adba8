import concurrent.futures
import contextlib
import http.client
import json
import os
import threading
import time

import tensorflow as tf

from etcmodel.serving import versions
from testing import served_models


@contextlib.contextmanager
def serving(directory, limits=None, **settings):
    """Runs a server in a thread; yields a function that sends requests."""
    with served_models.serve_in_thread(
        directory, "mine", served_models.REQUEST, limits, **settings
    ) as port:

        def send(path, content=None, method=None):
            connection = http.client.HTTPConnection(
                "127.0.0.1", port, timeout=60
            )
            body = content
            if content is not None and not isinstance(content, bytes):
                body = json.dumps(content).encode()
            method = method or ("GET" if body is None else "POST")
            connection.request(method, path, body)
            answer = connection.getresponse()
            text = answer.read()
            connection.close()
            if answer.headers["content-type"] == "application/json":
                text = json.loads(text)
            send.headers = answer.headers
            return answer.status, text

        yield send


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
            self.assertEqual(200, send("/docs")[0])

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
                ("/v1/models/mine:classify", ask("a"), 400, "Malformed"),
            ):
                found, answer = send(path, content)
                self.assertEqual(code, found, path)
                self.assertEqual(["error"], [*answer])
                self.assertIn(message, answer["error"])
            self.assertEqual((200, one("a")), send(PREDICT, ask("a")))
            text = send("/metrics")[1].decode()
            for line in (
                'etcmodel_requests_total{code="400",model="mine"} 6.0',
                'etcmodel_requests_total{code="200",model="mine"} 1.0',
                'etcmodel_request_seconds_count{model="mine"} 10.0',
            ):
                self.assertIn(line, text)

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
            # What is being copied, or is no model, is left alone.
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

    def test_stopping_answers_what_was_asked(self):
        limits = versions.Limits(max_batch_size=8, timeout=0.5)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with serving(self.directory, limits) as send:
                asked = pool.submit(send, PREDICT, ask("a"))
                time.sleep(0.2)
            self.assertEqual((200, one("a")), asked.result())


if __name__ == "__main__":
    tf.test.main()
