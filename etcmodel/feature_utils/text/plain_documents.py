"""Splits a document that is one string into titled paragraphs; graph code."""

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows

# A line such as "## History".
_HEADING = r"#{1,6}[ \t]+[^\n]*"
_BREAK = "\n\n"
# Punctuation at the end and at the beginning of a word.
_CLOSING = r"(\pP+)(\s|$)"
_OPENING = r"(^|\s)(\pP+)"
# Each pass joins every other of the headings without text between them.
_PASSES = 5


def split_paragraphs(
    documents: tf.Tensor,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    r"""Returns the titles and texts of the paragraphs of documents.

    Paragraphs are separated by blank lines. A line that begins with `# ` (up to
    six of them, as in Markdown) is the title of the paragraph after it;
    headings without text between them are one title.

    Example: `["# Jan\nJan paints.\n\nHe cooks."]` has the titles
    `[["Jan", ""]]` and the texts `[["Jan paints.", "He cooks."]]`.

    Args:
        documents: `<string>[batch]`.

    Returns:
        Titles and texts, `<string>[batch, (paragraphs)]`.
    """
    text = tf.strings.regex_replace(documents, r"\r\n?", "\n")
    text = tf.strings.regex_replace(text, r"\n[^\S\n]*(\n\s*|$)", _BREAK)
    # Headings without text between them are one title, as in files.
    for _ in range(_PASSES):
        text = tf.strings.regex_replace(
            text, rf"(?m)^({_HEADING})\n\s*#{{1,6}}[ \t]+", "\\1 "
        )
    # A heading begins a paragraph, which it does not end.
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
