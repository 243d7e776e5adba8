"""Serves a model over HTTP, as TensorFlow Serving does."""

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Collection
from collections.abc import Mapping

from etcmodel import extras
from etcmodel import json_objects
from etcmodel.engine import export
from etcmodel.engine import paths
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline.options import option
from etcmodel.pipeline.spec import load
from etcmodel.tasks import registry


@dataclasses.dataclass(kw_only=True)
class Options:
    """Options of `serve`.

    Attributes:
        saved_model: the `output_dir` of `export`, or a directory of versions:
            exported models in directories whose names are numbers.
        model_dir: a run of `train`, instead of `saved_model`.
        example: a JSON file with the question and document that the page begins
            with, such as {"query": ..., "text": ...}: inputs of the signature
            `text`. By default, the page begins with a small example of the
            task.
        host: the address to listen at. The default accepts requests only from
            this machine; 0.0.0.0 accepts them from any machine.
        port: the port to listen at; 0 for any free port.
        model_name: the model's name in addresses; by default the task's name.
        watch: seconds between checks for new versions; by default, only the
            versions present at the start are served. At least 0.1.
        num_versions: how many of the newest versions are served.
        max_batch_size: maximum number of records that are answered together.
        batch_timeout: maximum time in seconds that a request waits for others.
        max_waiting: maximum number of records that wait; further requests get
            the code 503.
        max_body_bytes: maximum size of a request.
        max_records: maximum number of records of a request.
        max_text_bytes: maximum size of a text.
    """

    saved_model: str | None = option(None, path="served")
    model_dir: str | None = option(None, path="run")
    example: str | None = option(None, path="file")
    host: str = "127.0.0.1"
    port: int = option(8501, min_value=0, max_value=65535)
    model_name: str | None = None
    watch: float | None = option(None, min_value=0.1)
    num_versions: int = 1
    max_batch_size: int = 8
    batch_timeout: float = 0.005
    max_waiting: int = 256
    max_body_bytes: int = 16 << 20
    max_records: int = 256
    max_text_bytes: int = 8 << 20


def serve(options: Options, reporter: Reporter | None = None) -> None:
    """Serves a model until the process is interrupted or terminated.

    It then accepts no new requests, answers those it has, and returns.

    Raises:
        UserError: an option or the model cannot be used.
    """
    reporter = reporter or Reporter("quiet")
    extras.require(
        *("fastapi", "lxml", "markdown_it", "prometheus_client", "uvicorn")
    )
    options_lib.check(options)
    paths.check(options)
    if bool(options.saved_model) == bool(options.model_dir):
        raise UserError("Give either `saved_model` or `model_dir`.")
    # The name becomes part of an address.
    if options.model_name is not None and (
        not options.model_name or {*"/:?#%"} & {*options.model_name}
    ):
        raise UserError(
            f"`model_name={options.model_name}`: choose a name without "
            "/, :, ?, # and %."
        )
    example = options.example and _read_example(options.example)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_listen(options.host, options.port))
        saved_model = options.saved_model
        if not saved_model:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            saved_model = os.path.join(folder, "1")
            export.export(
                export.Options(
                    model_dir=options.model_dir, output_dir=saved_model
                ),
                reporter,
            )
        if threading.current_thread() is threading.main_thread():
            # Once the server has stopped, uvicorn raises the signal again. This
            # handler turns it into a KeyboardInterrupt.
            before = signal.signal(signal.SIGTERM, signal.default_int_handler)
            stack.callback(signal.signal, signal.SIGTERM, before)
        # uvicorn raises it after the server has answered its requests.
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(
                _serve(options, saved_model, listener, example, reporter)
            )


def _listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at an address and a port."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        return socket.create_server(address, family=family)
    except OSError as error:
        raise UserError(
            f"`host={host}` and `port={port}`: {error.strerror}. Choose "
            "another port, or an address of this machine."
        ) from error


def _request_of(task: str):
    """Returns a small request for the signature `serving_default` of a task."""
    return load(registry.get(task).preprocessor).REQUEST


def example_of(task: str) -> dict[str, str]:
    """Returns a small request for the signature `text` of a task."""
    request = load(registry.get(task).preprocessor).TEXT_REQUEST
    return {name: x[0].decode() for name, x in request.items()}


def _read_example(path: str) -> dict[str, str]:
    """Reads the example that the page begins with."""
    try:
        with open(path, "rb") as stream:
            example = json_objects.parse(stream.read())
    except ValueError as error:
        raise UserError(f"`example={path}`: {error}.") from None
    for name, text in example.items():
        if not isinstance(text, str):
            raise UserError(
                f"`example={path}`: {name!r} is {show(text)}, expected a text."
            )
    return example


def _check_example(
    path: str, example: Mapping[str, str], names: Collection[str]
) -> None:
    """Raises a `UserError` if an example has other names than the inputs."""
    if not names:
        raise UserError(
            f"`example={path}`: the model has no signature `text`, so its page "
            "shows no example. Leave `example` out, or export the model again."
        )
    for name in example:
        if name not in names:
            raise UserError(
                f"`example={path}`: {show(name)} is no input of the signature "
                f"`text`. Expected: {', '.join(names)}."
            )


async def _serve(options, saved_model, listener, example, reporter) -> None:
    """Loads the model and runs the server."""
    import uvicorn

    from etcmodel.serving import rest
    from etcmodel.serving import server
    from etcmodel.serving import versions

    reporter.note("Loading the model for the server.")
    models = versions.Versions(
        saved_model,
        options.num_versions,
        versions.Limits(
            options.max_batch_size, options.batch_timeout, options.max_waiting
        ),
        _request_of,
    )
    await models.update()
    if example is not None:
        specs = models.get().specs.get(rest.TEXT_SIGNATURE, {})
        _check_example(options.example, example, specs)
    name = options.model_name or models.task
    app = server.make_app(
        name,
        models,
        server.Settings(
            max_body_bytes=options.max_body_bytes,
            max_records=options.max_records,
            max_text_bytes=options.max_text_bytes,
            watch_interval=options.watch,
        ),
        example_of if example is None else lambda task: example,
    )
    running = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving = asyncio.create_task(running.serve([listener]))
    # A signal before the start would end the process without answers.
    while not running.started and not serving.done():
        await asyncio.sleep(0.01)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    reporter.note(
        f"Serving {name} at http://{shown}:{port}/v1/models/{name}:predict"
    )
    reporter.note(f"Its page: http://{shown}:{port}/")
    await serving
