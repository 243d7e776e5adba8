"""Stops training if the loss is NaN or infinite.

Works only with Keras 2; see `training.configuration`.
"""

import math
import sys

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.pipeline.example_schema import EXAMPLE_ID
from etcmodel.training import trainer

_MAX_NAMED = 64


def check(task: trainer.RecordsTask, loss: float, first: int, last: int):
    """Raises a `UserError` if the loss of some steps is NaN or infinite.

    The message names the records of these steps, and remedies. `loss` is the
    mean over the steps `first` to `last`, counted from 1.
    """
    if math.isfinite(loss):
        return
    # The update of the previous step may have made the weights NaN.
    first = max(first - 1, 1)
    steps = f"step {last}" if first == last else f"steps {first} to {last}"
    print(
        f"The loss is {loss} at step {last}. Searching for the records of "
        f"{steps}.",
        file=sys.stderr,
    )
    raise UserError(
        f"The loss is {loss} at step {last}. Checkpoints of earlier steps are "
        "kept, but the same command will fail again. Use a lower "
        "`learning_rate` or a longer warm-up; with float16, use bfloat16 or "
        "float32. If it fails at its first step, the newest checkpoint "
        "contains NaN already: move its files elsewhere."
        f"{_describe_records(task, first, last, steps)}"
    )


def _describe_records(task, first: int, last: int, steps: str) -> str:
    """Returns a sentence that lists the records of steps; "" if unknown."""
    ids = []
    for example in task.read_examples(first - 1, last + 1 - first):
        fields = tf.train.Example.FromString(example).features.feature
        ids += [
            x.decode("utf-8", "replace")
            for x in fields[EXAMPLE_ID].bytes_list.value
        ]
    if not ids:
        return ""
    # Shows the end of the list, which has the records of the last step.
    more = "..., " if len(ids) > _MAX_NAMED else ""
    return f" Records of {steps}: {more}{', '.join(ids[-_MAX_NAMED:])}."
