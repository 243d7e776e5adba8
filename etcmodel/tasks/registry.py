"""Finds tasks and experiments by name, without loading TensorFlow.

Every folder of `etcmodel.tasks` with a `task.py` is a task.
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
    """Returns a task by name; raises a UserError if there is none."""
    if name not in tasks():
        raise UserError(
            f"`task={name}`: there is no such task. Choose one of: "
            f"{', '.join(tasks())}."
        )
    return tasks()[name]


def get_with_answers(name: str) -> TaskSpec:
    """Returns a task that predicts answers, or raises a UserError."""
    task = get(name)
    if not task.has_answers:
        raise UserError(
            f"{name} is pre-training: it has no answers to export, predict or "
            "show. Train another task from its checkpoint, with "
            "`init_checkpoint=DIR`."
        )
    return task


def task_of_experiment(experiment: str) -> TaskSpec:
    """Returns the task of an experiment, or raises a UserError."""
    names = []
    for task in tasks().values():
        if experiment in task.experiments:
            return task
        names.extend(task.experiments)
    close = difflib.get_close_matches(experiment, names)
    raise UserError(
        f"`experiment={experiment}`: there is no such experiment. "
        + (f"Did you mean {' or '.join(close)}? " if close else "")
        + "`python -m etcmodel experiments` lists them."
    )


@functools.cache
def register_experiments(name: str) -> None:
    """Registers a task's experiments; raises a UserError under Keras 3."""
    task = get(name)
    try:
        register = load("etcmodel.training.trainer:register")
    except ImportError as error:
        raise UserError(str(error)) from error
    register(task)
