"""Helpers shared by the tests: real data, and tolerances."""

import os
import pathlib
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
