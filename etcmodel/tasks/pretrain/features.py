"""Documents to texts of sentences that are stored, several in an example."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from etcmodel.datasets.documents import Document
from etcmodel.feature_utils import random_masks
from etcmodel.feature_utils.text import sentences
from etcmodel.feature_utils.text import tokenizers
from etcmodel.feature_utils.text.tokenizer_settings import TokenizerSettings
from etcmodel.pipeline import example_writer
from etcmodel.pipeline import packing
from etcmodel.pipeline.preprocessor import make_builder
from etcmodel.pipeline.preprocessor import pad
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.tasks.pretrain.task import PretrainFeatureConfig

# What is stored: of each token, the number of tokens of each sentence, and
# that of sentences of each text.
TOKEN_FEATURES = ("token_ids", "is_continuation")
SENTENCE_LENGTHS = "sentence_lengths"
TEXT_LENGTHS = "text_lengths"
FEATURES = (*TOKEN_FEATURES, SENTENCE_LENGTHS, TEXT_LENGTHS)

_STRINGS = tf.TensorSpec([None], tf.string)


class SentenceBuilder(tf.Module):
    """Turns documents into tokens of sentences.

    Attributes:
        config: sizes.
        tokenizer: what cuts sentences into tokens.
    """

    def __init__(self, config: PretrainFeatureConfig, tokenizer, name=None):
        """Creates the builder.

        Args:
            config: sizes.
            tokenizer: a tokenizer of `tokenizers`.
            name: name of the module.

        Raises:
            ValueError: the vocabulary has no token for what is masked.
        """
        super().__init__(name=name)
        random_masks.check_can_mask(tokenizer)
        self.config = config
        self.tokenizer = tokenizer

    def build(self, texts: tf.Tensor):
        """Cuts documents into sentences, and those into tokens; graph code.

        Args:
            texts: `<string>[documents]`, UTF-8.

        Returns:
            `<int64>[documents]` the number of sentences of each, `<int64>
            [sentences]` the number of tokens of each, and `<int32>[tokens]` the
            tokens and whether they go on with a word.
        """
        # [documents, (sentences)]
        found = sentences.split_sentences(tokenizers.sanitize(texts))
        # [sentences, (tokens)]
        token_ids = self.tokenizer.tokenize(found.values)
        return (
            found.row_lengths(),
            token_ids.row_lengths(),
            token_ids.values,
            tf.cast(self.tokenizer.is_continuation(token_ids).values, tf.int32),
        )


def divide(
    lengths: Sequence[int], long_length: int, global_length: int
) -> Iterator[tuple[int, int]]:
    """Divides a document between sentences, so that its parts fit.

    Example: sentences of 3, 3, 2, 6 and 1 tokens become, with 8 tokens and 3
    sentences at most, the parts from 0 to 3 and from 3 to 5.

    Args:
        lengths: tokens of each sentence, none longer than `long_length`.
        long_length: tokens of a part at most.
        global_length: its sentences at most.

    Yields:
        First sentence of each part and the one behind its last.
    """
    start = used = 0
    for i, length in enumerate(lengths):
        if used + length > long_length or i - start == global_length:
            yield start, i
            start, used = i, 0
        used += length
    if start < len(lengths):
        yield start, len(lengths)


class PretrainEncoder(example_writer.RecordEncoder):
    """Turns documents into serialized texts that fit into an example."""

    def __init__(
        self,
        spec: TaskSpec,
        config: PretrainFeatureConfig,
        vocab_file: str,
        settings: TokenizerSettings | None = None,
    ):
        """Creates the encoder.

        Args:
            spec: the task.
            config: sizes.
            vocab_file: a WordPiece vocabulary or a SentencePiece model.
            settings: counts more than what the files beside the vocabulary
                say; see `tokenizers.make_tokenizer`.

        Raises:
            UserError: the vocabulary cannot be used.
        """
        builder = make_builder(SentenceBuilder, config, vocab_file, settings)
        super().__init__(spec, builder)
        self._build = tf.function(
            builder.build, input_signature=[_STRINGS], autograph=False
        )

    def encode(self, records, split):
        """See `RecordEncoder`."""
        del split  # Both are stored alike.
        texts = pad([x.text for x in records], _STRINGS)
        numbers, lengths, *values = (x.numpy() for x in self._build(texts))
        sentence_ends = np.cumsum(numbers)
        token_ends = np.cumsum(lengths)
        encoded = []
        for record, number, end in zip(
            records, numbers, sentence_ends, strict=True
        ):
            rows = slice(end - number, end)
            tokens = slice(
                *(
                    token_ends[x - 1] if x else 0
                    for x in (rows.start, rows.stop)
                )
            )
            encoded.append(
                self._encode(record, lengths[rows], [x[tokens] for x in values])
            )
        return encoded

    def _encode(self, document: Document, lengths, values):
        """Divides and serializes one document."""
        del document
        size = self.config.long_length
        lengths = lengths[lengths > 0]
        # Of longer sentences there are several pieces.
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
            return example_writer.EncodedRecord(
                [],
                {
                    "documents_of_too_few_sentences": 1,
                    "tokens_of_too_few_sentences": counts["tokens"],
                },
            )
        ends = np.cumsum([0, *pieces])
        examples = []
        for start, end in divide(pieces, size, self.config.global_length):
            token_ids, is_continuation = (
                x[ends[start] : ends[end]] for x in values
            )
            # Where a word was cut, its rest stands alone.
            is_continuation[0] = 0
            examples.append(
                example_writer.serialize(
                    {
                        "token_ids": token_ids,
                        "is_continuation": is_continuation,
                        SENTENCE_LENGTHS: pieces[start:end],
                        TEXT_LENGTHS: [end - start],
                    }
                )
            )
        counts["texts"] = len(examples)
        counts["documents_divided"] = int(len(examples) > 1)
        return example_writer.EncodedRecord(examples, counts)

    def make_packer(self):
        """Puts several texts into each example."""
        return packing.ExamplePacker(
            {
                "token_ids": self.config.long_length,
                SENTENCE_LENGTHS: self.config.global_length,
            }
        )

    def summarize(self, counts: Mapping[str, int], number: int):
        """How well texts are packed, and how many examples that saves.

        `packing_efficiency` is how much of the long inputs is text, and
        `texts_per_example` how many times the examples there would be without
        packing.
        """
        return {
            "packing_efficiency": counts["tokens"]
            / (number * self.config.long_length),
            "texts_per_example": counts["texts"] / number,
        }
