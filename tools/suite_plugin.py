"""A pytest plugin: selects Keras versions, sets seeds, collects garbage.

conftest.py loads it. A test runs under one Keras version, which depends on the
imports of its module (see `modules.place_of`), or under both versions if it has
the mark `both_kerases`.
"""

import gc
import os
import sys
from unittest import mock

import pytest

from tools import modules
from tools import run_tests


def keras_in_use() -> int:
    """Returns the version of `tf.keras` in this process: 2 or 3."""
    legacy = os.environ.get("TF_USE_LEGACY_KERAS", "").lower()
    return 2 if legacy in ("1", "true") else 3


def pytest_addoption(parser):
    """Adds this plugin's option."""
    parser.getgroup("etcmodel").addoption(
        "--placed",
        action="store_true",
        help="run each test only under its own Keras version",
    )


def pytest_configure(config):
    """Declares the mark `both_kerases`; makes garbage collection rarer."""
    config.addinivalue_line(
        "markers", "both_kerases: runs under Keras 3 and under Keras 2"
    )
    # Graphs have many objects, few of which become garbage.
    gc.set_threshold(50_000, 20, 20)


def pytest_report_header(config):
    """Reports the Keras version of this run."""
    return f"tf.keras is Keras {keras_in_use()}"


def pytest_ignore_collect(collection_path, config):
    """Skips files that need the other Keras version; does not import them."""
    if config.getoption("--placed") and collection_path.match("*_test.py"):
        path = collection_path.relative_to(modules.ROOT).as_posix()
        if not run_tests.is_placed(path, keras_in_use()):
            return True
    return None


def pytest_collection_modifyitems(config, items):
    """Deselects tests that do not run under this Keras version."""
    # `tf.test.TestCase` adds `test_session` to every class and always skips it.
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
                f"{item.nodeid} is marked to run under Keras 2 and 3, but "
                "nothing that it imports uses tf.keras. Remove the mark."
            )
        here = is_marked or keras == keras_in_use()
        (kept if here else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def pytest_collection_finish():
    """Excludes the imported modules from garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup():
    """Seeds Keras, so that initial weights do not depend on other tests."""
    keras = sys.modules.get("keras" if keras_in_use() == 3 else "tf_keras")
    if keras is not None:
        # `tf.test.TestCase` sets TensorFlow's seed. If the plugin set it, too,
        # TensorFlow would optimize all functions again.
        tensorflow = sys.modules["tensorflow"]
        with (
            mock.patch.object(tensorflow.random, "set_seed"),
            mock.patch.object(tensorflow.compat.v2.random, "set_seed"),
        ):
            keras.utils.set_random_seed(1)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Collects garbage after each file, and freezes the remaining objects."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
