"""`experiments`: lists the experiments to train."""

import dataclasses

from etcmodel.tasks import registry

DESCRIPTION = """
Lists the experiments of one task, or of all tasks. An experiment is a model
with the paper's hyperparameters; `train --experiment=NAME` trains it.
"""

EXAMPLE = """
python -m etcmodel experiments wikihop
"""

ARGUMENT = "task"


@dataclasses.dataclass(kw_only=True)
class Options:
    """Options of `experiments`.

    Attributes:
        task: the task; by default all tasks.
    """

    task: str | None = None


def run(options: Options) -> None:
    """Prints the experiments."""
    wanted = options.task
    for name in registry.tasks() if wanted is None else [wanted]:
        task = registry.get(name)
        print(f"{name}: {task.summary}")
        for experiment, entry in task.experiments.items():
            print(f"  {experiment:37} {entry.summary}")
