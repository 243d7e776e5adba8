"""Draws an attention map: the text, shaded by the attention of one token."""

import os
import textwrap
import warnings

import numpy as np

from etcmodel import extras
from etcmodel.inspection.attention_map import AttentionMap
from etcmodel.inspection.attention_map import Block
from etcmodel.pipeline.atomic import atomic_file

# Sizes in pixels, at `_DPI`.
_DPI = 150
_WIDTH, _MARGIN, _CHIPS = 1650, 40, 300
_LINE, _GAP, _SPACE = 34, 12, 8
# Font sizes in points.
_FONT, _SMALL = 10, 7.5
# Maximum number of lines. Beyond it, the paragraphs with the least attention
# are left out.
MAX_LINES = 90
_SHADE, _CHOSEN, _QUIET = "#2a7ac4", "#1d5fa8", "#5f6670"
_MARKS = {"predicted": "#ffd35c", "gold": "#3c9a50", "both": "#3c9a50"}


def draw_map(
    attention_map: AttentionMap,
    path: str | os.PathLike,
    node: int | None = None,
) -> None:
    """Draws the text, shaded by one token's attention to every other token.

    The probabilities are those of `default_layer`, averaged over heads. If the
    text is long, only the paragraphs with the most attention are drawn. The
    file is written atomically; the ending of `path` sets the format.

    Args:
        attention_map: the map.
        path: the file.
        node: number of the token; by default `default_node`.

    Raises:
        MissingExtraError: matplotlib is not installed.
        ValueError: the map has no row for the token.
    """
    extras.require("matplotlib")
    path = os.fspath(path)
    image_format = os.path.splitext(path)[1].lstrip(".").lower() or "png"
    figure = _Drawing(attention_map, node).draw()
    with warnings.catch_warnings(), atomic_file(path, "wb") as stream:
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(stream, format=image_format, dpi=_DPI)


class _Drawing:
    """Lays out tokens in lines, then draws them."""

    def __init__(self, attention_map, node):
        from matplotlib.figure import Figure

        self._map = attention_map
        self._node = attention_map.default_node if node is None else node
        if self._node >= attention_map.num_tokens + len(attention_map.segments):
            raise ValueError(
                f"`token={self._node}`: expected at most "
                f"{attention_map.num_tokens - 1}, the last token of the record."
            )
        self._values = attention_map.reads(self._node)
        self._most = max(self._values.values(), default=1.0)
        self._figure = Figure(dpi=_DPI)
        self._renderer = None
        self._widths: dict[tuple[str, float], float] = {}
        # Token -> kind of the answer that it belongs to.
        self._marks = {
            i: mark.kind
            for mark in attention_map.marks
            for i in range(mark.first, mark.last)
        }

    def draw(self):
        """Returns the figure."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas = FigureCanvasAgg(self._figure)
        self._renderer = canvas.get_renderer()
        # Drawing functions, which are called once the height is known.
        self._artists = []
        y = self._header(_MARGIN + 10)
        y = self._text(y)
        height = y + _MARGIN
        self._figure.set_size_inches(_WIDTH / _DPI, height / _DPI)
        axes = self._figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, _WIDTH)
        axes.set_ylim(height, 0)
        for draw in self._artists:
            draw(axes)
        return self._figure

    def _write(self, x, y, text, size=_FONT, color="black", weight="normal"):
        """Writes a text whose baseline is at y."""
        self._artists.append(
            lambda axes: axes.text(
                x,
                y,
                text,
                fontsize=size,
                color=color,
                weight=weight,
                va="baseline",
                parse_math=False,
            )
        )

    def _box(self, x, y, width, height, **options):
        from matplotlib.patches import Rectangle

        self._artists.append(
            lambda axes: axes.add_patch(
                Rectangle((x, y), width, height, **options)
            )
        )

    def _width(self, text, size=_FONT):
        """Measures a text."""
        from matplotlib.font_manager import FontProperties

        key = text, size
        if key not in self._widths:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Glyph .* missing")
                found = self._renderer.get_text_width_height_descent(
                    text, FontProperties(size=size), False
                )
            self._widths[key] = found[0]
        return self._widths[key]

    def _header(self, y):
        """Writes the title, the answers and the scale."""
        self._write(_MARGIN, y, self._map.title, 14, weight="bold")
        for name, value in self._map.answers:
            y += _LINE
            shown = textwrap.shorten(f"{name}: {value}", 120)
            self._write(_MARGIN, y, shown, _FONT)
        y += _LINE * 1.3
        layer = self._map.layers[self._map.default_layer].label
        self._write(
            _MARGIN,
            y,
            f"Attention of \u201c{self._map.label(self._node)}\u201d (white on "
            f"blue), {layer[0].lower()}{layer[1:]}, average of the heads; the "
            f"darkest shade: {100 * self._most:.1f} %",
            _FONT,
            _QUIET,
        )
        return y + _LINE

    def _text(self, y):
        """Writes the paragraphs; returns the vertical position after them."""
        blocks = [(x, self._lines(x)) for x in self._map.blocks]
        kept = self._choose([len(lines) for _, lines in blocks])
        left_out = 0
        for (block, lines), is_kept in zip(blocks, kept, strict=True):
            if not is_kept:
                left_out += 1
                continue
            y = self._note_gap(y, left_out)
            left_out = 0
            if block.heading:
                y += _GAP
                self._write(_MARGIN, y + 4, block.heading, 8.5, _QUIET, "bold")
                y += _LINE * 1.15
            y = max(self._chips(y, block), self._paragraph(y, lines)) + _GAP
        return self._note_gap(y, left_out)

    def _note_gap(self, y, number):
        if not number:
            return y
        noun = "paragraph" if number == 1 else "paragraphs"
        text = f"\u2026 {number} {noun} with less attention"
        self._write(self._left, y + 6, text, 8.5, _QUIET)
        return y + _LINE + _GAP

    @property
    def _left(self):
        """Horizontal position at which the text begins."""
        return _MARGIN + (_CHIPS if self._map.global_tokens else 0)

    def _choose(self, sizes: list[int]) -> np.ndarray:
        """Chooses the paragraphs to draw."""
        num_global = len(self._map.global_tokens)

        def weight(block: Block) -> float:
            nodes = [
                *block.global_tokens,
                *range(num_global + block.first, num_global + block.last),
            ]
            if self._node in nodes:
                return 2.0
            return max(self._values.get(x, 0.0) for x in nodes)

        weights = [weight(x) for x in self._map.blocks]
        kept = np.zeros([len(sizes)], bool)
        lines = 0
        for i in sorted(range(len(sizes)), key=lambda i: (-weights[i], i)):
            lines += sizes[i]
            if lines > MAX_LINES and kept.any():
                break
            kept[i] = True
        return kept

    def _lines(self, block: Block) -> list[list[tuple[int, float]]]:
        """Breaks tokens into lines of pairs (token, horizontal position)."""
        lines: list[list[tuple[int, float]]] = [[]]
        x = self._left
        for i in range(block.first, block.last):
            token = self._map.tokens[i]
            width = self._width(token.text)
            space = _SPACE if token.space and lines[-1] else 0
            is_full = x + space + width > _WIDTH - _MARGIN
            if lines[-1] and (is_full or token.space == "\n"):
                lines.append([])
                x, space = self._left, 0
            lines[-1].append((i, x + space))
            x += space + width
        return lines

    def _paragraph(self, y, lines):
        for line in lines:
            for i, x in line:
                node = len(self._map.global_tokens) + i
                text = self._map.tokens[i].text
                width = self._width(text)
                color = self._shade(node, x, y - 22, width, 29)
                if i in self._marks:
                    kind = self._marks[i]
                    self._box(x, y + 7, width, 4, fc=_MARKS[kind], lw=0)
                    if kind == "both":
                        yellow = _MARKS["predicted"]
                        self._box(x, y + 11, width, 4, fc=yellow, lw=0)
                self._write(x, y, text, color=color)
            y += _LINE
        return y

    def _shade(self, node, x, y, width, height) -> str:
        """Shades a node; returns the color of its text."""
        if node == self._node:
            self._box(x, y, width, height, fc=_CHOSEN, lw=0)
            return "white"
        if node in self._values:
            # The square root spreads small probabilities.
            share = (self._values[node] / self._most) ** 0.5
            alpha = 0.08 + 0.55 * share
            self._box(x, y, width, height, fc=_SHADE, lw=0, alpha=alpha)
        return "black"

    def _chips(self, y, block: Block):
        """Writes names of global tokens; returns the position after them."""
        x, right = _MARGIN, _MARGIN + _CHIPS - 24
        for node in block.global_tokens:
            label = textwrap.shorten(
                self._map.global_tokens[node].label or " ",
                26,
                placeholder="\u2026",
            )
            width = self._width(label, _SMALL) + 12
            if x > _MARGIN and x + width > right:
                x, y = _MARGIN, y + 31
            color = self._shade(node, x, y - 21, width, 27)
            self._box(x, y - 21, width, 27, fill=False, ec="#c4c1bb", lw=0.6)
            self._write(x + 6, y - 2, label, _SMALL, color)
            x += width + 6
        return y + _LINE if block.global_tokens else y
