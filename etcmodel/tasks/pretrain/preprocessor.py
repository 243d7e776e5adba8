"""Preprocesses documents for ETC's pre-training; packs short ones together."""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import random_masks
from etcmodel.feature_utils.text import sentences
from etcmodel.feature_utils.text import tokenizers
from etcmodel.pipeline.example_schema import INPUT
from etcmodel.pipeline.example_schema import ExampleSchema
from etcmodel.pipeline.example_schema import Field
from etcmodel.pipeline.example_schema import Packing
from etcmodel.pipeline.preprocessor import Examples
from etcmodel.pipeline.preprocessor import Preprocessor
from etcmodel.pipeline.raw_inputs import RawInput


class Sentences(NamedTuple):
    """The sentences of documents, one after the other.

    Attributes:
        numbers: `<int64>[documents]` number of sentences of each document.
        lengths: `<int64>[sentences]` number of tokens of each sentence.
        token_ids: `<int32>[tokens]`.
        is_continuation: `<int32>[tokens]` whether a token continues a word.
    """

    numbers: tf.Tensor
    lengths: tf.Tensor
    token_ids: tf.Tensor
    is_continuation: tf.Tensor


def divide(
    lengths: Sequence[int], long_length: int, global_length: int
) -> Iterator[tuple[int, int]]:
    """Divides a document, at sentence ends, into the longest possible parts.

    Example: with at most 8 tokens and 3 sentences, sentences of 3, 3, 2, 6 and
    1 tokens are divided into the parts (0, 3) and (3, 5). No sentence may be
    longer than `long_length`.
    """
    start = used = 0
    for i, length in enumerate(lengths):
        if used + length > long_length or i - start == global_length:
            yield start, i
            start, used = i, 0
        used += length
    if start < len(lengths):
        yield start, len(lengths)


class PretrainPreprocessor(Preprocessor):
    """Splits documents into sentences, and sentences into tokens.

    Raises a ValueError if the vocabulary has no mask token.
    """

    INPUTS = {"text": RawInput(tf.string, ("records",))}
    SCHEMA = ExampleSchema(
        Packing(
            {"token_ids": "long_length", "sentence_lengths": "global_length"}
        ),
        token_ids=Field("list", INPUT),
        is_continuation=Field("list", INPUT),
        # Number of tokens of each sentence.
        sentence_lengths=Field("list", INPUT),
        # Number of sentences of each text.
        text_lengths=Field("list", INPUT),
    )

    def __init__(self, config, tokenizer, name=None):
        random_masks.check_can_mask(tokenizer)
        super().__init__(config, tokenizer, name)

    def build(self, text: tf.Tensor) -> Sentences:
        """Splits documents, `<string>[documents]` in UTF-8."""
        # [documents, (sentences)]
        found = sentences.split_sentences(tokenizers.sanitize(text))
        # [sentences, (tokens)]
        token_ids = self.tokenizer.tokenize(found.values)
        return Sentences(
            found.row_lengths(),
            token_ids.row_lengths(),
            token_ids.values,
            tf.cast(self.tokenizer.is_continuation(token_ids).values, tf.int32),
        )

    @staticmethod
    def raw(record):
        """Returns the text of a record."""
        return {"text": record.text}

    def view(self, batch, index):
        """Returns one document of a batch of `build`, as arrays."""
        first, last = (batch.numbers[:x].sum() for x in (index, index + 1))
        start, end = (batch.lengths[:x].sum() for x in (first, last))
        return Sentences(
            batch.numbers[index : index + 1],
            batch.lengths[first:last],
            batch.token_ids[start:end],
            batch.is_continuation[start:end].copy(),
        )

    def examples(self, record, view, split):
        """Returns the examples of a document, divided into texts that fit."""
        del record, split
        size = self.config.long_length
        lengths = view.lengths[view.lengths > 0]
        # Sentences that are too long are split into pieces.
        pieces = [
            min(size, length - start)
            for length in lengths.tolist()
            for start in range(0, length, size)
        ]
        counts = {
            "sentences": len(lengths),
            "sentences_divided": int(np.count_nonzero(lengths > size)),
            "tokens": int(lengths.sum()),
        }
        if len(lengths) < self.config.min_sentences:
            return Examples(
                [],
                {
                    "documents_of_too_few_sentences": 1,
                    "tokens_of_too_few_sentences": counts["tokens"],
                },
            )
        ends = np.cumsum([0, *pieces])
        # The first token of a part counts as the start of a word, even if a
        # word was split there.
        parts = list(divide(pieces, size, self.config.global_length))
        view.is_continuation[ends[[start for start, _ in parts]]] = 0
        texts = [
            {
                "token_ids": view.token_ids[ends[start] : ends[end]],
                "is_continuation": view.is_continuation[
                    ends[start] : ends[end]
                ],
                "sentence_lengths": pieces[start:end],
                "text_lengths": [end - start],
            }
            for start, end in parts
        ]
        counts["texts"] = len(texts)
        counts["documents_divided"] = int(len(texts) > 1)
        return Examples(texts, counts)

    def summarize(self, counts, number):
        """Adds statistics of how well texts are packed.

        `packing_efficiency` is the share of the long inputs that is text.
        """
        return {
            "packing_efficiency": counts["tokens"]
            / (number * self.config.long_length),
            "texts_per_example": counts["texts"] / number,
        }
