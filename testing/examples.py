"""Runs the programs of `examples`, which train once and return metrics."""

import contextlib
import inspect
import io
import re
import types
import unittest
from unittest import mock

from etcmodel.estimators.estimators import Estimator


def run_example(
    test: unittest.TestCase, example: types.ModuleType, num_comments: int = 1
) -> dict[str, float]:
    """Runs an example; returns its metrics.

    The test fails unless the example trains exactly once, has `num_comments`
    comments after its calls of `print`, and prints what they show. README has
    these comments, too.
    """
    train = Estimator.fit
    printed = io.StringIO()
    with (
        mock.patch.object(Estimator, "fit", autospec=True) as fit,
        contextlib.redirect_stdout(printed),
    ):
        fit.side_effect = train
        metrics = example.main()
    fit.assert_called_once()
    lines = printed.getvalue().splitlines()
    code = inspect.getsource(example)
    comments = re.findall(r"print\(.*\)  # (.*)", code)
    test.assertEqual(num_comments, len(comments))
    for shown in comments:
        test.assertIn(shown, lines)
    return metrics
