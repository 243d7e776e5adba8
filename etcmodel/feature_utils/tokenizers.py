"""WordPiece and SentencePiece behind one small interface; graph code.

A tokenizer is a `tf.Module`: held by an exported module, it travels with the
SavedModel, which then needs the ops of TensorFlow and tensorflow-text alone.

Both see text cleaned by `sanitize`, so invalid UTF-8 cannot stop a server.

WordPiece is BERT's: control characters go, text is lower-cased and loses its
accents (NFD), every punctuation mark and every CJK character is a word of its
own, and a word is cut greedily into the longest pieces of the vocabulary. The
ops differ from BERT's Python code in a few rare characters:

* compatibility characters are spelled out and cases folded when lower-casing
  (`ﬁ` -> `fi`, `½` -> `1⁄2`, `ß` -> `ss`; BERT keeps them);
* control characters and U+FFFD separate words (BERT drops them and joins what
  they separate); when lower-casing, the invisible ones of them, such as soft
  hyphens, are dropped as by BERT, and so are Hangul fillers (BERT keeps them);
* the longest word that is not unknown has 200 bytes (BERT: characters).

Special tokens that stand in the text, such as "[CLS]", are ordinary text.
"""

import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from etcmodel.feature_utils.tf_text import tf_text

# Names of the tokens with a meaning for the models, with the piece that each
# kind of vocabulary lends to it. In BERT's vocabulary these are 101, 102 and 1
# to 5, in the RoBERTa-equivalent SentencePiece model 40, 3, 1, 2 and 41 to 43.
# (The original code names the separator <unused_2>, which that model lacks: the
# piece with its number is <sep_0>.)
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

# Those that a vocabulary need not have: what stands for HTML tags, and for
# tokens that are to be predicted.
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

# What a WordPiece vocabulary must have, in the order in which one that is
# made for this package can begin.
WORDPIECE_RESERVED_TOKENS: tuple[str, ...] = (
    "[PAD]",
    "[unused0]",
    "[unused1]",
    "[unused2]",
    "[unused3]",
    "[unused4]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
)
_MAX_BYTES_PER_WORD = 200
# More than a string of TensorFlow can have.
_MAX_BYTES = 2**40
# Keys of unknown words: a polynomial of their bytes, less than this prime.
_PRIME = 2**31 - 1
_WEIGHTS = np.array([pow(48271, i, _PRIME) for i in range(256)], np.int64)
# Of control characters only tab, line feed and carriage return are text.
_NOT_TEXT = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"


def sanitize(texts: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
    r"""Makes any bytes readable text; graph code.

    Control characters become spaces, one for one; what is not UTF-8 becomes
    U+FFFD. Valid text without control characters is left as it is.

    Example: `b"caf\xe9 a\x00b"` gives `"caf\ufffd a b"`.

    Args:
        texts: <string>[...], dense or ragged.

    Returns:
        <string>[...] of the same shape.
    """
    if isinstance(texts, tf.RaggedTensor):
        return texts.with_flat_values(sanitize(texts.flat_values))
    texts = tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace"
    )
    return tf.strings.regex_replace(texts, _NOT_TEXT, " ")


def _as_int32(offsets: tf.RaggedTensor) -> tf.RaggedTensor:
    """Offsets of either tokenizer as <int32>[n, (tokens)]."""
    return offsets.with_values(tf.cast(offsets.values, tf.int32))


def _read_file(path: str | os.PathLike, what: str) -> bytes:
    """Content of a vocabulary file."""
    path = os.fspath(path)
    if tf.io.gfile.isdir(path):
        raise ValueError(f"{path} is a folder: expected {what}.")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = file.read()
    except tf.errors.NotFoundError:
        raise FileNotFoundError(
            f"There is no file {path}: expected {what}."
        ) from None
    except tf.errors.OpError as error:
        raise ValueError(f"Cannot read {path}: {error.message}") from error
    if not content:
        raise ValueError(f"The file {path} is empty: expected {what}.")
    return content


def load_vocab(vocab_file: str | os.PathLike) -> list[str]:
    """Reads a WordPiece vocabulary: one token a line, its id the line's number.

    Tokens are stripped. A duplicate keeps its first id and moves those after
    it, as in BERT's code; a warning says so.

    Args:
        vocab_file: path of the file, UTF-8.

    Returns:
        The tokens in the order of their ids.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is no such vocabulary, or lacks a reserved token.
    """
    path = os.fspath(vocab_file)
    what = "a WordPiece vocabulary (text, one token a line)"
    content = _read_file(path, what)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"The file {path} is not UTF-8 text (byte {error.start}): expected "
            f"{what}."
        ) from None
    if "\x00" in text:
        raise ValueError(f"The file {path} is binary: expected {what}.")
    # Only line feeds end a line: other separators can be tokens.
    lines = [line.strip() for line in text.rstrip().split("\n")]
    blank = [number for number, line in enumerate(lines, 1) if not line]
    if blank:
        raise ValueError(
            f"Line {blank[0]} of the vocabulary {path} is blank: expected a "
            "token on every line."
        )
    tokens = list(dict.fromkeys(lines))
    if len(tokens) < len(lines):
        logging.warning(
            "%s has %d duplicate tokens: the ids of those behind them move.",
            path,
            len(lines) - len(tokens),
        )
    needed = {"[PAD]", "[UNK]", *WORDPIECE_SPECIAL_TOKENS.values()}
    missing = sorted(needed - set(tokens))
    if missing:
        raise ValueError(
            f"The vocabulary {path} ({len(tokens)} tokens) lacks {missing}: "
            f"expected {what} with all of {sorted(needed)}, such as BERT's."
        )
    if tokens[0] != "[PAD]":
        raise ValueError(
            f"The first token of the vocabulary {path} is {tokens[0]!r}: "
            "expected '[PAD]', because padding has the id 0."
        )
    return tokens


class _Tokenizer(tf.Module):
    """What both kinds share: any rank, dense or ragged.

    Attributes:
        kind: "wordpiece" or "sentencepiece".
        vocab_size: number of ids.
        special_ids: ids of the tokens named "cls", "separator", "sentence",
            "cpc_mask", "question", "candidate" and "paragraph" and, if the
            vocabulary has them, "html_open", "html_close" and "mask".
        unknown_id: id of what the vocabulary cannot express.
        lower_case: whether case is lost.
    """

    kind: str
    vocab_size: int
    special_ids: Mapping[str, int]
    unknown_id: int
    lower_case: bool
    # What tokens that continue a word look like, as a regular expression.
    _continuation: str

    def _tokenize_flat(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Ids of <string>[n], as <int32>[n, (tokens)]."""
        raise NotImplementedError

    def _tokenize_flat_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Ids, starts and ends of <string>[n]."""
        raise NotImplementedError

    def _tokenize_flat_with_keys(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Ids of <string>[n] and their keys."""
        raise NotImplementedError

    def _apply(self, function, texts) -> tuple[tf.RaggedTensor, ...]:
        """Runs a function of a flat vector on strings of any shape."""
        if not isinstance(texts, tf.RaggedTensor):
            texts = tf.convert_to_tensor(texts, tf.string)
            if texts.shape.rank is None:
                raise ValueError("The rank of the texts must be known.")
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
        """Cuts texts into tokens; graph code.

        Args:
            texts: <string>[...], dense or ragged.

        Returns:
            Token ids, <int32>[..., (tokens)].
        """
        return self._apply(lambda x: (self._tokenize_flat(x),), texts)[0]

    def tokenize_with_offsets(
        self, texts: tf.Tensor | tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Cuts texts into tokens and says where they were; graph code.

        Example: WordPiece gives for "Unaffable é" the tokens `una ##ffa ##ble
        e`, the starts `0 3 6 10` and the ends `3 6 9 12`.

        Args:
            texts: <string>[...], dense or ragged.

        Returns:
            Token ids and, in bytes of the original text (of `sanitize` of it,
            if it was not valid UTF-8), the start and the exclusive end of each
            token: three <int32>[..., (tokens)].
        """
        return self._apply(self._tokenize_flat_with_offsets, texts)

    def tokenize_with_keys(
        self, texts: tf.Tensor | tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Cuts texts into tokens that can be compared; graph code.

        Two unknown words share one id, but not one key: keys are equal where
        the ids are and, if the id is the unknown token's, the words are, too.

        Args:
            texts: <string>[...], dense or ragged.

        Returns:
            Token ids and keys, two <int32>[..., (tokens)]. The key of a token
            of the vocabulary is its id, that of an unknown one is a hash of
            the text, not less than `vocab_size`.
        """
        return self._apply(self._tokenize_flat_with_keys, texts)

    def _unknown_keys(
        self,
        texts: tf.Tensor,
        ids: tf.RaggedTensor,
        starts: tf.RaggedTensor,
        ends: tf.RaggedTensor,
    ) -> tf.RaggedTensor:
        """Replaces unknown ids by hashes of what they stand for."""
        # [unknowns, 1]
        where = tf.where(tf.equal(ids.values, self.unknown_id))
        row = tf.gather(ids.value_rowids(), where[:, 0])
        # All bytes in one vector: a text is not copied for each of its words.
        # [bytes]
        data = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
        sizes = tf.cast(tf.strings.length(texts), tf.int64)
        # [unknowns]
        start = tf.cast(tf.gather(starts.values, where[:, 0]), tf.int64)
        end = tf.cast(tf.gather(ends.values, where[:, 0]), tf.int64)
        base = tf.gather(tf.cumsum(sizes, exclusive=True), row)
        # The bytes of each word, and their places in it.
        # [unknowns, (bytes)]
        place = tf.ragged.range(end - start, row_splits_dtype=tf.int64)
        word = place.value_rowids()
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
        """Which tokens are not the first of a word; graph code.

        Example: the pieces `una ##ffa ##ble no` of WordPiece give `0 1 1 0`,
        `▁Un aff able ▁é` of SentencePiece the same.

        Args:
            ids: <int>[...], dense or ragged, each in 0 .. vocab_size - 1.

        Returns:
            <int32>[...] of the same shape, 1 for those.
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
        """Texts of tokens; graph code.

        Args:
            ids: <int>[...], dense or ragged, each in 0 .. vocab_size - 1.

        Returns:
            <string>[...] of the same shape.
        """
        raise NotImplementedError


class WordpieceTokenizer(_Tokenizer):
    """BERT's tokenizer (basic and WordPiece); see the module's docstring."""

    kind = "wordpiece"
    _continuation = "##.+"

    def __init__(
        self,
        vocab_file: str | os.PathLike,
        lower_case: bool = True,
        name: str | None = None,
    ):
        """Reads the vocabulary.

        Args:
            vocab_file: path of a text file with one token a line.
            lower_case: whether the vocabulary is uncased.
            name: name of the module.

        Raises:
            FileNotFoundError: no such file.
            ValueError: it is no such vocabulary (see `load_vocab`).
        """
        super().__init__(name=name)
        tokens = load_vocab(vocab_file)
        self.lower_case = lower_case
        self.vocab_size = len(tokens)
        self.unknown_id = tokens.index("[UNK]")
        self.special_ids = {
            name: tokens.index(token)
            for name, token in {
                **WORDPIECE_SPECIAL_TOKENS,
                **WORDPIECE_OPTIONAL_TOKENS,
            }.items()
            if name in WORDPIECE_SPECIAL_TOKENS or token in tokens
        }
        self._tokens = tuple(tokens)
        self._normalizer = tf_text.FastBertNormalizer(
            lower_case_nfd_strip_accents=lower_case
        )
        self._tokenizer = tf_text.FastWordpieceTokenizer(
            vocab=tokens,
            unknown_token="[UNK]",
            token_out_type=tf.int32,
            max_bytes_per_word=_MAX_BYTES_PER_WORD,
            support_detokenization=False,
        )

    def _clean(self, texts: tf.Tensor) -> tf.Tensor:
        """What is neither text nor UTF-8 becomes spaces, byte by byte."""
        return tf.strings.regex_replace(sanitize(texts), "\ufffd", "   ")

    def _tokenize_flat(self, texts):
        return self._tokenizer.tokenize(
            self._normalizer.normalize(self._clean(texts))
        )

    def _tokenize_flat_with_offsets(self, texts):
        normalized, offsets = self._normalizer.normalize_with_offsets(
            self._clean(texts)
        )
        ids, starts, ends = self._tokenizer.tokenize_with_offsets(normalized)
        # A normalized byte maps to the byte where its character starts.
        # [n, (tokens)]
        starts = tf.gather(offsets, starts, batch_dims=1)
        # A token ends where the next character starts: behind all of a
        # character of which it has a part (`½` becomes the tokens 1, ⁄ and 2).
        # Bytes are counted through all texts, so that one search does.
        row = tf.cast(offsets.value_rowids(), tf.int64)
        places = tf.cast(offsets.values, tf.int64) + row * _MAX_BYTES
        first = tf.gather(offsets.row_starts(), ends.value_rowids())
        last = tf.gather(places, first + tf.cast(ends.values, tf.int64) - 1)
        following = tf.searchsorted(places, last, side="right")
        ends = ends.with_values(tf.gather(offsets.values, following))
        return ids, _as_int32(starts), _as_int32(ends)

    def _tokenize_flat_with_keys(self, texts):
        normalized = self._normalizer.normalize(self._clean(texts))
        ids, starts, ends = self._tokenizer.tokenize_with_offsets(normalized)
        return ids, self._unknown_keys(normalized, ids, starts, ends)

    def id_to_token(self, ids):
        """See the base class."""
        return tf.gather(tf.constant(self._tokens), ids)


class SentencepieceTokenizer(_Tokenizer):
    """Pieces of a SentencePiece model, such as RoBERTa's equivalent; cased.

    The original code cuts the comma off pieces such as "1,"; the
    RoBERTa-equivalent model has no such pieces, and here nothing is cut off.
    """

    kind = "sentencepiece"
    lower_case = False
    _continuation = "[^\u2581].*"

    def __init__(self, model_file: str | os.PathLike, name: str | None = None):
        """Reads the model.

        Args:
            model_file: path of a SentencePiece model (`.model`).
            name: name of the module.

        Raises:
            FileNotFoundError: no such file.
            ValueError: it is no SentencePiece model, or lacks a special piece.
        """
        super().__init__(name=name)
        path = os.fspath(model_file)
        what = "a SentencePiece model"
        model = _read_file(path, what)
        with tf.init_scope():
            try:
                self._tokenizer = tf_text.SentencepieceTokenizer(
                    model, out_type=tf.int32
                )
                self.vocab_size = int(self._tokenizer.vocab_size())
            except tf.errors.OpError:
                raise ValueError(
                    f"The file {path} is no SentencePiece model, or a damaged "
                    f"one: expected {what}."
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
            # What no piece covers has the unknown id: U+FFFF is in none.
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
        """Line breaks and tabs, for which there are no pieces, are spaces."""
        return tf.strings.regex_replace(sanitize(texts), r"\s", " ")

    def _tokenize_flat(self, texts):
        return self._tokenizer.tokenize(self._clean(texts))

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
        """See the base class."""
        if isinstance(ids, tf.RaggedTensor):
            return ids.with_flat_values(self.id_to_token(ids.flat_values))
        return self._tokenizer.id_to_string(tf.cast(ids, tf.int32))


def _has_capitals(vocab: list[str]) -> bool:
    """Whether a vocabulary tells capital letters from small ones."""
    cased = sum(
        token != token.lower() for token in vocab if not token.startswith("[")
    )
    return cased > len(vocab) / 100


def make_tokenizer(
    vocab_file: str | os.PathLike, lower_case: bool | None = None
) -> WordpieceTokenizer | SentencepieceTokenizer:
    """Makes the tokenizer that a vocabulary file is for, judged by its content.

    Args:
        vocab_file: path of a WordPiece vocabulary (text, one token a line) or
            of a SentencePiece model (a protocol buffer).
        lower_case: whether a WordPiece vocabulary is uncased; by default it is
            unless more than one in a hundred tokens has capital letters.

    Returns:
        The tokenizer.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is neither.
    """
    path = os.fspath(vocab_file)
    content = _read_file(
        path, "a WordPiece vocabulary or a SentencePiece model"
    )
    try:
        binary = "\x00" in content.decode("utf-8")
    except UnicodeDecodeError:
        binary = True
    # A SentencePiece model is binary (its scores are floats).
    if not binary:
        if lower_case is None:
            lower_case = not _has_capitals(load_vocab(path))
        return WordpieceTokenizer(path, lower_case)
    try:
        return SentencepieceTokenizer(path)
    except ValueError as error:
        raise ValueError(
            f"{error} (A WordPiece vocabulary would be UTF-8 text.)"
        ) from None
