"""What the directory of a run holds beside its checkpoints.

`etcmodel.json` tells what was trained on what, `params.yaml` the whole
configuration, `tuned.json` what validation chose at which step. `evaluate` and
`export` go by these, so that both speak of the same model.
"""

import dataclasses
import json
import os
import uuid

from absl import flags

from etcmodel.datasets import files
from etcmodel.errors import UserError
from etcmodel.tasks.commands.options import option
from etcmodel.tasks.frame.spec import TaskSpec

RUN_FILE = "etcmodel.json"
PARAMS_FILE = "params.yaml"
TUNED_FILE = "tuned.json"


@dataclasses.dataclass(kw_only=True)
class RunFlags:
    """Which run, and how it is configured.

    Attributes:
        model_dir: directory of the run: checkpoints, TensorBoard logs,
            configuration.
        experiment: the experiment, such as etc/hotpotqa or etc/nq;
            `python -m etcmodel experiments` lists them.
        config_file: YAML or JSON file with values that replace those of the
            experiment; may be given several times.
        params_override: values that replace those of the experiment and of
            --config_file: `a.b=1,c.d=x`, or YAML or JSON, or a file of it.
        verbose: show the trainer's whole log.
    """

    model_dir: str
    experiment: str | None = None
    config_file: list[str] | None = option(None, several=True)
    params_override: str | None = None
    verbose: bool = False


@dataclasses.dataclass(kw_only=True)
class CheckpointFlags(RunFlags):
    """Which checkpoint of a run.

    Attributes:
        checkpoint: the checkpoint: "best", "last", or a path. By default the
            best if there is one, else the last.
    """

    checkpoint: str | None = None


# What `preprocess` notes about records that a run keeps.
_OF_RECORDS = (
    "features",
    "vocab_file",
    "vocab_size",
    "vocab_fingerprint",
    "tokenizer",
)
# Runs of older versions noted no tokenizer.
_COMPARED = ("features", "vocab_fingerprint", "tokenizer")


def _read(path: str):
    """The content of a JSON file; None if it does not exist."""
    if not files.is_remote(path):
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    import tensorflow as tf

    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as stream:
        return json.load(stream)


def _write(path: str, content) -> None:
    """Writes a JSON file; it appears when it is whole."""
    import tensorflow as tf

    # All hosts of a run write the same, at the same time.
    partial = f"{path}.{uuid.uuid4().hex}.partial"
    with tf.io.gfile.GFile(partial, "w") as stream:
        json.dump(content, stream, indent=2, sort_keys=True)
        stream.write("\n")
    tf.io.gfile.rename(partial, path, overwrite=True)


def save(task, spec: TaskSpec, experiment: str, model_dir: str) -> None:
    """Notes what `evaluate` and `export` need.

    Args:
        task: the Model Garden task, which knows the records.
        spec: the task.
        experiment: name of the experiment.
        model_dir: directory of the run.
    """
    import tensorflow as tf

    from etcmodel.feature_utils import tokenizer_settings

    tf.io.gfile.makedirs(model_dir)
    note = {"task": spec.name, "experiment": experiment}
    metadata = task.metadata
    if metadata:
        note["records"] = {key: metadata[key] for key in _OF_RECORDS}
        name = metadata["vocab_file"]
        tf.io.gfile.copy(
            os.path.join(metadata["directory"], name),
            os.path.join(model_dir, name),
            overwrite=True,
        )
        if metadata["tokenizer"]:
            # Whoever uses that vocabulary needs them, too.
            tokenizer_settings.write_settings(
                model_dir,
                tokenizer_settings.TokenizerSettings(**metadata["tokenizer"]),
            )
    _write(os.path.join(model_dir, RUN_FILE), note)


def read(model_dir: str) -> dict:
    """What `save` noted.

    Args:
        model_dir: directory of the run.

    Returns:
        The note.

    Raises:
        UserError: there is no such run.
    """
    note = _read(os.path.join(model_dir, RUN_FILE))
    if note is None:
        raise UserError(
            f"{model_dir} is not the directory of a run: it has no {RUN_FILE}. "
            "Give the --model_dir of `train`."
        )
    return note


def check_same(params, metadata, spec: TaskSpec, model_dir: str) -> None:
    """Checks that a run that is gone on with is that of the directory.

    Args:
        params: the `ExperimentConfig`.
        metadata: what `preprocess` noted about the records, or None.
        spec: the task.
        model_dir: directory of the run, which may not exist yet.

    Raises:
        UserError: the directory holds a run of another task, model or
            vocabulary.
    """
    import tensorflow as tf
    import yaml

    note = _read(os.path.join(model_dir, RUN_FILE))
    if note is None or tf.train.latest_checkpoint(model_dir) is None:
        return
    pairs = {"task": (note["task"], spec.name)}
    path = os.path.join(model_dir, PARAMS_FILE)
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path) as stream:
            saved = _flat(yaml.safe_load(stream)["task"]["model"])
        model = _flat(params.task.model.as_dict())
        pairs |= {
            f"task.model.{name}": (saved.get(name), model.get(name))
            for name in sorted({*saved, *model})
        }
    if metadata and "records" in note:
        pairs |= {
            f"the records' {key}": (note["records"].get(key), metadata[key])
            for key in _COMPARED
            if key in note["records"]
        }
    different = [
        f"{name} is {now}, but was {before}"
        for name, (before, now) in pairs.items()
        if before != now
    ]
    if different:
        raise UserError(
            f"{model_dir} holds a run of another model: "
            f"{'; '.join(different)}. Choose another --model_dir, or go on "
            "with the run as it was begun."
        )


def _flat(values, prefix: str = "") -> dict:
    """Nested dicts as one: `{"a": {"b": 1}}` is `{"a.b": 1}`."""
    flat = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def check_records(model_dir: str, metadata: dict | None, model) -> None:
    """Checks that records to evaluate are like those of a run.

    Args:
        model_dir: directory of the run.
        metadata: what `preprocess` noted about the records, or None.
        model: the configuration's `task.model`. A length of an input that it
            tells is the model's, whatever that of the run's records was.

    Raises:
        UserError: they were preprocessed with another vocabulary or sizes.
    """
    own = (_read(os.path.join(model_dir, RUN_FILE)) or {}).get("records")
    if not own or not metadata:
        return
    told = {x: getattr(model, x, 0) for x in ("long_length", "global_length")}
    told = {name: length for name, length in told.items() if length}
    for key in _COMPARED:
        if key not in own:
            continue
        before, now = own[key], metadata[key]
        if key == "features" and before:
            before, now = {**before, **told}, {**now, **told}
        if before != now:
            raise UserError(
                f"{metadata['directory']} was preprocessed otherwise than the "
                f"records of the run ({key}: {metadata[key]} against "
                f"{own[key]}). Preprocess with the flags and the "
                "vocabulary of the run; or, if it is the length that is "
                "another, say it with --params_override=task.model.long_length"
                "=N, and in `export` likewise."
            )


def use_saved_params(flag_values: flags.FlagValues, model_dir: str) -> str:
    """Lets a run's own configuration come before that of the flags.

    Args:
        flag_values: the parsed flags; `config_file` is changed. An experiment
            other than the run's is taken as it is, without what the run says.
        model_dir: directory of the run.

    Returns:
        Name of the run's experiment, or that of the flag.

    Raises:
        UserError: the run's experiment is not known.
    """
    params_file = os.path.join(model_dir, PARAMS_FILE)
    wanted = flag_values.experiment
    if wanted and not os.path.exists(os.path.join(model_dir, RUN_FILE)):
        return wanted
    note = read(model_dir)
    if wanted and wanted != note["experiment"]:
        return wanted
    if os.path.exists(params_file):
        flag_values.config_file = [
            params_file,
            *(flag_values.config_file or []),
        ]
    return note["experiment"]


def find_checkpoint(model_dir: str, choice: str | None) -> str:
    """Finds a checkpoint of a run.

    Args:
        model_dir: directory of the run.
        choice: `"best"`, `"last"`, a path, or None: the best, else the last.

    Returns:
        Path of the checkpoint.

    Raises:
        UserError: there is none.
    """
    import tensorflow as tf

    best = tf.train.latest_checkpoint(os.path.join(model_dir, "best_ckpt"))
    last = tf.train.latest_checkpoint(model_dir)
    if choice is None:
        found = best or last
    elif choice in ("best", "last"):
        found = {"best": best, "last": last}[choice]
    else:
        found = choice if tf.io.gfile.exists(choice + ".index") else None
        found = found or tf.train.latest_checkpoint(choice)
    if not found:
        raise UserError(
            f"No checkpoint was found (model_dir {model_dir}, checkpoint "
            f"{choice or 'best or last'}). Run `train` first."
        )
    return found


def save_tuned(spec: TaskSpec, metrics, step: int, model_dir: str) -> None:
    """Keeps what a validation chose.

    Args:
        spec: the task.
        metrics: what the validation measured.
        step: of the run.
        model_dir: directory of the run.
    """
    if spec.tuned is None or spec.tuned.option not in metrics:
        return
    path = os.path.join(model_dir, TUNED_FILE)
    chosen = _read(path) or {}
    chosen[str(step)] = {spec.tuned.option: float(metrics[spec.tuned.option])}
    _write(path, chosen)


def use_tuned(
    spec: TaskSpec, task_params, checkpoint: str, model_dir: str
) -> None:
    """Sets the tuned option as the validation of a checkpoint chose it.

    That is the last validation up to the checkpoint's step; without one, the
    option's default holds. A value that is given stays.

    Args:
        spec: the task.
        task_params: the task's configuration, which is changed.
        checkpoint: path of the checkpoint.
        model_dir: directory of the run.
    """
    tuned = spec.tuned
    if tuned is None or getattr(task_params, tuned.option) is not None:
        return
    import tensorflow as tf

    reader = tf.train.load_checkpoint(checkpoint)
    step = int(reader.get_tensor("global_step/.ATTRIBUTES/VARIABLE_VALUE"))
    chosen = _read(os.path.join(model_dir, TUNED_FILE)) or {}
    before = [int(x) for x in chosen if int(x) <= step]
    value = tuned.default
    if before:
        value = chosen[str(max(before))][tuned.option]
    setattr(task_params, tuned.option, value)
