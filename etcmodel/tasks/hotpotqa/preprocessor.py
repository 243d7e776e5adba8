"""HotpotQA: turns raw strings into EtcFeatures; defines the layout.

Long input (ETC paper, Appendix C and Figure 5): a CLS token, the question, and
every paragraph with its title and sentences. Global input: a CLS token, one for
each token of the question, and for each paragraph its own token, one for its
title and one for each sentence.
"""

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import layout
from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils.text import plain_documents
from etcmodel.feature_utils.text import sentences as sentences_lib
from etcmodel.feature_utils.text import texts
from etcmodel.feature_utils.text import tokenizers
from etcmodel.feature_utils.text import word_cuts
from etcmodel.pipeline import example_schema
from etcmodel.pipeline.preprocessor import Encoded
from etcmodel.pipeline.preprocessor import EtcPreprocessor
from etcmodel.pipeline.preprocessor import Labelled
from etcmodel.pipeline.preprocessor import count_cut
from etcmodel.pipeline.raw_inputs import RawInput
from etcmodel.pipeline.raw_inputs import to_bytes
from etcmodel.tasks.documents import document_units
from etcmodel.tasks.documents import documents
from etcmodel.tasks.documents import span_decoding
from etcmodel.tasks.hotpotqa import labels

# A title or sentence that does not fit is left out as a whole; later, shorter
# ones may fit.
LAYOUT = layout.LayoutSpec(
    sections=(
        documents.CLS,
        layout.Section(
            "question",
            token_type_id=token_types.QUESTION,
            token_global=documents.QUESTION_TOKEN,
            cut="keep",
        ),
        layout.Section(
            "context",
            token_type_id=token_types.SENTENCE,
            first_unit_token_type_id=token_types.TITLE,
            group_global=documents.PARAGRAPH_TOKEN,
            unit_global=documents.SENTENCE_TOKEN,
            cut="fit",
        ),
    ),
    values=(
        *span_decoding.values("context"),
        document_units.unit_value("context"),
    ),
)


class HotpotQAPreprocessor(EtcPreprocessor):
    """Turns questions and paragraphs into features.

    Stored `units` are a record's units (titles and sentences) in one list: the
    first title, its sentences, the second title, ...
    """

    INPUTS = {
        "question": RawInput(tf.string, ("records",)),
        "titles": RawInput(tf.string, ("records", "paragraphs")),
        "sentences": RawInput(
            tf.string, ("records", "paragraphs", "sentences")
        ),
    }
    REQUEST = {
        "question": np.array([b"Where does Jan Novak live?"], dtype=object),
        "titles": np.array([[b"Jan Novak", b"Krakow"]], dtype=object),
        "sentences": np.array(
            [
                [
                    [b"Jan Novak is a cook.", b" He lives in Krakow."],
                    [b"Krakow is a city in Poland.", b""],
                ]
            ],
            dtype=object,
        ),
    }
    TEXT_REQUEST = {
        "query": REQUEST["question"],
        "text": np.array(
            [
                b"# Jan Novak\nJan Novak is a cook. He lives in Krakow.\n\n"
                b"# Krakow\nKrakow is a city in Poland."
            ],
            dtype=object,
        ),
    }
    LAYOUT = LAYOUT
    SCHEMA = example_schema.etc_schema(
        global_units=document_units.UNIT_FIELD,
        **span_decoding.FIELDS,
        units=example_schema.Field("list", example_schema.TEXT, tf.string),
        # Predictions name supporting facts by titles.
        titles=example_schema.Field("list", example_schema.TEXT, tf.string),
        # Number of units of each paragraph, including its title; 0 for a
        # paragraph without text.
        paragraph_sizes=example_schema.Field("list", example_schema.TEXT),
        # See `labels.HotpotQALabels`.
        **span_decoding.LABELS,
    )

    @staticmethod
    def of_text(query, text):
        """Splits a text into titles and sentences; returns them as outputs."""
        titles, paragraphs = plain_documents.split_paragraphs(text)
        # [records, (paragraphs), (sentences)]
        split = sentences_lib.split_sentences(paragraphs)
        titles = plain_documents.bounded(titles)
        split = plain_documents.bounded(split)
        raw = {"question": query, "titles": titles, "sentences": split}
        return raw, {
            "titles": titles.to_tensor(),
            "sentences": split.to_tensor(),
        }

    def build(
        self,
        question: tf.Tensor,
        titles: tf.Tensor | tf.RaggedTensor,
        sentences: tf.Tensor | tf.RaggedTensor,
    ) -> Encoded:
        """Builds the features of a batch of `INPUTS`."""
        # [batch, (paragraphs), (1 + sentences)]
        context = tokenizers.sanitize(
            texts.without_padding(
                tf.concat([tf.expand_dims(titles, 2), sentences], axis=2)
            )
        )
        token_ids, starts, ends = self.tokenizer.tokenize_with_offsets(context)
        question_ids = self.tokenizer.tokenize(tokenizers.sanitize(question))
        made = self.engine(
            {
                "question": layout.one_unit(question_ids),
                "context": token_ids,
            },
            values={
                "long_starts": starts,
                "long_ends": ends,
                "long_word_cuts": word_cuts.find_word_cuts(
                    self.tokenizer, token_ids
                ),
                "global_units": layout.unit_indices(context, "unit"),
            },
        )
        return Encoded(
            layout=made,
            context=made.values,
            text={
                "units": ragged_rows.merge(context),
                "paragraph_sizes": context.with_values(
                    context.values.row_lengths()
                ),
            },
            request={
                "shape": sentences.bounding_shape(out_type=tf.int32)[1:]
                if isinstance(sentences, tf.RaggedTensor)
                else tf.shape(sentences)[1:]
            },
        )

    @staticmethod
    def raw(record):
        """Returns the question, titles and sentences of a record."""
        return {
            "question": record.question,
            "titles": [paragraph.title for paragraph in record.context],
            "sentences": [paragraph.sentences for paragraph in record.context],
        }

    def labels(self, record, view, split):
        """Returns the labels and counts of a record; see `make_labels`."""
        counts = count_cut(
            view, {"context": ("paragraphs", "titles_and_sentences")}
        )
        question = view.counts["question"]
        counts["question_tokens_cut"] = question.tokens - question.kept_tokens
        values = {
            "question": to_bytes(record.question),
            "titles": [to_bytes(x.title) for x in record.context],
        }
        if record.answer is None or split == "predict":
            return Labelled([{}], values, counts)
        made = labels.make_labels(
            record,
            LAYOUT.index("context"),
            view.long_sources[0],
            view.global_sources[0],
            {name: view.features[name][0] for name in span_decoding.FIELDS},
        )
        facts = len(record.fact_positions)
        counts |= {
            "supporting_facts": facts,
            "supporting_facts_cut": facts - made.kept_facts,
            "supporting_facts_not_in_context": record.num_missing_facts,
            "answers_not_in_text": int(
                made.answer_type == labels.SPAN and not made.found
            ),
            "answers_with_more_text": int(
                made.num_inexact == len(made.begins) > 0
            ),
            "answers_cut": int(made.found > 0 and not made.begins),
            "answers_yes_or_no": int(made.answer_type != labels.SPAN),
        }
        learned = {
            "supporting_facts": made.supporting_facts,
            "answer_type": made.answer_type,
            "answer_begins": made.begins,
            "answer_ends": made.ends,
        }
        is_kept = split != "train" or made.can_be_learned
        return Labelled([learned if is_kept else None], values, counts)

    def describe(self, record):
        """Lists the names and values that `inspect` shows."""
        facts = ", ".join(
            f"{title} {sentence}"
            for title, sentence in record.supporting_facts or ()
        )
        return [
            ("question", record.question),
            ("answer", "unknown" if record.answer is None else record.answer),
            ("supporting facts", facts or "unknown"),
        ]

    def name_global(self, record, section, group, unit):
        """Names a global token: `[CLS]`, `par 2`, `title 2` or `sent 2.0`."""
        if section == "cls":
            return "[CLS]"
        if unit < 0:
            return f"par {group}"
        return f"sent {group}.{unit - 1}" if unit else f"title {group}"
