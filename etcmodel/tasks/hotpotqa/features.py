"""HotpotQA: raw strings to EtcFeatures; the specification of its layout.

Long input: a CLS token, the question, every paragraph: its title and its
sentences. Global input: a CLS token, one for each token of the question, and
for each paragraph one of its own, one for its title and one for each sentence.

Source: ETC paper, Appendix C (HotpotQA) and Figure 5.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import layout
from etcmodel.feature_utils import layout_sources
from etcmodel.feature_utils import texts
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils import tokenizers


@dataclasses.dataclass(frozen=True)
class HotpotQAFeatureConfig:
    """Sizes; the defaults are the paper's.

    Attributes:
        long_length: length of the long input; None for as long as the longest
            record of a batch needs (and nothing is cut for it).
        global_length: length of the global input; likewise.
    """

    long_length: int | None = 4096
    global_length: int | None = 256


class HotpotQAContext(NamedTuple):
    """Where the tokens of a batch come from: what answers are read from.

    A record's *segments* are its titles and sentences in one row, in the order
    of the record: the first title, its sentences, the second title, ...

    Attributes:
        segments: the texts, <string>[batch, (segments)].
        paragraph_sizes: how many segments each paragraph has, its title
            included; 0 for one without any text. <int64>[batch, (paragraphs)].
        global_segments: the segment of each global token; -1 for those of the
            CLS, the question, a paragraph, and padding.
            <int32>[batch, global_length].
        starts: where each long token starts in its segment, in bytes; -1 for
            tokens of no segment. <int32>[batch, long_length].
        ends: its exclusive end, likewise.
    """

    segments: tf.RaggedTensor
    paragraph_sizes: tf.RaggedTensor
    global_segments: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor


def hotpotqa_sections(
    special_ids: dict[str, int],
) -> tuple[layout.Section, ...]:
    """The specification for the layout engine.

    A title or sentence for which there is no room is left out whole; shorter
    ones after it may still find some.

    Args:
        special_ids: ids of the global tokens (see `tokenizers`).

    Returns:
        The sections "cls", "question" and "context".
    """
    return (
        layout.Section(
            "cls",
            token_type_id=token_types.SENTENCE,
            segment_global=layout.GlobalToken(
                special_ids["cls"], token_types.CLS_GLOBAL
            ),
            link_sentences=False,
            cut="keep",
        ),
        layout.Section(
            "question",
            token_type_id=token_types.QUESTION,
            token_global=layout.GlobalToken(
                special_ids["question"], token_types.QUESTION_GLOBAL
            ),
            cut="keep",
        ),
        layout.Section(
            "context",
            token_type_id=token_types.SENTENCE,
            first_segment_token_type_id=token_types.TITLE,
            group_global=layout.GlobalToken(
                special_ids["paragraph"], token_types.PARAGRAPH_GLOBAL
            ),
            segment_global=layout.GlobalToken(
                special_ids["sentence"], token_types.GLOBAL
            ),
            cut="fit",
        ),
    )


class HotpotQAFeatureBuilder(tf.Module):
    """Turns batches of raw strings into EtcFeatures; graph code.

    The same code for preprocessing and for serving. A record's features do not
    depend on the batch it is in (but for their lengths, where those are None).

    Attributes:
        config: the sizes.
        tokenizer: the tokenizer.
        engine: the layout engine with HotpotQA's specification.
    """

    def __init__(
        self,
        config: HotpotQAFeatureConfig,
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
            hotpotqa_sections(tokenizer.special_ids),
            config.long_length,
            config.global_length,
        )

    # There is nothing in it for AutoGraph, which would make tracing slow.
    @tf.autograph.experimental.do_not_convert
    def build(
        self,
        question: tf.Tensor,
        titles: tf.Tensor | tf.RaggedTensor,
        sentences: tf.Tensor | tf.RaggedTensor,
    ) -> tuple[layout.Layout, HotpotQAContext]:
        """Builds the features of a batch.

        Args:
            question: <string>[batch].
            titles: <string>[batch, paragraphs], padded with "" at the end, or
                <string>[batch, (paragraphs)].
            sentences: those of each paragraph, likewise
                <string>[batch, paragraphs, sentences] or
                <string>[batch, (paragraphs), (sentences)].

        Returns:
            The layout, with the EtcFeatures `<int32>[batch, long_length]` and
            `<int32>[batch, global_length]`, and where its tokens come from.

        Raises:
            tf.errors.InvalidArgumentError: when run, if the inputs differ in
                the number of records or paragraphs.
        """
        # [batch, (paragraphs), (1 + sentences)]
        context = tokenizers.sanitize(
            texts.without_padding(
                tf.concat([tf.expand_dims(titles, 2), sentences], axis=2)
            )
        )
        token_ids, starts, ends = self.tokenizer.tokenize_with_offsets(context)
        batch = tf.size(question)
        cls = layout.constant_tokens([self.tokenizer.special_ids["cls"]], batch)
        question_ids = self.tokenizer.tokenize(tokenizers.sanitize(question))
        made = self.engine(
            {
                "cls": layout.one_segment(cls),
                "question": layout.one_segment(question_ids),
                "context": token_ids,
            }
        )
        index = [section.name for section in self.engine.sections].index(
            "context"
        )
        return made, HotpotQAContext(
            segments=context.merge_dims(1, 2),
            paragraph_sizes=context.with_values(context.values.row_lengths()),
            global_segments=layout_sources.segment_indices(
                made.global_sources, index, context
            ),
            starts=layout_sources.token_values(
                made.long_sources, index, starts
            ),
            ends=layout_sources.token_values(made.long_sources, index, ends),
        )
