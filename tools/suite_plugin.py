"""What pytest does here beyond its own: where tests run, how long, and seeds.

Used by conftest.py. A test runs under one Keras, which follows from what its
module imports (see `modules.place_of`), or under both if it is marked so.
"""

import collections
import gc
import json
import os
import pathlib
import resource
import sys
import time
from unittest import mock

import pytest

from tools import modules

# Shorter tests are in the sum of their file only.
_SHORTEST = 0.1


def keras_in_use() -> int:
    """Which Keras `tf.keras` is in this process: 2 or 3."""
    legacy = os.environ.get("TF_USE_LEGACY_KERAS", "").lower()
    return 2 if legacy in ("1", "true") else 3


def seconds_file(keras: int) -> pathlib.Path:
    """Where it is recorded how long tests take under a Keras."""
    return modules.ROOT / "tools" / f"test_seconds_keras_{keras}.json"


def read_seconds(path: pathlib.Path) -> dict:
    """What has been recorded of earlier runs; empty if nothing has."""
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def pytest_addoption(parser):
    """Adds this plugin's options."""
    group = parser.getgroup("etcmodel")
    group.addoption(
        "--placed",
        action="store_true",
        help="run tests only under the Keras that they are about",
    )
    group.addoption(
        "--record-seconds",
        action="store_true",
        help="write how long tests, files and processes took into tools/",
    )


def pytest_configure(config):
    """Declares the marker, and records if that is wanted."""
    config.addinivalue_line(
        "markers", "both_kerases: runs under Keras 3 and under Keras 2"
    )
    config.pluginmanager.register(_Clock(), "etcmodel_clock")
    if config.getoption("--record-seconds") and not _is_worker(config):
        recorder = Recorder(seconds_file(keras_in_use()))
        config.pluginmanager.register(recorder, "etcmodel_recorder")


def pytest_report_header(config):
    """Says under which Keras the tests run."""
    return f"tf.keras is Keras {keras_in_use()}"


def pytest_collection_modifyitems(config, items):
    """Leaves out what is about the other Keras."""
    # `tf.test.TestCase` has one in every class, and always skips it.
    items[:] = [item for item in items if item.name != "test_session"]
    if not config.getoption("--placed"):
        return
    kept, dropped = [], []
    for item in items:
        path = item.path.relative_to(modules.ROOT)
        keras, uses_keras = modules.place_of(modules.target_of(path))
        is_marked = item.get_closest_marker("both_kerases") is not None
        if is_marked and not uses_keras:
            raise pytest.UsageError(
                f"{item.nodeid} is marked to run under both Kerases, but "
                "nothing that it imports uses tf.keras. Remove the mark."
            )
        here = is_marked or keras == keras_in_use()
        (kept if here else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def pytest_runtest_setup():
    """Lets initial weights be the same whatever tests ran before."""
    keras = sys.modules.get("keras" if keras_in_use() == 3 else "tf_keras")
    if keras is not None:
        # TensorFlow's own is set by `tf.test.TestCase`. To set it makes all
        # functions be optimized again.
        tensorflow = sys.modules["tensorflow"]
        with mock.patch.object(tensorflow.random, "set_seed"):
            keras.utils.set_random_seed(1)


def _is_worker(config) -> bool:
    return hasattr(config, "workerinput")


class _Clock:
    """How long a process takes, and how much memory at most.

    Also keeps Python from looking through all that earlier files have left
    behind whenever it collects garbage.
    """

    def __init__(self):
        self._start = time.monotonic()
        self._collected = self._start
        self._garbage_start = self._garbage_seconds = 0.0
        gc.callbacks.append(self._on_garbage)
        # Graphs are made of many objects, and next to none of them is garbage.
        gc.set_threshold(50_000, 20, 20)

    def _on_garbage(self, phase, info):
        del info
        now = time.thread_time()
        if phase == "start":
            self._garbage_start = now
        else:
            self._garbage_seconds += now - self._garbage_start

    def pytest_collection_finish(self):
        gc.collect()
        gc.freeze()
        self._collected = time.monotonic()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item, nextitem):
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()

    def process(self) -> dict:
        """Seconds and gigabytes of this process; children are the largest."""
        now = time.monotonic()
        peak, children = (
            resource.getrusage(who).ru_maxrss / 1e6
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        return {
            "seconds": round(now - self._start, 1),
            "seconds_of_imports": round(self._collected - self._start, 1),
            "seconds_of_garbage": round(self._garbage_seconds, 1),
            "peak_gb": round(peak, 2),
            "peak_gb_of_a_child": round(children, 2),
        }

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if _is_worker(session.config):
            session.config.workeroutput["process"] = self.process()


class Recorder:
    """Writes what tests, files and processes took into a JSON file.

    What the file says of other test files stays.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._tests = collections.defaultdict(
            lambda: collections.defaultdict(float)
        )
        self._processes = {}

    def pytest_runtest_logreport(self, report):
        """Adds up set-up, call and tear-down of a test."""
        file, _, name = report.nodeid.partition("::")
        self._tests[file][name] += report.duration

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Takes what a worker of pytest-xdist tells of itself."""
        process = getattr(node, "workeroutput", {}).get("process")
        if process:
            self._processes[node.gateway.id] = process

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        """Writes the file."""
        clock = session.config.pluginmanager.get_plugin("etcmodel_clock")
        self._processes["main"] = clock.process()
        files = read_seconds(self._path).get("files", {})
        for file, tests in self._tests.items():
            files[file] = {
                "seconds": round(sum(tests.values()), 2),
                "tests": {
                    name: round(seconds, 2)
                    for name, seconds in sorted(tests.items())
                    if seconds >= _SHORTEST
                },
            }
        recorded = {
            "processes": self._processes,
            "files": {
                file: files[file]
                for file in sorted(files)
                if (modules.ROOT / file).exists()
            },
        }
        text = json.dumps(recorded, indent=1)
        self._path.write_text(f"{text}\n", "utf-8")
