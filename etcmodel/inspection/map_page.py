"""Shows an attention map as one self-contained HTML file."""

import base64
import hashlib
import html
import importlib.resources
import json
import os
import zlib
from typing import Any

import numpy as np

from etcmodel.inspection.attention_map import AttentionMap
from etcmodel.inspection.attention_scores import LayerScores
from etcmodel.pipeline.atomic import atomic_file

_FOLDER = "web"
_STYLES = ("style.css", "map.css")
_SCRIPTS = ("document.js", "map.js")
# Maximum number of characters shown of a text that was cut from the input.
_MAX_CUT_CHARS = 20000


def write_page(attention_map: AttentionMap, path: str | os.PathLike) -> None:
    """Writes the page of a map as UTF-8; replaces the file atomically."""
    with atomic_file(os.fspath(path)) as stream:
        stream.write(make_page(attention_map))


def make_page(attention_map: AttentionMap) -> str:
    """Returns the HTML page of a map.

    The page loads nothing: it contains its styles, scripts and data, and its
    content security policy forbids others. Texts are data, never HTML.
    """
    style = "\n".join(map(_read, _STYLES))
    script = "\n".join(map(_read, _SCRIPTS))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; "
        f"style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "TITLE": html.escape(attention_map.title),
        "POLICY": html.escape(policy),
        "STYLE": style,
        "DATA": _to_json(page_data(attention_map)),
        "SCRIPT": script,
    }
    first, *rest = _read("map.html").split("{{")
    page = [first]
    for piece in rest:
        name, _, text = piece.partition("}}")
        page += [parts[name], text]
    return "".join(page)


def make_frame(attention_map: AttentionMap, height: int = 720) -> str:
    """Returns an `<iframe>` with the page, for notebooks."""
    page = html.escape(make_page(attention_map))
    return (
        f'<iframe srcdoc="{page}" sandbox="allow-scripts" '
        f'style="width: 100%; height: {height}px; border: 0"></iframe>'
    )


def page_data(attention_map: AttentionMap) -> dict[str, Any]:
    """Returns the data of the page as values that JSON can store."""
    tokens = attention_map.tokens
    num_global = len(attention_map.global_tokens)
    return {
        "title": attention_map.title,
        "summary": [*attention_map.summary],
        "answers": [*attention_map.answers],
        "globalTokens": [
            [x.label, x.kind] for x in attention_map.global_tokens
        ],
        "texts": [x.text for x in tokens],
        "pieces": [x.piece if x.piece != x.text else 0 for x in tokens],
        "spaces": [x.space for x in tokens],
        "blocks": [
            {
                "first": x.first,
                "last": x.last,
                "globalTokens": [*x.global_tokens],
                "heading": x.heading,
                "segment": x.segment,
            }
            for x in attention_map.blocks
        ],
        "links": [[*x] for x in attention_map.links],
        "marks": [[*x] for x in attention_map.marks],
        "cuts": [
            [x.name, _shortened(x.text), x.number] for x in attention_map.cuts
        ],
        "segments": [*attention_map.segments],
        "memories": [[*x] for x in attention_map.memories],
        "rows": None if attention_map.rows is None else [*attention_map.rows],
        "defaultLayer": attention_map.default_layer,
        "defaultNode": attention_map.default_node,
        "layers": [
            {
                "label": layer.label,
                "heads": [*layer.heads],
                "numRows": len(next(iter(layer.heads.values())).keys),
                "data": _packed(layer, attention_map.row_numbers(), num_global),
            }
            for layer in attention_map.layers
        ],
    }


def _packed(layer: LayerScores, numbers: list[int], num_global: int) -> str:
    """Compresses the rows of all heads; `unpack` in map.js is the inverse.

    Keys that are not global are stored as distances from their row: distances
    repeat, so they compress well. The byte `255 * sqrt(p)` stores a probability
    p, with an error of at most 0.004, and less for a small p.
    """
    heads = layer.heads.values()
    keys = np.concatenate([x.keys.ravel() for x in heads])
    values = np.concatenate([x.values.ravel() for x in heads])
    is_kept = keys >= 0
    # Number of the node of each key's row.
    owner = np.concatenate(
        [
            np.repeat(numbers[: len(x.keys)], x.keys.shape[1]).astype(np.int64)
            for x in heads
        ]
    )
    distance = keys - owner
    # 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
    folded = np.where(distance < 0, -2 * distance - 1, 2 * distance)
    codes = np.where(keys < num_global, keys, num_global + folded)
    codes = codes[is_kept].astype("<u4").view(np.uint8).reshape(-1, 4)
    planes = [
        *((x.keys >= 0).sum(axis=1).astype(np.uint8) for x in heads),
        *(_as_bytes(x.rest) for x in heads),
        _as_bytes(values[is_kept]),
        *codes[:, :3].T,
    ]
    data = zlib.compress(b"".join(x.tobytes() for x in planes), 6)
    return base64.b64encode(data).decode()


def _as_bytes(values: np.ndarray) -> np.ndarray:
    return np.rint(255 * np.sqrt(np.clip(values, 0, 1))).astype(np.uint8)


def _shortened(text: str) -> str:
    if len(text) <= _MAX_CUT_CHARS:
        return text
    return text[: _MAX_CUT_CHARS - 1] + "\u2026"


def _read(name: str) -> str:
    """Reads a style sheet or script of the page."""
    folder = importlib.resources.files("etcmodel.inspection") / _FOLDER
    return (folder / name).read_text("utf-8")


def _hash(text: str) -> str:
    """Returns the hash of an inline style or script for the policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _to_json(value: Any) -> str:
    """Encodes JSON that is safe inside a `<script>`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Lone surrogates cannot be encoded.
    text = text.encode("utf-8", "replace").decode()
    return text.replace("<", "\\u003c")
