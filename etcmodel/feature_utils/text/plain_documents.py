"""Splits documents, given as strings, into titled paragraphs; graph code."""

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows

_BREAK = "\n\n"
# Punctuation at the end and at the beginning of a word.
_CLOSING = r"(\pP+)(\s|$)"
_OPENING = r"(^|\s)(\pP+)"
# White space as Python defines it, and without line feeds.
_SPACE = r"\s\v\x{1c}-\x{1f}\x{85}\p{Z}"
_BLANK = r"\t\f\r\v\x{1c}-\x{1f}\x{85}\p{Z}"
_MARKS = rf"#{{1,6}}[ \t][{_BLANK}]*"
# A line such as "## History".
_HEADING = rf"{_MARKS}[^{_SPACE}][^\n]*"
# Each pass joins pairs of headings without text between them.
_PASSES = 5
# Maximum number of elements of a text's dense tensors. One long row makes all
# rows as long.
_MAX_CELLS = 4_000_000


def split_paragraphs(
    documents: tf.Tensor,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    r"""Returns the titles and texts of each document's paragraphs.

    Paragraphs are separated by blank lines. A line that begins with one to six
    `#` and a space, as in Markdown, is the title of the paragraph after it.
    Headings without text between them form one title.

    Example: `["# Jan\nJan paints.\n\nHe cooks."]` has the titles
    `[["Jan", ""]]` and the texts `[["Jan paints.", "He cooks."]]`.

    Args:
        documents: `<string>[batch]`.

    Returns:
        Titles and texts, `<string>[batch, (paragraphs)]`.
    """
    text = _strip(tf.strings.regex_replace(documents, r"\r\n?", "\n"))
    text = tf.strings.regex_replace(
        text, rf"\n[{_BLANK}]*(\n[{_SPACE}]*|$)", _BREAK
    )
    # Headings without text between them form one title, as in files.
    for _ in range(_PASSES):
        text = tf.strings.regex_replace(
            text,
            rf"(?m)^({_HEADING}?)[{_BLANK}]*\n[{_SPACE}]*{_MARKS}([^{_SPACE}])",
            "\\1 \\2",
        )
    # A heading begins a paragraph, and its text follows after one line break.
    text = tf.strings.regex_replace(text, rf"(?m)^({_HEADING})$", "\n\n\\1\n")
    text = tf.strings.regex_replace(
        text, rf"(?m)^({_HEADING})\n[{_SPACE}]*", "\\1\n"
    )
    # [batch, (paragraphs)]
    parts = tf.strings.split(text, _BREAK)
    flat = _strip(parts.flat_values)
    is_titled = tf.strings.regex_full_match(flat, rf"(?s){_HEADING}(\n.*)?")
    title = tf.strings.regex_replace(
        flat, rf"(?s)^{_MARKS}([^\n]*)(\n.*)?$", "\\1"
    )
    title = tf.where(is_titled, _strip(title), "")
    body = tf.strings.regex_replace(flat, rf"^{_HEADING}\n?", "")
    is_used = flat != ""

    def rows(values):
        return ragged_rows.keep(parts.with_flat_values(values), is_used)

    return rows(title), rows(body)


def split_words(texts: tf.Tensor) -> tf.RaggedTensor:
    """Splits texts into words and the punctuation around them.

    Example: `["He said: (in Krakow)."]` gives `[["He", "said", ":", "(", "in",
    "Krakow", ")."]]`; punctuation within a word stays there.

    Args:
        texts: `<string>[texts]`.

    Returns:
        `<string>[texts, (words)]`.
    """
    apart = tf.strings.regex_replace(texts, _CLOSING, r" \1 \2")
    return tf.strings.split(tf.strings.regex_replace(apart, _OPENING, r"\1\2 "))


def bounded(parts: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns the parts of texts; refuses those whose padding fills the memory.

    Padded parts must not have more than 4 million elements.

    Example: 20,000 short paragraphs and one of 20,000 sentences are a small
    ragged tensor, but 400 million elements with padding.
    """
    cells = tf.reduce_prod(parts.bounding_shape(out_type=tf.int64))
    check = tf.debugging.Assert(
        cells <= _MAX_CELLS,
        [
            "The text cannot be split, because its parts have",
            cells,
            f"elements with padding, expected at most {_MAX_CELLS}. Send fewer "
            "texts at once, or split long paragraphs and long texts.",
        ],
    )
    with tf.control_dependencies([check]):
        return tf.identity(parts)


def _strip(texts: tf.Tensor) -> tf.Tensor:
    """Removes white space around texts."""
    return tf.strings.regex_replace(texts, rf"^[{_SPACE}]+|[{_SPACE}]+$", "")
