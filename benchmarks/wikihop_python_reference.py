"""WikiHop's features in plain Python, one record and one token after another.

The way in which the original code works, from its description: what
`preprocess.py` compares the graph code with, in speed, and tests in results.
Nothing of the package is used but the names of the features.
"""

import heapq
import json
import re
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

PADDING = {
    "long_token_ids": 0,
    "long_token_type_ids": 0,
    "long_sentence_ids": -1,
    "long_paragraph_ids": -1,
    "long_paragraph_breakpoints": 0,
    "l2g_linked_ids": -1,
    "l2g_linked_ids_2": -1,
    "l2g_linked_ids_3": -1,
    "global_token_ids": 0,
    "global_token_type_ids": 0,
    "global_paragraph_breakpoints": 0,
}
LINKS = tuple(name for name in PADDING if name.startswith("l2g_"))


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
        # Of candidates that lie inside each other the last three count.
        for i, name in enumerate(LINKS):
            features[name] += [
                sorted(found, reverse=True)[i] if len(found) > i else -1
                for found in links
            ]

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
        add_long(ids, 4, add_global(4, 6), -1, [{i}] * len(ids))
        end()
    for token in tokenize(query):
        add_long([token], 3, add_global(3, 5), -1, [set()])
    end()

    documents = [split(support) for support in supports]
    # A sentence that is alone too long is cropped.
    room = long_length - len(features["long_token_ids"])
    tokens = [[tokenize(x)[:room] for x in document] for document in documents]
    kept = truncate(
        [[len(ids) for ids in document] for document in tokens],
        max_sentences,
        room,
    )
    for document, document_tokens, count in zip(
        documents, tokens, kept, strict=True
    ):
        paragraph = add_global(5, 7)
        for sentence, ids in zip(
            document[:count], document_tokens[:count], strict=True
        ):
            links = [set() for _ in ids]
            for i, candidate in enumerate(candidates):
                if candidate in candidates[:i]:
                    continue
                for first, last in find_mentions(sentence, candidate, tokenize):
                    for found in links[first : last + 1]:
                        found.add(i)
            add_long(ids, 1, add_global(1, 0), paragraph, links[: len(ids)])
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


def make_features(record, tokenizer, config) -> dict[str, np.ndarray]:
    """Features of one record.

    Args:
        record: the `WikiHopRecord`.
        tokenizer: a `BertTokenizer`.
        config: the `WikiHopPreprocessingConfig`.

    Returns:
        The features, <int>[long_length] and <int>[global_length].
    """
    return convert(
        record.query,
        record.candidates,
        record.supports,
        tokenizer,
        long_length=config.long_length,
        global_length=config.global_length,
        max_sentences=config.max_num_sentences,
    )


def encode(record, tokenizer, config) -> list[bytes]:
    """What is stored of one record, for training.

    Args:
        record: the `WikiHopRecord`, with its answer.
        tokenizer: a `BertTokenizer`.
        config: the `WikiHopPreprocessingConfig`.

    Returns:
        One serialized example.
    """
    values = make_features(record, tokenizer, config)
    candidates = [x.strip().lower() for x in record.candidates]
    label = candidates.index(record.answer.strip().lower())
    return [
        to_example(
            {
                **values,
                "example_id": [record.id],
                "query": [record.query],
                "candidates": record.candidates,
                "label_id": [float(label)],
                "reference": [to_json([record.answer, None])],
            }
        )
    ]


def to_json(value: Any) -> str:
    """What evaluation has to know, as one of the strings of an example."""
    return json.dumps(value, ensure_ascii=False)


def to_example(values: Mapping[str, Sequence[Any]]) -> bytes:
    """Lists of ints, floats or strings, as a serialized example."""
    features = {}
    for name, items in values.items():
        items = list(items)
        if items and isinstance(items[0], str):
            items = [item.encode() for item in items]
            feature = {"bytes_list": tf.train.BytesList(value=items)}
        elif items and isinstance(items[0], float):
            feature = {"float_list": tf.train.FloatList(value=items)}
        else:
            feature = {"int64_list": tf.train.Int64List(value=items)}
        features[name] = tf.train.Feature(**feature)
    return tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString()


def from_example(
    serialized: bytes, padding: Mapping[str, int]
) -> dict[str, list[Any]]:
    """Reads an example back, without padding.

    Args:
        serialized: the example.
        padding: what stands at the end of some of its lists, by their names.

    Returns:
        The lists; those that are empty are left out.
    """
    values = {}
    stored = tf.train.Example.FromString(serialized).features.feature
    for name, feature in stored.items():
        kind = feature.WhichOneof("kind")
        items = list(getattr(feature, kind).value) if kind else []
        while items and items[-1] == padding.get(name):
            items.pop()
        if items:
            values[name] = items
    return values
