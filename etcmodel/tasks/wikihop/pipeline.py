"""What the commands need of WikiHop."""

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from etcmodel.datasets import wikihop as dataset
from etcmodel.datasets.wikihop import WikiHopRecord
from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils.side_inputs import make_multihop_side_inputs
from etcmodel.tasks import pipeline_lib
from etcmodel.tasks import registry
from etcmodel.tasks.inspection import Inspection
from etcmodel.tasks.pipeline_lib import string_matrix
from etcmodel.tasks.pipeline_lib import string_vector
from etcmodel.tasks.wikihop import export
from etcmodel.tasks.wikihop.features import WikiHopFeatureBuilder
from etcmodel.tasks.wikihop.features import WikiHopFeatureConfig

_STRINGS = tf.TensorSpec([None], tf.string)
_STRING_LISTS = tf.TensorSpec([None, None], tf.string)


def raw_inputs(records: Sequence[WikiHopRecord]) -> dict[str, np.ndarray]:
    """A batch of records as raw strings, padded with empty strings.

    Args:
        records: the records.

    Returns:
        `query` `<string>[batch]`, `candidates` `<string>[batch, candidates]`
        and `supports` `<string>[batch, documents]`.
    """
    return {
        "query": string_vector([record.query for record in records]),
        "candidates": string_matrix([record.candidates for record in records]),
        "supports": string_matrix([record.supports for record in records]),
    }


def make_builder(
    config: WikiHopFeatureConfig, vocab_file: str
) -> WikiHopFeatureBuilder:
    """WikiHop's feature builder; see `pipeline_lib.make_builder`."""
    return pipeline_lib.make_builder(WikiHopFeatureBuilder, config, vocab_file)


class WikiHopEncoder(pipeline_lib.BuilderEncoder):
    """Turns records into serialized features, labels and counts."""

    def __init__(self, config: WikiHopFeatureConfig, vocab_file: str):
        """Creates the encoder.

        Args:
            config: sizes of the features.
            vocab_file: a WordPiece vocabulary or a SentencePiece model.

        Raises:
            UserError: the vocabulary cannot be used.
        """
        super().__init__(
            make_builder(config, vocab_file),
            [_STRINGS, _STRING_LISTS, _STRING_LISTS],
        )

    def build(self, records: Sequence[WikiHopRecord]):
        """Builds the features of a batch of records.

        Args:
            records: the records.

        Returns:
            The `Layout` and the `WikiHopStats` that the feature builder makes.

        Raises:
            UserError: a record cannot be used. Of a batch of one, it is a
                `RecordError`.
        """
        layout, stats = self.run_builder(records, raw_inputs(records).values())
        query = layout.counts["query"]
        for i, record in enumerate(records):
            if int(query.kept_tokens[i]) < int(query.tokens[i]):
                raise record.error(
                    "query is too long",
                    field="query",
                    problem=(
                        f"it has {int(query.tokens[i])} tokens, but only "
                        f"{int(query.kept_tokens[i])} fit"
                    ),
                    advice="Raise --long_length or --global_length",
                )
            kept, total = int(stats.kept_candidates[i]), len(record.candidates)
            if kept < total:
                raise record.error(
                    "too many candidates",
                    field="candidates",
                    problem=(
                        f"there are {total}, but only {kept} fit into the "
                        f"lengths of {self.config.long_length} (long) and "
                        f"{self.config.global_length} (global)"
                    ),
                    advice="Raise --long_length or --global_length",
                )
        return layout, stats

    def encode(self, records, split):
        """See `registry.RecordEncoder`."""
        layout, stats = self.build(records)
        extra = []
        for record in records:
            values = {
                "example_id": record.id,
                "query": record.query,
                "candidates": list(record.candidates),
                "is_real_example": 1,
            }
            if split != "predict":
                # A float, as in the files of the original code.
                values["label_id"] = float(record.answer_index)
                values["ground_truth_answer"] = record.answer
            extra.append(values)
        serialized = etc_features.serialize_batch(layout.features, extra)
        # {name: [batch]}
        columns = {
            name: value.numpy().tolist()
            for name, value in stats._asdict().items()
        }
        return [
            registry.EncodedRecord(
                [example], _summed({name: columns[name][i] for name in columns})
            )
            for i, example in enumerate(serialized)
        ]


def _summed(count: Mapping[str, int]) -> dict[str, int]:
    """What is added up over all records in `stats.json`."""
    cut = {
        f"{name}_cut": count[name] - count[f"kept_{name}"]
        for name in ("tokens", "sentences", "documents")
    }
    return {
        **{
            name: count[name]
            for name in (
                "tokens",
                "sentences",
                "documents",
                "candidates",
                "links",
            )
        },
        **cut,
        "records_cut": int(cut["tokens_cut"] > 0),
        "records_without_text_left": int(count["kept_sentences"] == 0),
    }


class WikiHopPipeline(registry.TaskPipeline):
    """What `preprocess`, `export`, `predict` and `inspect` need of WikiHop."""

    name = "wikihop"
    dataset = dataset
    config_class = WikiHopFeatureConfig

    def record_encoder(self, config, vocab_file) -> WikiHopEncoder:
        """An encoder for records."""
        return WikiHopEncoder(config, vocab_file)

    def build_serving_module(self, model, config, vocab_file, decoding):
        """See `export.build_serving_module`."""
        return export.build_serving_module(
            model, make_builder(config, vocab_file), **decoding
        )

    def serving_inputs(self, records) -> dict[str, np.ndarray]:
        """See `raw_inputs`."""
        return raw_inputs(records)

    def collect(self, records, outputs, predictions, decoding) -> None:
        """Adds the answers, as they stand among the candidates."""
        del decoding  # There are no options.
        for record, answer in zip(records, outputs["answer"], strict=True):
            predictions[record.id] = answer.decode("utf-8")

    def inspect(self, record, config, model_config, vocab_file) -> Inspection:
        """One record as it reaches the model."""
        encoder = WikiHopEncoder(config, vocab_file)
        layout, stats = encoder.build([record])
        features = layout.features
        types = features["global_token_type_ids"]
        # [1, global]
        exempt = tf.cast(
            tf.equal(types, token_types.CANDIDATE_GLOBAL)
            | tf.equal(types, token_types.QUESTION_GLOBAL),
            tf.int32,
        )
        side_inputs = make_multihop_side_inputs(
            features["long_paragraph_breakpoints"],
            features["long_paragraph_ids"],
            features["long_sentence_ids"],
            features["global_paragraph_breakpoints"],
            local_radius=model_config.local_radius,
            relative_pos_max_distance=model_config.relative_pos_max_distance,
            use_hard_g2l_mask=model_config.use_hard_g2l_mask,
            ignore_hard_g2l_mask=exempt,
            use_hard_l2g_mask=model_config.use_hard_l2g_mask,
            l2g_linked_ids=features["l2g_linked_ids"],
        )
        return Inspection(
            summary=_describe(record, config, stats),
            side_inputs=side_inputs,
            long_labels=_long_labels(encoder, features),
            global_labels=_global_labels(record, encoder, layout),
        )


def _describe(record, config, stats) -> list[tuple[str, object]]:
    """The text summary of one record."""
    count = {name: int(value[0]) for name, value in stats._asdict().items()}

    def of(name):
        cut = count[name] - count[f"kept_{name}"]
        return f"{count[name]}, of which {cut} cut"

    return [
        ("record", f"{record.index} (id {record.id})"),
        ("query", record.query),
        ("answer", "not told" if record.answer is None else record.answer),
        ("candidates", of("candidates")),
        ("documents", of("documents")),
        ("sentences", of("sentences")),
        ("tokens", f"{of('tokens')} (long length {config.long_length})"),
        ("linked mention tokens", count["links"]),
    ]


def _long_labels(encoder, features) -> list[str]:
    """The text of every long token that is not padding."""
    ids = features["long_token_ids"][0]
    used = pipeline_lib.used_length(features["long_sentence_ids"][0] >= 0)
    return encoder.token_texts(ids[:used])


def _global_labels(record, encoder, layout) -> list[str]:
    """What every global token that is not padding stands for.

    A candidate is shown as its text, a query token as its token, a document
    and a sentence as their numbers: `doc 2`, `sent 2.1`.
    """
    sources = layout.global_sources[0].numpy()
    names = [section.name for section in encoder.builder.engine.sections]
    query = iter(
        encoder.token_texts(
            encoder.builder.tokenizer.tokenize([record.query])[0]
        )
    )
    labels = []
    for section, group, segment, _ in sources:
        if section < 0:
            break
        if names[section] == "candidates":
            labels.append(record.candidates[group])
        elif names[section] == "query":
            labels.append(next(query))
        elif segment < 0:
            labels.append(f"doc {group}")
        else:
            labels.append(f"sent {group}.{segment}")
    return labels
