"""What the commands need of HotpotQA."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.datasets import hotpotqa as dataset
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils.side_inputs import make_multihop_side_inputs
from etcmodel.tasks import pipeline_lib
from etcmodel.tasks import registry
from etcmodel.tasks.hotpotqa import examples
from etcmodel.tasks.hotpotqa import export
from etcmodel.tasks.hotpotqa.features import HotpotQAFeatureBuilder
from etcmodel.tasks.hotpotqa.features import HotpotQAFeatureConfig
from etcmodel.tasks.hotpotqa.labels import HotpotQALabels
from etcmodel.tasks.hotpotqa.labels import make_labels
from etcmodel.tasks.inspection import Inspection
from etcmodel.tasks.pipeline_lib import string_matrix
from etcmodel.tasks.pipeline_lib import string_vector

_SPECS = [
    tf.TensorSpec([None], tf.string),
    tf.TensorSpec([None, None], tf.string),
    tf.TensorSpec([None, None, None], tf.string),
]
_DEFAULT_THRESHOLD = 0.5


def raw_inputs(records: Sequence[HotpotQARecord]) -> dict[str, np.ndarray]:
    """A batch of records as raw strings, padded with empty strings.

    Args:
        records: the records.

    Returns:
        `question` `<string>[batch]`, `titles` `<string>[batch, paragraphs]`
        and `sentences` `<string>[batch, paragraphs, sentences]`.
    """
    titles = string_matrix(
        [[paragraph.title for paragraph in x.context] for x in records]
    )
    width = titles.shape[1]
    # Records of fewer paragraphs than others get empty ones.
    rows = []
    for record in records:
        rows.extend(paragraph.sentences for paragraph in record.context)
        rows.extend(() for _ in range(width - len(record.context)))
    return {
        "question": string_vector([record.question for record in records]),
        "titles": titles,
        "sentences": string_matrix(rows).reshape(len(records), width, -1),
    }


def make_builder(
    config: HotpotQAFeatureConfig, vocab_file: str
) -> HotpotQAFeatureBuilder:
    """HotpotQA's feature builder; see `pipeline_lib.make_builder`."""
    return pipeline_lib.make_builder(HotpotQAFeatureBuilder, config, vocab_file)


class HotpotQAEncoder(pipeline_lib.BuilderEncoder):
    """Turns records into serialized features, labels and counts."""

    def __init__(self, config: HotpotQAFeatureConfig, vocab_file: str):
        """Creates the encoder.

        Args:
            config: sizes of the features.
            vocab_file: a WordPiece vocabulary or a SentencePiece model.

        Raises:
            UserError: the vocabulary cannot be used.
        """
        super().__init__(make_builder(config, vocab_file), _SPECS)
        self.section_names = [x.name for x in self.builder.engine.sections]

    def build(self, records: Sequence[HotpotQARecord]):
        """Builds the features of a batch of records.

        Args:
            records: the records.

        Returns:
            The `Layout` and the `HotpotQAContext` that the feature builder
            makes.

        Raises:
            RecordError: a record cannot be encoded.
        """
        return self.run_builder(records, raw_inputs(records).values())

    def encode(self, records, split):
        """See `registry.RecordEncoder`."""
        layout, context = self.build(records)
        # All at once: it takes long to take tensors apart.
        context = examples.on_host(context)
        long_sources = layout.long_sources.numpy()
        global_sources = layout.global_sources.numpy()
        section_counts = {
            name: type(counts)(*(value.numpy() for value in counts))
            for name, counts in layout.counts.items()
        }
        labels: list[HotpotQALabels | None] = [
            None
            if record.answer is None or split == "predict"
            else make_labels(
                record,
                self.section_names.index("context"),
                long_sources[i],
                global_sources[i],
                context.starts[i],
                context.ends[i],
            )
            for i, record in enumerate(records)
        ]
        serialized = etc_features.serialize_batch(
            layout.features,
            [
                {
                    **examples.context_values(context, i),
                    **examples.record_values(record, labels[i]),
                }
                for i, record in enumerate(records)
            ],
        )
        return [
            registry.EncodedRecord(
                []
                if split == "train" and not labels[i].can_be_learned
                else [serialized[i]],
                _counts(record, labels[i], section_counts, i),
            )
            for i, record in enumerate(records)
        ]


def _counts(
    record: HotpotQARecord,
    labels: HotpotQALabels | None,
    section_counts: Mapping[str, Any],
    index: int,
) -> dict[str, int]:
    """What is added up over all records in `stats.json`."""

    def of(section, name):
        counts = section_counts[section]
        there = int(getattr(counts, name)[index])
        return there, there - int(getattr(counts, f"kept_{name}")[index])

    paragraphs, paragraphs_cut = of("context", "groups")
    segments, segments_cut = of("context", "segments")
    tokens, tokens_cut = of("context", "tokens")
    question, question_cut = of("question", "tokens")
    counts = {
        "tokens": tokens + question + 1,
        "tokens_cut": tokens_cut + question_cut,
        "question_tokens_cut": question_cut,
        "paragraphs": paragraphs,
        "paragraphs_cut": paragraphs_cut,
        "titles_and_sentences": segments,
        "titles_and_sentences_cut": segments_cut,
        "records_cut": int(tokens_cut + question_cut > 0),
    }
    if labels is None:
        return counts
    facts = len(record.fact_positions)
    return {
        **counts,
        "supporting_facts": facts,
        "supporting_facts_cut": facts - labels.kept_facts,
        "supporting_facts_not_in_context": record.num_missing_facts,
        "answers_not_in_text": int(
            labels.answer_type == 0 and not labels.found
        ),
        "answers_cut": int(labels.found > 0 and not labels.begins),
        "answers_yes_or_no": int(labels.answer_type != 0),
    }


class HotpotQAPipeline(registry.TaskPipeline):
    """What `preprocess`, `export`, `predict` and `inspect` need."""

    name = "hotpotqa"
    dataset = dataset
    config_class = HotpotQAFeatureConfig

    def record_encoder(self, config, vocab_file) -> HotpotQAEncoder:
        """An encoder for records."""
        return HotpotQAEncoder(config, vocab_file)

    def build_serving_module(self, model, config, vocab_file, decoding):
        """See `export.build_serving_module`."""
        return export.build_serving_module(
            model, make_builder(config, vocab_file), **decoding
        )

    def serving_inputs(self, records) -> dict[str, np.ndarray]:
        """See `raw_inputs`."""
        return raw_inputs(records)

    def collect(self, records, outputs, predictions, decoding) -> None:
        """Adds a pair of answer and supporting facts."""
        threshold = decoding.get(
            "supporting_fact_threshold", _DEFAULT_THRESHOLD
        )
        # Sentences that were cut have 0.
        threshold = max(threshold, np.finfo(np.float32).tiny)
        for i, record in enumerate(records):
            probabilities = outputs["supporting_fact_probabilities"][i]
            facts = [
                (paragraph.title, sentence)
                for p, paragraph in enumerate(record.context)
                for sentence in range(len(paragraph.sentences))
                if probabilities[p, sentence] >= threshold
                and paragraph.sentences[sentence]
            ]
            answer = outputs["answer"][i].decode("utf-8", "replace")
            predictions[record.id] = (answer, facts)

    def inspect(self, record, config, model_config, vocab_file) -> Inspection:
        """One record as it reaches the model."""
        encoder = HotpotQAEncoder(config, vocab_file)
        layout, context = encoder.build([record])
        features = layout.features
        # [1, global]
        exempt = tf.cast(
            tf.equal(features["global_token_type_ids"], token_types.CLS_GLOBAL),
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
        )
        used = pipeline_lib.used_length(layout.long_sources[0, :, 0] >= 0)
        return Inspection(
            summary=_describe(record, config, layout),
            side_inputs=side_inputs,
            long_labels=encoder.token_texts(
                features["long_token_ids"][0, :used]
            ),
            global_labels=_global_labels(record, encoder, layout),
        )


def _describe(record, config, layout) -> list[tuple[str, object]]:
    """The text summary of one record."""
    counts = _counts(record, None, layout.counts, 0)

    def of(name):
        return f"{counts[name]}, of which {counts[f'{name}_cut']} cut"

    facts = ", ".join(
        f"{title} {sentence}"
        for title, sentence in record.supporting_facts or ()
    )
    return [
        ("record", f"{record.index} (id {record.id})"),
        ("question", record.question),
        ("answer", "not told" if record.answer is None else record.answer),
        ("supporting facts", facts or "not told"),
        ("paragraphs", of("paragraphs")),
        ("titles and sentences", of("titles_and_sentences")),
        ("tokens", f"{of('tokens')} (long length {config.long_length})"),
    ]


def _global_labels(record, encoder, layout) -> list[str]:
    """What every global token that is not padding stands for.

    A token of the question is shown as itself, a paragraph, a title and a
    sentence by their numbers: `par 2`, `title 2`, `sent 2.0`.
    """
    question = iter(
        encoder.token_texts(
            encoder.builder.tokenizer.tokenize([record.question])[0]
        )
    )
    labels = []
    for section, group, segment, _ in layout.global_sources[0].numpy():
        if section < 0:
            break
        name = encoder.section_names[section]
        if name == "cls":
            labels.append("[CLS]")
        elif name == "question":
            labels.append(next(question))
        elif segment < 0:
            labels.append(f"par {group}")
        elif segment == 0:
            labels.append(f"title {group}")
        else:
            labels.append(f"sent {group}.{segment - 1}")
    return labels
