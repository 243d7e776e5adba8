"""Draws figures of the documentation: `python -m tools.draw_concepts`.

The masks and labels in docs/concepts.md are those that the package computes for
a small text. The README's picture shows the answer of a trained model and its
probability of each sentence as evidence, as the signature `text` of its
SavedModel gave them; docs/images/answer.json has them and names the model.
"""

import json
import pathlib
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.patches import Rectangle

from etcmodel.feature_utils import make_global_local_transformer_side_inputs
from etcmodel.ops.attention.full import band_to_square
from tools.modules import ROOT

IMAGES = pathlib.Path("docs/images")
WORDS = "Ada lived in London . She wrote programs .".split()
SENTENCES = [0, 0, 0, 0, 0, 1, 1, 1, 1]
GLOBAL = ["S1", "S2"]
RADIUS = 2
# Labels of distances are clipped to this distance.
MAX_DISTANCE = 2
NOT_LINKED, LINKED = 2 * MAX_DISTANCE + 1, 2 * MAX_DISTANCE + 2

_COLORS = {
    "global to global": "#f4a582",
    "global to long": "#f6d55c",
    "long to global": "#7fcdbb",
    "long to long": "#b3b0e0",
}
_OTHER, _MASKED, _LINE = "#dddddd", "white", "#555555"


def make_side_inputs(breakpoints=None, **options):
    """Makes the side inputs of the example text.

    Args:
        breakpoints: pair of the long and the global breakpoints, see
            `make_global_local_transformer_side_inputs`; by default one text.
        **options: further arguments of this function.
    """
    long, short = breakpoints or ([0] * (len(WORDS) - 1) + [1], [0, 1])
    return make_global_local_transformer_side_inputs(
        *([long], [short], [SENTENCES], RADIUS, MAX_DISTANCE), **options
    )


def pieces(side_inputs, kind: str) -> dict[str, np.ndarray]:
    """Returns the four masks or labels, as matrices of queries and keys.

    Args:
        side_inputs: see `make_side_inputs`.
        kind: "att_mask" or "relative_att_ids".
    """
    local = getattr(side_inputs, f"l2l_{kind}")
    return {
        "global to global": getattr(side_inputs, f"g2g_{kind}")[0].numpy(),
        "global to long": getattr(side_inputs, f"g2l_{kind}")[0].numpy(),
        "long to global": getattr(side_inputs, f"l2g_{kind}")[0].numpy(),
        "long to long": band_to_square(local, RADIUS)[0].numpy(),
    }


def label_text(label: int) -> str:
    """Names a relative label: a distance such as "+1", or "own", "other".

    Label 0 is the token itself; then come the tokens after it, then those
    before it.
    """
    if label >= NOT_LINKED:
        return {NOT_LINKED: "other", LINKED: "own"}[label]
    if label == 0:
        return "0"
    if label <= MAX_DISTANCE:
        return f"+{label}"
    return f"−{label - MAX_DISTANCE}"


def _matrix(axes, values, rows, columns, color, text=None) -> None:
    """Draws a matrix: a cell is coloured if its value is true."""
    for i, line in enumerate(values):
        for j, value in enumerate(line):
            fill = color if value else _MASKED
            axes.add_patch(Rectangle((j, i), 1, 1, fc=fill, ec=_LINE, lw=0.5))
            if text is not None and value:
                middle = {"ha": "center", "va": "center", "fontsize": 8}
                axes.text(j + 0.5, i + 0.5, text(i, j), **middle)
    edge = 0.02
    axes.set(
        xlim=(-edge, len(columns) + edge),
        ylim=(len(rows) + edge, -edge),
        aspect="equal",
    )
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=90)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def _draw_four(found, text=None) -> Figure:
    """Draws four matrices: global tokens above and left, long ones below."""
    number = len(GLOBAL)
    figure = Figure(figsize=(7.2, 6.4), layout="constrained")
    sizes = [number, len(WORDS)]
    grid = figure.subplots(2, 2, width_ratios=sizes, height_ratios=sizes)
    sides = {"global": GLOBAL, "long": WORDS}
    for i, rows in enumerate(sides):
        for j, columns in enumerate(sides):
            name = f"{rows} to {columns}"
            written = text and (lambda i, j, name=name: text(name, i, j))
            _matrix(
                *(grid[i][j], found[name], sides[rows], sides[columns]),
                *(_COLORS[name], written),
            )
            if i:
                grid[i][j].set_xticks([])
            if j:
                grid[i][j].set_yticks([])
            # Narrow matrices have two lines below them.
            label = name.replace(" to ", " to\n", not j)
            grid[i][j].set_xlabel(label, fontsize=9)
    return figure


def draw_attention() -> Figure:
    """Draws who attends to whom."""
    return _draw_four(pieces(make_side_inputs(), "att_mask"))


def draw_labels() -> Figure:
    """Draws the relative labels of all pairs that attend."""
    side_inputs = make_side_inputs()
    labels = pieces(side_inputs, "relative_att_ids")
    return _draw_four(
        pieces(side_inputs, "att_mask"),
        text=lambda name, i, j: label_text(labels[name][i, j]),
    )


def draw_masks() -> Figure:
    """Draws the four masks of two texts in one row: they do not mix."""
    ends = [int(word == ".") for word in WORDS]
    return _draw_four(pieces(make_side_inputs((ends, [1, 1])), "att_mask"))


def draw_hard_g2l() -> Figure:
    """Draws the mask from global to long tokens, without and with hard g2l."""
    figure = Figure(figsize=(7.2, 2.2), layout="constrained")
    for axes, hard in zip(figure.subplots(1, 2), (False, True), strict=True):
        made = make_side_inputs(use_hard_g2l_mask=hard)
        mask = pieces(made, "att_mask")["global to long"]
        _matrix(axes, mask, GLOBAL, WORDS, _COLORS["global to long"])
        axes.set_xlabel(f"hard g2l {'on' if hard else 'off'}")
    return figure


def _box(axes, x, y, width, text, color) -> tuple[float, float]:
    """Draws a box with a text, 1 high; returns the middle of its top."""
    axes.add_patch(Rectangle((x, y), width, 1, fc=color, ec=_LINE))
    axes.text(x + width / 2, y + 0.5, text, ha="center", va="center")
    return x + width / 2, y + 1


def _arrow(axes, start, end, **style) -> None:
    style |= {"arrowstyle": "-|>", "mutation_scale": 10, "color": _LINE}
    axes.add_patch(FancyArrowPatch(start, end, **style))


def _canvas(width: float, height: float, size: tuple[float, float]):
    """Makes a figure without axes."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlim=(-0.1, width), ylim=(-0.1, height))
    axes.set_axis_off()
    return figure, axes


def draw_structure() -> Figure:
    """Draws the units of a text, and the global token of each."""
    figure, axes = _canvas(19, 6.5, (7.2, 2.6))
    color = _COLORS["long to long"]
    tops = [
        _box(axes, 2 * i + 0.5, 0, 1.9, word, color)
        for i, word in enumerate(WORDS)
    ]
    for unit, name in enumerate(GLOBAL):
        members = [
            x for x, own in zip(tops, SENTENCES, strict=True) if own == unit
        ]
        middle = sum(x for x, _ in members) / len(members)
        _box(axes, middle - 1.6, 3, 3.2, name, _COLORS["global to global"])
        for top in members:
            _arrow(axes, top, (middle, 3))
    _box(axes, 7, 5.4, 5, "paragraph", _COLORS["global to global"])
    for x in (5.4, 14.4):
        axes.plot([x, 9.5], [4, 5.4], color=_LINE, lw=1)
    return figure


def draw_read_twice() -> Figure:
    """Draws the two reads of a document in three segments."""
    figure, axes = _canvas(17, 9.5, (7.2, 4.0))
    read, memory = _COLORS["long to long"], _COLORS["global to global"]
    for i in range(3):
        x = 5.5 * i + 0.5
        top = _box(axes, x, 0, 5, f"segment {i + 1}", _OTHER)
        _arrow(axes, top, (x + 2.5, 2))
        top = _box(axes, x, 2, 5, f"first read of segment {i + 1}", read)
        _arrow(axes, top, (x + 2.5, 4.5))
        _arrow(axes, (x + 2.5, 5.5), (x + 2.5, 8))
        # The second read continues from the first.
        style = {"connectionstyle": "arc3,rad=0.3", "linestyle": "--"}
        _arrow(axes, (x + 0.6, 3), (x + 0.6, 8), **style)
        _box(axes, x, 8, 5, f"second read of segment {i + 1}", read)
    _box(axes, 0.5, 4.5, 16, "memory of the whole document", memory)
    return figure


def draw_answer() -> Figure:
    """Draws a text, its global tokens, and the answer of a model."""
    found = json.loads((ROOT / IMAGES / "answer.json").read_text("utf-8"))
    sentences, answer = found["sentences"], found["answer"]
    size = 0.62
    height = 1.6 * len(sentences) + 4
    width = max(len(x["text"]) for x in sentences) * size + 8
    figure, axes = _canvas(width, height, (9.0, 9.0 * height / width))
    style = {"family": "monospace", "fontsize": 11.5, "va": "center"}
    x, y = 7.0, height - 1.2
    axes.text(0, y + 0.5, "question", fontsize=10, va="center")
    for word in found["question"].split():
        right = x + len(word) * size + 0.6
        _box(axes, x, y, right - x, "", _COLORS["global to global"])
        axes.text(x + 0.3, y + 0.5, word, **style)
        x = right + 0.3
    label = "global tokens: evidence?"
    axes.text(0, y - 1.0, label, fontsize=10, va="center")
    axes.text(11, y - 1.0, "long tokens", fontsize=10, va="center")
    for i, sentence in enumerate(sentences):
        y = height - 4.2 - 1.6 * i
        chance = sentence["evidence"]
        color = _COLORS["global to long"] if chance >= 0.5 else _OTHER
        _box(axes, 0, y, 5.5, f"S{i + 1}  {chance:.2f}", color)
        _arrow(axes, (6.9, y + 0.5), (5.6, y + 0.5))
        if i == answer["sentence"]:
            start = sentence["text"].index(answer["text"])
            left = 7 + start * size
            _box(
                *(axes, left, y, len(answer["text"]) * size, ""),
                _COLORS["long to global"],
            )
        for column, letter in enumerate(sentence["text"]):
            axes.text(7 + column * size, y + 0.5, letter, **style)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "answer": draw_answer,
    "concept_attention": draw_attention,
    "concept_labels": draw_labels,
    "concept_masks": draw_masks,
    "concept_structure": draw_structure,
    "concept_hard_g2l": draw_hard_g2l,
    "concept_read_twice": draw_read_twice,
}


def main(folder: pathlib.Path = ROOT / IMAGES) -> Sequence[pathlib.Path]:
    """Draws all figures; returns their paths."""
    paths = []
    for name, draw in FIGURES.items():
        paths.append(folder / f"{name}.png")
        draw().savefig(paths[-1], dpi=120)
    return paths


if __name__ == "__main__":
    main()
