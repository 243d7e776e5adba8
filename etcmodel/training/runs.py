"""Reads and writes the files of a run's directory, except checkpoints.

*   `etcmodel.json`: the task, its records and the software versions.
*   `params.yaml`: the whole configuration.
*   `tuned.json`: the option that validation tuned, at each step.
*   `validations.json`: the metrics of each validation.
*   `etc_config.json` or `read_twice_config.json`, and `encoder_options.json`:
    the encoder, for use in Python.

`evaluate` and `export` read the first three, so that both use the same model.
"""

import contextlib
import glob
import os
import random
import types
import uuid
from collections.abc import Iterator

from etcmodel import run_paths
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.pipeline import metadata_files
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.readers import files
from etcmodel.run_paths import BEST
from etcmodel.run_paths import PARAMS_FILE
from etcmodel.run_paths import RUN_FILE

TUNED_FILE = "tuned.json"
VALIDATIONS_FILE = "validations.json"


# Keys of the records' `preprocessing_config.json` that a run stores.
_OF_RECORDS = (
    "preprocessing_config",
    "vocab_file",
    "vocab_size",
    "vocab_fingerprint",
    "tokenizer",
)
# Keys that must be equal. Runs of older versions lack the tokenizer.
_COMPARED = ("preprocessing_config", "vocab_fingerprint", "tokenizer")


# File -> required keys, and advice if it is damaged.
_CONTENT = {
    RUN_FILE: (
        {"task": str, "experiment": str},
        "Copy it again, or train in another `model_dir`.",
    ),
    PARAMS_FILE: (
        # The second key is near the end of the file, so it reveals truncation.
        {"task.model": dict, "trainer.validation_steps": int},
        "Copy it again, or train in another `model_dir`.",
    ),
    TUNED_FILE: (
        {},
        "Remove it, and tune again with `evaluate` and `tune`.",
    ),
    VALIDATIONS_FILE: ({}, "Remove it; `patience` then starts counting again."),
}


def _read(model_dir: str, name: str) -> dict | None:
    """Reads and checks a file of a run; None if it does not exist."""
    path = os.path.join(model_dir, name)
    if not metadata_files.exists(path):
        return None
    keys, advice = _CONTENT[name]
    content = metadata_files.read(path, keys, advice)
    if name == RUN_FILE and "records" in content:
        needed = {"preprocessing_config": dict, "vocab_fingerprint": str}
        if "vocab_file" in (content["records"] or {}):
            needed["vocab_file"] = metadata_files.FileName
        if "reading" in (content["records"] or {}):
            needed["reading"] = dict
        needed = {f"records.{key}": kind for key, kind in needed.items()}
        metadata_files.check(path, content, needed, advice)
        metadata_files.check_tokenizer(path, content["records"], advice)
    return content


def read_params(model_dir: str) -> dict:
    """Reads `params.yaml`; raises a `UserError` if missing or damaged."""
    params = _read(model_dir, PARAMS_FILE)
    if params is None:
        raise UserError(
            f"{model_dir} is a run, but has no {PARAMS_FILE} with the "
            f"model's configuration. {_CONTENT[PARAMS_FILE][1]}"
        )
    return params


def write_params(model_dir: str, params: dict) -> None:
    """Writes `params.yaml`; creates the directory."""
    import tensorflow as tf

    tf.io.gfile.makedirs(model_dir)
    _write(os.path.join(model_dir, PARAMS_FILE), params)


@contextlib.contextmanager
def _partial(path: str) -> Iterator[str]:
    """Yields a temporary path, and renames it to `path` on success."""
    import tensorflow as tf

    # All hosts of a run write at the same time, so each uses a unique name.
    partial = f"{path}.{uuid.uuid4().hex}.partial"
    try:
        yield partial
        tf.io.gfile.rename(partial, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(partial)
        raise


def _write(path: str, content) -> None:
    """Writes a file that appears only when it is complete."""
    with _partial(path) as partial:
        metadata_files.write(partial, content)


def save(task, model, spec: TaskSpec, experiment: str, model_dir: str) -> None:
    """Writes the files that describe a run, and copies the vocabulary.

    In Python, `EtcConfig.from_run` and `models.encoder_options` read the
    encoder's files. Raises a `UserError` if the vocabulary beside the records
    is missing or has changed.
    """
    import tensorflow as tf

    from etcmodel.feature_utils.text import tokenizer_settings
    from etcmodel.models import run_files
    from etcmodel.training import provenance

    tf.io.gfile.makedirs(model_dir)
    note = {"task": spec.name, "experiment": experiment}
    note |= provenance.describe()
    metadata = task.metadata
    if metadata:
        note["records"] = {key: metadata[key] for key in _OF_RECORDS}
        # Records of older versions, and of some tasks, lack these keys.
        for key in {"has_queries", "reading"} & metadata.keys():
            note["records"][key] = metadata[key]
        name = metadata["vocab_file"]
        vocab_file = check_own_vocabulary(metadata)
        with _partial(os.path.join(model_dir, name)) as partial:
            tf.io.gfile.copy(vocab_file, partial)
        if metadata["tokenizer"]:
            # The vocabulary cannot be used without its tokenizer settings.
            settings = tokenizer_settings.TokenizerSettings(
                **metadata["tokenizer"]
            )
            name = tokenizer_settings.CONFIG_FILE
            with _partial(os.path.join(model_dir, name)) as partial:
                tokenizer_settings.write_settings(
                    model_dir, settings, os.path.basename(partial)
                )
    config, options = task.describe_encoder(model)
    _write(os.path.join(model_dir, config.RUN_FILE), config.to_dict())
    _write(os.path.join(model_dir, run_files.OPTIONS_FILE), options)
    _write(os.path.join(model_dir, RUN_FILE), note)


def check_vocabulary(vocab_file: str, records: dict, owner: str) -> None:
    """Raises a `UserError` if records were made with another vocabulary.

    Args:
        vocab_file: the vocabulary to check.
        records: the metadata of the records, with `vocab_fingerprint`.
        owner: the directory that the message names as the records' owner.
    """
    from etcmodel.pipeline import tfrecords

    noted = records["vocab_fingerprint"]
    if not metadata_files.exists(vocab_file):
        raise UserError(
            f"{vocab_file} is missing: {owner} needs the vocabulary of its "
            "records. Copy the file that `preprocess` read to this path."
        )
    found = tfrecords.fingerprint(vocab_file)
    if found != noted:
        raise UserError(
            f"{vocab_file} is not the vocabulary of {owner} "
            f"(vocab_fingerprint: {found}, expected {noted}). Give the file "
            "that `preprocess` read."
        )


def check_own_vocabulary(metadata: dict) -> str:
    """Checks the vocabulary beside records, and returns its path."""
    directory = metadata["directory"]
    vocab_file = os.path.join(directory, metadata["vocab_file"])
    check_vocabulary(vocab_file, metadata, directory)
    return vocab_file


def find_vocabulary(model_dir: str, given: str | None = None) -> str:
    """Returns the path of a run's vocabulary, or the `given` path.

    Raises a `UserError` if there is neither.
    """
    records = read(model_dir).get("records") or {}
    if not given and "vocab_file" in records:
        given = os.path.join(model_dir, records["vocab_file"])
    if not given:
        raise UserError(
            f"{model_dir} has no copy of the vocabulary. Pass its path as "
            "`vocab_file`."
        )
    return given


def find(model_dir: str) -> dict | None:
    """Reads `etcmodel.json`; returns None if the directory is not a run."""
    return _read(model_dir, RUN_FILE)


def find_of(checkpoint: str) -> dict:
    """Reads `etcmodel.json` of a checkpoint's run; {} if there is none."""
    return find(run_paths.directory(checkpoint)) or {}


def read(model_dir: str) -> dict:
    """Reads `etcmodel.json`; raises a `UserError` if missing or damaged."""
    note = find(model_dir)
    if note is None:
        raise UserError(
            f"{model_dir} is not the directory of a run: it has no {RUN_FILE}. "
            "Give the `model_dir` of `train`."
        )
    return note


def read_records(model_dir: str) -> dict | None:
    """Reads the metadata of a run's records, with the key `task` added.

    Returns None if the directory is not a run, or has no such metadata.
    """
    note = find(model_dir) or {}
    if "records" not in note:
        return None
    return {**note["records"], "task": note["task"]}


def check_same(params, metadata, spec: TaskSpec, model_dir: str) -> None:
    """Raises a `UserError` if a resumed run does not match `model_dir`.

    Compares task, model, vocabulary and sizes. A directory without checkpoints
    always matches.

    Args:
        params: the configuration of the new run.
        metadata: the records' `preprocessing_config.json`; None if unknown.
        spec: the task.
        model_dir: the directory of the run.
    """
    from etcmodel.checkpoints import files as checkpoint_files

    if checkpoint_files.latest_checkpoint(model_dir) is None:
        return
    note = find(model_dir)
    if note is None:
        raise UserError(
            f"{model_dir} has checkpoints, but no {RUN_FILE} with their model, "
            "task and vocabulary. "
            f"{_CONTENT[RUN_FILE][1]}"
        )
    pairs = {"task": (note["task"], spec.name)}
    before = read_params(model_dir)["task"]
    # Runs of older versions have neither.
    for name, default in (("lora_rank", 0), ("freeze_encoder", False)):
        now = getattr(params.task, name, default)
        pairs[f"task.{name}"] = (before.get(name, default), now)
    saved = _flat(before["model"])
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
            f"{'; '.join(different)}. Choose another `model_dir`, or resume "
            "the run with its old settings."
        )


def _flat(values, prefix: str = "") -> dict:
    """Flattens nested dicts: `{"a": {"b": 1}}` becomes `{"a.b": 1}`."""
    flat = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def choose_seed(params, model_dir: str) -> int:
    """Sets and returns the seed for record order, masking and dropout.

    Uses the seed of the configuration, or else of the resumed run, or else a
    random number.
    """
    data = params.task.train_data
    if data.seed is None and metadata_files.exists(
        os.path.join(model_dir, PARAMS_FILE)
    ):
        data.seed = read_params(model_dir)["task"]["train_data"].get("seed")
    if data.seed is None:
        # Hosts must use the same seed to divide the files among themselves.
        data.seed = 0 if "TF_CONFIG" in os.environ else random.getrandbits(31)
    return data.seed


def is_finished(params, model_dir: str) -> bool:
    """Tells whether a run has reached its last step.

    Raises a `UserError` if the run is beyond its last step.
    """
    from etcmodel.checkpoints import files as checkpoint_files

    checkpoint = checkpoint_files.latest_checkpoint(model_dir)
    if checkpoint is None:
        return False
    step, steps = step_of(checkpoint), params.trainer.train_steps
    if step > steps:
        raise UserError(
            f"{model_dir} is already at step {step} of {steps}. To train it "
            "longer, raise `epochs` (or trainer.train_steps); to start again, "
            "choose another `model_dir`."
        )
    return step == steps


def step_of(checkpoint: str) -> int:
    """Reads the step of a run's checkpoint.

    Raises a `UserError` if the checkpoint is damaged or stores no step.
    """
    import tensorflow as tf

    from etcmodel.training import run_directory

    with run_directory.restoring(checkpoint):
        reader = tf.train.load_checkpoint(checkpoint)
        name = "global_step/.ATTRIBUTES/VARIABLE_VALUE"
        if reader.has_tensor(name):
            return int(reader.get_tensor(name))
    raise UserError(
        f"{checkpoint} stores no step, so `train` did not write it. Choose "
        "another directory."
    )


def check_records(model_dir: str, metadata: dict | None, model) -> None:
    """Raises a `UserError` if records to evaluate do not match a run's records.

    Vocabulary, tokenizer and sizes must be equal, except for the lengths that
    `model` sets.

    Args:
        model_dir: the directory of the run.
        metadata: the records' `preprocessing_config.json`; None if unknown.
        model: `task.model` of the configuration.
    """
    own = (_read(model_dir, RUN_FILE) or {}).get("records")
    if not own or not metadata:
        return
    told = {x: getattr(model, x, 0) for x in ("long_length", "global_length")}
    told = {name: length for name, length in told.items() if length}
    for key in _COMPARED:
        if key not in own:
            continue
        before, now = own[key], metadata[key]
        if key == "preprocessing_config" and before:
            before, now = {**before, **told}, {**now, **told}
        if before != now:
            raise UserError(
                f"{metadata['directory']} was preprocessed differently from "
                f"the records of the run ({key}: {metadata[key]}, expected "
                f"{own[key]}). Preprocess with the flags and the vocabulary of "
                "the run. If only the length differs, set "
                "`params_override=task.model.long_length=N`, also in `export`."
            )


def find_checkpoint(model_dir: str, choice: str | None) -> str:
    """Returns the path of a run's checkpoint.

    Args:
        model_dir: the directory of the run.
        choice: `"best"`, `"last"`, or the path of a checkpoint or its
            directory. None means the best checkpoint if there is one, otherwise
            the last.

    Raises:
        UserError: there is no such checkpoint.
    """
    import tensorflow as tf

    from etcmodel.checkpoints import files as checkpoint_files

    best = checkpoint_files.latest_checkpoint(os.path.join(model_dir, BEST))
    last = checkpoint_files.latest_checkpoint(model_dir)
    if choice is None:
        found = best or last
    elif choice in ("best", "last"):
        found = {"best": best, "last": last}[choice]
    else:
        found = choice if tf.io.gfile.exists(choice + ".index") else None
        found = found or checkpoint_files.latest_checkpoint(choice)
    if not found:
        raise _no_checkpoint(model_dir, choice)
    return found


def check_rank(checkpoint: str, rank: int) -> None:
    """Raises a `UserError` unless a checkpoint has LoRA of the given rank.

    The trainer would otherwise ignore the update of the frozen weights.
    """
    from etcmodel.checkpoints import files as checkpoint_files
    from etcmodel.checkpoints import lora_factors

    shapes = checkpoint_files.Checkpoint(checkpoint).shapes
    found = lora_factors.rank_of(shapes)
    if found != rank:
        raise UserError(
            f"task.lora_rank is {rank}, but {checkpoint} was trained with "
            f"task.lora_rank={found}. Leave out the override, or set it to "
            f"{found}."
        )


def check_checkpoint(model_dir: str, choice: str | None) -> None:
    """Raises a `UserError` if a run has no checkpoint.

    Does not load TensorFlow, and checks neither runs in a bucket nor a `choice`
    that is a path. See `find_checkpoint`.
    """
    best = os.path.join(model_dir, BEST)
    folders = {None: [best, model_dir], "best": [best], "last": [model_dir]}
    if choice not in folders or files.is_remote(model_dir):
        return
    if not any(
        glob.glob(os.path.join(glob.escape(folder), "*.index"))
        for folder in folders[choice]
    ):
        raise _no_checkpoint(model_dir, choice)


def _no_checkpoint(model_dir, choice) -> UserError:
    return UserError(
        f"No checkpoint found (model_dir {model_dir}, checkpoint "
        f"{choice or 'best or last'}). Run `train` first."
    )


def save_validation(metrics, step: int, model_dir: str) -> dict[int, dict]:
    """Saves the metrics of a validation.

    Returns step -> metrics, for this validation and all earlier ones.
    """
    found = read_validations(model_dir) or {}
    found[step] = {
        name: float(value)
        for name, value in metrics.items()
        # Calls `len`, because `bool(tf.TensorShape([]))` is True.
        if not name.startswith("best_") and not len(getattr(value, "shape", ()))
    }
    # If the run was set back to an earlier checkpoint, later steps are
    # outdated.
    found = {x: found[x] for x in sorted(found) if x <= step}
    _write_steps(model_dir, VALIDATIONS_FILE, found)
    return found


def read_validations(model_dir: str) -> dict[int, dict] | None:
    """Reads the metrics of a run's validations: step -> name -> value.

    Returns None if the run has no validations. Raises a `UserError` if the file
    is damaged.
    """
    return _read_steps(model_dir, VALIDATIONS_FILE, "metrics")


def _read_steps(
    model_dir: str, name: str, what: str, key: str | None = None
) -> dict[int, dict] | None:
    """Reads JSON: step -> values; None if the file does not exist.

    Raises a `UserError` if a step's value under `key` is not a number.
    """
    content = _read(model_dir, name)
    if content is None:
        return None
    for step, values in content.items():
        is_valid = isinstance(values, dict) and (
            key is None or isinstance(values.get(key), int | float)
        )
        if not step.isdigit() or not is_valid:
            raise UserError(
                f"{os.path.join(model_dir, name)} has the entry {show(step)}: "
                f"{show(values)}. Expected a step and its {what}. "
                f"{_CONTENT[name][1]}"
            )
    return {int(step): values for step, values in content.items()}


def _write_steps(model_dir: str, name: str, found: dict[int, dict]) -> None:
    """Writes JSON: step -> values."""
    content = {str(step): values for step, values in found.items()}
    _write(os.path.join(model_dir, name), content)


def save_tuned(spec: TaskSpec, metrics, step: int, model_dir: str) -> None:
    """Saves the tuned value that the validation at a step chose."""
    if spec.tuned is None or spec.tuned.option not in metrics:
        return
    chosen = _read_tuned(spec, model_dir)
    chosen[step] = {spec.tuned.option: float(metrics[spec.tuned.option])}
    _write_steps(model_dir, TUNED_FILE, chosen)


def keep_tuned(spec: TaskSpec, init_checkpoint: str, model_dir: str) -> None:
    """Copies the tuned value, such as a threshold, from a checkpoint's run.

    The new run uses this value from step 0 until its own first validation.
    """
    if spec.tuned is None or not init_checkpoint:
        return
    before = run_paths.directory(init_checkpoint)
    is_same = find_of(init_checkpoint).get("task") == spec.name
    if not is_same or not _read_tuned(spec, before):
        return
    name = spec.tuned.option
    found = types.SimpleNamespace(**{name: None})
    use_tuned(spec, found, init_checkpoint, before)
    save_tuned(spec, {name: getattr(found, name)}, 0, model_dir)


def _read_tuned(spec: TaskSpec, model_dir: str) -> dict[int, dict]:
    """Reads the values that validations chose: step -> option -> value."""
    name = spec.tuned.option
    return _read_steps(model_dir, TUNED_FILE, name, key=name) or {}


def use_tuned(
    spec: TaskSpec, task_params, checkpoint: str, model_dir: str
) -> None:
    """Sets the tuned option in `task_params`, unless the user has set it.

    Uses the value of the last validation up to the checkpoint's step, or the
    default if there is none.
    """
    tuned = spec.tuned
    if tuned is None or getattr(task_params, tuned.option) is not None:
        return
    step = step_of(checkpoint)
    chosen = _read_tuned(spec, model_dir)
    before = [x for x in chosen if x <= step]
    value = tuned.default
    if before:
        value = chosen[max(before)][tuned.option]
    setattr(task_params, tuned.option, value)
