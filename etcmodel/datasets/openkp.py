"""OpenKP: official files, prediction files and metrics.

A record is a web page: its text in words, the nodes of its visual tree (VDOM),
each with a span of words and its appearance, and keyphrases chosen by people.

Source: Xiong et al., "Open Domain Web Keyphrase Extraction Beyond Language
Modeling", 2019; https://github.com/microsoft/OpenKP.
"""

import functools
import itertools
import json
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import IO
from typing import NamedTuple

import msgspec

from etcmodel.datasets.answer_metrics import harmonic_mean
from etcmodel.datasets.predictions import write_lines
from etcmodel.errors import show
from etcmodel.readers.json_stream import read_json_lines
from etcmodel.readers.records import Format
from etcmodel.readers.records import Record
from etcmodel.readers.records import Source
from etcmodel.readers.records import Text

_OWN_FEATURES = (
    *("x", "width", "y", "height", "is_block", "is_inline", "is_heading"),
    *("is_leaf", "font_size", "is_bold"),
)
# For a node and for its parent, in pixels, from 0 to 1 or in points.
FEATURES = (*_OWN_FEATURES, *(f"parent_{name}" for name in _OWN_FEATURES))
_FLAGS = frozenset(i for i, name in enumerate(FEATURES) if "is_" in name)

# Depths at which predictions are scored.
DEPTHS = (1, 3, 5)

Phrases = tuple[str, ...]


class Node(NamedTuple):
    """A node of the visual tree with text: the words from `start` to `end`.

    `features` describe its appearance; see `FEATURES`.
    """

    start: int
    end: int
    features: tuple[float, ...]


class OpenKPRecord(Record, frozen=True):
    """One web page; its id is the URL.

    Attributes:
        words: its text, split at single spaces; some may be empty.
        nodes: its nodes, in the order of the text.
        annotations: the keyphrases of each annotator, without empty ones;
            None if the file has none.
        num_pages: how many usable pages of the files have the URL.
    """

    id: Text
    words: tuple[str, ...]
    nodes: tuple[Node, ...]
    annotations: tuple[Phrases, ...] | None = None
    num_pages: int = 1


class _Node(msgspec.Struct):
    text: str
    feature: tuple[float, ...]
    start_idx: int
    end_idx: int


class _Page(msgspec.Struct):
    url: Text
    text: str
    VDOM: str
    KeyPhrases: list[list[str]] | None = None


def normalize_phrase(phrase: str) -> str:
    """Normalizes a phrase: `" Star  Trek"` becomes `"star trek"`."""
    return " ".join(phrase.lower().split())


def _make(page: _Page, source: Source) -> OpenKPRecord:
    words = page.text.split(" ")
    error = functools.partial(source.error, record_id=page.url, field="VDOM")
    try:
        values = json.loads(page.VDOM)
    except (ValueError, RecursionError) as cause:
        raise error(
            "VDOM is not JSON",
            problem=(
                f"got {show(page.VDOM)}, expected a string of JSON: {cause}"
            ),
        ) from None
    if not isinstance(values, list):
        raise error(
            "VDOM is not a list",
            problem=f"got {show(values)}, expected a list of nodes",
        )
    nodes, end = [], 0
    for i, value in enumerate(values):
        try:
            node = msgspec.convert(value, _Node)
        except msgspec.ValidationError as cause:
            raise error(
                "a node of the wrong form",
                problem=(
                    f"node {i} is {show(value)}: {cause}; expected "
                    '{"text": "...", "feature": [20 numbers], "start_idx": 0, '
                    '"end_idx": 3}'
                ),
            ) from None
        reason, problem = _problem(node, end, words)
        if reason:
            raise error(reason, problem=f"node {i}: {problem}")
        end = node.end_idx
        nodes.append(Node(node.start_idx, end, node.feature))
    annotations = page.KeyPhrases
    if annotations is not None:
        phrases = [" ".join(" ".join(x).split()) for x in annotations]
        annotations = (tuple(filter(None, phrases)),)
    # Interned: every word is kept in memory once.
    known: dict[str, str] = {}
    return OpenKPRecord(
        id=page.url,
        words=tuple(map(known.setdefault, words, words)),
        nodes=tuple(nodes),
        annotations=annotations,
        source=source,
    )


def _problem(node: _Node, min_start: int, words) -> tuple[str, str]:
    start, end = node.start_idx, node.end_idx
    if not min_start <= start <= end <= len(words):
        return (
            "a node that is no span of the text",
            f"got start_idx {start} and end_idx {end}, expected {min_start} "
            "(where the node before it ends) <= start_idx <= end_idx <= number "
            f"of words, here {len(words)}",
        )
    text = " ".join(words[start:end])
    if node.text != text:
        return (
            "a node of other text",
            f"its text is {show(node.text)}, but its words in the page's text "
            f"are {show(text)}",
        )
    if len(node.feature) != len(FEATURES):
        return (
            "a node without its features",
            f"it has {len(node.feature)} features, expected {len(FEATURES)}",
        )
    for i, value in enumerate(node.feature):
        if not math.isfinite(value) or i in _FLAGS and value not in (0, 1):
            expected = "0 or 1" if i in _FLAGS else "a finite number"
            return (
                "a feature that is no such number",
                f"feature[{i}], {FEATURES[i]}, is {value}, expected {expected}",
            )
    return "", ""


def _check(record: OpenKPRecord, split: str) -> None:
    if split == "predict":
        return
    if split == "train" and not any(
        any(map(str.strip, record.words[node.start : node.end]))
        for node in record.nodes
    ):
        raise record.error(
            "no text",
            field="VDOM",
            problem=f"none of its {len(record.nodes)} nodes has any text",
        )
    if not any(record.annotations or ()):
        raise record.missing_answer(
            "keyphrases", "KeyPhrases", record.annotations, split
        )


def _num_present(record: OpenKPRecord) -> int:
    text = f" {normalize_phrase(' '.join(record.words))} "
    phrases = itertools.chain.from_iterable(record.annotations or ())
    return sum(f" {normalize_phrase(x)} " in text for x in phrases)


def merge(records: Sequence[OpenKPRecord]) -> OpenKPRecord:
    """Merges pages of a URL: keeps the one with most keyphrases in its text.

    Among equals, or pages without keyphrases, it keeps the first. This holds in
    every split, so that stored records and the answers of `predict` agree. The
    result has the annotations of all pages.
    """
    annotations = [x for record in records for x in record.annotations or ()]
    return msgspec.structs.replace(
        max(records, key=_num_present),
        annotations=tuple(annotations) or None,
        num_pages=len(records),
    )


FORMAT = Format(
    _Page,
    'a record of OpenKP {"url": "...", "text": "...", "VDOM": "[{\\"text\\": '
    '\\"...\\", \\"feature\\": [20 numbers], \\"start_idx\\": 0, '
    '\\"end_idx\\": 3}, ...]", "KeyPhrases": [["...", "..."], ...]}',
    read_json_lines,
    _check,
    _make,
    id_field="url",
    merge=merge,
)


def gold(record: OpenKPRecord) -> tuple[Phrases, ...] | None:
    """Returns the keyphrases of each annotator; None if there are none."""
    return tuple(filter(None, record.annotations or ())) or None


def write_predictions(
    predictions: Mapping[str, Sequence[str]], stream: IO[str]
) -> None:
    """Writes lines `{"url": "...", "KeyPhrases": [["..."], ...]}`."""
    lines = (
        {"url": url, "KeyPhrases": [[phrase] for phrase in phrases]}
        for url, phrases in predictions.items()
    )
    write_lines(lines, stream)


def score(
    predictions: Mapping[str, Sequence[str]],
    gold: Mapping[str, Sequence[Phrases]],
) -> dict[str, float]:
    """Computes the official metrics: means over pages.

    The precision at a depth k is the share of the first k predictions that are
    keyphrases (missing predictions are wrong), the recall the share of the
    keyphrases that are among them. Case does not matter. Empty and repeated
    predictions are removed first. If a URL has several annotations, which the
    official files leave to the reader, each depth counts the annotation that
    the predictions match best.

    Returns:
        `precision_at_1`, `recall_at_1`, `f1_at_1`, and the same at 3 and 5,
        from 0 to 1; 0 if there are no pages.
    """
    names = ("precision", "recall", "f1")
    totals = {f"{name}_at_{depth}": 0.0 for depth in DEPTHS for name in names}
    for url, annotations in gold.items():
        normalized = map(normalize_phrase, predictions.get(url, ()))
        predicted = list(dict.fromkeys(filter(None, normalized)))
        for depth in DEPTHS:
            best = max(
                _measure(predicted[:depth], depth, phrases)
                for phrases in annotations
            )
            for name, value in zip(("f1", *names[:2]), best, strict=True):
                totals[f"{name}_at_{depth}"] += value
    return {name: x / max(len(gold), 1) for name, x in totals.items()}


def _measure(predicted, depth, phrases) -> tuple[float, float, float]:
    """Computes F1, precision and recall for one annotation."""
    expected = {normalize_phrase(phrase) for phrase in phrases}
    hits = len(expected.intersection(predicted))
    precision, recall = hits / depth, hits / len(expected)
    return harmonic_mean(precision, recall), precision, recall
