"""Draws which tokens of a record attend to which, and with which label.

The picture follows the paper's Figure 3: queries are rows, keys are columns,
global tokens come before long ones, white is masked, and every other colour is
a relative position label.
"""

import os
import textwrap
import warnings
from collections.abc import Sequence

import numpy as np

from etcmodel import extras
from etcmodel.feature_utils import GlobalLocalTransformerSideInputs
from etcmodel.inspection.attention_labels import choose_global_tokens
from etcmodel.inspection.attention_labels import compose_attention_labels
from etcmodel.inspection.attention_labels import find_label_scheme
from etcmodel.pipeline.atomic import atomic_file

_PADDING_LABELS = ("", "[PAD]", "<pad>")
_MAX_LABEL_CHARS = 16

# Label -> colour. The labels of all distances on one side share a colormap.
_COLORS = {
    "masked": "white",
    "may attend": "cornflowerblue",
    "the token itself": "midnightblue",
    "right": "Blues",
    "left": "Oranges",
    "not linked": "gainsboro",
    "linked": "mediumseagreen",
    "other context": "plum",
    # Colours of links with their own labels, used in turn.
    "link": ("crimson", "gold", "cyan", "darkviolet", "yellowgreen", "sienna"),
}

# In inches: side of the square, size of a named token, width of the legend.
_MIN_SIDE, _MAX_SIDE = 5.0, 14.4
_MIN_CELL, _MAX_CELL = 0.085, 0.3
_LEGEND_WIDTH, _LEGEND_ROW, _LEGEND_ROWS = 2.2, 0.22, 36
# Maximum number of tokens of each type in a picture.
MAX_LONG_TOKENS = 120
MAX_GLOBAL_TOKENS = 40


def draw_attention_picture(
    side_inputs: GlobalLocalTransformerSideInputs,
    long_labels: Sequence[str],
    global_labels: Sequence[str],
    path: str | os.PathLike,
    title: str = "Who attends to whom",
    first_long_token: int = 0,
) -> str:
    """Draws the masks and labels of one record, and writes an image file.

    Padding is not drawn: empty, `[PAD]` and `<pad>` labels at the end, and
    positions without a label. Only a window of a long record is drawn, if
    possible with the global tokens that are linked to it; a note in the picture
    says which tokens are shown. The file is written atomically. The ending of
    `path` sets the format (.png, .svg, .pdf).

    Raises:
        MissingExtraError: matplotlib is not installed.
        UserError: the file cannot be written.
        ValueError: there are no token labels or more labels than tokens, the
            window is outside of the record, or matplotlib does not know the
            format.
    """
    num_long = _count_tokens("long_labels", long_labels)
    num_global = _count_tokens("global_labels", global_labels)
    _check_lengths(side_inputs, num_long, num_global)
    if not 0 <= first_long_token < num_long:
        raise ValueError(
            f"`first_long_token` is {first_long_token}, expected 0 to "
            f"{num_long - 1}, as the record has {num_long} long tokens."
        )
    last = min(first_long_token + MAX_LONG_TOKENS, num_long)
    long_tokens = range(first_long_token, last)
    global_tokens = choose_global_tokens(
        side_inputs, num_global, long_tokens, MAX_GLOBAL_TOKENS
    )
    labels = compose_attention_labels(side_inputs, global_tokens, long_tokens)
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
    """Counts the labels up to the last one that is not padding."""
    count = len(labels)
    while count and labels[count - 1] in _PADDING_LABELS:
        count -= 1
    if not count:
        raise ValueError(f"`{name}` has no token labels. Pass at least one.")
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
            f"expected at most {long_len} and {global_len}, as in the masks."
        )


def _shorten(text, max_chars=_MAX_LABEL_CHARS):
    if len(text) <= max_chars:
        return text
    return text[: max_chars - 1] + "\u2026"


def _describe_window(long_tokens, num_long, global_tokens, num_global):
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
    """Draws the matrix with its axes, title and legend as a `Figure`."""
    extras.require("matplotlib")
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    shown = len(names)
    side = min(max(_MIN_SIDE, _MAX_CELL * shown), _MAX_SIDE)
    # Names all tokens if that is readable, otherwise every n-th.
    step = max(1, int(np.ceil(_MIN_CELL * shown / side)))
    if step > 1:
        note += f" One token in {step} is named."
    font_size = min(max(side / shown * 72 * 0.78, 5.0), 10.0)
    used, indices = np.unique(labels, return_inverse=True)
    colors = [_color(scheme, int(label)) for label in used]
    # Room for the names, rotated on top and upright on the left.
    side += 1.0 + max(map(len, names)) * font_size * 0.66 / 72
    columns = int(np.ceil(len(used) / _LEGEND_ROWS))
    size = (
        side + _LEGEND_WIDTH * columns,
        max(side, 1.0 + _LEGEND_ROW * min(len(used), _LEGEND_ROWS)),
    )
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    # [shown, shown, 3]
    image = np.array(colors)[indices.reshape(labels.shape)]
    axes.imshow(image, interpolation="nearest")
    for line in (axes.axhline, axes.axvline):
        line(num_global - 0.5, color="black")
    positions = np.arange(0, shown, step)
    texts = [names[position] for position in positions]
    axes.xaxis.tick_top()
    axes.set_xticks(positions, texts, rotation=90, fontsize=font_size)
    axes.set_yticks(positions, texts, fontsize=font_size)
    axes.tick_params(length=0)
    axes.set_xlabel("keys: global, then long")
    axes.set_ylabel("queries: global, then long")
    title = figure.suptitle(_shorten(title, int(side / 0.15)), fontsize=15)
    # Texts may contain dollar signs.
    for text in (title, *axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set_parse_math(False)
    axes.set_title(textwrap.fill(note, int(side / 0.08)), fontsize=9)
    figure.legend(
        handles=[
            Patch(fc=color, ec="gray", label=scheme.describe(int(label)))
            for label, color in zip(used, colors, strict=True)
        ],
        loc="outside right upper",
        title="A row's token attends\nto a column's:",
        frameon=False,
        fontsize=9,
        ncols=columns,
    )
    return figure


def _color(scheme, label):
    import matplotlib
    from matplotlib.colors import to_rgb

    name = scheme.describe(label)
    if name in _COLORS:
        return to_rgb(_COLORS[name])
    if name.startswith("link "):
        names = _COLORS["link"]
        return to_rgb(names[(label - scheme.other_context - 1) % len(names)])
    side = "left" if label > scheme.max_distance else "right"
    distance = (label - 1) % scheme.max_distance
    # From strong to pale. The square root spreads the near labels, which matter
    # most.
    share = (distance / max(scheme.max_distance - 1, 1)) ** 0.5
    return matplotlib.colormaps[_COLORS[side]](0.9 - 0.7 * share)[:3]
