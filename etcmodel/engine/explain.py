"""Makes the attention map of a record, for a trained model."""

import dataclasses
import types
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.checkpoints import files as checkpoint_files
from etcmodel.engine.trained_model import TrainedModel
from etcmodel.errors import UserError
from etcmodel.errors import without_stack
from etcmodel.inspection import attention_map
from etcmodel.inspection import map_records
from etcmodel.inspection import pictures
from etcmodel.pipeline.preprocessor import EtcPreprocessor
from etcmodel.pipeline.preprocessor import RecordView
from etcmodel.pipeline.preprocessor import on_host
from etcmodel.serving.answers import Answers

# Maximum number of ReadTwice's tokens in a map.
MAX_TOKENS = 16384


def explain(
    trained: TrainedModel,
    answers: Answers,
    raw: Mapping[str, Any],
    record: Any = None,
    window: int = 0,
    tokens: Sequence[int] | None = None,
) -> attention_map.AttentionMap:
    """Makes the attention map of a record.

    Args:
        trained: the model.
        answers: `trained.answers()`, which predicts the answer.
        raw: the inputs of the record; see `Preprocessor.INPUTS`.
        record: the record, for its gold answer and its description; None if
            there are only inputs.
        window: number of the window to show, from 0, if the record does not fit
            into the model's input at once.
        tokens: numbers of the tokens whose attention to others is computed,
            counting the global tokens first; None for all. For any other token,
            the map only shows which of these tokens attend to it.

    Raises:
        UserError: the record, `window` or `tokens` cannot be used.
    """
    if tokens is not None and not len(tokens):
        raise UserError(
            "`tokens` is empty. Give at least one number, or None for all "
            "tokens."
        )
    predicted = answers.predict([raw])[0]
    gold = None if record is None else trained.spec.dataset.gold(record)
    shown = [("Predicted answer", attention_map.show_answer(predicted))]
    if gold is not None:
        shown.append(("Gold answer", attention_map.show_answer(gold)))
    made = _preprocess(trained.preprocessor, raw, record)
    make = _map_segments if trained.spec.reads_segments else _map_etc
    try:
        found = make(trained, made, raw, record, window, tokens)
    except map_records.RowsError as error:
        raise UserError(f"`tokens`: {error}") from error
    name = "" if record is None else f": {record.id}"
    return dataclasses.replace(
        found,
        title=f"{trained.spec.name}{name}",
        answers=shown,
        marks=attention_map.find_marks(found.tokens, predicted, gold),
    )


def _preprocess(preprocessor, raw, record):
    """Runs the preprocessor on one record; returns arrays."""
    inputs = type(preprocessor).pad_batch([raw])
    try:
        return on_host(
            preprocessor(
                **{
                    name: tf.constant(inputs[name], x.dtype)
                    for name, x in preprocessor.INPUTS.items()
                }
            )
        )
    except tf.errors.OpError as error:
        problem = " ".join(without_stack(error.message))
        if record is None:
            raise UserError(f"The record cannot be encoded: {problem}") from (
                error
            )
        raise record.error("cannot be encoded", problem=problem) from error


def _texts(preprocessor, raw) -> dict[str, Any]:
    """Returns name -> value of the inputs that are strings."""
    return {
        name: raw[name]
        for name, x in preprocessor.INPUTS.items()
        if x.dtype == tf.string
    }


def _check_window(window: int, number: int) -> None:
    if not 0 <= window < number:
        windows = "one window" if number == 1 else f"{number} windows"
        raise UserError(
            f"`window={window}`: expected 0 to {number - 1}; the record has "
            f"{windows}."
        )


def _summary(items, window, number, tokens_shown) -> list[tuple[str, str]]:
    """Formats a summary's names and values; adds the window and the tokens."""
    if number > 1:
        items = [*items, ("window", f"{window}, of 0 to {number - 1}")]
    return [
        (str(name), attention_map.show_answer(value))
        for name, value in [*items, ("tokens shown", tokens_shown)]
    ]


def _map_etc(trained, made, raw, record, window, tokens):
    """Makes the map of a record for ETC."""
    preprocessor = trained.preprocessor
    view = RecordView(made, 0)
    _check_window(window, view.number)
    if record is None:
        described = types.SimpleNamespace(**raw)
        items = [
            (
                name,
                f"{x.tokens} tokens, of which {x.tokens - x.kept_tokens} cut",
            )
            for name, x in view.counts.items()
        ]
    else:
        described = record
        items = pictures.summarize(preprocessor, record, view)

    def name_global(section, group, unit):
        try:
            return preprocessor.name_global(described, section, group, unit)
        except (AttributeError, KeyError):
            # Raw inputs lack a field of the record that the task's names use.
            return EtcPreprocessor.name_global(
                preprocessor, described, section, group, unit
            )

    found = map_records.map_layout(
        checkpoint_files.find_encoder(
            trained.task_model.encoder(trained.model)
        ),
        preprocessor.tokenizer,
        preprocessor.engine.spec,
        {x: y[window : window + 1] for x, y in view.features.items()},
        view.long_sources[window],
        view.global_sources[window],
        _texts(preprocessor, raw),
        name_global,
        tokens,
        title="",
        summary=(),
        answers=(),
    )
    cuts = found.cuts
    if view.number > 1:
        cuts = [x._replace(name=f"{x.name}, in other windows") for x in cuts]
    elif not any(x.tokens > x.kept_tokens for x in view.counts.values()):
        # Nothing was truncated, but `cuts` has texts that the task does not
        # read word by word.
        cuts = ()
    return dataclasses.replace(
        found,
        cuts=cuts,
        summary=_summary(items, window, view.number, found.num_tokens),
    )


def _map_segments(trained, made, raw, record, window, tokens):
    """Makes the map of a document for ReadTwice."""
    preprocessor = trained.preprocessor
    inputs = type(preprocessor).pad_batch([raw])
    batch = preprocessor.batch_of_raw(
        **{name: tf.constant(x) for name, x in inputs.items()}
    )
    arrays = {name: x.numpy() for name, x in batch.inputs.items()}
    # Documents with too many segments are read in several parts.
    parts = np.unique(arrays["block_ids"])
    if not len(parts):
        raise UserError(
            "The document has no tokens, so it has no attention. Choose "
            "another record."
        )
    _check_window(window, len(parts))
    is_shown = arrays["block_ids"] == parts[window]
    items = []
    if record is not None:
        view = preprocessor.view(made, 0)
        counts = preprocessor.examples(record, view, "predict").counts
        items = pictures.counted(counts)
    options = trained.task_model.model_options
    found = map_records.map_segments(
        checkpoint_files.find_encoder(
            trained.task_model.encoder(trained.model)
        ),
        preprocessor.tokenizer,
        {name: x[is_shown] for name, x in arrays.items()},
        _texts(preprocessor, raw),
        tokens,
        MAX_TOKENS,
        {"cross_block_attention_mode": options.cross_block_attention_mode},
        title="",
        summary=(),
        answers=(),
    )
    cuts = found.cuts
    if len(parts) > 1:
        cuts = [x._replace(name=f"{x.name}, read separately") for x in cuts]
    return dataclasses.replace(
        found,
        cuts=cuts,
        summary=_summary(items, window, len(parts), found.num_tokens),
    )
