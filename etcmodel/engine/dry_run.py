"""Measures the memory and time of two training steps."""

import resource
import tempfile
import time

import numpy as np
import tensorflow as tf

from etcmodel.engine import runner as runner_lib


def describe(params) -> str:
    """Builds the model and trains two steps in a temporary directory.

    Returns:
        Text with the shapes of the inputs, the number of parameters, the loss,
        the memory, and the time of both steps.
    """
    from etcmodel.training import damaged_records

    with tempfile.TemporaryDirectory() as directory, runner_lib.quiet(False):
        _, runner = runner_lib.make_runner(params, "train", directory)
        trainer = runner.trainer
        seconds = []
        with damaged_records.explained(trainer.task), runner.strategy.scope():
            for _ in range(2):
                start = time.perf_counter()
                logs = trainer.train(tf.constant(1))
                seconds.append(time.perf_counter() - start)
        inputs, *_ = trainer.train_dataset.element_spec
    lines = [f"{name}: {x.dtype.name}{x.shape}" for name, x in inputs.items()]
    sizes = [np.prod(x.shape) for x in trainer.model.trainable_variables]
    number = runner_lib.describe_trained(params, trainer.model)
    number = number or f"Parameters: {int(sum(sizes)):,}"
    # Linux reports `ru_maxrss` in kilobytes.
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return "\n".join(
        [
            "Inputs per replica:",
            *(f"  {line}" for line in lines),
            number,
            f"Loss: {float(logs['training_loss']):.4g}",
            f"Peak memory of the process: {memory:.2f} GB",
            f"First step, with tracing: {seconds[0]:.1f} s",
            f"Next step: {seconds[1]:.2f} s; {params.trainer.train_steps} "
            f"steps: {seconds[1] * params.trainer.train_steps / 3600:.2f} h",
        ]
    )
