"""Helpers shared by the tests: real data, and processes of their own."""

import os
import pathlib
import subprocess
import sys
import unittest

# A checkout may have a folder `shared/data` beside it with real records of
# every task, in the official formats. They are not part of the project.
_DEFAULT_DATA_DIR = (
    pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
)


def real_data_path(relative_path: str) -> str:
    """Path of a file of real data, or skips the calling test.

    Args:
        relative_path: path below the data folder, such as
            `"wikihop/train_22.json"`. The folder is `$ETCMODEL_TEST_DATA`,
            or `shared/data` beside the checkout.

    Returns:
        The absolute path.

    Raises:
        unittest.SkipTest: the file is not there.
    """
    root = pathlib.Path(os.environ.get("ETCMODEL_TEST_DATA", _DEFAULT_DATA_DIR))
    path = root / relative_path
    if not path.exists():
        raise unittest.SkipTest(
            f"needs the real data file {path} (set ETCMODEL_TEST_DATA)"
        )
    return str(path)


def two_device_strategy():
    """A strategy of two replicas, on two logical CPU devices.

    TensorFlow must be set up for it before it runs anything: call it in a
    process of its own (see `call_in_fresh_process`).

    Returns:
        The `tf.distribute.MirroredStrategy`.
    """
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    return strategy


def call_in_fresh_process(function, *args) -> None:
    """Calls a function in a process of its own.

    Args:
        function: a function of a module.
        *args: its arguments, which `repr` can write.

    Raises:
        AssertionError: it failed; with the end of what it printed.
    """
    program = (
        f"from {function.__module__} import {function.__name__}\n"
        f"{function.__name__}(*{args!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(
            os.environ,
            CUDA_VISIBLE_DEVICES="",
            PYTHONPATH=os.pathsep.join(path for path in sys.path if path),
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
