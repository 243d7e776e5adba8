"""Splits text into words as BERT does; graph code.

Combines three steps of BERT's tokenizer: cleaning, normalization, and making
each punctuation mark and each Chinese character a word. The result for a
character depends only on this character, so a table stores it. The table is
made once and saved in a SavedModel. The results agree with the `tokenizers`
library:

* control, format and private-use characters and U+FFFD are dropped, and do not
  separate words; all white space becomes a space;
* accents are removed by decomposition (NFD). Unlike in NFD, marks are not
  reordered, which matters only for marks that are kept;
* a capital sigma becomes σ, even at the end of a word.
"""

import functools
import itertools
import unicodedata
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import ragged_rows

# Classes of characters: part of a word, white space, a word by itself, and a
# character that becomes several. A packed character is 4 * code point + its
# class.
_IN_WORD, _SPACE, _ALONE, _SEVERAL = range(4)
_BLOCK = 128
_NUM_CODES = 0x110000
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
    + "".join(map(chr, range(0x2000, 0x200B)))
)
_CHINESE = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B81F),
    # The library's range starts here; that of BERT's own code starts at
    # 0x2B820.
    (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
# The library knows the characters of Unicode 8. It treats newer marks,
# punctuation and format characters as letters. This is the list of them.
_YOUNGER = """
61d 7fd 890-8e2 9fd-9fe a76 afa-aff b55 c04-c3c c77 c84 d00 d3b-d3c d81 eba ece
180f-1886 1abf-1ace 1b7d-1b7e 1df6-1dfb 2e43-2e5d a82c a8c5 a8ff a9bd
10d24-10f89 11070-11074 110c2-110cd 111c9 111cf 1123e-11241 1133b 11438-1145e
11660-1166c 116b9 1182f-11fff 12ff1-13455 16e97-16f4f 16fe2-16fe4 1cf00-1cf46
1e000-1e4ef 1e944-1e95f
"""
# Characters that had another category in Unicode 8.
_FORMER_CATEGORY = {"\u166d": "Po", "\u1734": "Mn", "\U000111c9": "Po"}


class Words(NamedTuple):
    """The words of texts; repeated chunks are stored only once.

    Texts are split at spaces into chunks, and each distinct chunk is split into
    words.

    Attributes:
        texts: the normalized words of the distinct chunks, one chunk after
            another, `<string>[words]`; white space is an empty word.
        num_chars: number of characters of each word, `<int64>[words]`.
        chunk: index of each word's distinct chunk, `<int64>[words]`.
        index: index of each chunk of the texts among the distinct chunks,
            `<int64>[n, (chunks)]`.
        chars: the characters of the distinct chunks.
    """

    texts: tf.Tensor
    num_chars: tf.Tensor
    chunk: tf.Tensor
    index: tf.RaggedTensor
    chars: "_Chars"

    def join(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        """Gathers the tokens of the original texts, `[n, (tokens)]`.

        `tokens`, `[words, (tokens)]`, are the tokens of each word in `texts`.
        """
        return ragged_rows.merge(self.index.with_values(self._by_chunk(tokens)))

    def join_spans(
        self,
        tokens: tf.RaggedTensor,
        starts: tf.RaggedTensor,
        ends: tf.RaggedTensor,
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Gathers the tokens of the original texts, with their offsets.

        `tokens`, `starts` and exclusive `ends` are `[words, (tokens)]`. Offsets
        are in bytes of the word; ends are clipped to the word. The results are
        `<int32>[n, (tokens)]`, with offsets in bytes of the original text,
        where invalid UTF-8 counts as U+FFFD. A token ends at a space, or where
        the next character that is not dropped starts, so an accent belongs to
        its letter.
        """
        starts, ends = self._places(
            ragged_rows.owners_in(tokens), starts.values, ends.values
        )
        # [chunks, (tokens), 3]
        chunks = self._by_chunk(
            tokens.with_values(tf.stack([tokens.values, starts, ends], axis=1))
        )
        # [chunks], start of each chunk in the concatenated texts and, after the
        # subtraction, in its own text
        sizes = tf.gather(self.chars.chunk_sizes(), self.index.values)
        offset = tf.cumsum(sizes + 1, exclusive=True)
        offset -= tf.gather(
            offset,
            tf.gather(
                self.index.row_starts(), ragged_rows.owners_in(self.index)
            ),
        )
        # [tokens]
        offset = tf.gather(offset, ragged_rows.owners_in(chunks))
        return tuple(
            ragged_rows.merge(self.index.with_values(chunks.with_values(x)))
            for x in (
                chunks.values[:, 0],
                chunks.values[:, 1] + offset,
                chunks.values[:, 2] + offset,
            )
        )

    def _by_chunk(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        """Gathers the tokens of all chunks from the tokens of words."""
        # [distinct chunks, (tokens), ...]
        distinct = ragged_rows.merge(
            tf.RaggedTensor.from_value_rowids(
                tokens,
                self.chunk,
                nrows=tf.size(self.chars.chunk_starts, tf.int64) - 1,
                validate=False,
            )
        )
        return tf.gather(distinct, self.index.values)

    def _places(
        self, word: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Maps byte offsets in words to byte offsets in distinct chunks."""
        chars = self.chars
        lengths = _num_bytes(chars.codes)
        # [chars + 1]
        places = _starts(lengths)
        # [bytes]
        char = ragged_rows.owners(tf.cast(places, tf.int64))
        # [parts]
        first_char = tf.gather(tf.cumsum(self.num_chars, exclusive=True), word)
        after_word = first_char + tf.gather(self.num_chars, word)
        base = tf.gather(places, first_char)
        size = tf.gather(places, after_word) - base
        first = tf.gather(char, base + tf.cast(starts, tf.int32))
        ends = tf.cast(tf.minimum(ends, tf.cast(size, ends.dtype)), tf.int32)
        last = tf.gather(char, base + ends - 1)
        # The first character that comes from a later original character than
        # the token's last character.
        following = tf.searchsorted(
            chars.source, tf.gather(chars.source, last), side="right"
        )
        # [chars + 1]
        source = tf.concat([chars.source, [tf.size(chars.starts) - 1]], 0)
        # [parts]
        chunk = tf.gather(self.chunk, word)
        chunk_start = tf.gather(chars.chunk_starts, chunk)
        chunk_end = tf.gather(chars.chunk_starts, chunk + 1)
        start = tf.gather(chars.starts, tf.gather(source, first))
        end = tf.gather(chars.starts, tf.gather(source, following))
        return start - chunk_start, tf.minimum(end, chunk_end) - chunk_start


class _Chars(NamedTuple):
    """Characters of the distinct chunks, concatenated.

    Attributes:
        codes: code points of the normalized characters, `<int32>[chars]`.
        source: index of each normalized character's original character,
            ascending, `<int32>[chars]`.
        starts: start of each original character in bytes, and the end of the
            last one.
        chunk_starts: start of each chunk in bytes, and the end of the last one.
    """

    codes: tf.Tensor
    source: tf.Tensor
    starts: tf.Tensor
    chunk_starts: tf.Tensor

    def chunk_sizes(self) -> tf.Tensor:
        """Returns the chunks' sizes in bytes, `<int32>[distinct chunks]`."""
        return self.chunk_starts[1:] - self.chunk_starts[:-1]


class BertWords:
    """Splits texts into words; graph code.

    Example: with `lower_case` and `strip_accents`, "Né 中国!" becomes the words
    `ne`, `中`, `国` and `!`.
    """

    def __init__(
        self,
        lower_case: bool,
        strip_accents: bool,
        tokenize_chinese_chars: bool = True,
        clean_text: bool = True,
    ):
        self._table = _character_table(
            lower_case, strip_accents, tokenize_chinese_chars, clean_text
        )

    def __call__(self, texts: tf.Tensor) -> Words:
        """Splits `<string>[n]` into words; invalid UTF-8 counts as U+FFFD."""
        # [n, (chunks)]
        chunks = tf.strings.split(texts, " ")
        # Texts repeat their words, so each distinct chunk is split only once.
        distinct, index = tf.unique(chunks.values, tf.int64)
        decoded = tf.strings.unicode_decode(distinct, "UTF-8")
        packed, source, chunk = self._look_up(decoded)
        # [chars]
        kind = packed % 4
        is_single = kind != _IN_WORD
        is_first = (
            is_single
            | tf.concat(
                [[True], is_single[:-1] | (chunk[1:] != chunk[:-1])], 0
            )[: tf.size(chunk)]
        )
        # [words]
        first = tf.where(is_first)[:, 0]
        codes = packed // 4
        words = tf.RaggedTensor.from_row_starts(codes, first, validate=False)
        # [source + 1]
        starts = _starts(_num_bytes(decoded.values))
        return Words(
            texts=tf.where(
                tf.gather(kind, first) == _SPACE,
                "",
                tf.strings.unicode_encode(words, "UTF-8"),
            ),
            num_chars=words.row_lengths(),
            chunk=tf.gather(chunk, first),
            index=chunks.with_values(index),
            chars=_Chars(
                codes=codes,
                source=source,
                starts=starts,
                chunk_starts=tf.gather(starts, decoded.row_splits),
            ),
        )

    def _look_up(
        self, decoded: tf.RaggedTensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Looks up packed characters, and the source and chunk of each."""
        codes, chunk = decoded.values, ragged_rows.owners_in(decoded)
        table = self._table
        block = tf.gather(table.blocks, codes // _BLOCK)
        # [source]
        entries = tf.gather(table.entries, block + codes % _BLOCK)
        is_several = entries % 4 == _SEVERAL
        packed = 4 * codes + entries
        source = tf.range(tf.size(codes))

        def expand():
            sequence = tf.where(is_several, entries // 4, 0)
            start = tf.gather(table.starts, sequence)
            count = tf.where(
                is_several, tf.gather(table.starts, sequence + 1) - start, 1
            )
            # [chars]
            index = tf.repeat(source, count)
            place = tf.range(tf.size(index)) - tf.gather(
                tf.cumsum(count, exclusive=True) - start, index
            )
            is_one = tf.gather(~is_several, index)
            return (
                tf.where(
                    is_one,
                    tf.gather(packed, index),
                    tf.gather(table.sequences, tf.where(is_one, 0, place)),
                ),
                index,
                tf.gather(chunk, index),
            )

        return tf.cond(
            tf.reduce_any(is_several), expand, lambda: (packed, source, chunk)
        )


def _num_bytes(codes: tf.Tensor) -> tf.Tensor:
    return 1 + sum(
        tf.cast(codes >= limit, tf.int32) for limit in (0x80, 0x800, 0x10000)
    )


def _starts(lengths: tf.Tensor) -> tf.Tensor:
    """Returns the starts of consecutive parts, and the end of the last part.

    The result is `<int32>[n + 1]`.
    """
    return tf.pad(tf.cumsum(lengths), [[1, 0]])


class _CharacterTable(NamedTuple):
    """Maps each character to packed characters; equal blocks are stored once.

    Attributes:
        blocks: index of the first entry of each block of 128 characters.
        entries: one entry per character of the distinct blocks. If a character
            becomes one character, its entry is the packed result minus 4 times
            the original code point. Otherwise, the entry is 4 times the number
            of the sequence that the character becomes, plus `_SEVERAL`.
        starts: start of each sequence in `sequences`; the first sequence is
            empty.
        sequences: packed characters of all sequences, concatenated.
    """

    blocks: np.ndarray
    entries: np.ndarray
    starts: np.ndarray
    sequences: np.ndarray


@functools.cache
def _character_table(
    lower_case: bool,
    strip_accents: bool,
    tokenize_chinese_chars: bool,
    clean_text: bool,
) -> _CharacterTable:
    entries = np.zeros(_NUM_CODES, np.int32)
    sequences, numbers = [()], {(): 0}
    chinese = np.zeros(_NUM_CODES, bool)
    for first, last in _CHINESE if tokenize_chinese_chars else ():
        chinese[first : last + 1] = True
    entries[chinese] = _ALONE
    private = [
        range(0xE000, 0xF900),
        range(0xF0000, 0xFFFFE),
        range(0x100000, 0x10FFFE),
    ]
    for codes in private if clean_text else ():
        entries[codes] = _SEVERAL
    # Leaves out surrogates, private and unassigned planes, and ideographs,
    # because they do not change.
    for code in (
        *range(0x3400),
        *range(0xA000, 0xD800),
        *range(0xF900, 0x17000),
        *range(0x1B000, 0x20000),
        *range(0x2F800, 0x2FA20),
        *range(0xE0000, 0xE0200),
    ):
        if _never_changes(chr(code)):
            continue
        result = _convert(
            chr(code), lower_case, strip_accents, clean_text, chinese[code]
        )
        if len(result) == 1:
            entries[code] = result[0] - 4 * code
        else:
            number = numbers.setdefault(result, len(sequences))
            if number == len(sequences):
                sequences.append(result)
            entries[code] = 4 * number + _SEVERAL
    distinct = {}
    blocks = [
        distinct.setdefault(block.tobytes(), len(distinct))
        for block in entries.reshape(-1, _BLOCK)
    ]
    return _CharacterTable(
        blocks=_BLOCK * np.array(blocks, np.int32),
        entries=np.frombuffer(b"".join(distinct), np.int32),
        starts=np.cumsum([0, *map(len, sequences)], dtype=np.int32),
        # Appends a 0, so that the table is never empty.
        sequences=np.array([*itertools.chain(*sequences), 0], np.int32),
    )


def _never_changes(char: str) -> bool:
    """Returns whether a character is surely an unchanged part of a word.

    This is a fast path for most characters. If it is False, `_convert` decides.
    """
    category = unicodedata.category(char)
    return (
        (category[0] in "LNS" or category == "Cn")
        and char > "~"
        and char != "\ufffd"
        and char.lower() == char
        and not unicodedata.decomposition(char)
        # NFD decomposes Hangul by rules, which `decomposition` lacks.
        and not "\uac00" <= char <= "\ud7a3"
        and char not in _FORMER_CATEGORY
    )


def _convert(
    char: str,
    lower_case: bool,
    strip_accents: bool,
    clean_text: bool,
    is_chinese: bool,
) -> tuple[int, ...]:
    """Returns the packed characters that a character becomes."""
    if char in _WHITE_SPACE and (not clean_text or char not in "\v\f\x85"):
        return (4 * ord(" ") + _SPACE,)
    if clean_text and (
        char in "\0\ufffd" or _category(char) in ("Cc", "Cf", "Co")
    ):
        return ()
    result = char
    if strip_accents:
        if not _is_younger(char):
            result = unicodedata.normalize("NFD", char)
        result = "".join(x for x in result if _category(x) != "Mn")
    if lower_case:
        # Lower-cases characters one by one, since the library never writes a
        # final sigma.
        result = "".join(x.lower() for x in result)
    return tuple(
        4 * ord(x) + (_ALONE if is_chinese or _is_punctuation(x) else _IN_WORD)
        for x in result
    )


def _is_punctuation(char: str) -> bool:
    """Returns whether a character is punctuation or an ASCII symbol."""
    return ("!" <= char <= "~" and not char.isalnum()) or _category(
        char
    ).startswith("P")


def _category(char: str) -> str:
    """Returns the category in Unicode 8; "Lo" for newer characters."""
    if char in _FORMER_CATEGORY:
        return _FORMER_CATEGORY[char]
    category = unicodedata.category(char)
    # Fast path: `_YOUNGER` lists only characters of these categories.
    if category[0] in "CMP" and _is_younger(char):
        return "Lo"
    return category


def _is_younger(char: str) -> bool:
    return ord(char) in _younger()


@functools.cache
def _younger() -> frozenset[int]:
    ranges = (x.partition("-") for x in _YOUNGER.split())
    return frozenset(
        code
        for first, _, last in ranges
        for code in range(int(first, 16), int(last or first, 16) + 1)
    )
