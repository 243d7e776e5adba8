"""BERT's uncased tokenization by Hugging Face's `tokenizers`, a reference.

Benchmarks and tests compare the graph code with it. Token ids are the same.
Two things differ from the library's defaults:

*   Words of up to 200 characters have pieces, as in BERT's own code; the
    library's default is 100.
*   What normalization drops, such as accents and control characters, belongs
    to the token before it; the library's offsets leave it out.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import tokenizers


class Token(NamedTuple):
    """A token, and where its text begins and ends, in characters."""

    id: int
    start: int
    end: int


class BertTokenizer:
    """Token ids of texts, and offsets.

    Attributes:
        tokens: the tokens, by their ids.
        vocab: token -> id.
    """

    def __init__(self, vocab: Sequence[str]):
        self.tokens = list(vocab)
        self.vocab = {token: i for i, token in enumerate(vocab)}
        self._tokenizer = tokenizers.Tokenizer(
            tokenizers.models.WordPiece(
                self.vocab, unk_token="[UNK]", max_input_chars_per_word=200
            )
        )
        normalizer = tokenizers.normalizers.BertNormalizer()
        self._tokenizer.normalizer = normalizer
        self._tokenizer.pre_tokenizer = (
            tokenizers.pre_tokenizers.BertPreTokenizer()
        )
        self._normalize = functools.cache(normalizer.normalize_str)

    def __call__(self, text: str) -> list[int]:
        """Returns token ids."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def with_offsets(self, text: str) -> list[Token]:
        """Returns tokens with offsets, `"Ünd"` -> `[Token(id, 0, 3)]`."""
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        tokens = []
        for token, (start, end) in zip(
            encoded.ids, encoded.offsets, strict=True
        ):
            while end < len(text) and not self._normalize(text[end]):
                end += 1
            tokens.append(Token(token, start, end))
        return tokens
