"""Collects the facts for the model card of an export."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel import run_paths
from etcmodel.engine import evaluate
from etcmodel.engine.trained_model import TrainedModel
from etcmodel.errors import UserError
from etcmodel.pipeline import tfrecords
from etcmodel.serving import model_card
from etcmodel.serving import saved_model
from etcmodel.serving import signatures
from etcmodel.serving import small_weights
from etcmodel.training import provenance
from etcmodel.training import runs

_PACKAGES = ("etcmodel", "tensorflow", "tensorflow-text", "python")
# The configuration of a checkpoint whose run is not known.
_NO_PARAMS = {"trainer": {}, "task": {}}


def write(
    directory: str,
    options: Any,
    model: TrainedModel,
    module: saved_model.ServingModule,
    requests: Mapping[str, Mapping[str, np.ndarray]],
    measured: evaluate.Rounded | None,
) -> None:
    """Measures the model's size and time, and writes its card.

    Args:
        directory: the exported files, without the card.
        options: the options of `export`.
        model: the trained model.
        module: the module that was exported.
        requests: signature name -> a small request.
        measured: metrics on validation data; None without such data.
    """
    spec, model_dir = model.spec, options.model_dir
    note, params, validations = {}, _NO_PARAMS, None
    if _is_same(run_paths.directory(model.checkpoint), model_dir):
        note, params = runs.read(model_dir), _read_params(model_dir)
        validations = runs.read_validations(model_dir)
    # Not all training records had a query.
    if (note.get("records") or {}).get("has_queries") is False:
        requests = _without_query(requests)
    step, main_metric = _step_of(model.checkpoint), None
    if _is_best(model.checkpoint, model_dir):
        main_metric = params["trainer"].get("best_checkpoint_eval_metric")
    tokenizer = model.preprocessor.tokenizer
    variables = saved_model.model_variables(model.model)
    facts = model_card.Facts(
        task=spec.name,
        summary=spec.summary,
        pipeline_tag=spec.pipeline_tag,
        license=options.license,
        languages=options.language or [],
        num_examples=_num_examples(params, note),
        steps=step,
        batch_size=_train_data(params).get("global_batch_size"),
        unit="segments" if spec.reads_segments else "examples",
        main_metric=main_metric,
        run_metrics=_metrics_only((validations or {}).get(step, {}), spec),
        versions=_versions(options.weights, model, module, requests, measured),
        num_validated=measured and measured.num_examples,
        num_parameters=sum(x.shape.num_elements() for x in variables),
        num_layers=model.config.num_hidden_layers,
        num_bytes=_size_of(directory),
        length=_describe_length(model),
        vocab_size=tokenizer.vocab_size,
        scripts=model_card.scripts_of(_tokens(tokenizer)),
        lower_case=tokenizer.lower_case,
        software={
            name: version
            for name, version in provenance.describe()["versions"].items()
            if name in _PACKAGES
        },
        requests=requests,
    )
    model_card.write(directory, facts)


def _without_query(
    requests: Mapping[str, Mapping[str, np.ndarray]],
) -> dict[str, dict[str, np.ndarray]]:
    """Returns the requests with empty queries."""

    def empty(query):
        # A list of texts, or one text.
        return query[:, :0] if query.ndim > 1 else np.full_like(query, b"")

    return {
        name: {x: empty(y) if x == "query" else y for x, y in inputs.items()}
        for name, inputs in requests.items()
    }


def _read_params(model_dir: str) -> dict[str, Any]:
    """Returns the run's configuration; an empty one if it has none."""
    try:
        return _NO_PARAMS | runs.read_params(model_dir)
    except UserError:
        # Without it, `experiment` and other options configure the model.
        return _NO_PARAMS


def _is_best(checkpoint: str, model_dir: str) -> bool:
    """Returns whether the run's main metric selected a checkpoint."""
    best = os.path.join(model_dir, run_paths.BEST)
    return _is_same(os.path.dirname(checkpoint), best)


def _is_same(directory: str, other: str) -> bool:
    return os.path.realpath(directory) == os.path.realpath(other)


def _train_data(params) -> dict[str, Any]:
    return params["task"].get("train_data") or {}


def _metrics_only(values, spec) -> dict[str, float]:
    """Removes the step and the tuned option from metrics."""
    others = {"step", spec.tuned and spec.tuned.option}
    return {x: y for x, y in values.items() if x not in others}


def _num_examples(params, note) -> int | None:
    """Returns the number of training examples; None if they are gone."""
    own, path = note.get("records"), _train_data(params).get("input_path")
    if not own or not path:
        return None
    try:
        metadata = tfrecords.read_metadata(tfrecords.find_files(path))
    except (UserError, OSError, tf.errors.OpError):
        return None
    keys = ("vocab_fingerprint", "preprocessing_config")
    if metadata is None or any(metadata[x] != own[x] for x in keys):
        return None
    return metadata["num_examples"]


def _step_of(checkpoint: str) -> int | None:
    """Returns the step of a checkpoint; None if it stores none."""
    try:
        return runs.step_of(checkpoint)
    except UserError:
        return None


def _versions(weights, model, module, requests, measured):
    """Measures the exported weights and, if they are rounded, float32."""
    name = signatures.SERVING_DEFAULT
    modules = {weights: module}
    if weights != "float32":
        whole = signatures.make_module(
            model.model, model.preprocessor, model.task_model
        )
        modules = {"float32": whole, **modules}
    return [
        model_card.Version(
            kind,
            small_weights.num_bytes(made.serving_variables),
            saved_model.median_seconds(made, name, requests[name]),
            measured and _metrics_only(measured.metrics[kind], model.spec),
        )
        for kind, made in modules.items()
    ]


def _size_of(directory: str) -> int:
    """Returns the size of all files in a directory, in bytes."""
    return sum(
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(directory)
        for name in names
    )


def _describe_length(model: TrainedModel) -> str:
    """Describes the longest text the model reads, and longer ones."""
    lengths = model.task_model.lengths()
    if model.spec.reads_segments:
        return (
            "a document may have any length; it is read in segments of "
            f"{lengths['block_length']:,} tokens, with the question in each. "
            "Time and memory grow with their number. `tokens_cut` counts the "
            "tokens of a question that do not fit."
        )
    size = (
        f"{lengths['long_length']:,} tokens of text and "
        f"{lengths['global_length']:,} global tokens (which stand for "
        "sentences, paragraphs and the question)"
    )
    if model.preprocessor.rows_at_once is not None:
        return (
            f"a text may have any length; it is read in windows of {size}. "
            "`tokens_cut` counts tokens that do not fit."
        )
    return (
        f"at most {size}. What does not fit is left out, and `tokens_cut` "
        "counts its tokens."
    )


def _tokens(tokenizer) -> list[str]:
    """Returns all tokens of a vocabulary."""
    tokens = tokenizer.id_to_token(tf.range(tokenizer.vocab_size)).numpy()
    return [x.decode("utf-8", "replace") for x in tokens]
