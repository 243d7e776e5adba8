"""Lists operations in training steps that a TPU cannot run, or runs slowly.

Compiles the whole step of each experiment with XLA for this machine, at static
sizes: one layer with dropout, on generated records. Lists operations on the
host, transfers to the host, strings, dynamic sizes, 64-bit floats and custom
calls. Embeddings are looked up by products with one-hot vectors, as
docs/distributed.md advises for a TPU. Needs Keras 2:

    TF_USE_LEGACY_KERAS=1 python -m benchmarks.compiled_steps
"""

import time
from collections.abc import Iterator

from benchmarks import program
from etcmodel.tasks import registry

EXPERIMENTS = {
    experiment: task
    for task in registry.tasks()
    for experiment in registry.get(task).experiments
}
_ENCODER = {
    "use_one_hot_embeddings": True,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}


def make_step(experiment: str):
    """Returns the training step of an experiment, and a batch for it."""
    # Imported first, because its error explains that Keras 2 is needed.
    from etcmodel.training import trainer

    # isort: split
    import tensorflow as tf
    from official.core import exp_factory

    from testing import models
    from testing import pretraining

    name = EXPERIMENTS[experiment]
    registry.register_experiments(name)
    params = exp_factory.get_exp_config(experiment)
    # Batch sizes of ReadTwice count segments, so this is one example.
    size = pretraining.BLOCKS
    models.shrink_experiment(params, models.small_records(name), size)
    params.task.model.encoder.override(_ENCODER)
    params.task.train_data.seed = 1
    task_class, *_ = trainer.task_classes(registry.get(name))
    task = task_class(params.task)
    model = task.build_model()
    optimizer = task.create_optimizer(params.trainer.optimizer_config)
    optimizer._create_all_weights(model.trainable_variables)
    batch = next(iter(task.build_inputs(params.task.train_data)))

    @tf.function(jit_compile=True, autograph=False)
    def step(*batch):
        return task.train_step(batch, model, optimizer)

    return step, batch


def _measure(values) -> Iterator[program.Line]:
    from testing import compiled

    for experiment in values.experiments or EXPERIMENTS:
        start = time.perf_counter()
        step, batch = make_step(experiment)
        found = compiled.offenders(step, *batch)
        yield {
            "experiment": experiment,
            "offenders": len(found),
            "first": found[0] if found else "",
            "seconds": time.perf_counter() - start,
        }


PROGRAM = program.load("compiled_steps", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
