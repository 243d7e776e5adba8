r"""Measures the time from a fresh server process to its first answers.

    python -m benchmarks.serving_start
    python -m benchmarks.serving_start --presets=small --repeats=5

Exports a model of `answer` with random weights for each preset, starts `python
-m etcmodel serve`, and sends requests through the signature `text`. Another
process measures the parts of the start. Columns are medians:

*   `ready_s`: from the start of the process until it listens. `first_ms`: the
    first request after that. `later_ms`: the third request.
*   `import_s`: TensorFlow and the server. `load_s`: `tf.saved_model.load`.
    `warm_s`: the first answers of `serving_default` and `text`, which the
    server waits for before it listens.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

from benchmarks import measure
from benchmarks import program
from benchmarks import serving_load
from etcmodel.pipeline.spec import load
from etcmodel.serving import answers
from etcmodel.serving import versions
from etcmodel.tasks import registry

_TASK = "answer"
# Modules that the command `serve` imports before it loads a model.
_IMPORTS = (
    "tensorflow",
    "tensorflow_text",
    "uvicorn",
    "etcmodel.cli.command_line",
    "etcmodel.engine.serve",
    "etcmodel.serving.server",
)


def measure_imports() -> float:
    """Returns the seconds that a new process takes for `_IMPORTS`."""
    lines = ["import time", "start = time.perf_counter()"]
    lines += [f"import {name}" for name in _IMPORTS]
    lines += ["print(time.perf_counter() - start)"]
    with subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        return float(process.communicate()[0].split()[-1])


def measure_parts(saved_model: str) -> dict[str, float]:
    """Measures loading and warming up; returns seconds by column."""
    request = load(registry.get(_TASK).preprocessor).REQUEST
    places = [time.perf_counter()]
    model = answers.load_saved_model(saved_model)
    places.append(time.perf_counter())
    versions.warm_up(model, request)
    places.append(time.perf_counter())
    names = ("load_s", "warm_s")
    return dict(zip(names, np.diff(places).tolist(), strict=True))


def measure_server(saved_model: str, length: int) -> dict[str, float]:
    """Measures a server's start and first requests."""
    body = serving_load.make_body(serving_load.make_text(length))
    milliseconds = []
    with contextlib.closing(serving_load.Server(saved_model)) as server:
        with contextlib.closing(server.connect()) as connection:
            for _ in range(3):
                start = time.perf_counter()
                server.ask(connection, body)
                milliseconds.append(1e3 * (time.perf_counter() - start))
        return {
            "ready_s": server.ready_s,
            "first_ms": milliseconds[0],
            "later_ms": milliseconds[-1],
        }


def _measure(values) -> Iterator[program.Line]:
    for preset in values.presets:
        with serving_load.exported({"name": preset}, 4096) as directory:
            found = [
                measure_server(directory, values.length)
                | {"import_s": measure_imports()}
                | measure.in_fresh_process(measure_parts, directory)
                for _ in range(values.repeats)
            ]
        medians = {
            name: float(np.median([x[name] for x in found]))
            for name in found[0]
        }
        yield {"preset": preset, "length": values.length, **medians}


PROGRAM = program.load("serving_start", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
