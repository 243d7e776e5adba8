"""Prepares a run's directory before checkpoints are read or written.

A killed process, a full disk or an interrupted copy can leave incomplete
checkpoints and a damaged file `checkpoint`, which names the latest checkpoint.
"""

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from collections.abc import Sequence

import orbit
import tensorflow as tf

from etcmodel import run_paths
from etcmodel.checkpoints import files
from etcmodel.errors import UserError
from etcmodel.errors import without_stack
from etcmodel.pipeline import metadata_files
from etcmodel.readers.files import is_remote

# Subdirectory -> prefix of its checkpoints.
_CHECKPOINTS = {"": "ckpt", run_paths.BEST: run_paths.BEST}
# The Model Garden's file with the metrics of the best checkpoint.
_BEST_FILE = "info.json"
# Pattern for the names of incomplete checkpoints and temporary files.
_LEFTOVER = (
    r"{name}-\d+_temp|checkpoint\.tmp[0-9a-f]+"
    r"|.+\.[0-9a-f]{{32}}\.partial"
)
_SECONDS_OF_A_DAY = 24 * 3600


def prepare(model_dir: str, out=None) -> None:
    """Makes sure that a run resumes from its newest complete checkpoint.

    If the file `checkpoint`, which names the latest checkpoint, is missing or
    damaged, the Model Garden starts from scratch and overwrites the run. This
    function repairs the file.

    Args:
        model_dir: the directory of the run.
        out: stream for messages about repairs; by default, standard output.

    Raises:
        UserError: the file with the best checkpoint's metrics is damaged.
    """
    for folder, name in _CHECKPOINTS.items():
        directory = os.path.join(model_dir, folder) if folder else model_dir
        whole = [
            path
            for path in files.whole_checkpoints(directory)
            if re.fullmatch(rf"{name}-\d+", os.path.basename(path))
        ]
        named = files.named_checkpoint(directory)
        if not whole:
            _check_pointer(directory)
        problems = []
        if named in whole:
            whole = whole[: whole.index(named) + 1]
        elif whole and named is None:
            path = os.path.join(directory, "checkpoint")
            problems.append(f"{path} is missing or damaged")
        # Training resumes from the latest checkpoint, so the best one is not
        # checked.
        while not folder and len(whole) > 1 and (found := _damage(whole[-1])):
            problems.append(found)
            whole.pop()
        if problems:
            print(
                f"{'; '.join(problems)}: using the newest complete checkpoint, "
                f"{whole[-1]}.",
                file=out or sys.stdout,
            )
            # Evaluation works without this file, and may lack write permission.
            with contextlib.suppress(OSError, tf.errors.OpError):
                _write_pointer(directory, whole)
        path = os.path.join(directory, _BEST_FILE)
        if folder and metadata_files.exists(path):
            metadata_files.read(
                path,
                advice="Remove it; the next validation then counts as best.",
            )


def _check_pointer(directory: str) -> None:
    """Raises a `UserError` if `checkpoint` names another directory's files.

    The trainer might delete those files.
    """
    # If the file is unreadable, it does not name any checkpoints.
    with contextlib.suppress(ValueError):
        state = tf.train.get_checkpoint_state(directory)
        if files.names_others(directory, state):
            raise UserError(
                f"{os.path.join(directory, 'checkpoint')} names checkpoints in "
                "another directory. Remove it."
            )


def _write_pointer(directory: str, whole: Sequence[str]) -> None:
    """Writes the file `checkpoint`; the last path in `whole` is the latest."""
    tf.compat.v1.train.update_checkpoint_state(
        directory,
        whole[-1],
        all_model_checkpoint_paths=list(whole),
        # The Model Garden deletes old checkpoints only if it has their times.
        all_model_checkpoint_timestamps=[
            tf.io.gfile.stat(f"{path}.index").mtime_nsec / 1e9 for path in whole
        ],
    )


@contextlib.contextmanager
def restoring(path: str | None) -> Iterator[None]:
    """Converts errors in the block to a `UserError` if `path` is damaged.

    Errors about an intact checkpoint are not changed.
    """
    try:
        yield
    except (IndexError, ValueError, OSError, tf.errors.OpError) as error:
        problem = _damage(path) if path else None
        if problem is None:
            raise
        raise UserError(
            f"{problem}. Copy its files again, or move them elsewhere to use "
            "the newest of the other checkpoints."
        ) from error


class EvaluationController(orbit.Controller):
    """Restores a run to evaluate it.

    Evaluation has no optimizer. Without this class, TensorFlow warns about each
    of its values in the checkpoint when the program ends.
    """

    def restore_checkpoint(self, checkpoint_path: str | None = None):
        """Restores a checkpoint, by default the latest; returns its path.

        Raises:
            UserError: the checkpoint lacks weights of the model.
        """
        path = checkpoint_path or self.checkpoint_manager.latest_checkpoint
        if path is None:
            return None
        with self.strategy.scope():
            status = self.checkpoint_manager.checkpoint.restore(path)
        try:
            status.expect_partial().assert_existing_objects_matched()
        except AssertionError as error:
            raise UserError(
                f"{path} lacks weights of the model, such as "
                f"{_unmatched(error)}. Use the model options that the run was "
                "trained with."
            ) from error
        return path


def _unmatched(error: AssertionError) -> str:
    """Returns the name of a variable for which a checkpoint has no value."""
    found = re.search(r"tf\.Variable '([^':]+)", str(error))
    return found[1] if found else str(error).partition("\n")[0]


def _damage(path: str) -> str | None:
    """Reads a checkpoint; returns an error message, or None if intact."""
    try:
        checkpoint = files.open_checkpoint(path)
        for name in checkpoint.shapes:
            checkpoint.read(name)
    except (ValueError, OSError) as error:
        return " ".join(without_stack(str(error))).rstrip(".")
    return None


@contextlib.contextmanager
def hold(model_dir: str, out=None) -> Iterator[None]:
    """Locks a directory for one training, and removes leftover files.

    Leftovers are files that a killed process was writing. An incomplete
    checkpoint, in a folder such as `ckpt-200_temp`, can be as large as a
    complete one. Directories in buckets are neither locked nor cleaned.

    Args:
        model_dir: the directory of the run.
        out: stream for messages about removals; by default, standard output.

    Raises:
        UserError: another process trains in this directory.
    """
    if is_remote(model_dir):
        yield
        return
    os.makedirs(model_dir, exist_ok=True)
    handle = os.open(model_dir, os.O_RDONLY)
    try:
        is_held = _lock(handle, model_dir)
        if is_held is not False:
            # Without a lock, another process may still be writing recent files.
            age = 0 if is_held else _SECONDS_OF_A_DAY
            for path in _leftovers(model_dir, age):
                print(
                    f"Removes {path}, which a killed process left behind.",
                    file=out or sys.stdout,
                )
                if os.path.isdir(path):
                    shutil.rmtree(path)
                else:
                    os.unlink(path)
        yield
    finally:
        # The lock is released when the process ends.
        os.close(handle)


def _lock(handle: int, model_dir: str) -> bool | None:
    """Tries to lock a directory.

    Returns True on success, False if another worker of the same training holds
    the lock, and None if the file system has no locks.
    """
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if "TF_CONFIG" in os.environ:
            # Another worker of the same training holds the lock.
            return False
        raise UserError(
            f"Another process trains in {model_dir}, and would overwrite the "
            "checkpoints. Wait until it ends, or choose another `model_dir`."
        ) from None
    except OSError:
        # Some network file systems have no locks.
        return None
    return True


def _leftovers(model_dir: str, age: float) -> list[str]:
    """Lists incomplete files older than `age` seconds."""
    found = []
    for folder, name in _CHECKPOINTS.items():
        directory = os.path.join(model_dir, folder) if folder else model_dir
        if not os.path.isdir(directory):
            continue
        names = os.listdir(directory)
        for entry in names:
            is_half = re.fullmatch(_LEFTOVER.format(name=name), entry)
            # A checkpoint's index is written last, so a checkpoint with one is
            # complete.
            data = re.fullmatch(rf"({name}-\d+)\.data-\d+-of-\d+", entry)
            if is_half or (data and f"{data[1]}.index" not in names):
                found.append(os.path.join(directory, entry))
    now = time.time()
    return [path for path in sorted(found) if now - _changed(path) >= age]


def _changed(path: str) -> float:
    """Returns the last modification time of a file, or of a folder's files."""
    paths = [path]
    for folder, _, names in os.walk(path):
        paths += [os.path.join(folder, name) for name in names]
    return max(map(os.path.getmtime, paths))
