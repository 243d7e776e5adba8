"""A server in a thread, and small SavedModels without a neural network."""

import asyncio
import contextlib
import json
import os
import socket
import threading

import tensorflow as tf
import uvicorn

from etcmodel.serving import exported
from etcmodel.serving import server
from etcmodel.serving import versions

REQUEST = {"texts": [["a"]]}


class _Counter(tf.Module):
    """Counts the bytes of texts, and multiplies the numbers."""

    def __init__(self, factor: int):
        super().__init__()
        self.factor = tf.Variable(factor)

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.string, "texts")]
    )
    def count(self, texts):
        """Returns the text of each record and the lengths of its parts."""
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
def serve_in_thread(directory, name, request, limits=None, **settings):
    """Serves a directory under a name; yields the port.

    `request` warms the model up; `settings` are those of `server.Settings`.
    """
    models = versions.Versions(
        directory, 1, limits or versions.Limits(), lambda task: request
    )
    listener = socket.create_server(("127.0.0.1", 0))
    running, is_ready = None, threading.Event()

    async def run():
        nonlocal running
        await models.update()
        app = server.make_app(name, models, server.Settings(**settings))
        running = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        is_ready.set()
        await running.serve([listener])

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert is_ready.wait(300), "the server does not start"
    try:
        yield listener.getsockname()[1]
    finally:
        running.should_exit = True
        thread.join()
        listener.close()
