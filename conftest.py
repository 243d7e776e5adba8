"""Settings shared by all tests under pytest."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

pytest_plugins = ["tools.suite_plugin"]
