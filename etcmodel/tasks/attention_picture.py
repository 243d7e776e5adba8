"""Draws who attends to whom in one record, and with which label.

The picture is that of the paper's Figure 3: queries are rows, keys are
columns, the global tokens come before the long ones, white is masked, and
every other colour is a relative position label.

Source: ETC (Ainslie et al., 2020), Figures 2 and 3, sections 3.2 to 3.4.
"""

import os
import warnings
from collections.abc import Sequence

import numpy as np

from etcmodel.feature_utils.side_inputs import GlobalLocalTransformerSideInputs
from etcmodel.tasks.atomic import atomic_file
from etcmodel.tasks.attention_labels import MASKED
from etcmodel.tasks.attention_labels import choose_global_tokens
from etcmodel.tasks.attention_labels import compose_attention_labels
from etcmodel.tasks.attention_labels import find_label_scheme

_PADDING_LABELS = ("", "[PAD]", "<pad>")
_MAX_LABEL_CHARS = 16

# Colours. The two sides run from strong (near) to pale (far).
_COLORS = {
    "masked": "#ffffff",
    "visible": "#5b8fc7",
    "self": "#16213e",
    "right": ("#1f5fa8", "#d3e5f5"),
    "left": ("#b5540a", "#fde4c6"),
    "not linked": "#e4e4e6",
    "linked": "#149a6c",
    "other context": "#e3d5ee",
    # Own labels of links, in turn.
    "links": ("#c2185b", "#f2b705", "#00a5b5", "#7b3fa0", "#8fbf26", "#8a5a44"),
}
_INK = "#16213e"
_NOTE = "#666666"
_GRID = "#f1f1f3"

# Inches.
_MAX_SIDE = 14.4
_MIN_SIDE = 5.0
_MAX_CELL = 0.3
_MIN_LABELLED_CELL = 0.085
_LEGEND_WIDTH = 3.2
_LEGEND_HEIGHT = 5.6
_LEGEND_ROW = 0.3
_TITLE_HEIGHT = 0.75
_SIDE_NOTE = 0.35


def draw_attention_picture(
    side_inputs: GlobalLocalTransformerSideInputs,
    long_labels: Sequence[str],
    global_labels: Sequence[str],
    path: str | os.PathLike,
    title: str = "Who attends to whom",
    example: int = 0,
    first_long_token: int = 0,
    max_long_tokens: int = 120,
    max_global_tokens: int = 40,
) -> str:
    """Draws the masks and labels of one record into an image file.

    Padding is left out: empty, `[PAD]` and `<pad>` labels at the end, and
    positions without a label. Of a long record a window is drawn, and a note
    in the picture says what is not shown. The file appears complete or not
    at all.

    Args:
        side_inputs: batched masks and labels of the record.
        long_labels: what to call each long token, usually its text.
        global_labels: what to call each global token.
        path: file to write; its ending (.png, .svg, .pdf) is the format.
        title: string. Heading of the picture.
        example: int. Which example of the batch to draw.
        first_long_token: int. Where the window starts.
        max_long_tokens: int. How many long tokens to draw at most.
        max_global_tokens: int. How many global tokens to draw at most: all,
            or those linked with the window and then the first ones.

    Returns:
        The path, as a string.

    Raises:
        ImportError: if matplotlib is not installed.
        UserError: if the file cannot be written.
        ValueError: if there is nothing to draw, there are more labels than
            tokens, the window lies outside the record, or matplotlib does
            not know the format.
    """
    num_long = _count_tokens("long_labels", long_labels)
    num_global = _count_tokens("global_labels", global_labels)
    _check_lengths(side_inputs, num_long, num_global)
    if max_long_tokens < 1 or max_global_tokens < 1:
        raise ValueError(
            "`max_long_tokens` and `max_global_tokens` must be 1 or more, got "
            f"{max_long_tokens} and {max_global_tokens}."
        )
    if not 0 <= first_long_token < num_long:
        raise ValueError(
            f"`first_long_token` is {first_long_token}, but the record has "
            f"the long tokens 0 to {num_long - 1}."
        )
    last = min(first_long_token + max_long_tokens, num_long)
    long_tokens = range(first_long_token, last)
    global_tokens = choose_global_tokens(
        side_inputs, num_global, long_tokens, max_global_tokens, example
    )
    labels = compose_attention_labels(
        side_inputs, global_tokens, long_tokens, example
    )
    names = [_shorten(global_labels[j]) for j in global_tokens]
    names += [_shorten(long_labels[i]) for i in long_tokens]
    note = _describe_window(long_tokens, num_long, global_tokens, num_global)
    figure = _draw(
        labels,
        names,
        len(global_tokens),
        find_label_scheme(side_inputs),
        title,
        note,
    )
    path = os.fspath(path)
    image_format = os.path.splitext(path)[1].lstrip(".").lower() or "png"
    with warnings.catch_warnings(), atomic_file(path, "wb") as stream:
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(stream, format=image_format, dpi=150)
    return path


def _count_tokens(name, labels):
    """Counts the labels up to the last that is not padding."""
    count = len(labels)
    while count and labels[count - 1] in _PADDING_LABELS:
        count -= 1
    if not count:
        raise ValueError(f"`{name}` names no token, there is nothing to draw.")
    return count


def _check_lengths(side_inputs, num_long, num_global):
    mask = side_inputs.l2g_att_mask
    if mask is None:
        mask = side_inputs.l2g_relative_att_ids
    if mask is None:
        return
    long_len, global_len = np.shape(mask)[1:]
    if num_long > long_len or num_global > global_len:
        raise ValueError(
            f"Got labels for {num_long} long and {num_global} global tokens, "
            f"but masks for {long_len} and {global_len}."
        )


def _shorten(text, max_chars=_MAX_LABEL_CHARS):
    if len(text) <= max_chars:
        return text
    return text[: max_chars - 1] + "\u2026"


def _describe_window(long_tokens, num_long, global_tokens, num_global):
    """Says which part of the record is shown.

    Args:
        long_tokens: range of the long tokens shown.
        num_long: int. Number of long tokens without padding.
        global_tokens: indices of the global tokens shown.
        num_global: int. Number of global tokens without padding.

    Returns:
        string.
    """
    if len(long_tokens) == num_long:
        long_part = f"all {num_long} long tokens"
    else:
        long_part = (
            f"long tokens {long_tokens[0]} to {long_tokens[-1]} of {num_long}"
        )
    if len(global_tokens) == num_global:
        global_part = f"all {num_global} global tokens"
    else:
        global_part = (
            f"{len(global_tokens)} of {num_global} global tokens (those linked "
            "with the text shown come first)"
        )
    return f"Shown: {long_part}, {global_part}; padding left out."


def _draw(labels, names, num_global, scheme, title, note):
    """Draws the matrix with its axes, title and legend.

    Args:
        labels: `<int32>[shown, shown]`, see `compose_attention_labels`.
        names: names of the tokens shown, the global ones first.
        num_global: int. How many of them are global.
        scheme: `LabelScheme`.
        title: string.
        note: string. What is shown, below the title.

    Returns:
        matplotlib `Figure`.
    """
    figure_class = _import_figure()
    shown = len(names)
    links = [x for x in np.unique(labels) if _is_link(scheme, x)]
    legend_height = _LEGEND_HEIGHT + _LEGEND_ROW * len(links)
    cell = min(max(_MIN_SIDE / shown, _MAX_CELL), _MAX_SIDE / shown)
    side = cell * shown
    # All tokens are named if that is readable, else every n-th.
    step = max(1, int(np.ceil(_MIN_LABELLED_CELL / cell)))
    if step > 1:
        note += f" One token in {step} is named."
    font_size = min(max(cell * 72 * 0.78, 5.0), 10.0)
    # Room for the names, rotated on top and upright on the left.
    margin = 0.25 + max(map(len, names)) * font_size * 0.66 / 72
    width = margin + side + _SIDE_NOTE + _LEGEND_WIDTH
    body = max(margin + side + _SIDE_NOTE, legend_height)
    height = _TITLE_HEIGHT + body
    figure = figure_class(figsize=(width, height), facecolor="white")

    top = height - _TITLE_HEIGHT - margin
    axes = figure.add_axes(
        (margin / width, (top - side) / height, side / width, side / height)
    )
    _draw_matrix(axes, labels, scheme, cell, num_global)
    _name_tokens(axes, names, step, font_size)
    _name_pieces(axes, shown, num_global, cell)

    legend = figure.add_axes(
        (
            (width - _LEGEND_WIDTH) / width,
            (height - _TITLE_HEIGHT - legend_height) / height,
            _LEGEND_WIDTH / width,
            legend_height / height,
        )
    )
    _draw_legend(legend, labels, scheme, links, legend_height)
    left = 0.25 / width
    figure.text(
        left,
        1 - 0.22 / height,
        _shorten(title, max_chars=int(width / 0.15)),
        fontsize=15,
        fontweight="bold",
        color=_INK,
        va="top",
        parse_math=False,
    )
    figure.text(
        left, 1 - 0.53 / height, note, fontsize=9, color=_NOTE, va="top"
    )
    return figure


def _is_link(scheme, label):
    """Whether a label is a link's own."""
    return scheme.max_distance > 0 and label > scheme.other_context


def _color(scheme, label):
    """Returns the colour of a label, as matplotlib takes it."""
    if label == MASKED:
        return _COLORS["masked"]
    if not scheme.max_distance:
        return _COLORS["visible"]
    if label == 0:
        return _COLORS["self"]
    if _is_link(scheme, label):
        colors = _COLORS["links"]
        return colors[(label - scheme.other_context - 1) % len(colors)]
    if label > 2 * scheme.max_distance:
        return _COLORS[scheme.describe(label)]
    on_left = label > scheme.max_distance
    near, far = _COLORS["left" if on_left else "right"]
    distance = label - scheme.max_distance if on_left else label
    # The square root spreads the near labels, which matter most.
    share = ((distance - 1) / max(scheme.max_distance - 1, 1)) ** 0.5
    return tuple(
        (1 - share) * int(near[i : i + 2], 16) / 255
        + share * int(far[i : i + 2], 16) / 255
        for i in (1, 3, 5)
    )


def _import_figure():
    """Returns matplotlib's Figure, which needs no display and no state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Drawing attention pictures needs matplotlib, which is not "
            'installed: pip install "etcmodel[tasks]".'
        ) from error
    return Figure


def _draw_matrix(axes, labels, scheme, cell, num_global):
    from matplotlib.colors import to_rgb

    shown = labels.shape[0]
    used, indices = np.unique(labels, return_inverse=True)
    # [used, 3]
    palette = np.array([to_rgb(_color(scheme, int(label))) for label in used])
    palette = np.round(255 * palette).astype(np.uint8)
    # [shown, shown, 3]
    image = palette[indices.reshape(labels.shape)]
    axes.imshow(image, interpolation="nearest", aspect="auto")
    if cell >= 0.05:
        edges = np.arange(shown + 1) - 0.5
        axes.set_xticks(edges, minor=True)
        axes.set_yticks(edges, minor=True)
        axes.grid(which="minor", color=_GRID, linewidth=min(cell * 4, 0.8))
    axes.tick_params(which="both", length=0)
    for spine in axes.spines.values():
        spine.set_color(_INK)
        spine.set_linewidth(1.0)
    if 0 < num_global < shown:
        axes.axhline(num_global - 0.5, color=_INK, linewidth=1.4)
        axes.axvline(num_global - 0.5, color=_INK, linewidth=1.4)


def _name_tokens(axes, names, step, font_size):
    positions = np.arange(0, len(names), step)
    texts = [names[position] for position in positions]
    axes.xaxis.tick_top()
    axes.set_xticks(positions, texts, rotation=90, fontsize=font_size)
    axes.set_yticks(positions, texts, fontsize=font_size)
    for text in axes.get_xticklabels() + axes.get_yticklabels():
        # Token texts may hold dollar signs.
        text.set_parse_math(False)
        text.set_color(_INK)
    axes.tick_params(which="both", length=0, pad=3)


def _name_pieces(axes, shown, num_global, cell):
    gap = 0.12 / cell
    parts = [("global", 0, num_global), ("long", num_global, shown)]
    for name, start, end in parts:
        if (end - start) * cell < 0.9:
            # Too narrow for the words.
            continue
        middle = (start + end) / 2 - 0.5
        style = dict(fontsize=9, color=_NOTE, style="italic")
        axes.text(
            middle,
            shown - 0.5 + gap,
            f"{name} keys",
            ha="center",
            va="top",
            **style,
        )
        axes.text(
            shown - 0.5 + gap,
            middle,
            f"{name} queries",
            ha="left",
            va="center",
            rotation=270,
            **style,
        )


def _draw_legend(axes, labels, scheme, links, height):
    """Names the colours; coordinates are inches from the top left."""
    from matplotlib.patches import Rectangle

    axes.set_xlim(0, _LEGEND_WIDTH)
    axes.set_ylim(height, 0)
    axes.axis("off")

    def box(x, y, width, height, color, edge="#b9b9c0"):
        axes.add_patch(
            Rectangle(
                (x, y), width, height, facecolor=color, edgecolor=edge, lw=0.6
            )
        )

    def text(x, y, words, **style):
        style = dict(fontsize=9, color=_INK, va="center") | style
        axes.text(x, y, words, **style)

    left, y = 0.2, 0.2
    text(left, y, "A row's token attends to a column's.")
    y += 0.25
    for row, pieces in enumerate((("g2g", "g2l"), ("l2g", "l2l"))):
        for column, piece in enumerate(pieces):
            x, top = left + (0, 0.5)[column], y + (0, 0.4)[row]
            width, height = (0.5, 0.9)[column], (0.4, 0.65)[row]
            box(x, top, width, height, "#ffffff", edge=_INK)
            text(x + width / 2, top + height / 2, piece, ha="center")
    text(left + 1.55, y + 0.2, "g = global\nl = long", va="top", color=_NOTE)
    y += 1.4

    if scheme.max_distance:
        entries = {
            0: "the token itself",
            scheme.linked: "linked: part of it, or a free link",
            scheme.not_linked: "not linked",
            scheme.other_context: "global token of another context",
            **{label: scheme.describe(label) for label in links},
        }
    else:
        entries = {0: "may attend"}
    entries[MASKED] = "masked, cannot attend"
    for label, words in entries.items():
        if label in labels:
            box(left, y - 0.09, 0.26, 0.18, _color(scheme, label))
            text(left + 0.38, y, words)
            y += _LEGEND_ROW

    if not scheme.max_distance:
        return
    for side, offset in (("right", 0), ("left", scheme.max_distance)):
        y += 0.12
        text(left, y, f"key to the {side} of the query, at distance")
        y += 0.15
        width = min(0.26, (_LEGEND_WIDTH - 0.5) / scheme.max_distance)
        step = int(np.ceil(0.2 / width))
        for distance in range(1, scheme.max_distance + 1):
            x = left + (distance - 1) * width
            box(x, y, width, 0.18, _color(scheme, distance + offset))
            is_last = distance == scheme.max_distance
            gap_to_last = scheme.max_distance - distance
            if is_last or ((distance - 1) % step == 0 and gap_to_last >= step):
                text(
                    x + width / 2,
                    y + 0.28,
                    f"{distance}+" if is_last else str(distance),
                    ha="center",
                    fontsize=7.5,
                    color=_NOTE,
                )
        y += 0.5
