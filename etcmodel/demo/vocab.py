"""Builds a WordPiece vocabulary from texts."""

import os
from collections.abc import Iterable

import tensorflow as tf
from tensorflow_text.tools.wordpiece_vocab import bert_vocab_from_dataset

from etcmodel.feature_utils.text import tokenizers

_BATCH_SIZE = 1000


def build_vocab(
    texts: Iterable[str], vocab_file: str, vocab_size: int = 1000
) -> int:
    """Builds a lower-case vocabulary with tensorflow-text's vocabulary tool.

    The vocabulary starts with the tokens that this package needs
    (`tokenizers.WORDPIECE_RESERVED_TOKENS`). It contains every letter of the
    texts, so that no word made of these letters is unknown. The file has one
    token per line, and appears only when it is complete.

    Returns:
        The number of tokens: about `vocab_size`, or fewer if the texts have few
        words.
    """
    dataset = tf.data.Dataset.from_tensor_slices(list(texts))
    tokens = bert_vocab_from_dataset.bert_vocab_from_dataset(
        dataset.batch(_BATCH_SIZE),
        vocab_size=vocab_size,
        reserved_tokens=list(tokenizers.WORDPIECE_RESERVED_TOKENS),
        bert_tokenizer_params={"lower_case": True},
        learn_params={},
    )
    temporary = f"{vocab_file}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.writelines(f"{token}\n" for token in tokens)
    os.replace(temporary, vocab_file)
    return len(tokens)
