"""Stops a training whose loss is no longer a number.

Works with Keras 2 only; see `training.experiments`.
"""

import math

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.pipeline.example_schema import EXAMPLE_ID
from etcmodel.training import trainer

_MAX_NAMED = 64


def check(task: trainer.RecordsTask, loss: float, first: int, last: int):
    """Raises a `UserError` if the loss of some steps is NaN or infinite.

    It names the records that the steps read, and says what to try. `loss` is
    the mean over the steps `first` to `last`, counted from 1.
    """
    if math.isfinite(loss):
        return
    steps = f"step {last}" if first == last else f"steps {first} to {last}"
    raise UserError(
        f"The loss is {loss} at {steps}. Checkpoints of earlier steps are "
        "kept, and the same command goes on from the last. Try a lower "
        "--learning_rate or a longer warm-up; if it is float16, "
        "runtime.mixed_precision_dtype=bfloat16 or none."
        f"{_describe_records(task, first, last)}"
    )


def _describe_records(task, first: int, last: int) -> str:
    """Names the records of steps, as far as they can be read again."""
    ids = []
    for step in range(first, last + 1):
        examples = task.read_examples(step - 1)
        for example in examples:
            fields = tf.train.Example.FromString(example).features.feature
            ids += [
                x.decode("utf-8", "replace")
                for x in fields[EXAMPLE_ID].bytes_list.value
            ]
        if len(ids) > _MAX_NAMED:
            break
    if not ids:
        return ""
    more = " and more" if len(ids) > _MAX_NAMED else ""
    return f" Ids of the records: {', '.join(ids[:_MAX_NAMED])}{more}."
