"""BERT's uncased tokenization in plain Python, one character after another.

The way in which the original code works, from its description, but that a
capital sigma is σ at the end of a word, too, and that private characters are
dropped, as in the tokenizers library. Benchmarks and tests compare the graph
code with it.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple


class Token(NamedTuple):
    """A token and where it comes from.

    Attributes:
        id: of the token.
        start: index of its first character in the text.
        end: index of the character after its last one. What is left out of
            the text, such as accents, belongs to what stands before it.
    """

    id: int
    start: int
    end: int


def is_punctuation(char: str) -> bool:
    """Whether BERT makes a word of its own of a character."""
    code = ord(char)
    return (
        33 <= code <= 47
        or 58 <= code <= 64
        or 91 <= code <= 96
        or 123 <= code <= 126
        or unicodedata.category(char).startswith("P")
    )


def is_cjk(char: str) -> bool:
    """Whether a character is a CJK ideograph."""
    code = ord(char)
    return any(
        first <= code <= last
        for first, last in (
            (0x4E00, 0x9FFF),
            (0x3400, 0x4DBF),
            (0x20000, 0x2A6DF),
            (0x2A700, 0x2B73F),
            (0x2B740, 0x2B81F),
            (0x2B820, 0x2CEAF),
            (0xF900, 0xFAFF),
            (0x2F800, 0x2FA1F),
        )
    )


class BertTokenizer:
    """BERT's uncased tokenization: words, then pieces of words.

    Attributes:
        vocab: token -> id.
        tokens: the tokens, by their ids.
        unknown: id of words that have no pieces.
    """

    def __init__(self, vocab: Sequence[str]):
        """Numbers the tokens.

        Args:
            vocab: the tokens in the order of their ids.
        """
        self.tokens = list(vocab)
        self.vocab = {token: i for i, token in enumerate(vocab)}
        self.unknown = self.vocab["[UNK]"]

    def words(self, text: str) -> list[str]:
        """Lower-cased words without accents; punctuation stands alone."""
        chars = []
        for char in text:
            category = unicodedata.category(char)
            if char in "\t\n\r" or category == "Zs":
                chars.append(" ")
            elif ord(char) in (0, 0xFFFD) or category in ("Cc", "Cf", "Co"):
                continue
            elif is_cjk(char):
                chars.append(f" {char} ")
            else:
                chars.append(char)
        result = []
        for word in "".join(chars).split():
            word = unicodedata.normalize("NFD", "".join(map(str.lower, word)))
            part = ""
            for char in word:
                if unicodedata.category(char) == "Mn":
                    continue
                if is_punctuation(char):
                    if part:
                        result.append(part)
                    result.append(char)
                    part = ""
                else:
                    part += char
            if part:
                result.append(part)
        return result

    def words_with_offsets(self, text: str) -> list[tuple[str, list[int]]]:
        """Words, and where each of their characters starts, and where they end.

        Example: `"Ünd so"` gives `[("und", [0, 1, 2, 3]), ("so", [4, 5, 6])]`.

        Args:
            text: the text.

        Returns:
            The words, each with one index more than it has characters.
        """
        chars, places = [], []
        for place, char in enumerate(text):
            category = unicodedata.category(char)
            if char in "\t\n\r" or category in ("Zs", "Zl", "Zp"):
                new = " "
            elif ord(char) in (0, 0xFFFD) or category in ("Cc", "Cf", "Co"):
                continue
            else:
                new = unicodedata.normalize("NFD", char.lower())
                if is_cjk(char):
                    new = f" {new} "
            for x in new:
                if unicodedata.category(x) != "Mn":
                    chars.append(x)
                    places.append(place)
        result = []
        part, part_places = "", []

        def end(index):
            """Ends a word at the character of this index."""
            nonlocal part, part_places
            if part:
                while index < len(chars) and places[index] == part_places[-1]:
                    index += 1
                after = places[index] if index < len(chars) else len(text)
                result.append((part, [*part_places, after]))
            part, part_places = "", []

        for index, (char, place) in enumerate(zip(chars, places, strict=True)):
            if char == " ":
                end(index)
                continue
            if is_punctuation(char):
                end(index)
            part += char
            part_places.append(place)
            if is_punctuation(char):
                end(index + 1)
        end(len(chars))
        return result

    def pieces(self, word: str) -> list[tuple[int, int, int]]:
        """The longest pieces of a word, from the left.

        Args:
            word: the word.

        Returns:
            The id of each piece, where it starts and where it ends.
        """
        if len(word) > 200:
            return [(self.unknown, 0, len(word))]
        found = []
        start = 0
        while start < len(word):
            end = len(word)
            while start < end:
                piece = ("##" if start else "") + word[start:end]
                if piece in self.vocab:
                    break
                end -= 1
            if start == end:
                return [(self.unknown, 0, len(word))]
            found.append((self.vocab[piece], start, end))
            start = end
        return found

    def __call__(self, text: str) -> list[int]:
        """Token ids of a text."""
        return [i for word in self.words(text) for i, _, _ in self.pieces(word)]

    def with_offsets(self, text: str) -> list[Token]:
        """Tokens of a text, with the characters they are made of.

        Args:
            text: the text.

        Returns:
            The tokens.
        """
        tokens = []
        for word, places in self.words_with_offsets(text):
            for token, start, end in self.pieces(word):
                # Behind all of a character of which the token has a part.
                after = end
                while after < len(word) and places[after] == places[end - 1]:
                    after += 1
                tokens.append(Token(token, places[start], places[after]))
        return tokens
