"""What all tests share under pytest."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def pytest_report_header(config):
    """Says under which Keras the tests run."""
    legacy = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    return f"tf.keras is Keras {2 if legacy else 3}"


def pytest_collection_modifyitems(items):
    """Drops the `test_session` that `tf.test.TestCase` always skips."""
    items[:] = [item for item in items if item.name != "test_session"]
