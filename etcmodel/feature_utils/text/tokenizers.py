"""WordPiece and SentencePiece tokenizers with one interface; graph code.

A tokenizer is a `tf.Module`. A SavedModel of a module that contains a tokenizer
contains the tokenizer, too. Such a SavedModel needs only TensorFlow and
tensorflow-text.

Both tokenizers replace invalid UTF-8 (see `sanitize`), so that a bad request
cannot stop a server.

WordPiece is BERT's tokenizer and agrees with the `tokenizers` library (see
`bert_words`): control characters are dropped, every punctuation mark and every
Chinese character is a word of its own, and a word is split greedily into the
longest pieces of the vocabulary. Whether text is lower-cased and loses its
accents depends on the vocabulary (see `tokenizer_settings`).

Special tokens in a text, such as "[CLS]", are ordinary text.
"""

import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils.text import bert_words
from etcmodel.feature_utils.text import tokenizer_settings
from etcmodel.feature_utils.text import vocabulary_files
from etcmodel.feature_utils.text.tf_text import tf_text
from etcmodel.ops import traces

# Name of a special token of the models -> its piece in a vocabulary. The ids
# are 101, 102 and 1 to 5 in BERT's vocabulary, and 40, 3, 1, 2 and 41 to 43 in
# the RoBERTa-equivalent SentencePiece model. (In the original code, the
# separator is <unused_2>, which that model lacks. The piece with the
# separator's id is <sep_0>.)
WORDPIECE_SPECIAL_TOKENS: dict[str, str] = {
    "cls": "[CLS]",
    "separator": "[SEP]",
    "sentence": "[unused0]",
    "cpc_mask": "[unused1]",
    "question": "[unused2]",
    "candidate": "[unused3]",
    "paragraph": "[unused4]",
}
SENTENCEPIECE_SPECIAL_TOKENS: dict[str, str] = {
    "cls": "<unused_39>",
    "separator": "<sep_0>",
    "sentence": "</s>",
    "cpc_mask": "<s>",
    "question": "<unused_40>",
    "candidate": "<unused_41>",
    "paragraph": "<unused_42>",
}

# Optional tokens: HTML tags, and the mask token, which replaces tokens that the
# model predicts.
WORDPIECE_OPTIONAL_TOKENS: dict[str, str] = {
    "html_open": "[unused102]",
    "html_close": "[unused103]",
    "mask": "[MASK]",
}
SENTENCEPIECE_OPTIONAL_TOKENS: dict[str, str] = {
    "html_open": "<unused_35>",
    "html_close": "<unused_36>",
    "mask": "<sep_1>",
}

# First tokens of a WordPiece vocabulary that is made for this package. All
# WordPiece vocabularies need these tokens, except "[MASK]".
WORDPIECE_RESERVED_TOKENS: tuple[str, ...] = (
    "[PAD]",
    *(f"[unused{i}]" for i in range(5)),
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
)
# The key of an unknown word is a polynomial of its bytes, modulo this prime.
_PRIME = 2**31 - 1
_WEIGHTS = np.array([pow(48271, i, _PRIME) for i in range(256)], np.int64)
# Control characters except tab, line feed and carriage return.
_NOT_TEXT = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"


def sanitize(texts: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
    r"""Replaces invalid bytes and control characters; keeps the shape.

    Each control character becomes a space, and invalid UTF-8 becomes U+FFFD.
    Graph code. Example: `b"caf\xe9 a\x00b"` gives `"caf\ufffd a b"`.
    """
    if isinstance(texts, tf.RaggedTensor):
        return texts.with_flat_values(sanitize(texts.flat_values))
    texts = tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace"
    )
    return tf.strings.regex_replace(texts, _NOT_TEXT, " ")


def _as_int32(offsets: tf.RaggedTensor) -> tf.RaggedTensor:
    return offsets.with_values(tf.cast(offsets.values, tf.int32))


class _Tokenizer(tf.Module):
    """Base class of both tokenizers. Strings may be ragged, of any rank.

    Attributes:
        kind: "wordpiece" or "sentencepiece".
        vocab_size: number of ids.
        special_ids: ids of the tokens named "cls", "separator", "sentence",
            "cpc_mask", "question", "candidate" and "paragraph" and, if the
            vocabulary has them, "html_open", "html_close" and "mask".
        unknown_id: id of text that the vocabulary has no pieces for.
        lower_case: whether text is lower-cased.
        settings: the `TokenizerSettings` of WordPiece; None for SentencePiece.
    """

    kind: str
    vocab_size: int
    special_ids: Mapping[str, int]
    unknown_id: int
    lower_case: bool
    settings: tokenizer_settings.TokenizerSettings | None = None
    # Regular expression that matches the tokens that continue a word.
    _continuation: str

    # Subclasses define `_tokenize_flat`, `_tokenize_flat_with_offsets` and
    # `_tokenize_flat_with_keys`, which take a vector and return a tuple.
    def _apply(self, method, texts) -> tuple[tf.RaggedTensor, ...]:
        """Applies a method that takes a vector to strings of any shape."""
        function = traces.once_method(method)
        if not isinstance(texts, tf.RaggedTensor):
            texts = tf.convert_to_tensor(texts, tf.string)
            if texts.shape.rank is None:
                raise ValueError(
                    "The rank of the texts is unknown. Set it with `set_shape`."
                )
            if texts.shape.rank == 0:
                # [(tokens)]
                return tuple(x[0] for x in function(texts[tf.newaxis]))
            if texts.shape.rank == 1:
                return tuple(function(texts))
            texts = tf.RaggedTensor.from_tensor(
                texts, ragged_rank=texts.shape.rank - 1
            )
        if texts.flat_values.shape.rank != 1:
            raise ValueError(
                "Ragged texts must be ragged in all their inner dimensions."
            )
        return tuple(
            texts.with_flat_values(x) for x in function(texts.flat_values)
        )

    def tokenize(self, texts: tf.Tensor | tf.RaggedTensor) -> tf.RaggedTensor:
        """Splits `<string>[...]` into tokens, `<int32>[..., (tokens)]`."""
        return self._apply(self._tokenize_flat, texts)[0]

    def tokenize_with_offsets(
        self, texts: tf.Tensor | tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Splits texts into tokens with offsets; graph code.

        Example: WordPiece splits "Unaffable é" into the tokens `una ##ffa ##ble
        e` with the starts `0 3 6 10` and the ends `3 6 9 12`. Offsets are in
        bytes of the text after `sanitize`.

        Returns:
            Ids, starts and exclusive ends, each `<int32>[..., (tokens)]`.
        """
        return self._apply(self._tokenize_flat_with_offsets, texts)

    def tokenize_with_keys(
        self, texts: tf.Tensor | tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Splits texts into tokens with comparable keys; graph code.

        All unknown words have the same id. Keys tell them apart: the key of a
        known token is its id, and the key of an unknown token is a hash of its
        text, which is at least `vocab_size`.

        Returns:
            Ids and keys, both `<int32>[..., (tokens)]`.
        """
        return self._apply(self._tokenize_flat_with_keys, texts)

    def _unknown_keys(
        self,
        texts: tf.Tensor,
        ids: tf.RaggedTensor,
        starts: tf.RaggedTensor,
        ends: tf.RaggedTensor,
    ) -> tf.RaggedTensor:
        """Returns keys: ids, with unknown ids replaced by hashes of text."""
        # [unknowns, 1]
        where = tf.where(tf.equal(ids.values, self.unknown_id))
        row = tf.gather(ragged_rows.owners_in(ids), where[:, 0])
        # All bytes are in one vector, so that a text is not copied for each
        # word.
        # [bytes]
        data = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
        sizes = tf.cast(tf.strings.length(texts), tf.int64)
        # [unknowns]
        start = tf.cast(tf.gather(starts.values, where[:, 0]), tf.int64)
        end = tf.cast(tf.gather(ends.values, where[:, 0]), tf.int64)
        base = tf.gather(tf.cumsum(sizes, exclusive=True), row)
        # The bytes of each unknown word, and the index of each byte in the
        # word.
        # [unknowns, (bytes)]
        place = tf.ragged.range(end - start, row_splits_dtype=tf.int64)
        word = ragged_rows.owners_in(place)
        place = place.values
        values = tf.gather(data, place + tf.gather(base + start, word))
        weights = tf.gather(_WEIGHTS, place % len(_WEIGHTS))
        weights *= 1 + place // len(_WEIGHTS)
        # [unknowns]
        hashes = tf.math.unsorted_segment_sum(
            tf.cast(values, tf.int64) * (weights % _PRIME), word, tf.size(row)
        )
        keys = self.vocab_size + hashes % (_PRIME - self.vocab_size)
        return ids.with_values(
            tf.tensor_scatter_nd_update(
                ids.values, where, tf.cast(keys, tf.int32)
            )
        )

    def is_continuation(
        self, ids: tf.Tensor | tf.RaggedTensor
    ) -> tf.Tensor | tf.RaggedTensor:
        """Marks tokens that continue a word, `<int32>`; graph code.

        Example: the pieces `una ##ffa ##ble no` of WordPiece and `▁Un aff able
        ▁é` of SentencePiece both give `0 1 1 0`.
        """
        if isinstance(ids, tf.RaggedTensor):
            return ids.with_flat_values(self.is_continuation(ids.flat_values))
        return tf.cast(
            tf.strings.regex_full_match(
                self.id_to_token(ids), self._continuation
            ),
            tf.int32,
        )

    def id_to_token(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens with ids in 0 .. vocab_size - 1; graph code."""
        raise NotImplementedError


class WordpieceTokenizer(_Tokenizer):
    """BERT's tokenizer; see the module's docstring.

    `vocab_file` has one token per line. The other arguments are described in
    `TokenizerSettings`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a WordPiece vocabulary (see `load_vocab`) or
            lacks a reserved token, or `max_chars_per_word` is not positive.
    """

    kind = "wordpiece"
    _continuation = "##.+"

    def __init__(
        self,
        vocab_file: str | os.PathLike,
        lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        clean_text: bool = True,
        max_chars_per_word: int = 200,
        name: str | None = None,
    ):
        super().__init__(name=name)
        tokens = vocabulary_files.load_vocab(vocab_file)
        _check_reserved(tokens, vocab_file)
        if max_chars_per_word < 1:
            raise ValueError(
                f"max_chars_per_word is {max_chars_per_word}, expected 1 or "
                "more."
            )
        self.settings = tokenizer_settings.TokenizerSettings(
            lower_case=lower_case,
            strip_accents=strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
            clean_text=clean_text,
            max_chars_per_word=max_chars_per_word,
        ).resolve(is_uncased=lower_case)
        self.lower_case = lower_case
        self.vocab_size = len(tokens)
        # If a token is repeated, its last id counts.
        ids = {token: i for i, token in enumerate(tokens)}
        self.unknown_id = ids["[UNK]"]
        self.special_ids = {
            name: ids[token]
            for name, token in {
                **WORDPIECE_SPECIAL_TOKENS,
                **WORDPIECE_OPTIONAL_TOKENS,
            }.items()
            if token in ids
        }
        self._tokens = tuple(tokens)
        self._words = bert_words.BertWords(
            self.settings.lower_case,
            self.settings.strip_accents,
            self.settings.tokenize_chinese_chars,
            self.settings.clean_text,
        )
        self._tokenizer = tf_text.FastWordpieceTokenizer(
            # If a token is repeated, replaces all but its last occurrence by a
            # line feed and a number, which never match text.
            vocab=[
                token if ids[token] == i else f"\n{i}"
                for i, token in enumerate(tokens)
            ],
            unknown_token="[UNK]",
            token_out_type=tf.int32,
            max_bytes_per_word=4 * max_chars_per_word,
            support_detokenization=False,
            no_pretokenization=True,
        )

    def _known(self, words: bert_words.Words) -> tf.Tensor:
        """Returns the words; an unknown word replaces each too long word."""
        max_chars = self.settings.max_chars_per_word
        return tf.where(
            words.num_chars > max_chars, "x" * (4 * max_chars + 1), words.texts
        )

    def _tokenize_flat(self, texts):
        words = self._words(texts)
        return (words.join(self._tokenizer.tokenize(self._known(words))),)

    def _tokenize_flat_with_offsets(self, texts):
        words = self._words(texts)
        ids, starts, ends = self._tokenizer.tokenize_with_offsets(
            self._known(words)
        )
        # An unknown word is one token, which ends at the end of the word.
        ends = ends.with_values(
            tf.where(ids.values == self.unknown_id, ends.dtype.max, ends.values)
        )
        return words.join_spans(ids, starts, ends)

    def _tokenize_flat_with_keys(self, texts):
        words = self._words(texts)
        ids = self._tokenizer.tokenize(self._known(words))
        # An unknown word is one token.
        ends = tf.gather(
            tf.strings.length(words.texts), ragged_rows.owners_in(ids)
        )
        keys = self._unknown_keys(
            words.texts,
            ids,
            ids.with_values(tf.zeros_like(ends)),
            ids.with_values(ends),
        )
        return words.join(ids), words.join(keys)

    def id_to_token(self, ids):
        """Returns the tokens with the given ids; graph code."""
        return tf.gather(tf.constant(self._tokens), ids)


class SentencepieceTokenizer(_Tokenizer):
    """Tokenizer with a SentencePiece model (`.model`); keeps the case of text.

    The original code splits the comma off pieces such as "1,". This class does
    not: the RoBERTa-equivalent model of ETC has no such pieces.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a SentencePiece model, or lacks a special
            piece.
    """

    kind = "sentencepiece"
    lower_case = False
    _continuation = "[^\u2581].*"

    def __init__(self, model_file: str | os.PathLike, name: str | None = None):
        super().__init__(name=name)
        path = os.fspath(model_file)
        what = "a SentencePiece model"
        model = vocabulary_files.read_file(path, what)
        with tf.init_scope():
            try:
                self._tokenizer = tf_text.SentencepieceTokenizer(
                    model, out_type=tf.int32
                )
                self.vocab_size = int(self._tokenizer.vocab_size())
            except tf.errors.OpError:
                raise ValueError(
                    f"The file {path} is damaged, or not a SentencePiece "
                    f"model: expected {what}."
                ) from None
            ids = {
                name: int(self._tokenizer.string_to_id(piece))
                for name, piece in {
                    **SENTENCEPIECE_SPECIAL_TOKENS,
                    **SENTENCEPIECE_OPTIONAL_TOKENS,
                }.items()
            }
            pieces = {
                name: self._tokenizer.id_to_string(i).numpy().decode()
                for name, i in ids.items()
            }
            first = self._tokenizer.id_to_string(0).numpy().decode()
            # No piece contains U+FFFF, so this is the unknown id.
            self.unknown_id = int(self._tokenizer.string_to_id("\uffff"))
        missing = [
            piece
            for name, piece in SENTENCEPIECE_SPECIAL_TOKENS.items()
            if pieces[name] != piece
        ]
        if missing or first != "<pad>":
            raise ValueError(
                f"The SentencePiece model {path} lacks the pieces "
                f"{missing or ['<pad> with the id 0']}: expected the "
                "RoBERTa-equivalent model of the ETC checkpoints, or one with "
                "its special pieces."
            )
        self.special_ids = {
            name: i
            for name, i in ids.items()
            if name in SENTENCEPIECE_SPECIAL_TOKENS
            or pieces[name] == SENTENCEPIECE_OPTIONAL_TOKENS[name]
        }

    def _clean(self, texts: tf.Tensor) -> tf.Tensor:
        """Sanitizes texts, and replaces line breaks and tabs by spaces."""
        return tf.strings.regex_replace(sanitize(texts), r"\s", " ")

    def _tokenize_flat(self, texts):
        return (self._tokenizer.tokenize(self._clean(texts)),)

    def _tokenize_flat_with_offsets(self, texts):
        ids, starts, ends = self._tokenizer.tokenize_with_offsets(
            self._clean(texts)
        )
        return ids, _as_int32(starts), _as_int32(ends)

    def _tokenize_flat_with_keys(self, texts):
        texts = self._clean(texts)
        ids, starts, ends = self._tokenizer.tokenize_with_offsets(texts)
        return ids, self._unknown_keys(texts, ids, starts, ends)

    def id_to_token(self, ids):
        """Returns the pieces with the given ids; graph code."""
        if isinstance(ids, tf.RaggedTensor):
            return ids.with_flat_values(self.id_to_token(ids.flat_values))
        return self._tokenizer.id_to_string(tf.cast(ids, tf.int32))


def _check_reserved(tokens: list[str], path: str | os.PathLike) -> None:
    needed = {"[PAD]", "[UNK]", *WORDPIECE_SPECIAL_TOKENS.values()}
    missing = sorted(needed - set(tokens))
    if missing:
        raise ValueError(
            f"The vocabulary {os.fspath(path)} ({len(tokens)} tokens) lacks "
            f"{missing}: expected a WordPiece vocabulary (text, one token per "
            f"line) with all of {sorted(needed)}, such as BERT's."
        )
    if tokens[0] != "[PAD]":
        raise ValueError(
            f"The first token of the vocabulary {os.fspath(path)} is "
            f"{tokens[0]!r}: expected '[PAD]', because padding has the id 0."
        )


def _has_capitals(vocab: list[str]) -> bool:
    cased = sum(
        token != token.lower() for token in vocab if not token.startswith("[")
    )
    return cased > len(vocab) / 100


def make_tokenizer(
    vocab_file: str | os.PathLike,
    settings: tokenizer_settings.TokenizerSettings | None = None,
) -> WordpieceTokenizer | SentencepieceTokenizer:
    """Makes a WordPiece or SentencePiece tokenizer from a vocabulary file.

    The content of the file determines the type: a WordPiece vocabulary is text
    with one token per line, and a SentencePiece model is a protocol buffer. For
    WordPiece, `tokenizer_config.json` and `tokenizer.json` in the same folder
    set the defaults, which `settings` override. If nothing sets `lower_case`,
    text is lower-cased if at most 1 % of the tokens have capital letters.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is neither a vocabulary nor a model, `settings` are
            given for a SentencePiece model, or
            `tokenizer_settings.read_settings` rejects a file.
    """
    path = os.fspath(vocab_file)
    settings = settings or tokenizer_settings.TokenizerSettings()
    content = vocabulary_files.read_file(
        path, "a WordPiece vocabulary or a SentencePiece model"
    )
    if vocabulary_files.is_text(content):
        said = tokenizer_settings.read_settings(os.path.dirname(path))
        resolved = said.override(settings).resolve(
            not _has_capitals(vocabulary_files.load_vocab(path))
        )
        return WordpieceTokenizer(path, **resolved._asdict())
    given = [k for k, v in settings._asdict().items() if v is not None]
    if given:
        raise ValueError(
            f"{path} is a SentencePiece model, which contains its settings. "
            f"Leave out {', '.join(given)}."
        )
    try:
        return SentencepieceTokenizer(path)
    except ValueError as error:
        raise ValueError(
            f"{error} (A WordPiece vocabulary must be UTF-8 text.)"
        ) from None
