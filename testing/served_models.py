"""Runs a server in a thread; writes SavedModels without a neural network."""

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Iterator

import fastapi
import tensorflow as tf
import uvicorn

from etcmodel.serving import exported
from etcmodel.serving import server
from etcmodel.serving import versions

REQUEST = {"texts": [["a"]]}


class _Counter(tf.Module):
    """Counts the bytes of texts, times `factor`."""

    def __init__(self, factor: int):
        super().__init__()
        self.factor = tf.Variable(factor)

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.string, "texts")]
    )
    def count(self, texts):
        """Returns each record's joined text, and its texts' scaled lengths."""
        check = tf.debugging.Assert(
            tf.reduce_all(texts != "bad"), ["The text is bad."]
        )
        with tf.control_dependencies([check]):
            # [records, texts]
            lengths = tf.strings.length(texts) * self.factor
            # [records]
            answer = tf.strings.reduce_join(texts, axis=1)
        return {"answer": answer, "lengths": lengths}


def write_model(directory: str, factor: int = 1) -> None:
    """Writes a model of the task "counting", as `export` would."""
    module = _Counter(factor)
    partial = f"{directory}.partial"
    tf.saved_model.save(
        module, partial, signatures={"serving_default": module.count}
    )
    metadata = {
        "task": "counting",
        "options": {},
        "axes": {
            "serving_default": {
                "inputs": {"texts": ["records", "texts"]},
                "outputs": {"lengths": ["texts"]},
            }
        },
    }
    path = os.path.join(partial, exported.METADATA_FILE)
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(metadata, stream)
    os.rename(partial, directory)


@contextlib.contextmanager
def running(
    make_app: Callable[[], Awaitable[fastapi.FastAPI]],
) -> Iterator[int]:
    """Runs an application in a thread; yields its port.

    `make_app` is called in the event loop of the server.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    made, is_ready = [], threading.Event()

    async def run():
        try:
            app = await make_app()
            made.append(uvicorn.Server(uvicorn.Config(app, log_level="error")))
        finally:
            is_ready.set()
        await made[0].serve([listener])

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    is_ready.wait()
    assert made, "the server does not start"
    try:
        yield listener.getsockname()[1]
    finally:
        made[0].should_exit = True
        thread.join()
        listener.close()


@contextlib.contextmanager
def serve_in_thread(directory, name, request):
    """Serves a directory of versions under a name; yields the port.

    `request` is sent to warm up the model.
    """
    models = versions.Versions(
        directory, 1, versions.Limits(), lambda task: request
    )

    async def make_app():
        await models.update()
        return server.make_app(name, models, server.Settings())

    with running(make_app) as port:
        yield port
