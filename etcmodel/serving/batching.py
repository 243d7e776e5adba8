"""Joins the requests of several clients into batches."""

import asyncio
import collections
import dataclasses
import math
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
from typing import NamedTuple

import numpy as np

from etcmodel.errors import UserError

# Maximum number of elements in the padded inputs of a joined batch. If one
# request has many paragraphs and another many texts, most elements are padding.
_MAX_CELLS = 1 << 18
Arrays = Mapping[str, np.ndarray]


class QueueFullError(Exception):
    """Refuses a request, because too many records already wait."""


class ClosedError(Exception):
    """Refuses a request, because the batcher is closed."""


class Axes(NamedTuple):
    """Names of the axes of a model's inputs and outputs.

    Attributes:
        inputs: input name -> the names (or sizes) of its axes.
        outputs: output name -> names of the axes whose sizes depend on the
            request. Other axes, such as the labels, have the same size for all
            requests.
    """

    inputs: Mapping[str, Sequence[str | int]]
    outputs: Mapping[str, Sequence[str]]


@dataclasses.dataclass(eq=False)
class _Waiting:
    """A request that waits for its answer."""

    inputs: Arrays
    size_class: int
    answer: asyncio.Future
    arrival: float

    @property
    def num_records(self) -> int:
        return _num_records(self.inputs)


class Batcher:
    """Answers concurrent requests in batches, without changing their answers.

    Requests whose texts have similar lengths are joined: their inputs are
    padded, and the padding is cut from the answers. If a batch fails, each of
    its requests is answered alone, so that an error reaches only the request
    that causes it.

    Args:
        answer: a blocking function from inputs to outputs, `[records, ...]`.
        axes: axes of the inputs and outputs; None to never join requests.
        max_batch_size: maximum number of records in a batch. A request with
            more records is answered alone.
        timeout: maximum time in seconds to wait for other requests.
        max_waiting: number of waiting records above which requests are refused.
    """

    def __init__(
        self,
        answer: Callable[[Arrays], Arrays],
        axes: Axes | None,
        *,
        max_batch_size: int,
        timeout: float,
        max_waiting: int,
    ):
        self._answer, self._axes = answer, axes
        self._max_batch_size = max_batch_size if axes else 1
        self._timeout = timeout
        self._max_waiting = max_waiting
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._changed = asyncio.Condition()
        self._is_busy = self._is_closed = False
        # One thread is enough: TensorFlow uses all cores for one batch.
        self._thread = futures.ThreadPoolExecutor(1)
        self._worker = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Answers the waiting requests, then stops."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: not self._waiting and not self._is_busy
            )
        self._is_closed = True
        self._worker.cancel()
        self._thread.shutdown()

    async def submit(self, inputs: Arrays) -> Arrays:
        """Returns the outputs for the inputs of one request.

        Raises:
            UserError: two inputs share an axis, but differ in its size.
            QueueFullError: too many records wait.
            ClosedError: the batcher is closed.
            Exception: `answer` raised it for this request.
        """
        if self._axes:
            check_sizes(inputs, self._axes.inputs)
        request = _Waiting(
            inputs,
            _size_class(inputs),
            asyncio.get_running_loop().create_future(),
            time.monotonic(),
        )
        async with self._changed:
            if self._is_closed:
                raise ClosedError(
                    "This version of the model is unloaded. Try again."
                )
            waiting = sum(
                x.num_records for x in self._waiting if not x.answer.done()
            )
            if waiting and waiting + request.num_records > self._max_waiting:
                raise QueueFullError(f"{waiting} records wait for answers.")
            self._waiting.append(request)
            self._changed.notify_all()
        # If the caller is cancelled, so is `answer`.
        return await request.answer

    async def _work(self) -> None:
        """Answers batches, one after the other."""
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._next_batch()
            made = []
            if batch:
                made = await loop.run_in_executor(
                    self._thread, self._answer_batch, [x.inputs for x in batch]
                )
            for request, answer in zip(batch, made, strict=True):
                # The client may have disconnected.
                if request.answer.done():
                    continue
                if isinstance(answer, Exception):
                    request.answer.set_exception(answer)
                else:
                    request.answer.set_result(answer)
            async with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    async def _next_batch(self) -> list[_Waiting]:
        """Waits for requests; returns those to answer together.

        Cancelled requests are dropped, so there may be none.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting)
            wait = self._waiting[0].arrival + self._timeout - time.monotonic()
            try:
                await asyncio.wait_for(
                    self._changed.wait_for(
                        lambda: self._size_of_next() >= self._max_batch_size
                    ),
                    max(wait, 0),
                )
            except asyncio.TimeoutError:
                pass
            batch = self._next_requests()
            self._waiting = collections.deque(
                x
                for x in self._waiting
                if x not in batch and not x.answer.done()
            )
            self._is_busy = True
        return batch

    def _next_requests(self) -> list[_Waiting]:
        """Returns the oldest request, and others that fit into its batch."""
        batch, number = [], 0
        for request in self._waiting:
            if request.answer.done():
                continue
            if batch and request.size_class != batch[0].size_class:
                continue
            number += request.num_records
            if batch and number > self._max_batch_size:
                break
            if batch and _num_padded([*batch, request]) > _MAX_CELLS:
                break
            batch.append(request)
        return batch

    def _size_of_next(self) -> int:
        return sum(x.num_records for x in self._next_requests())

    def _answer_batch(
        self, requests: Sequence[Arrays]
    ) -> list[Arrays | Exception]:
        """Returns the outputs of each request, or its error."""
        if len(requests) == 1:
            try:
                return [self._answer(requests[0])]
            except Exception as error:
                return [error]
        try:
            outputs = self._answer(join(requests))
            return split(outputs, requests, self._axes)
        except Exception:
            return [self._answer_batch([x])[0] for x in requests]


def _num_records(inputs: Arrays) -> int:
    return len(next(iter(inputs.values())))


def _num_padded(requests: Sequence[_Waiting]) -> int:
    """Returns the number of elements of the joined and padded inputs."""
    number = sum(x.num_records for x in requests)
    return sum(
        number
        * math.prod(
            map(
                max,
                zip(*(x.inputs[name].shape[1:] for x in requests), strict=True),
            )
        )
        for name in requests[0].inputs
    )


def check_sizes(
    inputs: Arrays, axes: Mapping[str, Sequence[str | int]]
) -> None:
    """Raises a `UserError` if axes with the same name differ in size.

    When requests are joined, padding would hide the difference.
    """
    first: dict[str, tuple[str, int]] = {}
    for name, x in inputs.items():
        for axis, size in zip(axes[name], x.shape, strict=True):
            other, expected = first.setdefault(axis, (name, size))
            if not isinstance(axis, int) and size != expected:
                raise UserError(
                    f"The inputs {other} and {name} differ in their number of "
                    f"{axis}: {expected} and {size}."
                )


def _size_class(inputs: Arrays) -> int:
    """Returns the bit length of the size of the longest record.

    Only requests with the same bit length are joined: in a batch with a much
    longer request, a short one would take as long.
    """
    sizes = np.zeros(_num_records(inputs), int)
    for x in inputs.values():
        flat = x.reshape(len(x), -1)
        sizes += (
            np.array([sum(map(len, row)) for row in flat], int)
            if x.dtype == object
            else flat.shape[1]
        )
    return int(sizes.max(initial=0)).bit_length()


def join(requests: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """Concatenates the inputs of requests, padded to the same sizes.

    Example: `[["a"]]` and `[["b", "c"]]` become `[["a", ""], ["b", "c"]]`.
    """
    joined = {}
    for name in requests[0]:
        parts = [x[name] for x in requests]
        inner = np.max([x.shape[1:] for x in parts], axis=0).astype(int)
        made = np.full(
            (sum(map(len, parts)), *inner), padding(parts[0]), parts[0].dtype
        )
        start = 0
        for x in parts:
            rows = slice(start, start + len(x))
            made[(rows, *map(slice, x.shape[1:]))] = x
            start += len(x)
        joined[name] = made
    return joined


def padding(x: np.ndarray) -> object:
    """Returns an input's padding value: "", False, or -1 for numbers."""
    return {"O": b"", "b": False}.get(x.dtype.kind, -1)


def split(
    outputs: Arrays, requests: Sequence[Arrays], axes: Axes
) -> list[dict[str, np.ndarray]]:
    """Splits outputs by request; removes padding that joining added."""
    made, start = [], 0
    for inputs in requests:
        rows = slice(start, start + _num_records(inputs))
        start = rows.stop
        own = {name: x[rows] for name, x in outputs.items()}
        sizes = {
            axis: size
            for name, x in inputs.items()
            for axis, size in zip(axes.inputs[name], x.shape, strict=True)
        }
        made.append(
            {
                name: x[
                    (
                        slice(None),
                        *(
                            slice(_size(axis, sizes, own, axes))
                            for axis in axes.outputs.get(name, ())
                        ),
                    )
                ]
                for name, x in own.items()
            }
        )
    return made


def _size(
    axis: str, sizes: Mapping[str, int], outputs: Arrays, axes: Axes
) -> int:
    """Returns the size that an output's axis has for one request alone."""
    if axis in sizes:
        return sizes[axis]
    # No input has this axis: its size ends with the last value that is not
    # padding.
    size = 0
    for name, x in outputs.items():
        names = axes.outputs.get(name, ())
        if axis in names and x.dtype.kind in "iO":
            is_used = x != b"" if x.dtype == object else x >= 0
            place = names.index(axis) + 1
            others = tuple(i for i in range(x.ndim) if i != place)
            used = np.flatnonzero(is_used.any(axis=others))
            size = max(size, int(used[-1]) + 1 if len(used) else 0)
    return size
