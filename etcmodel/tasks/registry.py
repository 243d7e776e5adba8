"""The tasks by name, and the experiments by name.

Every folder of `etcmodel.tasks` that has a `task.py` is a task; see
`pipeline.spec`. Nothing here loads TensorFlow.
"""

import difflib
import functools
import importlib
import pathlib
from collections.abc import Mapping

from etcmodel.errors import UserError
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.spec import load

_FOLDER = pathlib.Path(__file__).parent


@functools.cache
def tasks() -> Mapping[str, TaskSpec]:
    """Returns all tasks by name, sorted."""
    modules = (
        importlib.import_module(f"{__package__}.{path.parent.name}.task")
        for path in _FOLDER.glob("*/task.py")
    )
    found = [
        task
        for module in modules
        for task in getattr(module, "TASKS", None) or [module.TASK]
    ]
    return {task.name: task for task in sorted(found, key=lambda x: x.name)}


def get(name: str) -> TaskSpec:
    """Returns the task of a name as in `--task`.

    Raises:
        UserError: there is no such task.
    """
    if name not in tasks():
        raise UserError(
            f"--task={name}: there is no such task. Choose one of: "
            f"{', '.join(tasks())}."
        )
    return tasks()[name]


def get_with_answers(name: str) -> TaskSpec:
    """Returns the task of a name, if it has answers.

    Raises:
        UserError: there is no such task, or it is pre-training.
    """
    task = get(name)
    if not task.has_answers:
        raise UserError(
            f"{name} is pre-training: it has no answers to export, predict or "
            "show. Train a task that begins with its checkpoint, with "
            "--init_checkpoint=DIR."
        )
    return task


def task_of_experiment(experiment: str) -> TaskSpec:
    """Returns the task of an experiment, such as `"etc/wikihop"`.

    Raises:
        UserError: no task has such an experiment.
    """
    names = []
    for task in tasks().values():
        if experiment in task.experiments:
            return task
        names.extend(task.experiments)
    close = difflib.get_close_matches(experiment, names)
    raise UserError(
        f"--experiment={experiment}: there is no such experiment. "
        + (f"Did you mean {' or '.join(close)}? " if close else "")
        + "`python -m etcmodel experiments` lists them."
    )


@functools.cache
def register_experiments(name: str) -> None:
    """Registers the experiments of a task with the Model Garden.

    Raises:
        UserError: Keras 2 is not in use.
    """
    task = get(name)
    try:
        register = load("etcmodel.training.trainer:register")
    except ImportError as error:
        raise UserError(str(error)) from error
    register(task)
