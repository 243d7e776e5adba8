"""`experiments`: what there is to train."""

from absl import flags

from etcmodel.tasks import registry

DESCRIPTION = """
Lists the experiments, of one task or of all: models with the paper's
hyperparameters, which `train --experiment=NAME` takes.
"""

EXAMPLE = """
python -m etcmodel experiments wikihop
"""

REQUIRED = ()
# The flag that may be given without its name.
ARGUMENT = "task"


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the command.

    Args:
        flag_values: where to define them.
    """
    flags.DEFINE_string(
        "task",
        None,
        f"The task: {', '.join(sorted(registry.TASKS))}. All by default.",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues) -> None:
    """Runs the command.

    Args:
        flag_values: the parsed flags.

    Raises:
        UserError: there is no such task.
    """
    task = flag_values.task
    for name in sorted(registry.TASKS) if task is None else [task]:
        print(f"{name}: {registry.task_entry(name).summary}")
        for experiment, entry in registry.experiments(name).items():
            print(f"  {experiment:38}{entry.summary}")
