"""WikiHop: raw strings to EtcFeatures; the specification of its layout.

Long input: every candidate answer, the query, every document. Global input: a
token for each candidate, one for each token of the query, and for each document
one of its own and one for each sentence. So candidate i is global position i,
and tokens that mention it are linked to it.

Source: paper, Appendix C (WikiHop) and Figure 5.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import layout
from etcmodel.feature_utils import mentions
from etcmodel.feature_utils import sentences
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils import tokenizers
from etcmodel.feature_utils.texts import without_padding


@dataclasses.dataclass(frozen=True)
class WikiHopFeatureConfig:
    """Sizes; the defaults are the paper's.

    Attributes:
        long_length: length of the long input; None for as long as the longest
            record of a batch needs (and nothing is cut for it).
        global_length: length of the global input; likewise.
        max_num_sentences: the most sentences of a record's documents.
    """

    long_length: int | None = 4096
    global_length: int | None = 430
    max_num_sentences: int | None = 200


class WikiHopStats(NamedTuple):
    """What went in and what is left, <int32>[batch] each.

    Attributes:
        tokens: all tokens: of candidates, query and documents.
        kept_tokens: those in the long input.
        sentences: sentences of the documents.
        kept_sentences: those that are left.
        documents: documents.
        kept_documents: those that have a global token left.
        candidates: candidate answers.
        kept_candidates: those that are left, always the first ones.
        links: tokens of documents that are linked to a candidate.
    """

    tokens: tf.Tensor
    kept_tokens: tf.Tensor
    sentences: tf.Tensor
    kept_sentences: tf.Tensor
    documents: tf.Tensor
    kept_documents: tf.Tensor
    candidates: tf.Tensor
    kept_candidates: tf.Tensor
    links: tf.Tensor


def wikihop_sections(
    special_ids: dict[str, int], max_num_sentences: int | None
) -> tuple[layout.Section, ...]:
    """The specification for the layout engine.

    The query takes its place first, then the candidates; the documents share
    what is left, those with the most sentences losing the last of them.

    Args:
        special_ids: ids of the global tokens (see `tokenizers`).
        max_num_sentences: the most sentences of a record, or None.

    Returns:
        The sections "candidates", "query" and "documents".
    """
    return (
        layout.Section(
            "candidates",
            token_type_id=token_types.CANDIDATE,
            segment_global=layout.GlobalToken(
                special_ids["candidate"], token_types.CANDIDATE_GLOBAL
            ),
            cut="keep",
            priority=1,
        ),
        layout.Section(
            "query",
            token_type_id=token_types.QUESTION,
            token_global=layout.GlobalToken(
                special_ids["question"], token_types.QUESTION_GLOBAL
            ),
            cut="keep",
        ),
        layout.Section(
            "documents",
            token_type_id=token_types.SENTENCE,
            group_global=layout.GlobalToken(
                special_ids["paragraph"], token_types.PARAGRAPH_GLOBAL
            ),
            segment_global=layout.GlobalToken(
                special_ids["sentence"], token_types.GLOBAL
            ),
            cut="balanced",
            priority=2,
            max_segments=max_num_sentences,
        ),
    )


class WikiHopFeatureBuilder(tf.Module):
    """Turns batches of raw strings into EtcFeatures; graph code.

    The same code for preprocessing and for serving. A record's features do not
    depend on the batch it is in (but for their lengths, where those are None).

    Attributes:
        config: the sizes.
        tokenizer: the tokenizer.
        engine: the layout engine with WikiHop's specification.
    """

    def __init__(
        self,
        config: WikiHopFeatureConfig,
        tokenizer: tokenizers.WordpieceTokenizer
        | tokenizers.SentencepieceTokenizer,
        name: str | None = None,
    ):
        """Makes the layout engine.

        Args:
            config: the sizes.
            tokenizer: the tokenizer; it is exported along.
            name: name of the module.
        """
        super().__init__(name=name)
        self.config = config
        self.tokenizer = tokenizer
        self.engine = layout.LayoutEngine(
            wikihop_sections(tokenizer.special_ids, config.max_num_sentences),
            config.long_length,
            config.global_length,
        )

    # There is nothing in it for AutoGraph, which would make tracing slow.
    @tf.autograph.experimental.do_not_convert
    def __call__(
        self,
        query: tf.Tensor,
        candidates: tf.Tensor | tf.RaggedTensor,
        supports: tf.Tensor | tf.RaggedTensor,
    ) -> dict[str, tf.Tensor]:
        """Builds the features of a batch.

        Args:
            query: <string>[batch].
            candidates: <string>[batch, (candidates)], or dense and padded with
                "" at the end.
            supports: the documents, likewise <string>[batch, (documents)].

        Returns:
            EtcFeatures, <int32>[batch, long_length] and
            <int32>[batch, global_length].
        """
        return self.build(query, candidates, supports)[0].features

    @tf.autograph.experimental.do_not_convert
    def build(
        self,
        query: tf.Tensor,
        candidates: tf.Tensor | tf.RaggedTensor,
        supports: tf.Tensor | tf.RaggedTensor,
    ) -> tuple[layout.Layout, WikiHopStats]:
        """As calling it, with where the tokens come from and what was cut.

        Args:
            query: as above.
            candidates: as above.
            supports: as above.

        Returns:
            The layout, whose `features` are what calling returns, and the
            statistics.

        Raises:
            tf.errors.InvalidArgumentError: when run, if the inputs differ in
                the number of records.
        """
        records = tf.size(query, tf.int64)
        checks = [
            tf.debugging.assert_equal(
                texts.nrows(tf.int64)
                if isinstance(texts, tf.RaggedTensor)
                else tf.shape(texts, tf.int64)[0],
                records,
                f"Records of {name}, expected as many as of query.",
            )
            for name, texts in (
                ("candidates", candidates),
                ("supports", supports),
            )
        ]
        # Checked eagerly, there are no operations to wait for.
        with tf.control_dependencies([x for x in checks if x is not None]):
            query = tokenizers.sanitize(query)
            candidates = normalize_candidates(candidates)
            documents = sentences.split_sentences(
                tokenizers.sanitize(without_padding(supports))
            )
        return self.build_from_sentences(query, candidates, documents)

    @tf.autograph.experimental.do_not_convert
    def build_from_sentences(
        self,
        query: tf.Tensor,
        candidates: tf.RaggedTensor,
        documents: tf.RaggedTensor,
    ) -> tuple[layout.Layout, WikiHopStats]:
        """As `build`, for text that is clean and split into sentences.

        Args:
            query: <string>[batch].
            candidates: normalized, <string>[batch, (candidates)].
            documents: <string>[batch, (documents), (sentences)].

        Returns:
            As `build`.
        """
        tokenize = self.tokenizer
        candidate_ids, candidate_keys = tokenize.tokenize_with_keys(candidates)
        if tokenize.lower_case:
            document_ids, keys = tokenize.tokenize_with_keys(documents)
            linked = mentions.link_mentions(keys, candidate_keys)
        else:
            document_ids, _, ends = tokenize.tokenize_with_offsets(documents)
            linked = mentions.link_word_mentions(documents, ends, candidates)

        contents = {
            "candidates": layout.groups_of_one(candidate_ids),
            "query": layout.one_segment(tokenize.tokenize(query)),
            "documents": document_ids,
        }
        # A candidate's own tokens are its first mention.
        row = candidate_ids.value_rowids()
        index = tf.range(tf.size(row, tf.int64)) - tf.gather(
            candidate_ids.row_starts(), row
        )
        own = contents["candidates"].with_flat_values(
            tf.repeat(index, candidate_ids.values.row_lengths())
        )
        made = self.engine(
            contents,
            links=[
                layout.Link("candidates", own, "candidates"),
                layout.Link("documents", linked, "candidates"),
            ],
        )
        return made, self._stats(made)

    def _stats(self, made: layout.Layout) -> WikiHopStats:
        """Sums up what the engine counted."""
        names = [section.name for section in self.engine.sections]
        counts = made.counts
        is_document = tf.equal(
            made.long_sources[:, :, 0], names.index("documents")
        )
        linked = tf.logical_and(
            is_document, made.features["l2g_linked_ids"] >= 0
        )
        return WikiHopStats(
            tokens=tf.add_n([counts[name].tokens for name in names]),
            kept_tokens=tf.add_n([counts[name].kept_tokens for name in names]),
            sentences=counts["documents"].segments,
            kept_sentences=counts["documents"].kept_segments,
            documents=counts["documents"].groups,
            kept_documents=counts["documents"].kept_groups,
            candidates=counts["candidates"].segments,
            kept_candidates=counts["candidates"].kept_segments,
            links=tf.reduce_sum(tf.cast(linked, tf.int32), axis=1),
        )


def normalize_candidates(
    candidates: tf.Tensor | tf.RaggedTensor,
) -> tf.RaggedTensor:
    """Candidates without padding, clean, stripped and lower-cased.

    Example: `[[" New York ", "Rome", ""]]` gives `[["new york", "rome"]]`.

    Args:
        candidates: <string>[batch, n], padded, or <string>[batch, (n)].

    Returns:
        <string>[batch, (candidates)].
    """
    candidates = tokenizers.sanitize(without_padding(candidates))
    values = tf.strings.strip(candidates.flat_values)
    return candidates.with_flat_values(
        tf.strings.lower(values, encoding="utf-8")
    )
