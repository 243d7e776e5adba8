"""A web server with TensorFlow Serving's REST interface."""

import asyncio
import contextlib
import dataclasses
import logging
import re
import time
from collections.abc import Callable
from collections.abc import Coroutine
from collections.abc import Mapping
from typing import Any

import fastapi
import prometheus_client
import tensorflow as tf
from fastapi import responses
from tensorflow.core.framework import types_pb2

from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.errors import without_stack
from etcmodel.serving import batching
from etcmodel.serving import docs_page
from etcmodel.serving import page
from etcmodel.serving import rest
from etcmodel.serving import signatures
from etcmodel.serving import versions as versions_lib

_log = logging.getLogger(__name__)
# Seconds after which a client may try again when the queue is full.
_RETRY_AFTER = "1"
# Code for a client that has disconnected, as in the logs of nginx.
_CLIENT_GONE = 499
# Maximum length of an error message. Messages quote requests, which may be
# long.
_MAX_MESSAGE = 2000
# Size that stands for an axis of any size.
_UNKNOWN = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits on requests, and how a server finds new versions.

    Attributes:
        max_body_bytes: maximum size of a request; a larger one gets the code
            413.
        max_records: maximum number of records of a request; a request with more
            gets the code 400.
        max_text_bytes: maximum size of each text; a request with a larger one
            gets the code 400.
        body_timeout: seconds to wait for the next part of a request's body;
            then the request gets the code 408.
        watch_interval: seconds between checks for new versions; None to serve
            only the versions present at the start.
    """

    max_body_bytes: int = 16 << 20
    max_records: int = 256
    max_text_bytes: int = 8 << 20
    body_timeout: float = 30.0
    watch_interval: float | None = None


class _HttpError(Exception):
    """Refuses a request with an HTTP status code and a message."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


class _Metrics:
    """Prometheus metrics of one server."""

    def __init__(self, name: str):
        # All servers of a process would share the default registry.
        self.registry = prometheus_client.CollectorRegistry()
        labels = {"model": name}
        self.requests = prometheus_client.Counter(
            "etcmodel_requests",
            "Requests for predictions, by code.",
            [*labels, "code"],
            registry=self.registry,
        )
        self.seconds = prometheus_client.Histogram(
            "etcmodel_request_seconds",
            "Time from a request for predictions to its answer.",
            [*labels],
            registry=self.registry,
        )
        self._name = name

    def observe(self, code: int, seconds: float) -> None:
        """Counts a request for predictions, and records its time."""
        self.requests.labels(self._name, str(code)).inc()
        self.seconds.labels(self._name).observe(seconds)


def _no_example(task: str) -> Mapping[str, str]:
    """Returns an empty example for the page."""
    del task
    return {}


def make_app(
    name: str,
    models: versions_lib.Versions,
    settings: Settings,
    example_of: Callable[[str], Mapping[str, str]] = _no_example,
) -> fastapi.FastAPI:
    """Makes the application that a web server runs.

    Args:
        name: the name that the model is served under.
        models: the versions of the model; see `Versions.update`.
        settings: limits on requests, and how new versions are found.
        example_of: maps the task to the example that the page begins with:
            inputs of the signature `text`.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app):
        del app
        tasks = []
        if settings.watch_interval is not None:
            watch = models.watch(settings.watch_interval)
            tasks.append(asyncio.create_task(watch))
        yield
        for task in tasks:
            task.cancel()
        await models.close()

    # Disables FastAPI's own pages, which load scripts from the network.
    app = fastapi.FastAPI(
        title=name, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    metrics = _Metrics(name)

    @app.exception_handler(_HttpError)
    def refuse(request, error):
        del request
        return _error(error.code, str(error))

    # 404 is an unknown address, 405 an unknown method.
    @app.exception_handler(404)
    @app.exception_handler(405)
    def refuse_address(request, error):
        return _error(
            error.status_code,
            f"{error.detail}: {request.method} {request.url.path}",
        )

    def find(given: str, version: str | None) -> versions_lib.LoadedModel:
        model = models.get(_number(version)) if given == name else None
        if model is None:
            wanted = given if version is None else f"{given}, version {version}"
            raise _HttpError(
                404,
                f"The model {wanted} is not served. This server has {name}, "
                f"versions {', '.join(map(str, models.available)) or 'none'}.",
            )
        return model

    @app.post("/v1/models/{model_name}:predict")
    @app.post("/v1/models/{model_name}/versions/{version}:predict")
    async def predict(
        request: fastapi.Request, model_name: str, version: str | None = None
    ):
        """Answers records: `{"instances": [...]}` or `{"inputs": {...}}`."""
        start = time.monotonic()
        try:
            find(model_name, version)
            body = await _read(
                request, settings.max_body_bytes, settings.body_timeout
            )

            async def answer_body():
                # A new version may have replaced the old one while the body
                # arrived. `LoadedModel.predict` counts the request before its
                # first await, so this version stays until it has answered.
                model = find(model_name, version)
                return await _predict(model, body, settings)

            answer = await _unless_gone(request, answer_body())
            made = fastapi.Response(answer, media_type="application/json")
        except _HttpError as error:
            made = _error(error.code, str(error))
        except Exception:
            _log.exception("A request failed.")
            made = _error(500, "The server failed; its log says why.")
        metrics.observe(made.status_code, time.monotonic() - start)
        return made

    # Handlers that read `models` are coroutines: no version changes while one
    # runs.
    @app.get("/v1/models/{model_name}/metadata")
    @app.get("/v1/models/{model_name}/versions/{version}/metadata")
    async def metadata(model_name: str, version: str | None = None):
        """Returns the signatures: names, types and shapes."""
        model = find(model_name, version)
        return {
            "model_spec": {
                "name": name,
                "signature_name": "",
                "version": str(models.version_of(model)),
            },
            "metadata": {"signature_def": {"signature_def": _describe(model)}},
        }

    @app.get("/v1/models/{model_name}")
    @app.get("/v1/models/{model_name}/versions/{version}")
    async def status(
        request: fastapi.Request, model_name: str, version: str | None = None
    ):
        """Returns the state of each version."""
        if ":" in request.url.path:
            raise _malformed(request)
        number = _number(version)
        shown = [x for x in models.states if number in (None, x)]
        if model_name != name or not shown:
            find(model_name, version)
        return {
            "model_version_status": [
                _status(x, models.states[x], models.errors.get(x))
                for x in sorted(shown, reverse=True)
            ]
        }

    _add_page(app, lambda: (name, find(name, None)), settings, example_of)

    @app.get("/healthz")
    async def healthz():
        """Returns `ok` while the server is running."""
        return {"status": "ok"}

    @app.get("/metrics")
    async def show_metrics():
        """Returns the number and durations of requests, for Prometheus."""
        return fastapi.Response(
            prometheus_client.generate_latest(metrics.registry),
            media_type=prometheus_client.CONTENT_TYPE_LATEST,
        )

    @app.get("/docs")
    async def docs(request: fastapi.Request):
        """Describes the addresses, with an example of a request."""
        body = rest.body_of(rest.DEFAULT_SIGNATURE, models.request())
        page = docs_page.make(app.openapi(), name, str(request.base_url), body)
        return responses.HTMLResponse(page)

    @app.api_route(
        "/v1/{path:path}",
        methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
        include_in_schema=False,
    )
    async def malformed(request: fastapi.Request, path: str):
        del path
        raise _malformed(request)

    # Makes the schema before HEAD is added, so it lists each address once.
    app.openapi()
    for route in app.routes:
        if "GET" in getattr(route, "methods", None) or ():
            route.methods.add("HEAD")
    return app


def _add_page(app, get_model, settings: Settings, example_of) -> None:
    """Adds the page and the addresses that only the page uses."""

    @app.get("/", include_in_schema=False)
    def show_page():
        return fastapi.Response(
            page.read_file(page.PAGE),
            media_type="text/html",
            headers=page.HEADERS,
        )

    @app.get("/page/model", include_in_schema=False)
    async def describe_model():
        name, model = get_model()
        return page.describe(
            name,
            model.metadata,
            model.specs,
            example_of(model.metadata["task"]),
        )

    @app.post("/page/document", include_in_schema=False)
    async def convert(request: fastapi.Request):
        content = await _read(request, settings.max_text_bytes)
        kind = request.headers.get("content-type", "")
        try:
            text = await asyncio.to_thread(page.to_text, content, kind)
        except UserError as error:
            raise _HttpError(400, str(error)) from error
        return {"text": text}

    @app.get("/page/{file}", include_in_schema=False)
    def page_file(file: str):
        if file not in page.FILES:
            raise _HttpError(404, f"The page has no file {file}.")
        return fastapi.Response(
            page.read_file(file),
            media_type=page.FILES[file],
            headers=page.HEADERS,
        )


def _malformed(request: fastapi.Request) -> _HttpError:
    """Returns TensorFlow Serving's error for an unknown address."""
    return _HttpError(
        400, f"Malformed request: {request.method} {request.url.path}"
    )


def _number(version: str | None) -> int | None:
    """Parses the version in an address; None if there is none."""
    if version is None:
        return None
    if not re.fullmatch("[0-9]{1,19}", version):
        raise _HttpError(
            400, f"The version {show(version)} is no number, such as 1."
        )
    return int(version)


async def _read(
    request: fastapi.Request, max_bytes: int, timeout: float = 30.0
) -> bytes:
    """Reads a request's body; stops if it is larger than `max_bytes`.

    `timeout` is the maximum time in seconds from one part to the next.
    """
    encoding = request.headers.get("content-encoding", "identity").strip()
    if encoding.lower() not in ("identity", ""):
        raise _HttpError(
            400,
            f"The body of the request has the encoding {show(encoding)}. Send "
            "JSON that is not compressed.",
        )
    body = bytearray()
    while True:
        try:
            part = await asyncio.wait_for(request.receive(), timeout)
        except asyncio.TimeoutError:
            raise _HttpError(
                408,
                "The body of the request is not complete after a pause of "
                f"{timeout:g} seconds.",
            ) from None
        if part["type"] == "http.disconnect":
            raise _HttpError(_CLIENT_GONE, "The client is gone.")
        body += part.get("body", b"")
        if len(body) > max_bytes:
            raise _HttpError(
                413,
                f"The request is larger than {max_bytes} bytes. Send fewer "
                "records at once or a shorter text, or start `serve` with a "
                "larger --max_body_bytes.",
            )
        if not part.get("more_body"):
            return bytes(body)


async def _unless_gone(
    request: fastapi.Request, answer: Coroutine[Any, Any, bytes]
) -> bytes:
    """Returns the answer; cancels it if the client disconnects before."""

    async def watch():
        while (await request.receive())["type"] != "http.disconnect":
            pass

    answering, watching = map(asyncio.create_task, (answer, watch()))
    try:
        await asyncio.wait(
            (answering, watching), return_when=asyncio.FIRST_COMPLETED
        )
        if not answering.done():
            raise _HttpError(_CLIENT_GONE, "The client is gone.")
        return answering.result()
    finally:
        answering.cancel()
        watching.cancel()


async def _predict(
    model: versions_lib.LoadedModel, body: bytes, settings: Settings
) -> bytes:
    """Answers the body of a request; converts errors to `_HttpError`s."""
    names = []

    def check(request):
        names.extend(request.inputs)
        _check(request, settings)
        _check_lengths(request, model.metadata.get("preprocessing_config", {}))

    try:
        return await model.predict(body, check)
    except UserError as error:
        raise _HttpError(400, str(error)) from error
    except (batching.QueueFullError, batching.ClosedError) as error:
        raise _HttpError(503, str(error)) from error
    except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError) as error:
        message = " ".join(without_stack(error.message))
        if not any(name in message for name in names):
            # TensorFlow's own errors name operations instead of inputs.
            plural = "s" * (len(names) > 1)
            message = f"The input{plural} {', '.join(names)}: {message}"
        raise _HttpError(400, message) from error
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        message = "The memory is exhausted. Send fewer or shorter records."
        raise _HttpError(503, message) from error


def _check(request: rest.Request, settings: Settings) -> None:
    """Raises a `UserError` for a request that is too large."""
    for name, x in request.inputs.items():
        if len(x) > settings.max_records:
            raise UserError(
                f"The request has {len(x)} records, but at most "
                f"{settings.max_records} are accepted. Send several requests."
            )
        if x.dtype == object:
            longest = max(map(len, x.flat), default=0)
            if longest > settings.max_text_bytes:
                raise UserError(
                    f"The input {name} has a text of {longest} bytes, but at "
                    f"most {settings.max_text_bytes} are accepted."
                )


def _check_lengths(request: rest.Request, sizes: Mapping[str, Any]) -> None:
    """Raises a `UserError` if `features` is longer than the model allows.

    Raw text is truncated to the model's lengths. The signature `features` takes
    any lengths, and memory grows with their square.
    """
    if request.signature_name != signatures.FEATURES:
        return
    for name, x in request.inputs.items():
        axis = name.partition("_")[0]
        most = sizes.get(f"{axis}_length", sizes.get("block_length"))
        if most and x.ndim > 1 and x.shape[1] > most:
            raise UserError(
                f"The input {name} has {x.shape[1]} tokens in a row, but the "
                f"model takes at most {most}."
            )


def _error(code: int, message: str) -> responses.JSONResponse:
    """Returns an error in TensorFlow Serving's format."""
    headers = {"Retry-After": _RETRY_AFTER} if code == 503 else None
    if len(message) > _MAX_MESSAGE:
        message = f"{message[:_MAX_MESSAGE]}..."
    return responses.JSONResponse({"error": message}, code, headers)


def _status(version: int, state: str, error: str | None) -> dict:
    """Returns the state of a version in TensorFlow Serving's format."""
    code = "OK" if error is None else "INVALID_ARGUMENT"
    return {
        "version": str(version),
        "state": state,
        "status": {"error_code": code, "error_message": error or ""},
    }


def _describe(model: versions_lib.LoadedModel) -> dict:
    """Returns the signatures of a model as JSON."""
    return {
        name: {
            "inputs": {x: _info(x, y) for x, y in model.specs[name].items()},
            "outputs": {x: _info(x, y) for x, y in model.outputs[name].items()},
            "method_name": "tensorflow/serving/predict",
        }
        for name in model.specs
    }


def _info(name: str, spec: tf.TensorSpec) -> dict:
    """Returns the type and shape of a tensor as JSON."""
    dims = [
        {"size": str(_UNKNOWN if x is None else x), "name": ""}
        for x in spec.shape.as_list()
    ]
    return {
        "dtype": types_pb2.DataType.Name(spec.dtype.as_datatype_enum),
        "tensor_shape": {"dim": dims, "unknown_rank": False},
        "name": name,
    }
