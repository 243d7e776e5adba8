"""Files in the directory of a run, other than checkpoints.

`etcmodel.json` describes the task, its records and the software, `params.yaml`
the whole configuration, `tuned.json` the options that validation chose at each
step, `validations.json` the metrics of each validation. `evaluate` and `export`
read these, so that both use the same model. Python reads `etc_config.json` or
`read_twice_config.json`, and `encoder_options.json`.
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


# Keys of the records' note that a run keeps.
_OF_RECORDS = (
    "preprocessing_config",
    "vocab_file",
    "vocab_size",
    "vocab_fingerprint",
    "tokenizer",
)
# Runs of older versions did not store the tokenizer.
_COMPARED = ("preprocessing_config", "vocab_fingerprint", "tokenizer")


# File -> required keys, and advice if it is damaged.
_CONTENT = {
    RUN_FILE: (
        {"task": str, "experiment": str},
        "Copy it again, or train in another `model_dir`.",
    ),
    PARAMS_FILE: (
        # The second is near the end of the file: it shows truncation.
        {"task.model": dict, "trainer.validation_steps": int},
        "Copy it again, or train in another `model_dir`.",
    ),
    TUNED_FILE: (
        {},
        "Remove it, and choose thresholds again with `evaluate` and `tune`.",
    ),
    VALIDATIONS_FILE: ({}, "Remove it; then `patience` counts anew."),
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
            f"configuration of its model. {_CONTENT[PARAMS_FILE][1]}"
        )
    return params


def write_params(model_dir: str, params: dict) -> None:
    """Writes `params.yaml`; creates the directory."""
    import tensorflow as tf

    tf.io.gfile.makedirs(model_dir)
    _write(os.path.join(model_dir, PARAMS_FILE), params)


@contextlib.contextmanager
def _partial(path: str) -> Iterator[str]:
    """Yields a temporary path, which is renamed when the block succeeds."""
    import tensorflow as tf

    # All hosts of a run write the same file at the same time.
    partial = f"{path}.{uuid.uuid4().hex}.partial"
    try:
        yield partial
        tf.io.gfile.rename(partial, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(partial)
        raise


def _write(path: str, content) -> None:
    """Writes a file that appears when it is complete."""
    with _partial(path) as partial:
        metadata_files.write(partial, content)


def save(task, model, spec: TaskSpec, experiment: str, model_dir: str) -> None:
    """Writes the files for `evaluate`, `export` and Python.

    Python reads the encoder (see `EtcConfig.from_run` and
    `models.encoder_options`). Raises a `UserError` if the vocabulary beside the
    records is missing, or another one.
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
        # Records of older versions, and of some tasks, lack them.
        for key in {"has_queries", "reading"} & metadata.keys():
            note["records"][key] = metadata[key]
        name = metadata["vocab_file"]
        vocab_file = check_own_vocabulary(metadata)
        with _partial(os.path.join(model_dir, name)) as partial:
            tf.io.gfile.copy(vocab_file, partial)
        if metadata["tokenizer"]:
            # Users of the vocabulary need its settings, too.
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

    `records` is the note of `preprocess`; the message names their `owner`.
    """
    from etcmodel.pipeline import tfrecords

    noted = records["vocab_fingerprint"]
    if not metadata_files.exists(vocab_file):
        raise UserError(
            f"{vocab_file} is missing: {owner} needs the vocabulary that its "
            "records were made with. Copy it there, as `preprocess` read it."
        )
    found = tfrecords.fingerprint(vocab_file)
    if found != noted:
        raise UserError(
            f"{vocab_file} is not the vocabulary of {owner} "
            f"(vocab_fingerprint: {found} against {noted}), so tokens would "
            "differ. Give the file that `preprocess` read."
        )


def check_own_vocabulary(metadata: dict) -> str:
    """Checks the vocabulary beside records, and returns its path."""
    directory = metadata["directory"]
    vocab_file = os.path.join(directory, metadata["vocab_file"])
    check_vocabulary(vocab_file, metadata, directory)
    return vocab_file


def find_vocabulary(model_dir: str, given: str | None = None) -> str:
    """Returns the vocabulary of a run; a `UserError` if it has none."""
    records = read(model_dir).get("records") or {}
    if not given and "vocab_file" in records:
        given = os.path.join(model_dir, records["vocab_file"])
    if not given:
        raise UserError(
            f"{model_dir} has no copy of the vocabulary. Name it with "
            "`vocab_file`."
        )
    return given


def find(model_dir: str) -> dict | None:
    """Reads `etcmodel.json`; None if there is no run."""
    return _read(model_dir, RUN_FILE)


def find_of(checkpoint: str) -> dict:
    """Reads `etcmodel.json` of a checkpoint's run; {} if there is no run."""
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
    """Reads the note of a run about its records, with its `task`.

    None if there is no run, or no such note.
    """
    note = find(model_dir) or {}
    if "records" not in note:
        return None
    return {**note["records"], "task": note["task"]}


def check_same(params, metadata, spec: TaskSpec, model_dir: str) -> None:
    """Raises a `UserError` if a resumed run does not match `model_dir`.

    Task, model and vocabulary are compared; `metadata` is the note of
    `preprocess` about the records, or None. A directory without checkpoints
    passes.
    """
    from etcmodel.checkpoints import files as checkpoint_files

    if checkpoint_files.latest_checkpoint(model_dir) is None:
        return
    note = find(model_dir)
    if note is None:
        raise UserError(
            f"{model_dir} has checkpoints, but no {RUN_FILE} that tells their "
            "model, task and vocabulary. "
            f"{_CONTENT[RUN_FILE][1]}"
        )
    pairs = {"task": (note["task"], spec.name)}
    saved = _flat(read_params(model_dir)["task"]["model"])
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
            f"{'; '.join(different)}. Choose another `model_dir`, or go on "
            "with the run as it was begun."
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
    """Returns the seed of records' order, masks and dropout, and sets it.

    Unless the configuration has one, it is the seed of the resumed run, or a
    random number.
    """
    data = params.task.train_data
    if data.seed is None and metadata_files.exists(
        os.path.join(model_dir, PARAMS_FILE)
    ):
        data.seed = read_params(model_dir)["task"]["train_data"].get("seed")
    if data.seed is None:
        # Hosts must agree on which files belong to whom.
        data.seed = 0 if "TF_CONFIG" in os.environ else random.getrandbits(31)
    return data.seed


def is_finished(params, model_dir: str) -> bool:
    """Returns whether a run has all steps; raises a `UserError` for more."""
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
    """Reads the step of a run's checkpoint; raises a `UserError` if none."""
    import tensorflow as tf

    from etcmodel.training import run_directory

    with run_directory.restoring(checkpoint):
        reader = tf.train.load_checkpoint(checkpoint)
        name = "global_step/.ATTRIBUTES/VARIABLE_VALUE"
        if reader.has_tensor(name):
            return int(reader.get_tensor(name))
    raise UserError(
        f"{checkpoint} was not written by `train`, as it stores no step. "
        "Choose another directory."
    )


def check_records(model_dir: str, metadata: dict | None, model) -> None:
    """Raises a `UserError` if records to evaluate differ from those of a run.

    Vocabulary and sizes must match, except for lengths that `model`, the
    configuration's `task.model`, sets.
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
                f"{metadata['directory']} was preprocessed differently than "
                f"the records of the run ({key}: {metadata[key]} against "
                f"{own[key]}). Preprocess with the flags and the "
                "vocabulary of the run; or, if only the length differs, give "
                "`params_override=task.model.long_length=N`, and in `export`, "
                "too."
            )


def find_checkpoint(model_dir: str, choice: str | None) -> str:
    """Returns the path of a checkpoint of a run.

    `choice` is `"best"`, `"last"`, a path, or None: the best, else the last.
    Raises a `UserError` if there is none.
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


def check_checkpoint(model_dir: str, choice: str | None) -> None:
    """Raises a `UserError` if a run has no checkpoint; without TensorFlow.

    Neither paths nor runs in a bucket are checked. See `find_checkpoint`.
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
        f"No checkpoint was found (model_dir {model_dir}, checkpoint "
        f"{choice or 'best or last'}). Run `train` first."
    )


def save_validation(metrics, step: int, model_dir: str) -> dict[int, dict]:
    """Saves the metrics of a validation; returns those of all, by step."""
    found = read_validations(model_dir) or {}
    found[step] = {
        name: float(value)
        for name, value in metrics.items()
        # `bool(tf.TensorShape([]))` is True.
        if not name.startswith("best_") and not len(getattr(value, "shape", ()))
    }
    # Later steps belong to an earlier run that continued from here.
    found = {x: found[x] for x in sorted(found) if x <= step}
    _write_steps(model_dir, VALIDATIONS_FILE, found)
    return found


def read_validations(model_dir: str) -> dict[int, dict] | None:
    """Reads the metrics of a run's validations: step -> name -> value.

    None if there are none. Raises a `UserError` if the file is damaged.
    """
    return _read_steps(model_dir, VALIDATIONS_FILE, "metrics")


def _read_steps(
    model_dir: str, name: str, what: str, key: str | None = None
) -> dict[int, dict] | None:
    """Reads step -> values; None without the file. `key` must be a number."""
    content = _read(model_dir, name)
    if content is None:
        return None
    for step, values in content.items():
        is_valid = isinstance(values, dict) and (
            key is None or isinstance(values.get(key), int | float)
        )
        if not step.isdigit() or not is_valid:
            raise UserError(
                f"{os.path.join(model_dir, name)}: {show(step)} is "
                f"{show(values)}, expected a step and its {what}. "
                f"{_CONTENT[name][1]}"
            )
    return {int(step): values for step, values in content.items()}


def _write_steps(model_dir: str, name: str, found: dict[int, dict]) -> None:
    """Writes a file with values of steps."""
    content = {str(step): values for step, values in found.items()}
    _write(os.path.join(model_dir, name), content)


def save_tuned(spec: TaskSpec, metrics, step: int, model_dir: str) -> None:
    """Saves the option chosen by the validation of a step."""
    if spec.tuned is None or spec.tuned.option not in metrics:
        return
    chosen = _read_tuned(spec, model_dir)
    chosen[step] = {spec.tuned.option: float(metrics[spec.tuned.option])}
    _write_steps(model_dir, TUNED_FILE, chosen)


def keep_tuned(spec: TaskSpec, init_checkpoint: str, model_dir: str) -> None:
    """Copies the threshold that validation chose in the run of a checkpoint.

    The new run uses it from step 0 until its own first validation.
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
    """Reads the options that validations chose: step -> name and value."""
    name = spec.tuned.option
    return _read_steps(model_dir, TUNED_FILE, name, key=name) or {}


def use_tuned(
    spec: TaskSpec, task_params, checkpoint: str, model_dir: str
) -> None:
    """Sets the tuned option in `task_params`, unless it is set.

    The last validation up to the checkpoint's step chose it; without one, the
    default applies.
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
