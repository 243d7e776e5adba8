"""The versions of a model that a server loads, and replaces."""

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
        max_batch_size: records of a batch; 1 joins no requests.
        timeout: seconds to wait for other requests.
        max_waiting: records that may wait.
    """

    max_batch_size: int = 8
    timeout: float = 0.005
    max_waiting: int = 256


class LoadedModel:
    """A version of a model, ready to answer; made in an event loop.

    Args:
        path: what `export` wrote.
        saved_model: what `tf.saved_model.load` made of it.
        limits: how its requests are joined.

    Attributes:
        metadata: what `export` noted.
        specs: signature name -> input name -> specification.
        outputs: the same for outputs.
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

        `check` raises an error for a request that is not accepted. For other
        errors see `rest.parse` and `batching.Batcher.submit`.
        """
        self._num_active += 1
        try:
            # A long body takes a while, in which others are answered.
            request = await asyncio.to_thread(rest.parse, body, self.specs)
            check(request)
            batcher = self._batchers[request.signature_name]
            outputs = await batcher.submit(request.inputs)
            return await asyncio.to_thread(rest.render, outputs, request.by_row)
        finally:
            self._num_active -= 1

    async def close(self) -> None:
        """Answers what waits, and stops."""
        while self._num_active:
            await asyncio.sleep(0.05)
        for batcher in self._batchers.values():
            await batcher.close()


def _axes(metadata: Mapping, signature: str) -> batching.Axes | None:
    """Returns the axes that `export` noted of a signature."""
    noted = metadata.get("axes", {}).get(signature)
    return noted and batching.Axes(noted["inputs"], noted["outputs"])


def warm_up(model: tf.Module, request: Mapping[str, np.ndarray]) -> None:
    """Answers a first request of each signature that takes raw text.

    It takes seconds longer than later ones. `request` is one for
    `serving_default`; the signature `text` gets a short text, if it is there.
    """
    requests = {rest.DEFAULT_SIGNATURE: request}
    if rest.TEXT_SIGNATURE in model.signatures:
        specs = model.signatures[rest.TEXT_SIGNATURE].structured_input_signature
        requests[rest.TEXT_SIGNATURE] = dict.fromkeys(specs[1], ["A text."])

    def ask(name):
        inputs = {x: tf.constant(y) for x, y in requests[name].items()}
        model.signatures[name](**inputs)

    # TensorFlow prepares each graph with one core.
    with futures.ThreadPoolExecutor() as threads:
        list(threads.map(ask, requests))


def _caller(
    function: Callable[..., Mapping[str, tf.Tensor]],
) -> Callable[[batching.Arrays], batching.Arrays]:
    """Returns a function of arrays."""

    def call(inputs):
        try:
            outputs = function(**{x: tf.constant(y) for x, y in inputs.items()})
        except UnicodeDecodeError as error:
            # TensorFlow's message quotes bytes of the request.
            message = error.object.decode("utf-8", "replace")
            raise tf.errors.InvalidArgumentError(None, None, message) from None
        return {name: np.asarray(x) for name, x in outputs.items()}

    return call


class Versions:
    """Loads versions of a model, the newest ones, and lets old ones go.

    A version answers until the one that replaces it is ready and its own
    requests are answered.

    Args:
        directory: see `exported.find_versions`.
        number: how many of the newest versions are served.
        limits: how requests are joined.
        request_of: returns a small request of a task, to warm a model up.

    Attributes:
        states: version -> "LOADING", "AVAILABLE", "UNLOADING" or "END", as in
            TensorFlow Serving.
        errors: version -> why it could not be loaded.
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
        # Version -> its files when it could not be loaded.
        self._refused: dict[int, object] = {}
        self.states: dict[int, str] = {}
        self.errors: dict[int, str] = {}

    @property
    def available(self) -> list[int]:
        """The versions that answer."""
        return sorted(self._loaded)

    @property
    def task(self) -> str:
        """The task of the newest version."""
        return self._loaded[max(self._loaded)].metadata["task"]

    def version_of(self, model: LoadedModel) -> int:
        """Returns the number of a version."""
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
        older one is served in its place.

        Raises:
            UserError: there is no version that can be loaded.
        """
        found = exported.find_versions(self._directory)
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
        files = _list_files(path)
        if self._refused.get(version) == files:
            return False
        self.states[version] = "LOADING"
        try:
            self._loaded[version] = await self._load(path)
        # Files of any content raise any exception.
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
        """Loads a SavedModel while others answer, and warms it up."""

        def load():
            metadata = exported.read_metadata(path)
            exported.check_files(path, metadata)
            model = answers.load_saved_model(path)
            warm_up(model, self._request_of(metadata["task"]))
            return model

        model = await asyncio.to_thread(load)
        return LoadedModel(path, model, self._limits)

    async def watch(self, interval: float) -> None:
        """Looks for new versions again and again."""
        while True:
            await asyncio.sleep(interval)
            try:
                await self.update()
            # Versions that answer go on whatever is wrong with the directory.
            except Exception as error:
                _log.error("%s", error)

    async def close(self) -> None:
        """Answers what waits, and stops."""
        for model in self._loaded.values():
            await model.close()


def _list_files(directory: str) -> frozenset[tuple[str, int, int]]:
    """Returns the names, sizes and times of all files, to notice changes."""
    found = set()
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(path)
                found.add((path, status.st_size, status.st_mtime_ns))
    return frozenset(found)
