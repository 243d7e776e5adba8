"""Loads the versions of a model in a server, and replaces old ones."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from collections.abc import Mapping
from concurrent import futures
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.serving import answers
from etcmodel.serving import batching
from etcmodel.serving import exported
from etcmodel.serving import rest

_log = logging.getLogger(__name__)


class Limits(NamedTuple):
    """How requests are joined; see `batching.Batcher`.

    Attributes:
        max_batch_size: maximum number of records of a batch; 1 joins no
            requests.
        timeout: maximum time in seconds to wait for other requests.
        max_waiting: maximum number of records that wait.
    """

    max_batch_size: int = 8
    timeout: float = 0.005
    max_waiting: int = 256


class LoadedModel:
    """A loaded version of a model. Create it in a running event loop.

    Args:
        path: the SavedModel that `export` wrote.
        saved_model: the result of `tf.saved_model.load`.
        limits: limits on joining its requests.

    Attributes:
        metadata: the description that `export` wrote.
        specs: signature name -> input name -> specification.
        outputs: signature name -> output name -> specification.
        signatures: signature name -> function of tensors.
    """

    def __init__(self, path: str, saved_model: tf.Module, limits: Limits):
        self.metadata = exported.read_metadata(path)
        self._model = saved_model
        self._num_active = 0
        self.signatures = functions = saved_model.signatures
        self.specs = {
            name: dict(sorted(function.structured_input_signature[1].items()))
            for name, function in functions.items()
        }
        self.outputs = {
            name: dict(function.structured_outputs)
            for name, function in functions.items()
        }
        self._batchers = {
            name: batching.Batcher(
                _caller(function),
                _axes(self.metadata, name),
                max_batch_size=limits.max_batch_size,
                timeout=limits.timeout,
                max_waiting=limits.max_waiting,
            )
            for name, function in functions.items()
        }

    async def predict(
        self, body: bytes, check: Callable[[rest.Request], None]
    ) -> bytes:
        """Answers the body of a request.

        `check` raises an error for a request that it refuses. For other errors,
        see `rest.parse` and `batching.Batcher.submit`.
        """
        self._num_active += 1
        try:
            # Parsing a long body takes a while. In a thread, the conversion to
            # arrays delays other requests less; `json.loads` holds the GIL and
            # delays them, so `max_body_bytes` must not be too large.
            request = await asyncio.to_thread(rest.parse, body, self.specs)
            check(request)
            batcher = self._batchers[request.signature_name]
            outputs = await batcher.submit(request.inputs)
            return await asyncio.to_thread(rest.render, outputs, request.by_row)
        finally:
            self._num_active -= 1

    async def close(self) -> None:
        """Answers the waiting requests, then stops."""
        while self._num_active:
            await asyncio.sleep(0.05)
        for batcher in self._batchers.values():
            await batcher.close()


def _axes(metadata: Mapping, signature: str) -> batching.Axes | None:
    """Returns the axes that the metadata has for a signature, or None."""
    noted = metadata.get("axes", {}).get(signature)
    return noted and batching.Axes(noted["inputs"], noted["outputs"])


def warm_up(model: tf.Module, request: Mapping[str, np.ndarray]) -> None:
    """Sends a first request to each signature that takes raw text.

    A first request takes seconds longer than later ones. `request` is for
    `serving_default`. The signature `text`, if the model has it, gets a short
    text.
    """
    requests = {rest.DEFAULT_SIGNATURE: request}
    if rest.TEXT_SIGNATURE in model.signatures:
        specs = model.signatures[rest.TEXT_SIGNATURE].structured_input_signature
        requests[rest.TEXT_SIGNATURE] = dict.fromkeys(specs[1], ["A text."])

    def ask(name):
        inputs = {x: tf.constant(y) for x, y in requests[name].items()}
        model.signatures[name](**inputs)

    # Runs in parallel, because TensorFlow prepares each graph on one core.
    with futures.ThreadPoolExecutor() as threads:
        list(threads.map(ask, requests))


def _caller(
    function: Callable[..., Mapping[str, tf.Tensor]],
) -> Callable[[batching.Arrays], batching.Arrays]:
    """Wraps a signature in a function from arrays to arrays."""

    def call(inputs):
        try:
            outputs = function(**{x: tf.constant(y) for x, y in inputs.items()})
        except UnicodeDecodeError as error:
            # TensorFlow's message quotes bytes of the request that are not
            # UTF-8.
            message = error.object.decode("utf-8", "replace")
            raise tf.errors.InvalidArgumentError(None, None, message) from None
        return {name: np.asarray(x) for name, x in outputs.items()}

    return call


class Versions:
    """Loads the newest versions of a model, and unloads older ones.

    An old version is unloaded once its replacement is ready and it has answered
    its own requests.

    Args:
        directory: see `exported.find_versions`.
        number: number of versions to serve.
        limits: limits on joining requests.
        request_of: maps a task to a small request, with which models are warmed
            up.

    Attributes:
        states: version -> "LOADING", "AVAILABLE", "UNLOADING" or "END", as in
            TensorFlow Serving.
        errors: version -> message of the error that loading it raised.
    """

    def __init__(
        self,
        directory: str,
        number: int,
        limits: Limits,
        request_of: Callable[[str], Mapping[str, np.ndarray]],
    ):
        self._directory, self._number, self._limits = directory, number, limits
        self._request_of = request_of
        self._loaded: dict[int, LoadedModel] = {}
        # Version that could not be loaded -> its files at that time.
        self._refused: dict[int, object] = {}
        self.states: dict[int, str] = {}
        self.errors: dict[int, str] = {}

    @property
    def available(self) -> list[int]:
        """The loaded versions, in ascending order."""
        return sorted(self._loaded)

    @property
    def task(self) -> str:
        """The task of the newest version."""
        return self._loaded[max(self._loaded)].metadata["task"]

    def version_of(self, model: LoadedModel) -> int:
        """Returns the version number of a loaded model."""
        return next(x for x, y in self._loaded.items() if y is model)

    def get(self, version: int | None = None) -> LoadedModel | None:
        """Returns a version, the newest by default; None if not available."""
        if version is None:
            version = max(self._loaded, default=None)
        return self._loaded.get(version)

    def request(self) -> Mapping[str, np.ndarray]:
        """Returns a small request of the served task."""
        return self._request_of(self.task)

    async def update(self) -> None:
        """Loads the newest versions, and unloads all others.

        A version that cannot be loaded is skipped until its files change; an
        older version is served in its place.

        Raises:
            UserError: no version could be loaded.
        """
        # A slow network folder delays no request, because a thread reads it.
        found = await asyncio.to_thread(exported.find_versions, self._directory)
        wanted = []
        for version in sorted(found, reverse=True):
            if len(wanted) == self._number:
                break
            if await self._try(version, found[version]):
                wanted.append(version)
        if not wanted and not self._loaded:
            raise UserError("; ".join(self.errors.values()))
        for version in sorted({*self._loaded} - {*wanted} if wanted else ()):
            self.states[version] = "UNLOADING"
            await self._loaded.pop(version).close()
            self.states[version] = "END"

    async def _try(self, version: int, path: str) -> bool:
        """Loads a version unless it is loaded; returns whether it answers."""
        if version in self._loaded:
            return True
        files = await asyncio.to_thread(_list_files, path)
        if self._refused.get(version) == files:
            return False
        self.states[version] = "LOADING"
        try:
            self._loaded[version] = await self._load(path)
        # Damaged files can raise any exception.
        except Exception as error:
            problem = str(error)
            if not isinstance(error, UserError):
                problem = f"{path} cannot be served: {problem}"
            self.states[version] = "END"
            self.errors[version] = problem
            self._refused[version] = files
            _log.error("Version %d is not served: %s", version, problem)
            return False
        self.errors.pop(version, None)
        self._refused.pop(version, None)
        self.states[version] = "AVAILABLE"
        return True

    async def _load(self, path: str) -> LoadedModel:
        """Loads and warms up a SavedModel in a thread."""

        def load():
            metadata = exported.read_metadata(path)
            exported.check_files(path, metadata)
            model = answers.load_saved_model(path)
            warm_up(model, self._request_of(metadata["task"]))
            return model

        model = await asyncio.to_thread(load)
        return LoadedModel(path, model, self._limits)

    async def watch(self, interval: float) -> None:
        """Looks for new versions every `interval` seconds."""
        while True:
            await asyncio.sleep(interval)
            try:
                await self.update()
            # The loaded versions keep answering, whatever is wrong with the
            # directory.
            except Exception as error:
                _log.error("%s", error)

    async def close(self) -> None:
        """Answers the waiting requests, then stops."""
        for model in self._loaded.values():
            await model.close()


def _list_files(directory: str) -> frozenset[tuple[str, int, int]]:
    """Returns paths, sizes and times of all files, to detect changes."""
    found = set()
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(path)
                found.add((path, status.st_size, status.st_mtime_ns))
    return frozenset(found)
