"""OpenKP: official files, prediction files and metrics.

A record is a web page: its words, the nodes of its visual tree (VDOM), and
keyphrases chosen by human annotators. A node has a span of words and features
of its appearance.

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
# Features of a node and of its parent, in the order of the files.
FEATURES = (*_OWN_FEATURES, *(f"parent_{name}" for name in _OWN_FEATURES))
_FLAGS = frozenset(i for i, name in enumerate(FEATURES) if "is_" in name)

# The first 1, 3 and 5 predictions are scored.
DEPTHS = (1, 3, 5)

Phrases = tuple[str, ...]


class Node(NamedTuple):
    """A node of the visual tree with text.

    Attributes:
        start: the first word of the node.
        end: exclusive end in words.
        features: the node's appearance, in the order of `FEATURES`.
    """

    start: int
    end: int
    features: tuple[float, ...]


class OpenKPRecord(Record, frozen=True):
    """One web page; its id is the URL.

    Attributes:
        words: the page's text, split at single spaces; words may be empty.
        nodes: the page's nodes, in the order of the text.
        annotations: the keyphrases of each annotator, without empty ones;
            None if the file has none.
        num_pages: number of usable pages in the files with this URL; see
            `merge`.
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
                "a node has a wrong type",
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
    # Interns words, so that each distinct word is in memory only once.
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
            "a node is not a span of the text",
            f"got start_idx {start} and end_idx {end}, expected {min_start} "
            "(the end of the node before it) <= start_idx <= end_idx <= number "
            f"of words, here {len(words)}",
        )
    text = " ".join(words[start:end])
    if node.text != text:
        return (
            "a node's text is not that of the page",
            f"its text is {show(node.text)}, expected its words in the page, "
            f"{show(text)}",
        )
    if len(node.feature) != len(FEATURES):
        return (
            "a node has a wrong number of features",
            f"it has {len(node.feature)} features, expected {len(FEATURES)}",
        )
    for i, value in enumerate(node.feature):
        if not math.isfinite(value) or i in _FLAGS and value not in (0, 1):
            expected = "0 or 1" if i in _FLAGS else "a finite number"
            return (
                "a feature has a wrong value",
                f"feature[{i}] ({FEATURES[i]}) is {value}, expected {expected}",
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
            problem=(
                f"none of its {len(record.nodes)} nodes has any text, expected "
                "at least one"
            ),
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
    """Merges pages with the same URL into one record.

    Keeps the page whose text contains the most keyphrases, or the first of
    several such pages, and adds the annotations of all pages. All splits are
    merged the same way, so that preprocessed records and the answers of
    `predict` agree.
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

    Precision at k is the share of the first k predictions that are keyphrases;
    missing predictions count as wrong. Recall at k is the share of the
    keyphrases that are among the first k predictions. Case is ignored. Empty
    and repeated predictions are removed first. The official script does not
    define the score of a URL with several annotations; here, each k counts the
    annotation that the predictions match best.

    Returns:
        `precision_at_1`, `recall_at_1`, `f1_at_1`, and these metrics at 3 and
        5, from 0 to 1; 0 if there are no pages.
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
