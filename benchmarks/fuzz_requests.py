"""Sends odd requests to the server, and to the signatures of a SavedModel.

    python -m benchmarks.fuzz_requests
    python -m benchmarks.fuzz_requests --tasks=nq,openkp --requests=500 --seed=2

Exports a tiny model with random weights for each task. Changes good requests
for all of its signatures at random: wrong nesting, types and sizes, missing and
unknown inputs, invalid text, numbers that are out of range, damaged JSON. Sends
them through the server's application, each batch together with a good request.
Then calls the signatures in TensorFlow, as TensorFlow Serving would.

A request must be answered or refused with a message that names the input, and
good requests must get the answers that they get alone. Columns:

*   `requests`, `answered`, `refused`: numbers of odd requests to the server;
    `good`: number of good requests sent with them.
*   `calls`, `results`, `errors`: numbers of odd calls of the signatures in
    TensorFlow, and of their outcomes.
*   `failures`: the number of violations; `first` lists some of them.
*   `slowest`: seconds of the slowest batch.
"""

import asyncio
import collections
import dataclasses
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import httpx2
import numpy as np
import tensorflow as tf

from benchmarks import odd_requests
from benchmarks import program
from etcmodel.errors import without_stack
from etcmodel.models import EtcConfig
from etcmodel.models import ReadTwiceConfig
from etcmodel.pipeline.spec import load
from etcmodel.serving import rest
from etcmodel.serving import saved_model
from etcmodel.serving import server
from etcmodel.serving import signatures
from etcmodel.serving import versions
from etcmodel.tasks import registry
from testing import tasks as small_tasks

_BATCH = 8
# Seconds that a batch of tiny requests may take, on a busy machine.
_MAX_SECONDS = 60.0
# Further seconds allowed for each paragraph of tasks that read each paragraph
# as a segment. Measured: 0.7 ms, for any number of them.
_SECONDS_PER_PARAGRAPH = 0.002
_MAX_SHOWN = 12
_TOLERANCE = 1e-4
# Parts of a request that a message may name in place of an input.
_OTHER_PARTS = (
    "The body of the request",
    "Expected an object with either",
    "The model has no signature",
    '"instances"',
    "instances[",
    "The request has",
    # Errors that TensorFlow itself raises for `examples`.
    "Could not parse example input",
    "Feature: ",
)


@dataclasses.dataclass
class Counts:
    """Numbers of requests by result, and descriptions of violations."""

    answered: int = 0
    refused: int = 0
    good: int = 0
    results: int = 0
    errors: int = 0
    slowest: float = 0.0
    failures: list[str] = dataclasses.field(default_factory=list)
    # Message without numbers -> number of occurrences.
    messages: collections.Counter = dataclasses.field(
        default_factory=collections.Counter
    )


def export(task: str, directory: str) -> dict[str, dict[str, np.ndarray]]:
    """Exports a tiny model with random weights; returns good requests."""
    spec = registry.get(task)
    write, flags = small_tasks.SMALL_RECORDS[task]
    with tempfile.TemporaryDirectory() as folder:
        _, vocab_file = write(folder, 1)
        given = (x.removeprefix("--").split("=") for x in flags)
        sizes: dict[str, Any] = {name: int(x) for name, x in given}
        if spec.reads_segments:
            # With the small segments of tests, a long text has so many that it
            # takes minutes.
            sizes["block_length"] = 128
        if task == "classify":
            sizes |= {"kind": "single", "labels": ["a", "b", "c"]}
        config = spec.make_preprocessing_config(sizes)
        sizes = spec.stored_sizes(config)
        task_model = spec.make_model(sizes=sizes)
        preprocessor = spec.make_preprocessor(config, vocab_file)
        kind = ReadTwiceConfig if spec.reads_segments else EtcConfig
        encoder = kind.from_preset(
            "tiny",
            vocab_size=int(preprocessor.tokenizer.vocab_size),
            num_hidden_layers=1,
            initializer_range=0.3,
        )
        tf.keras.utils.set_random_seed(1)
        model = task_model.build(encoder, **task_model.lengths())
        module, requests = signatures.make_serving_module(
            model, preprocessor, task_model
        )
        metadata = {
            "task": task,
            "options": dataclasses.asdict(task_model.options),
            "preprocessing_config": sizes,
            "axes": signatures.request_axes(preprocessor, task_model),
        }
        saved_model.export_saved_model(
            module,
            directory,
            model_name=task,
            metadata=metadata,
            warmup_inputs=requests,
        )
    return requests


def fuzz(
    task: str,
    directory: str,
    requests: Mapping[str, Mapping[str, np.ndarray]],
    values: Any,
) -> Counts:
    """Sends odd requests through a server's application; calls the model.

    Args:
        task: name of the task.
        directory: the SavedModel's directory of versions.
        requests: a good request for each signature.
        values: `requests`, `calls` and `seed`; see the flags.
    """
    counts = Counts()

    async def run():
        models = versions.Versions(
            directory,
            1,
            versions.Limits(max_batch_size=_BATCH),
            lambda name: load(registry.get(name).preprocessor).REQUEST,
        )
        await models.update()
        app = server.make_app(task, models, server.Settings())
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://server"
        ) as client:
            await _send_all(
                client, task, requests, values.requests, values.seed, counts
            )
        call_all(
            task,
            models.get().signatures,
            requests,
            values.calls,
            values.seed,
            counts,
        )
        await models.close()

    asyncio.run(run())
    return counts


async def _send_all(client, task, requests, number, seed, counts):
    """Sends batches of odd requests, each with a good one."""
    path = f"/v1/models/{task}:predict"

    async def send(body):
        return await client.post(path, content=body)

    good = {
        name: json.dumps(rest.body_of(name, x)).encode()
        for name, x in requests.items()
    }
    alone = {name: (await send(x)).json() for name, x in good.items()}
    names = [*requests]
    for start in range(0, number, _BATCH):
        which = names[start // _BATCH % len(names)]
        numbers = range(start, min(start + _BATCH, number))
        odd = [
            odd_requests.make(which, requests[which], seed, i) for i in numbers
        ]
        begin = time.monotonic()
        *made, beside = await asyncio.gather(*map(send, [*odd, good[which]]))
        seconds = time.monotonic() - begin
        counts.slowest = max(counts.slowest, seconds)
        counts.good += 1

        def fail(i, problem, which=which):
            counts.failures.append(f"{task}, {which}, request {i}: {problem}")

        limit = _MAX_SECONDS
        if getattr(load(registry.get(task).preprocessor), "PARTS", False):
            paragraphs = sum(x.count(rb"\n\n") for x in odd)
            limit += _SECONDS_PER_PARAGRAPH * paragraphs
        if seconds > limit:
            fail(start, f"a batch took {seconds:.0f} s")
        if beside.status_code != 200 or not is_same(
            alone[which], beside.json()
        ):
            fail(start, f"a good request beside it got {beside.text[:300]}")
        for i, body, answer in zip(numbers, odd, made, strict=True):
            problem = find_problem(
                body, answer.status_code, answer.content, requests, counts
            )
            if problem:
                fail(i, problem)
        # Sends one of the answered requests again, by itself.
        again = next(
            (i for i, x in enumerate(made) if x.status_code == 200), None
        )
        if again is not None:
            answer = await send(odd[again])
            if not is_same(made[again].json(), answer.json()):
                fail(
                    numbers[again],
                    f"alone it gets {answer.text[:200]}, in a batch "
                    f"{made[again].text[:200]}",
                )


def find_problem(
    body: bytes,
    code: int,
    content: bytes,
    requests: Mapping[str, Mapping],
    counts: Counts,
) -> str | None:
    """Counts an answer; returns how it violates the rules, or None."""
    shown = f"{content[:300]!r} for {body[:300]!r}"
    try:
        answer = json.loads(content, parse_constant=_raise)
    except ValueError as error:
        return f"code {code}, not JSON ({error}): {shown}"
    if code == 200:
        counts.answered += 1
        return _find_lost_records(body, answer)
    counts.refused += 1
    message = answer.get("error")
    if code not in (400, 413) or answer.keys() != {"error"} or not message:
        return f"code {code}: {shown}"
    counts.messages[re.sub(r"'[^']*'|-?[\d.]+", "#", message)] += 1
    names = [x for inputs in requests.values() for x in inputs]
    return None if names_a_part(message, names) else f"names nothing: {shown}"


def _raise(constant):
    raise ValueError(f"it has {constant}")


def _find_lost_records(body, answer):
    """Returns a problem unless there is one prediction for each record."""
    given = json.loads(body)
    if "instances" in given:
        expected, found = len(given["instances"]), len(answer["predictions"])
        if expected != found:
            return f"{found} predictions for {expected} records"
    return None


def names_a_part(message: str, names: Sequence[str]) -> bool:
    """Returns whether a message names an input or a part of the request."""
    return any(re.search(rf"\b{re.escape(x)}\b", message) for x in names) or (
        message.startswith(_OTHER_PARTS)
    )


def is_same(expected: Any, found: Any) -> bool:
    """Compares JSON values; numbers may differ by rounding."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(
            is_same(expected[x], found[x]) for x in expected
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(
            is_same(x, y) for x, y in zip(expected, found, strict=True)
        )
    if isinstance(expected, float) and isinstance(found, float):
        return abs(expected - found) <= _TOLERANCE * max(1, abs(expected))
    return expected == found


def call_all(
    task: str,
    functions: Mapping[str, Callable],
    requests: Mapping[str, Mapping[str, np.ndarray]],
    number: int,
    seed: int,
    counts: Counts,
) -> None:
    """Calls the signatures with odd tensors of the right types."""
    names = [*requests]

    def call(name, inputs):
        outputs = functions[name](
            **{x: tf.constant(y) for x, y in inputs.items()}
        )
        return {x: y.numpy() for x, y in outputs.items()}

    alone = {name: call(name, x) for name, x in requests.items()}
    for i in range(number):
        name = names[i % len(names)]
        inputs = odd_requests.make_tensors(requests[name], seed, i)
        errors = counts.errors
        problem = _call_problem(call, name, inputs, counts)
        has_failed = counts.errors > errors
        # The segments of a document of ReadTwice do affect each other.
        if not problem and not (
            name == signatures.FEATURES and registry.get(task).reads_segments
        ):
            problem = _beside(
                *(call, name, inputs, requests[name], alone[name], has_failed)
            )
        if not problem and i % _BATCH == 0:
            for x, y in call(name, requests[name]).items():
                if not np.array_equal(alone[name][x], y):
                    problem = f"later, {x} of a good request differs"
        if problem:
            shown = {x: odd_requests.describe(y) for x, y in inputs.items()}
            counts.failures.append(
                f"{task}, {name}, call {i}: {problem}; inputs {shown}"
            )


def _beside(call, name, odd, good, expected, has_failed) -> str | None:
    """Returns how a good record's answer changes in a batch with odd ones.

    If the odd records fail alone (`has_failed`), the batch may fail, too.
    """
    shapes = zip(odd.values(), good.values(), strict=True)
    if any(x.shape[1:] != np.shape(y)[1:] for x, y in shapes):
        return None
    if any(x.ndim != np.ndim(good[key]) for key, x in odd.items()):
        return None
    both = {key: np.concatenate([x, good[key]]) for key, x in odd.items()}
    try:
        found = call(name, both)
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        shown = f"a good record beside it fails: {str(error)[:300]}"
        return None if has_failed else shown
    for key, x in expected.items():
        own = found[key][-len(x) :]
        if own.shape == x.shape and not is_same(x.tolist(), own.tolist()):
            return f"{key} of a good record beside it is {own.tolist()}"[:300]
    return None


def _call_problem(
    call: Callable, name: str, inputs: Mapping, counts: Counts
) -> str | None:
    """Calls a signature; returns how the result violates the rules."""
    start = time.monotonic()
    try:
        call(name, inputs)
        counts.results += 1
    except UnicodeDecodeError:
        # Python raises this error for a message that quotes bytes of the
        # request.
        counts.errors += 1
    except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError) as error:
        counts.errors += 1
        message = " ".join(without_stack(error.message))
        counts.messages[re.sub(r"'[^']*'|-?[\d.]+", "#", message)] += 1
        if not names_a_part(message, [*inputs]):
            return f"names nothing: {message[:300]}"
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {str(error)[:300]}"
    if time.monotonic() - start > _MAX_SECONDS:
        return f"took {time.monotonic() - start:.0f} s"
    return None


def _measure(values) -> Iterator[program.Line]:
    for name in ("tensorflow", "httpx2"):
        logging.getLogger(name).setLevel("ERROR")
    tasks = values.tasks or [
        x for x, y in registry.tasks().items() if y.has_answers
    ]
    for task in tasks:
        with tempfile.TemporaryDirectory() as root:
            directory = os.path.join(root, "1")
            requests = export(task, directory)
            start = time.monotonic()
            counts = fuzz(task, directory, requests, values)
        yield {
            "task": task,
            "seed": values.seed,
            "requests": values.requests,
            "answered": counts.answered,
            "refused": counts.refused,
            "good": counts.good,
            "calls": values.calls,
            "results": counts.results,
            "errors": counts.errors,
            "failures": len(counts.failures),
            "slowest": counts.slowest,
            "seconds": time.monotonic() - start,
            "first": counts.failures[:_MAX_SHOWN],
            "messages": dict(counts.messages.most_common()),
        }


PROGRAM = program.load("fuzz_requests", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
