r"""Measures `serve` under load: latency, throughput, memory, equal answers.

    python -m benchmarks.serving_load
    python -m benchmarks.serving_load --requests=200 --clients=8

Exports a model of `answer` with random weights and starts `python -m etcmodel
serve` at 127.0.0.1 once for each of `--batch_sizes`; a batch size of 1 joins no
requests. One client first asks about each text, which gives the expected
answers. Then, for each of `--clients`, this number of clients sends
`--requests` concurrent requests with texts of mixed lengths, through the
signature `text`. Every run ends after `--limit_s`. Columns:

*   `different`: number of requests whose answer differs from the expected one;
    numbers may differ by 0.001.
*   `p50_ms`, `p95_ms`: from request to answer, as a client sees it.
*   `half_mb`, `end_mb`: resident memory of the server after half of the
    requests and after all.
"""

import contextlib
import http.client
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
from typing import NamedTuple

import numpy as np
from absl import logging

from benchmarks import measure
from benchmarks import program
from benchmarks import serving

_TASK = "answer"
_TOLERANCE = 1e-3
QUERY = "w1 w2 w3 w4?"
_SENTENCE, _PARAGRAPH = 24, 5


class Asked(NamedTuple):
    """Answers of a server, with times and memory.

    Attributes:
        answers: for each request, the number of its text, and its answer.
        seconds: from each request to its answer.
        total: seconds for all requests.
        half_mb: resident memory of the server after half of the requests.
    """

    answers: list[tuple[int, dict]]
    seconds: list[float]
    total: float
    half_mb: float


class Server:
    """Runs `python -m etcmodel serve` in a separate process.

    Args:
        saved_model: the exported model.
        *options: further options.

    Attributes:
        ready_s: seconds from the start of the process until it listens.
    """

    def __init__(self, saved_model: str, *options: str):
        command = [sys.executable, "-m", "etcmodel", "serve"]
        command += [f"--saved_model={saved_model}", "--port=0", *options]
        start = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        shown = []
        for line in self._process.stdout:
            shown.append(line)
            if "http://" in line:
                break
        else:
            raise RuntimeError(f"The server ended: {''.join(shown[-5:])}")
        self.ready_s = time.perf_counter() - start
        address = shown[-1].split("http://")[1].split()[0]
        self._host, _, path = address.partition("/")
        self._path = f"/{path}"
        # A full pipe would stop the server.
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    def connect(self, timeout: float = 600) -> http.client.HTTPConnection:
        """Opens a connection, for one client."""
        return http.client.HTTPConnection(self._host, timeout=timeout)

    def ask(self, connection: http.client.HTTPConnection, body: bytes) -> dict:
        """Returns the answer to a request with one record."""
        connection.request("POST", self._path, body)
        response = connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {content[:300]!r}")
        return json.loads(content)["predictions"][0]

    @property
    def memory_mb(self) -> float:
        """Resident memory of the process, in 10^6 bytes."""
        return measure.status_bytes("VmRSS", self._process.pid) / 1e6

    def close(self) -> None:
        """Ends the process."""
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def make_text(length: int, seed: int = 0) -> str:
    """Makes paragraphs of sentences with about `length` tokens in all."""
    words = random.Random(seed).choices(serving.WORDS, k=length)
    # A period also counts as a token.
    sentences = [
        " ".join(words[x : x + _SENTENCE]) + "."
        for x in range(0, length * _SENTENCE // (_SENTENCE + 1), _SENTENCE)
    ]
    paragraphs = [
        " ".join(sentences[x : x + _PARAGRAPH])
        for x in range(0, len(sentences), _PARAGRAPH)
    ]
    return "\n\n".join(paragraphs)


def make_body(text: str) -> bytes:
    """Makes a request for the signature `text`."""
    record = {"query": QUERY, "text": text}
    return json.dumps(
        {"signature_name": "text", "instances": [record]}
    ).encode()


@contextlib.contextmanager
def exported(config: dict, length: int, **reading: str) -> Iterator[str]:
    """Exports a model of `answer`; yields its directory.

    See `serving.export` for the arguments.
    """
    logging.set_verbosity(logging.ERROR)
    with tempfile.TemporaryDirectory() as root:
        directory = os.path.join(root, "1")
        vocab_file = serving.write_vocabulary(root)
        serving.export(config, length, vocab_file, directory, _TASK, **reading)
        yield directory


def vocab_of(directory: str) -> str:
    """Returns the path of the vocabulary of an `exported` model."""
    return os.path.join(os.path.dirname(directory), "vocab.txt")


def ask_all(
    server: Server,
    bodies: Sequence[bytes],
    order: Sequence[int],
    num_clients: int,
    limit_s: float,
) -> Asked:
    """Sends requests from several clients at once.

    Args:
        server: the server.
        bodies: the requests.
        order: the numbers of the requests to send, in order.
        num_clients: number of clients, each with a separate connection.
        limit_s: seconds after which no client sends another request.
    """
    left, lock, start = iter(order), threading.Lock(), time.perf_counter()
    answers, seconds, half = [], [], []

    def client():
        with contextlib.closing(server.connect(limit_s)) as connection:
            while time.perf_counter() - start < limit_s:
                with lock:
                    number = next(left, None)
                if number is None:
                    return
                sent = time.perf_counter()
                answer = server.ask(connection, bodies[number])
                taken = time.perf_counter() - sent
                with lock:
                    answers.append((number, answer))
                    seconds.append(taken)
                    if 2 * len(answers) >= len(order) and not half:
                        half.append(server.memory_mb)

    with futures.ThreadPoolExecutor(num_clients) as threads:
        for made in [threads.submit(client) for _ in range(num_clients)]:
            made.result()
    total = time.perf_counter() - start
    return Asked(answers, seconds, total, *(half or [server.memory_mb]))


def is_same(one: dict, other: dict) -> bool:
    """Returns whether answers are equal, except for rounding of numbers."""
    if one.keys() != other.keys():
        return False
    for name, x in one.items():
        x, y = np.asarray(x), np.asarray(other[name])
        if x.shape != y.shape:
            return False
        if x.dtype.kind == "f" or y.dtype.kind == "f":
            if not np.allclose(x, y, atol=_TOLERANCE):
                return False
        elif not np.array_equal(x, y):
            return False
    return True


def _measure(values) -> Iterator[program.Line]:
    lengths = [int(x) for x in values.lengths]
    texts = [
        make_text(length, seed)
        for seed, length in zip(
            range(values.texts), itertools.cycle(lengths), strict=False
        )
    ]
    bodies = [make_body(x) for x in texts]
    order = random.Random(1).choices(range(len(bodies)), k=values.requests)
    with exported({"name": values.preset}, max(lengths) + 64) as directory:
        for size in values.batch_sizes:
            with contextlib.closing(
                Server(directory, f"--max_batch_size={size}")
            ) as server:
                alone = ask_all(
                    server, bodies, range(len(bodies)), 1, values.limit_s
                )
                expected = dict(alone.answers)
                if len(expected) < len(bodies):
                    raise ValueError(
                        f"One client got {len(expected)} of {len(bodies)} "
                        "answers in time. Raise `--limit_s`."
                    )
                yield _line(server, int(size), 1, alone, expected)
                for number in map(int, values.clients):
                    asked = ask_all(
                        server, bodies, order, number, values.limit_s
                    )
                    yield _line(server, int(size), number, asked, expected)


def _line(server, size, num_clients, asked, expected) -> program.Line:
    middle, high = np.percentile(np.array(asked.seconds) * 1e3, [50, 95])
    return {
        "batch_size": size,
        "clients": num_clients,
        "requests": len(asked.answers),
        "different": sum(
            number not in expected or not is_same(expected[number], x)
            for number, x in asked.answers
        ),
        "p50_ms": middle,
        "p95_ms": high,
        "per_s": len(asked.answers) / asked.total,
        "half_mb": asked.half_mb,
        "end_mb": server.memory_mb,
    }


PROGRAM = program.load("serving_load", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
