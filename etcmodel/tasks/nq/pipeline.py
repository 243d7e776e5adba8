"""What the commands need of Natural Questions."""

import hashlib
from collections.abc import Sequence

import numpy as np

from etcmodel.datasets import nq as dataset
from etcmodel.datasets.nq.records import NQRecord
from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils.side_inputs import make_multihop_side_inputs
from etcmodel.tasks import pipeline_lib
from etcmodel.tasks import registry
from etcmodel.tasks.inspection import Inspection
from etcmodel.tasks.nq import decoding as decoding_lib
from etcmodel.tasks.nq import examples
from etcmodel.tasks.nq import export
from etcmodel.tasks.nq import model as model_lib
from etcmodel.tasks.nq.features import NQFeatureBuilder
from etcmodel.tasks.nq.features import NQFeatureConfig
from etcmodel.tasks.nq.labels import answer_type
from etcmodel.tasks.nq.labels import make_window_labels
from etcmodel.tasks.pipeline_lib import string_matrix
from etcmodel.tasks.pipeline_lib import string_vector


def _fill(rows: Sequence[Sequence[int]], pad: int, dtype) -> np.ndarray:
    """Lists of numbers, filled up to one length, `[rows, longest]`."""
    filled = np.full((len(rows), max(map(len, rows))), pad, dtype)
    for row, values in zip(filled, rows, strict=True):
        row[: len(values)] = values
    return filled


def raw_inputs(records: Sequence[NQRecord]) -> dict[str, np.ndarray]:
    """A batch of records as inputs of `serving_default`.

    Args:
        records: the records.

    Returns:
        What `export.INPUTS` names.
    """
    return {
        "question": string_vector([record.question for record in records]),
        "tokens": string_matrix([record.tokens for record in records]),
        "is_html": _fill([record.is_html for record in records], False, bool),
        "candidate_starts": _fill(
            [[c.start for c in record.candidates] for record in records],
            -1,
            np.int32,
        ),
        "candidate_ends": _fill(
            [[c.end for c in record.candidates] for record in records],
            -1,
            np.int32,
        ),
    }


def make_builder(config: NQFeatureConfig, vocab_file: str) -> NQFeatureBuilder:
    """NQ's feature builder; see `pipeline_lib.make_builder`."""
    return pipeline_lib.make_builder(NQFeatureBuilder, config, vocab_file)


def _is_kept(record: NQRecord, window: int, rate: float) -> bool:
    """Chooses a share of windows by chance, but the same ones every time."""
    digest = hashlib.blake2b(f"{record.id} {window}".encode(), digest_size=4)
    return int.from_bytes(digest.digest(), "big") < rate * 2**32


class NQEncoder(pipeline_lib.BuilderEncoder):
    """Turns records into serialized windows, labels and counts."""

    def __init__(self, config: NQFeatureConfig, vocab_file: str):
        """Creates the encoder.

        Args:
            config: sizes of the features.
            vocab_file: a WordPiece vocabulary or a SentencePiece model.

        Raises:
            UserError: the vocabulary cannot be used.
        """
        super().__init__(
            make_builder(config, vocab_file), export.INPUTS.values()
        )

    def build(self, records: Sequence[NQRecord]):
        """Builds the features of a batch of records.

        Args:
            records: the records.

        Returns:
            The `Layout` and the `NQWindows` that the feature builder makes.

        Raises:
            RecordError: a record cannot be encoded.
        """
        return self.run_builder(records, raw_inputs(records).values())

    def encode(self, records, split):
        """See `registry.RecordEncoder`."""
        layout, windows = self.build(records)
        features = {
            name: value.numpy() for name, value in layout.features.items()
        }
        owner, words, starts, sizes, question_tokens = (
            value.numpy()
            for value in (
                windows.record,
                windows.words,
                windows.starts,
                windows.sizes,
                windows.question_tokens,
            )
        )
        pieces = np.split(
            windows.piece_words.values.numpy(),
            windows.piece_words.row_splits.numpy()[1:-1],
        )
        encoded = []
        for i, record in enumerate(records):
            (rows,) = np.nonzero(owner == i)
            piece_words = pieces[i]
            labels, counts = [None] * len(rows), {}
            kept = np.ones(len(rows), bool)
            values = examples.record_values(record)
            if split != "predict" and record.annotations:
                labels = make_window_labels(
                    record.annotations[0],
                    piece_words,
                    starts[rows],
                    sizes[rows],
                    # Behind the CLS and the separator.
                    int(question_tokens[i]) + 2,
                )
                values.update(examples.gold_values(record.annotations))
                kept, counts = self._sample(record, labels, split)
            serialized = etc_features.serialize_batch(
                {name: value[rows[kept]] for name, value in features.items()},
                [
                    {
                        **values,
                        **examples.window_values(
                            words[rows[window]], window, labels[window]
                        ),
                    }
                    for window in np.flatnonzero(kept).tolist()
                ],
            )
            counts.update(
                tokens=len(piece_words),
                windows=len(rows),
                candidates=len(record.candidates),
            )
            encoded.append(registry.EncodedRecord(serialized, counts))
        return encoded

    def _sample(self, record, labels, split):
        """Which windows are kept, and counts of what they have to learn."""
        is_null = np.array([x.answer_type == model_lib.NULL for x in labels])
        kind = answer_type(record.annotations[0])
        kept = ~is_null
        if split == "train":
            rate = (
                self.config.unanswerable_rate
                if kind == model_lib.NULL
                else self.config.include_unknown_rate
            )
            kept |= [_is_kept(record, i, rate) for i in range(len(labels))]
        else:
            kept |= True
        has_answer = kind != model_lib.NULL
        return kept, {
            "answers": int(has_answer),
            "answers_in_no_window": int(has_answer and is_null.all()),
            "windows_without_answer": int(is_null.sum()),
            "windows_without_answer_left_out": int((~kept).sum()),
        }


class NQPipeline(registry.TaskPipeline):
    """What `preprocess`, `export`, `predict` and `inspect` need."""

    name = "nq"
    dataset = dataset
    config_class = NQFeatureConfig

    def record_encoder(self, config, vocab_file) -> NQEncoder:
        """An encoder for records."""
        return NQEncoder(config, vocab_file)

    def build_serving_module(self, model, config, vocab_file, decoding):
        """See `export.build_serving_module`."""
        return export.build_serving_module(
            model, make_builder(config, vocab_file), **decoding
        )

    def serving_inputs(self, records) -> dict[str, np.ndarray]:
        """See `raw_inputs`."""
        return raw_inputs(records)

    def collect(self, records, outputs, predictions, decoding) -> None:
        """Adds the best answers with their scores, however low those are."""
        del decoding  # The official script finds thresholds of its own.
        for i, record in enumerate(records):
            predictions[record.id] = decoding_lib.make_prediction(
                *(outputs[name][i].item() for name in decoding_lib.DECODED)
            )

    def inspect(self, record, config, model_config, vocab_file) -> Inspection:
        """The first window of a record as it reaches the model."""
        encoder = NQEncoder(config, vocab_file)
        layout, windows = encoder.build([record])
        features = {name: x[:1] for name, x in layout.features.items()}
        side_inputs = make_multihop_side_inputs(
            features["long_paragraph_breakpoints"],
            features["long_paragraph_ids"],
            features["long_sentence_ids"],
            features["global_paragraph_breakpoints"],
            local_radius=model_config.local_radius,
            relative_pos_max_distance=model_config.relative_pos_max_distance,
            use_hard_g2l_mask=model_config.use_hard_g2l_mask,
            use_hard_l2g_mask=model_config.use_hard_l2g_mask,
            flat_sequence=True,
        )
        used = pipeline_lib.used_length(layout.long_sources[0, :, 0] >= 0)
        return Inspection(
            summary=_describe(record, config, windows),
            side_inputs=side_inputs,
            long_labels=encoder.token_texts(
                features["long_token_ids"][0, :used]
            ),
            global_labels=_global_labels(encoder, features),
        )


def _describe(record, config, windows) -> list[tuple[str, object]]:
    """The text summary of one record."""
    answers = []
    for annotation in record.annotations or ():
        spans = [(annotation.long_start, annotation.long_end)]
        spans += annotation.short_answers
        answers.append(
            f"{spans[0]}, short {spans[1:]}, yes/no {annotation.yes_no}"
        )
    return [
        ("record", f"{record.index} (id {record.id})"),
        ("question", record.question),
        ("answers", "; ".join(answers) or "not told"),
        ("words", len(record.tokens)),
        ("candidates", len(record.candidates)),
        ("tokens", int(windows.piece_words.row_lengths()[0])),
        (
            "windows",
            f"{len(windows.record)} (long length {config.long_length}, stride "
            f"{config.stride}); the first is shown",
        ),
    ]


def _global_labels(encoder, features) -> list[str]:
    """What every global token that is not padding stands for."""
    ids = features["global_token_ids"][0]
    used = pipeline_lib.used_length(ids > 0)
    names = {
        token_id: name
        for name, token_id in encoder.builder.tokenizer.special_ids.items()
    }
    return [f"{names[i]} {n}" for n, i in enumerate(ids[:used].numpy())]
