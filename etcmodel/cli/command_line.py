"""Finds a command, parses its flags, runs it and prints errors."""

import contextlib
import dataclasses
import difflib
import importlib
import itertools
import os
import signal
import sys
import threading
from types import ModuleType

from absl import flags

from etcmodel.cli import flags as flags_lib
from etcmodel.cli import help_text
from etcmodel.errors import UserError
from etcmodel.errors import without_stack
from etcmodel.pipeline import options
from etcmodel.tasks import registry

# Command -> its module and a summary. A module has `DESCRIPTION`, `EXAMPLE`,
# `Options` (see `pipeline.options`) and `run(options)`, and may have:
# `TASK_FLAGS`: True if the command also takes the flags of the task `--task`.
# `PASSES_ON`: a flag and an option. If the flag is set, the option gets all
# unknown flags.
# `ARGUMENT`: the flag that a positional argument sets.
# `COMMON_FLAGS`: the flags that `--help` describes; by default all.
COMMANDS = {
    "preprocess": ("cli.preprocess", "data files -> TFRecords"),
    "lift": ("cli.lift", "BERT or RoBERTa -> weights that `train` starts from"),
    "experiments": ("cli.experiments", "the experiments to train, by task"),
    "train": ("cli.train", "train a model on TFRecords"),
    "evaluate": ("cli.evaluate", "evaluate a trained model on TFRecords"),
    "export": ("cli.export", "trained model -> SavedModel that takes raw text"),
    "predict": ("cli.predict", "data files -> answers of a SavedModel"),
    "serve": ("cli.serve", "answer requests over HTTP"),
    # A module called `inspect` would shadow Python's for scripts in its folder.
    "inspect": (
        "cli.inspect_record",
        "page or picture of a record's attention",
    ),
    "demo": ("cli.demo", "all of the above on a small generated corpus"),
}


def load(name: str) -> ModuleType:
    """Imports the module of a command."""
    return importlib.import_module(f"etcmodel.{COMMANDS[name][0]}")


_HELP = frozenset(("--help", "-h", "-help"))

# Words in an error -> advice that is added to it.
_ADVICE = {
    # First, because TensorFlow reports a full disk as ResourceExhausted, too.
    ("No space left", "ENOSPC"): "Make room on the disk.",
    ("ResourceExhausted", "OOM", "MemoryError"): (
        "Use a smaller --batch_size, shorter records, or "
        "--params_override=task.model.encoder.grad_checkpointing_period=1."
    ),
    ("Permission denied", "PermissionDenied"): "Choose another directory.",
    ("corrupted record", "DataLossError"): "Preprocess the data again.",
}


def _suggestion(word: str, choices, prefix: str = "") -> str:
    close = difflib.get_close_matches(word, choices, n=1)
    return f" Did you mean {prefix}{close[0]}?" if close else ""


def _value_of(name: str, arguments: list[str]) -> str | None:
    """Returns the value of a flag in arguments that are not parsed yet."""
    for argument, following in itertools.zip_longest(arguments, arguments[1:]):
        flag, is_set, value = argument.lstrip("-").partition("=")
        if flag == name and argument.startswith("-"):
            return value if is_set else following
    return None


def _define_flags(module: ModuleType, task: str | None):
    """Returns the flags of a command, and the class of the task's options."""
    flag_values, task_kinds = flags.FlagValues(), None
    flags_lib.define(flag_values, module.Options)
    if task is not None:
        task_kinds = registry.get(task).preprocessing_config_class
        flags_lib.define(flag_values, task_kinds)
    return flag_values, task_kinds


def describe(name: str, task: str | None = None) -> str:
    """Returns the output of `--helpfull` for a command.

    Args:
        name: the command.
        task: a task whose flags are described, too; only for commands with
            `TASK_FLAGS`.
    """
    module = load(name)
    flag_values, _ = _define_flags(module, task)
    return help_text.full_help(name, COMMANDS[name][1], module, flag_values)


def _parse(name: str, module: ModuleType, arguments: list[str]):
    """Parses the options of a command; prints help and returns None if asked.

    Raises:
        UserError: a flag is unknown, invalid or missing.
    """
    task, place = None, name
    if hasattr(module, "TASK_FLAGS"):
        task = _value_of("task", arguments)
        place = f"{name} --task={task or 'TASK'}"
    if "--helpfull" in arguments:
        print(describe(name, task), end="")
        return None
    flag_values, task_kinds = _define_flags(module, task)
    if not _HELP.isdisjoint(arguments):
        about = name, COMMANDS[name][1], module, flag_values
        print(help_text.short_help(*about), end="")
        return None
    advice = f"See `python -m etcmodel {place} --helpfull`."
    runner, passed_on = getattr(module, "PASSES_ON", ("", ""))
    passes_on = bool(runner) and _value_of(runner, arguments) is not None
    try:
        rest = flag_values([name, *arguments], known_only=passes_on)[1:]
    except flags.UnrecognizedFlagError as error:
        raise UserError(
            f"{name} has no flag --{error.flagname}."
            f"{_suggestion(error.flagname, list(flag_values), '--')} "
            f"{advice}"
        ) from None
    except flags.Error as error:
        raise UserError(f"{error} {advice}") from None
    further = {}
    if passes_on:
        further, rest = {passed_on: rest}, []
    if len(rest) == 1 and hasattr(module, "ARGUMENT"):
        flag_values[module.ARGUMENT].value = rest.pop()
    if rest:
        raise UserError(
            f"{name} got the unexpected argument {rest[0]!r}. It takes only "
            f"flags such as --name=value. {advice}"
        )
    needed = options.required(module.Options)
    missing = [f"--{x}" for x in needed if not flag_values[x].value]
    if missing:
        raise UserError(f"{name} needs {', '.join(missing)}. {advice}")
    made = flags_lib.make_options(flag_values, module.Options, task_kinds)
    return dataclasses.replace(made, **further)


def _flag_names() -> frozenset[str]:
    """Returns the names of the flags of all commands and tasks."""
    modules = [f"etcmodel.{module}" for module, _ in COMMANDS.values()]
    kinds = [importlib.import_module(x).Options for x in modules]
    for task in registry.tasks().values():
        # Leaves out classes that need TensorFlow, rather than load it for this.
        kind = task.preprocessing_config
        if sys.modules.get("tensorflow") is not None:
            kind = task.preprocessing_config_class
        kinds += [kind] if isinstance(kind, type) else []
    return frozenset(
        field.name.rstrip("_")
        for kind in kinds
        for field in options.flag_fields(kind)
    )


def prepare_environment() -> None:
    """Selects Keras 2, which the Model Garden needs; hides TensorFlow's log.

    Does nothing once TensorFlow is imported.
    """
    if "tensorflow" not in sys.modules:
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _is_of_the_machine(error: Exception) -> bool:
    """Returns whether an error comes from TensorFlow or the system.

    Any other error is a bug and is shown with its traceback.
    """
    if isinstance(error, OSError | MemoryError):
        return True
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(
        error, tensorflow.errors.OpError
    )


def _one_line(error: Exception) -> str:
    """Returns an error's message with advice, without TensorFlow's stack."""
    text = str(getattr(error, "message", error)) or type(error).__name__
    text = without_stack(text)[0].rstrip(".")
    for words, advice in _ADVICE.items():
        if any(word in f"{type(error).__name__} {text}" for word in words):
            return f"{text}. {advice}"
    return f"{text}."


def main(arguments: list[str]) -> int:
    """Runs a command, given by its name and flags.

    Returns:
        The exit code: 0 for success, 1 for an error, 130 if interrupted, 143 if
        terminated.
    """
    with _terminated_as_interrupted():
        return _main(arguments)


class _Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, such as before a machine is preempted."""


@contextlib.contextmanager
def _terminated_as_interrupted():
    """Makes SIGTERM end a command as Ctrl-C does."""

    def stop(number, frame):
        del number, frame
        # A second SIGTERM must not interrupt saving the checkpoint.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _main(arguments: list[str]) -> int:
    """Runs a command, without handling SIGTERM."""
    prepare_environment()
    if not arguments or arguments[0] in (*_HELP, "help", "--helpfull"):
        summaries = {name: text for name, (_, text) in COMMANDS.items()}
        print(help_text.general_help(summaries), end="")
        return 0
    if arguments[0] == "--version":
        print(help_text.version())
        return 0
    name, *rest = arguments
    debug = "--debug" in rest
    rest = [argument for argument in rest if argument != "--debug"]
    try:
        if name not in COMMANDS:
            raise UserError(
                f"There is no command {name!r}."
                f"{_suggestion(name, list(COMMANDS))} Commands: "
                f"{', '.join(COMMANDS)}. See `python -m etcmodel --help`."
            )
        module = load(name)
        parsed = _parse(name, module, rest)
        if parsed is not None:
            module.run(parsed)
    except UserError as error:
        text = flags_lib.as_flags(str(error), _flag_names())
        print(f"Error: {text}", file=sys.stderr)
        return 1
    except Exception as error:
        if debug or not _is_of_the_machine(error):
            raise
        print(
            f"Error: {name} failed: {_one_line(error)} --debug shows the "
            "traceback.",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt as error:
        print(f"\n{name} was interrupted.", file=sys.stderr)
        return 143 if isinstance(error, _Terminated) else 130
    return 0
