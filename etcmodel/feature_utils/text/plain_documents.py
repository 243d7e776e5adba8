"""Splits documents, given as strings, into titled paragraphs; graph code."""

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows

# A line such as "## History".
_HEADING = r"#{1,6}[ \t]+[^\n]*"
_BREAK = "\n\n"
# Each pass joins pairs of headings without text between them.
_PASSES = 5


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
    text = tf.strings.regex_replace(documents, r"\r\n?", "\n")
    text = tf.strings.regex_replace(text, r"\n[^\S\n]*(\n\s*|$)", _BREAK)
    # Headings without text between them form one title.
    for _ in range(_PASSES):
        text = tf.strings.regex_replace(
            text, rf"(?m)^({_HEADING})\n\s*#{{1,6}}[ \t]+", "\\1 "
        )
    # A heading begins a paragraph, and its text follows after one line break.
    text = tf.strings.regex_replace(text, rf"(?m)^({_HEADING})$", "\n\n\\1\n")
    text = tf.strings.regex_replace(text, rf"(?m)^({_HEADING})\n\s*", "\\1\n")
    # [batch, (paragraphs)]
    parts = tf.strings.split(text, _BREAK)
    flat = tf.strings.strip(parts.flat_values)
    is_titled = tf.strings.regex_full_match(flat, rf"(?s){_HEADING}(\n.*)?")
    title = tf.strings.regex_replace(
        flat, r"(?s)^#{1,6}[ \t]+([^\n]*)(\n.*)?$", "\\1"
    )
    title = tf.where(is_titled, tf.strings.strip(title), "")
    body = tf.strings.regex_replace(flat, rf"^{_HEADING}\n?", "")
    is_used = flat != ""

    def rows(values):
        return ragged_rows.keep(parts.with_flat_values(values), is_used)

    return rows(title), rows(body)
