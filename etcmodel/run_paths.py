"""Names of a training run's files, and the run that a checkpoint belongs to."""

import os

# File with the task, the records and the software versions of the run.
RUN_FILE = "etcmodel.json"
# File with the whole configuration of the run.
PARAMS_FILE = "params.yaml"
# Directory of the best checkpoint, and the prefix of its name.
BEST = "best_ckpt"


def directory(path: str | os.PathLike) -> str:
    """Returns the directory of the run ("runs/1") that a checkpoint belongs to.

    The path is a checkpoint ("runs/1/best_ckpt/best_ckpt-500"), its directory,
    or the run; it does not have to exist. "" is the current directory.
    """
    import tensorflow as tf

    folder = os.fspath(path)
    if not tf.io.gfile.isdir(folder):
        folder = os.path.dirname(folder)
    folder = folder.rstrip("/") or folder
    # A run itself may be called `best_ckpt`.
    if os.path.basename(folder) == BEST and not tf.io.gfile.exists(
        os.path.join(folder, PARAMS_FILE)
    ):
        folder = os.path.dirname(folder)
    return folder
