"""WikiHop: turns raw strings into EtcFeatures; defines the layout.

Long input (ETC paper, Appendix C and Figure 5): every candidate answer, the
query, every document. Global input: a token for each candidate, one for each
token of the query, and for each document its own token and one for each
sentence. Candidate i is therefore global position i, and tokens that mention it
are linked to it.
"""

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import layout
from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils.text import plain_documents
from etcmodel.feature_utils.text import sentences
from etcmodel.feature_utils.text import tokenizers
from etcmodel.feature_utils.text.texts import without_padding
from etcmodel.pipeline import example_schema
from etcmodel.pipeline.preprocessor import Encoded
from etcmodel.pipeline.preprocessor import EtcPreprocessor
from etcmodel.pipeline.preprocessor import Labelled
from etcmodel.pipeline.preprocessor import count_cut
from etcmodel.pipeline.raw_inputs import RawInput
from etcmodel.tasks.documents import documents
from etcmodel.tasks.wikihop import mentions

# Maximum number of candidates that a token mentions: "york" in "new york city"
# mentions "york", "new york" and "new york city".
MAX_MENTIONS = 3

# The query gets its place first, then the candidates. If documents do not fit,
# the last sentences of the longest documents are cut.
LAYOUT = layout.LayoutSpec(
    sections=(
        layout.Section(
            "candidates",
            token_type_id=token_types.CANDIDATE,
            unit_global=layout.GlobalToken(
                "candidate", token_types.CANDIDATE_GLOBAL
            ),
            cut="keep",
            priority=1,
        ),
        layout.Section(
            "query",
            token_type_id=token_types.QUESTION,
            token_global=documents.QUESTION_TOKEN,
            cut="keep",
        ),
        layout.Section(
            "documents",
            token_type_id=token_types.SENTENCE,
            group_global=documents.PARAGRAPH_TOKEN,
            unit_global=documents.SENTENCE_TOKEN,
            cut="balanced",
            priority=2,
        ),
    ),
    links=(
        # A candidate's own tokens are its first mention.
        layout.Link(
            "own",
            "candidates",
            "candidates",
            level="unit",
            feature="l2g_linked_ids",
        ),
        layout.Link(
            "mentions",
            "documents",
            "candidates",
            feature="l2g_linked_ids",
            number=MAX_MENTIONS,
        ),
    ),
)


class WikiHopPreprocessor(EtcPreprocessor):
    """Turns queries, candidates and documents into features."""

    INPUTS = {
        "query": RawInput(tf.string, ("records",)),
        "candidates": RawInput(tf.string, ("records", "candidates")),
        "supports": RawInput(tf.string, ("records", "documents")),
    }
    REQUEST = {
        "query": np.array([b"country jan novak"], dtype=object),
        "candidates": np.array([[b"austria", b"poland"]], dtype=object),
        "supports": np.array(
            [[b"Jan Novak lives in Krakow.", b"Krakow is a city in Poland."]],
            dtype=object,
        ),
    }
    TEXT_REQUEST = {
        "query": REQUEST["query"],
        "candidates": np.array([b"austria\npoland"], dtype=object),
        "text": np.array(
            [b"Jan Novak lives in Krakow.\n\nKrakow is a city in Poland."],
            dtype=object,
        ),
    }
    LAYOUT = LAYOUT
    SCHEMA = example_schema.etc_schema(
        LAYOUT.encoder_inputs,
        candidates=example_schema.Field("list", example_schema.TEXT, tf.string),
        # A float, as in the files of the original code.
        label_id=example_schema.Field("one", example_schema.LABEL, tf.float32),
    )

    @staticmethod
    def of_text(query, candidates, text):
        """Turns lines into candidates, and paragraphs into documents."""
        titles, paragraphs = plain_documents.split_paragraphs(text)
        lines = tf.strings.split(candidates, "\n")
        lines = lines.with_values(tf.strings.strip(lines.values))
        lines = ragged_rows.keep(lines, lines.values != "")
        lines = plain_documents.bounded(lines)
        raw = {
            "query": query,
            "candidates": lines,
            "supports": paragraphs.with_values(
                tf.strings.strip(
                    tf.strings.join([titles.values, paragraphs.values], " ")
                )
            ),
        }
        return raw, {"candidates": lines.to_tensor()}

    def layout_spec(self):
        """Returns the layout with `max_num_sentences` as a limit."""
        return LAYOUT.with_section(
            "documents", max_units=self.config.max_num_sentences
        )

    def build(
        self,
        query: tf.Tensor,
        candidates: tf.Tensor | tf.RaggedTensor,
        supports: tf.Tensor | tf.RaggedTensor,
    ) -> Encoded:
        """Builds the features of a batch of `INPUTS`."""
        names = normalize_candidates(candidates)
        ids = layout.groups_of_one(self.tokenizer.tokenize(names))
        document_ids, mentioned = self._tokenize_documents(
            sentences.split_sentences(
                tokenizers.sanitize(without_padding(supports))
            ),
            # Only the first of equal candidates can be the answer and has
            # mentions.
            names.with_values(
                tf.where(is_first_of_equals(names), names.values, "")
            ),
        )
        query_ids = self.tokenizer.tokenize(tokenizers.sanitize(query))
        return Encoded(
            layout=self.engine(
                {
                    "candidates": ids,
                    "query": layout.one_unit(query_ids),
                    "documents": document_ids,
                },
                {
                    "own": layout.unit_indices(ids, "unit"),
                    "mentions": mentioned,
                },
            ),
            context={},
            text={"candidates": without_padding(candidates)},
            request={
                "num_candidates": candidates.bounding_shape(
                    1, out_type=tf.int32
                )
                if isinstance(candidates, tf.RaggedTensor)
                else tf.shape(candidates)[1]
            },
        )

    def _tokenize_documents(self, documents, candidates):
        """Returns the tokens of sentences and the candidates they mention."""
        if self.tokenizer.lower_case:
            ids, keys = self.tokenizer.tokenize_with_keys(documents)
            _, sought = self.tokenizer.tokenize_with_keys(candidates)
            return ids, mentions.link_mentions(keys, sought, MAX_MENTIONS)
        ids, _, ends = self.tokenizer.tokenize_with_offsets(documents)
        return ids, mentions.link_word_mentions(
            documents, ends, candidates, MAX_MENTIONS
        )

    @staticmethod
    def raw(record):
        """Returns the query, candidates and documents of a record."""
        return {
            "query": record.query,
            "candidates": record.candidates,
            "supports": record.supports,
        }

    def labels(self, record, view, split):
        """Returns the gold candidate and the counts of a record."""
        query, candidates = (view.counts[x] for x in ("query", "candidates"))
        total = len(record.candidates)
        for why, field, unit, number, kept in (
            ("query is too long", "query", "tokens", *query[:2]),
            (
                "too many candidates",
                "candidates",
                "candidates",
                total,
                candidates.kept_units,
            ),
        ):
            if kept < number:
                raise record.error(
                    why,
                    field=field,
                    problem=(
                        f"only {kept} of {number} {unit} fit into the lengths "
                        f"of {self.config.long_length} (long) and "
                        f"{self.config.global_length} (global)"
                    ),
                    advice="Raise `long_length` or `global_length`",
                )
        is_document = view.long_sources[..., 0] == LAYOUT.index("documents")
        linked = np.concatenate(
            [
                view.features[feature.name][is_document]
                for feature in LAYOUT.encoder_inputs.links
            ]
        )
        mentioned = set(linked[linked >= 0].tolist())
        labels, answer_counts = {}, {}
        if split != "predict":
            labels["label_id"] = float(record.answer_index)
            answer_counts["answers_without_mention"] = int(
                record.answer_index not in mentioned
            )
        return Labelled(
            [labels],
            {"query": record.query},
            {
                **count_cut(
                    view,
                    {
                        "candidates": (None, "candidates"),
                        "documents": ("documents", "sentences"),
                    },
                ),
                "links": int((linked >= 0).sum()),
                "candidates_without_mention": total - len(mentioned),
                **answer_counts,
                "records_without_text_left": int(
                    view.counts["documents"].kept_units == 0
                ),
            },
        )

    def describe(self, record):
        """Lists the names and values that `inspect` shows."""
        return [
            ("query", record.query),
            ("answer", "unknown" if record.answer is None else record.answer),
        ]

    def name_global(self, record, section, group, unit):
        """Names a candidate by its text, others `doc 2` or `sent 2.1`."""
        if section == "candidates":
            return record.candidates[group]
        return f"doc {group}" if unit < 0 else f"sent {group}.{unit}"


def is_first_of_equals(candidates: tf.RaggedTensor) -> tf.Tensor:
    """Marks candidates that differ from all earlier ones of their record.

    Example: normalized `[["rome", "oslo", "rome"], ["rome"]]` gives
    `[True, True, False, True]`.
    """
    row = tf.strings.as_string(ragged_rows.owners_in(candidates))
    index = tf.range(tf.size(row))
    distinct, number = tf.unique(
        tf.strings.join([row, candidates.values], separator="\n")
    )
    first = tf.math.unsorted_segment_min(index, number, tf.size(distinct))
    return tf.equal(tf.gather(first, number), index)


def normalize_candidates(
    candidates: tf.Tensor | tf.RaggedTensor,
) -> tf.RaggedTensor:
    """Removes padding, cleans, strips and lower-cases candidates.

    Example: `[[" New York ", "Rome", ""]]` gives `[["new york", "rome"]]`.
    """
    candidates = tokenizers.sanitize(without_padding(candidates))
    values = tf.strings.strip(candidates.flat_values)
    return candidates.with_flat_values(
        tf.strings.lower(values, encoding="utf-8")
    )
