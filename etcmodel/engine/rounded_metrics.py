"""Measures the metrics of rounded weights before an export."""

import dataclasses
import functools
from typing import Any

from etcmodel.engine import evaluate
from etcmodel.engine import processes
from etcmodel.engine import run_options
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.pipeline.spec import TaskSpec


def check_tolerance(options: Any) -> None:
    """Raises a `UserError` if `tolerance` is no share of a scale."""
    # NaN is refused, too.
    if not 0 <= options.tolerance < 1:
        raise UserError(
            f"`tolerance` is {options.tolerance}, but must be at least 0 and "
            "less than 1: 0.01 is one point of a hundred."
        )


def measure(
    options: Any, spec: TaskSpec, reporter: Reporter
) -> evaluate.Rounded | None:
    """Evaluates a checkpoint with float32 weights and with rounded ones.

    Args:
        options: the options of `export`.
        spec: the task.
        reporter: shows notes.

    Returns:
        The metrics; None without validation data.

    Raises:
        UserError: the main metric falls by more than `tolerance`.
    """
    if options.validation_data is None:
        return None
    kinds = [*dict.fromkeys(["float32", options.weights])]
    shared = {
        x.name: getattr(options, x.name)
        for x in dataclasses.fields(run_options.CheckpointOptions)
    }
    found = processes.run(
        functools.partial(evaluate.evaluate_rounded, kinds=kinds),
        evaluate.Options(**shared, validation_data=options.validation_data),
        reporter,
    )
    check(found, options.weights, options.tolerance, spec.max_metric)
    return found


def check(
    found: evaluate.Rounded, weights: str, tolerance: float, max_metric: float
) -> None:
    """Raises a `UserError` if the main metric falls by too much.

    Args:
        found: the metrics.
        weights: precision of the weights to compare with float32.
        tolerance: how far the metric may fall, as a share of its scale.
        max_metric: the metric's scale is 0 to this value. If the float32 metric
            is outside of it, such as a squared error, or a loss, its own value
            is the scale.
    """
    name = found.main_metric
    values = [found.metrics[x].get(name) for x in ("float32", weights)]
    if None in values:
        raise UserError(
            f"The validation data do not have the metric {name}, which selects "
            "checkpoints, so the weights cannot be compared. Give other "
            "`validation_data`, or none."
        )
    before, after = values
    is_scaled = 0 <= before <= max_metric and not name.endswith("loss")
    scale = max_metric if is_scaled else abs(before)
    fall = after - before if found.is_lower_better else before - after
    # NaN is refused, too.
    if weights == "float32" or fall <= tolerance * scale:
        return
    change = "rises" if found.is_lower_better else "falls"
    raise UserError(
        f"With `weights={weights}`, {name} {change} from {before:.4g} "
        f"(float32) to {after:.4g}, by more than {tolerance * scale:.4g}, the "
        f"limit of `tolerance={tolerance:g}`. Nothing was written. Use more "
        "precise `weights`, or raise `tolerance`."
    )
