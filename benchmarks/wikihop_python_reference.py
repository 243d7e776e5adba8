"""WikiHop's features in plain Python, one record and one token after another.

The way in which the original code works, from its description: what
`preprocess.py` compares the graph code with, in speed, and tests in results.
Nothing of the package is used but the names of the features.
"""

import heapq
import re
import unicodedata
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

PADDING = {
    "long_token_ids": 0,
    "long_token_type_ids": 0,
    "long_sentence_ids": -1,
    "long_paragraph_ids": -1,
    "long_paragraph_breakpoints": 0,
    "l2g_linked_ids": -1,
    "global_token_ids": 0,
    "global_token_type_ids": 0,
    "global_paragraph_breakpoints": 0,
}


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
    """BERT's uncased tokenization: words, then pieces of words."""

    def __init__(self, vocab: Sequence[str]):
        """Numbers the tokens.

        Args:
            vocab: the tokens in the order of their ids.
        """
        self.vocab = {token: i for i, token in enumerate(vocab)}
        self.unknown = self.vocab["[UNK]"]

    def words(self, text: str) -> list[str]:
        """Lower-cased words without accents; punctuation stands alone."""
        chars = []
        for char in text:
            category = unicodedata.category(char)
            if char in "\t\n\r" or category == "Zs":
                chars.append(" ")
            elif ord(char) in (0, 0xFFFD) or category in ("Cc", "Cf"):
                continue
            elif is_cjk(char):
                chars.append(f" {char} ")
            else:
                chars.append(char)
        result = []
        for word in "".join(chars).split():
            word = unicodedata.normalize("NFD", word.lower())
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

    def pieces(self, word: str) -> list[int]:
        """The longest pieces of a word, from the left."""
        if len(word) > 200:
            return [self.unknown]
        ids = []
        start = 0
        while start < len(word):
            end = len(word)
            while start < end:
                piece = ("##" if start else "") + word[start:end]
                if piece in self.vocab:
                    break
                end -= 1
            if start == end:
                return [self.unknown]
            ids.append(self.vocab[piece])
            start = end
        return ids

    def __call__(self, text: str) -> list[int]:
        """Token ids of a text."""
        return [i for word in self.words(text) for i in self.pieces(word)]


def split_sentences(text: str) -> list[str]:
    """Sentences by a simple rule."""
    return [
        sentence
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])", text.strip())
        if sentence
    ]


def truncate(
    documents: Sequence[Sequence[int]], max_sentences: int, max_tokens: int
) -> list[int]:
    """How many sentences of each document are kept.

    Args:
        documents: for each document the numbers of tokens of its sentences.
        max_sentences: how many sentences there can be.
        max_tokens: how many tokens there can be.

    Returns:
        The number of sentences to keep of each document.
    """
    kept = [len(document) for document in documents]
    sentences = sum(kept)
    tokens = sum(sum(document) for document in documents)
    # The most sentences first, among equals what was pushed first.
    pushed = len(kept)
    heap = [(-count, i, i) for i, count in enumerate(kept)]
    heapq.heapify(heap)
    while sentences > max_sentences or tokens > max_tokens:
        _, _, i = heapq.heappop(heap)
        kept[i] -= 1
        sentences -= 1
        tokens -= documents[i][kept[i]]
        heapq.heappush(heap, (-kept[i], pushed, i))
        pushed += 1
    return kept


def find_mentions(
    text: str,
    candidate: str,
    tokenize: Callable[[str], list[int]],
) -> list[tuple[int, int]]:
    """Where a candidate's tokens stand in a text, as (first, last)."""
    candidate = candidate.lower()
    if candidate not in text.lower():
        return []
    tokens = tokenize(text)
    sought = tokenize(candidate)
    if not sought:
        return []
    return [
        (i, i + len(sought) - 1)
        for i in range(len(tokens) - len(sought) + 1)
        if tokens[i : i + len(sought)] == sought
    ]


def convert(
    query: str,
    candidates: Sequence[str],
    supports: Sequence[str],
    tokenize: Callable[[str], list[int]],
    split: Callable[[str], list[str]] = split_sentences,
    long_length: int = 4096,
    global_length: int = 430,
    max_sentences: int = 200,
) -> dict[str, np.ndarray]:
    """Features of one record.

    Args:
        query: the query.
        candidates: the candidate answers.
        supports: the documents.
        tokenize: gives the token ids of a text.
        split: gives the sentences of a text.
        long_length: length of the long features.
        global_length: length of the global features.
        max_sentences: how many sentences there can be.

    Returns:
        The features, <int>[long_length] and <int>[global_length].
    """
    features = {name: [] for name in PADDING}

    def add_long(ids, kind, sentence, paragraph, links):
        """Appends the tokens of one unit to the long input."""
        features["long_token_ids"] += ids
        features["long_token_type_ids"] += [kind] * len(ids)
        features["long_sentence_ids"] += [sentence] * len(ids)
        features["long_paragraph_ids"] += [paragraph] * len(ids)
        features["long_paragraph_breakpoints"] += [0] * len(ids)
        features["l2g_linked_ids"] += links

    def add_global(token, kind) -> int:
        """Appends a global token and gives its index."""
        features["global_token_ids"].append(token)
        features["global_token_type_ids"].append(kind)
        features["global_paragraph_breakpoints"].append(0)
        return len(features["global_token_ids"]) - 1

    def end():
        """Ends a paragraph in both inputs."""
        for name in (
            "long_paragraph_breakpoints",
            "global_paragraph_breakpoints",
        ):
            if features[name]:
                features[name][-1] = 1

    candidates = [candidate.strip().lower() for candidate in candidates]
    for i, candidate in enumerate(candidates):
        ids = tokenize(candidate)
        add_long(ids, 4, add_global(4, 6), -1, [i] * len(ids))
        end()
    for token in tokenize(query):
        add_long([token], 3, add_global(3, 5), -1, [-1])
    end()

    documents = [split(support) for support in supports]
    tokens = [[tokenize(x) for x in document] for document in documents]
    kept = truncate(
        [[len(ids) for ids in document] for document in tokens],
        max_sentences,
        long_length - len(features["long_token_ids"]),
    )
    for document, document_tokens, count in zip(
        documents, tokens, kept, strict=True
    ):
        paragraph = add_global(5, 7)
        for sentence, ids in zip(
            document[:count], document_tokens[:count], strict=True
        ):
            links = [-1] * len(ids)
            for i, candidate in enumerate(candidates):
                for first, last in find_mentions(sentence, candidate, tokenize):
                    links[first : last + 1] = [i] * (last + 1 - first)
            add_long(ids, 1, add_global(1, 0), paragraph, links)
        end()

    result = {}
    for name, values in features.items():
        length = long_length if "global_t" not in name else global_length
        if name == "global_paragraph_breakpoints":
            length = global_length
        if len(values) > length:
            raise ValueError(f"{name} has {len(values)} values, not {length}.")
        padding = [PADDING[name]] * (length - len(values))
        result[name] = np.array(values + padding, np.int32)
    return result


def to_example(features: dict[str, np.ndarray]) -> bytes:
    """A record's features, with their padding, as a serialized example."""
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(
                    int64_list=tf.train.Int64List(value=list(values))
                )
                for name, values in features.items()
            }
        )
    ).SerializeToString()
