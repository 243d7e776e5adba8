"""Reads a server's page, and converts documents that users drop on it."""

import codecs
import pathlib
from collections.abc import Mapping
from typing import Any

import etcmodel
from etcmodel.errors import UserError

_FOLDER = pathlib.Path(etcmodel.__file__).parent / "inspection" / "web"
PAGE = "page.html"
# Name of a file that the page loads -> its media type.
FILES = {
    "style.css": "text/css",
    "page.css": "text/css",
    "document.js": "text/javascript",
    "find.js": "text/javascript",
    "tasks.js": "text/javascript",
    "page.js": "text/javascript",
}
# The page loads nothing from other servers, and runs only its own scripts.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; connect-src 'self'; img-src data:; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_SIGNATURE = "text"
_HEADINGS = {f"h{i}": i for i in range(1, 7)}
# Elements that start a new paragraph, and end it.
_BLOCKS = {
    *"address article aside blockquote body caption center dd details".split(),
    *"div dl dt fieldset figcaption figure footer form header hr li".split(),
    *"main nav ol p pre section summary table tbody tfoot thead tr ul".split(),
    *_HEADINGS,
}
_GAPS = {"br", "td", "th"}
# Elements whose content is not part of the document's text.
_SKIPPED = {
    *"button head iframe noscript object script select style svg".split(),
    *"template textarea".split(),
}
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def read_file(name: str) -> bytes:
    """Returns the content of `PAGE` or of one of `FILES`."""
    return (_FOLDER / name).read_bytes()


def describe(
    name: str,
    metadata: Mapping[str, Any],
    specs: Mapping[str, Mapping[str, Any]],
    example: Mapping[str, str],
) -> dict[str, Any]:
    """Describes a model for the page.

    Args:
        name: the name that the model is served under.
        metadata: the description that `export` wrote.
        specs: signature name -> input name -> specification.
        example: input name -> text, for the signature `text`.

    Returns:
        `name`, `task`, `inputs` (names of the inputs of the signature `text`;
        empty without that signature) and `example`.
    """
    inputs = sorted(specs.get(_SIGNATURE, ()))
    return {
        "name": name,
        "task": metadata["task"],
        "inputs": inputs,
        "example": {x: example[x] for x in inputs if x in example},
    }


def to_text(content: bytes, kind: str) -> str:
    r"""Converts a document to text for the signature `text`.

    Example: `b"<h2>Jan</h2><p>Jan <b>paints</b>."` with the kind "text/html"
    becomes "## Jan\n\nJan paints.". Rows of Markdown tables stay as they are.

    Args:
        content: the document.
        kind: "text/plain", "text/markdown" or "text/html", optionally with
            parameters such as "; charset=utf-8".

    Raises:
        UserError: the kind is unknown, or plain text or Markdown is not
            Unicode.
    """
    kind = kind.partition(";")[0].strip().lower()
    if kind == "text/html":
        return _html_to_text(content)
    if kind == "text/markdown":
        import markdown_it

        # Without tables: each row gets as many cells as the header has, so
        # that a small document can take seconds.
        reader = markdown_it.MarkdownIt("commonmark")
        return _html_to_text(reader.render(_decode(content)).encode())
    if kind == "text/plain":
        return _decode(content).replace("\r\n", "\n").replace("\r", "\n")
    raise UserError(
        f"The document is {kind or 'of no known type'}. Choose a text, "
        "Markdown or HTML file (.txt, .md, .html)."
    )


def _encoding(content: bytes) -> str | None:
    """Returns the encoding that a byte order mark shows; None without one."""
    return next((y for x, y in _MARKS.items() if content.startswith(x)), None)


def _decode(content: bytes) -> str:
    """Decodes UTF-8, or UTF-16 with a byte order mark."""
    try:
        text = content.decode(_encoding(content) or "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            "The document is not UTF-8 text: its byte "
            f"{error.start} cannot be read. Save it as UTF-8."
        ) from None
    return text


class _Paragraphs:
    """Collects the paragraphs of an HTML page while lxml parses it."""

    def __init__(self):
        self._made, self._text = [], []
        self._level = self._skipped = 0

    def start(self, tag, attributes):
        """Handles a start tag."""
        del attributes
        if self._skipped or tag in _SKIPPED:
            self._skipped += 1
            return
        if tag in _BLOCKS:
            self._finish()
        if tag in _HEADINGS:
            self._level = _HEADINGS[tag]
        if tag in _GAPS:
            self._text.append(" ")

    def end(self, tag):
        """Handles an end tag."""
        if self._skipped:
            self._skipped -= 1
            return
        if tag in _BLOCKS:
            self._finish()
        if tag in _HEADINGS:
            self._level = 0

    def data(self, text):
        """Handles the text between tags."""
        if not self._skipped:
            self._text.append(text)

    def close(self):
        """Returns the paragraphs."""
        self._finish()
        return "\n\n".join(self._made)

    def _finish(self):
        text = " ".join("".join(self._text).split())
        self._text = []
        if text:
            self._made.append(
                "#" * self._level + " " * (self._level > 0) + text
            )


def _html_to_text(content: bytes) -> str:
    """Returns the headings and paragraphs of an HTML page as text."""
    from lxml import etree

    try:
        content, encoding = _decode(content).encode(), "utf-8"
    except UserError:
        # lxml uses the encoding that the page declares, by default Latin-1.
        encoding = None
    if not content.strip():
        return ""
    parser = etree.HTMLParser(
        target=_Paragraphs(), encoding=encoding, no_network=True, huge_tree=True
    )
    return etree.fromstring(content, parser)
