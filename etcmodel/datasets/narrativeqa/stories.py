"""Reads downloaded stories: plain text, Project Gutenberg's books, or HTML."""

import codecs
import contextlib
import html
import html.parser
import re

from etcmodel.errors import UserError
from etcmodel.readers import compression
from etcmodel.readers import files

# Only this many first bytes are searched for HTML and a declared encoding.
_HEAD_BYTES = 1 << 14
# A declaration that is readable as ASCII rules out UTF-16 and UTF-32, so these
# names are ignored.
_CHARSET = re.compile(
    rb"(?i)(?:character set encoding:|charset=)\s*[\"']?"
    rb"(?!utf-?(?:16|32))([\w.:-]+)"
)
# Browsers read ISO-8859-1 as Windows-1252, which also has curly quotes.
_LATIN_1, _WINDOWS = "iso8859-1", "windows-1252"
_ASCII = bytes(range(128))
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # UTF-32 must precede UTF-16: its mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Project Gutenberg's books are between the last start line and the first end
# line.
_STARTS = re.compile(
    r"^[ \t]*(?:\*\*\* ?START OF (?:THIS|THE) PROJECT GUTENBERG EBOOK"
    r"|\*END\*? ?THE SMALL PRINT! FOR PUBLIC DOMAIN"
    r"|This etext (?:was )?(?:prepared|provided) by ).*$",
    re.MULTILINE | re.IGNORECASE,
)
_ENDS = re.compile(
    r"^[ \t]*(?:\*\*\* ?END OF (?:THIS|THE) PROJECT GUTENBERG EBOOK"
    r"|End of (?:(?:nothing|this|the) )?Project Gutenberg"
    r"(?:'s| Etext| EBook)).*$",
    re.MULTILINE | re.IGNORECASE,
)
_IS_HTML = re.compile(r"<(?:html|pre|body|!doctype html)\b", re.IGNORECASE)
# Elements that start a new line.
_BLOCKS = frozenset(
    "address article blockquote br dd div dl dt fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p section table td "
    "th tr ul title".split()
)


class _Text(html.parser.HTMLParser):
    """Collects the text of a page and the offsets of its `<pre>`."""

    def __init__(self):
        super().__init__()
        self.parts: list[str] = []
        self.first_pre = self.last_pre = None
        self._hidden = 0

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "style"):
            self._hidden += 1
        elif tag == "pre" and self.first_pre is None:
            self.first_pre = len(self.parts)
        elif tag in _BLOCKS:
            # Two line feeds are an empty line between paragraphs.
            self.parts.append("\n" if tag == "br" else "\n\n")

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._hidden = max(self._hidden - 1, 0)
        elif tag == "pre":
            self.last_pre = len(self.parts)
        elif tag in _BLOCKS:
            self.parts.append("\n\n")

    def handle_data(self, data):
        if not self._hidden:
            self.parts.append(data)

    def parse_marked_section(self, i, report=1):
        """Treats `<![...>` as a comment; the library rejects some of these."""
        return self.parse_bogus_comment(i, report)


def _strip_html(text: str) -> str:
    parser = _Text()
    # No tag follows the last ">". The library would search for the end of every
    # "<" after it, which takes quadratic time.
    end = text.rfind(">") + 1
    parser.feed(text[:end])
    parser.close()
    parser.handle_data(html.unescape(text[end:]))
    return "".join(parser.parts[parser.first_pre : parser.last_pre])


def _strip_boilerplate(text: str) -> str:
    # Ignores start lines in the second half: credits can be at the end, too.
    head = len(text) // 2
    marks = [x for x in _STARTS.finditer(text) if x.start() < head]
    start = marks[-1].end() if marks else 0
    end = _ENDS.search(text, start)
    return text[start : end.start() if end else None]


def decode(content: bytes) -> str:
    """Decodes a file, with U+FFFD for invalid bytes.

    The encoding is the first that applies:

    *   the encoding of a byte order mark;
    *   UTF-16 or UTF-32, if nearly every second byte is zero;
    *   the declared encoding ("Character set encoding: ISO-8859-2",
        `charset=utf-8`), except ASCII; ISO-8859-1 is read as Windows-1252;
    *   Windows-1252, as in many old files, if most non-ASCII bytes are not
        valid UTF-8;
    *   UTF-8.
    """
    head = content[:_HEAD_BYTES]
    names = [x for mark, x in _BYTE_ORDER_MARKS if content.startswith(mark)]
    # Number of zeros among the bytes at even and at odd positions.
    zeros = [head[i::2].count(0) for i in range(2)]
    if max(zeros) > 0.35 * len(head):
        bits = 32 if min(zeros) > 0.2 * len(head) else 16
        names.append(f"utf-{bits}-{'be' if zeros[0] > zeros[1] else 'le'}")
    names += [x.decode() for x in _CHARSET.findall(head)[:1]]
    # Compares invalid sequences with non-ASCII bytes. Valid UTF-8 has several
    # bytes per non-ASCII character.
    text = content.decode("utf-8", "replace")
    if 2 * text.count("\ufffd") > len(content.translate(None, _ASCII)):
        text = content.decode(_WINDOWS, "replace")
    for name in names:
        with contextlib.suppress(LookupError, UnicodeError):
            name = codecs.lookup(name).name
            if name != "ascii":
                name = _WINDOWS if name == _LATIN_1 else name
                text = content.decode(name, "replace")
                break
    return text.replace("\0", " ")


def clean(text: str) -> str:
    r"""Extracts the story: paragraphs with an empty line between them.

    The story of an HTML page is its text, or only the text between the first
    `<pre>` and the last `</pre>`. The story of a book is the part between
    Project Gutenberg's start and end lines. Example:

        "<body>Once  upon\na time<p>x" -> "Once upon a time\n\nx"
    """
    if _IS_HTML.search(text, 0, _HEAD_BYTES):
        text = _strip_html(text)
    text = _strip_boilerplate(text.replace("\r\n", "\n").replace("\r", "\n"))
    paragraphs = (" ".join(x.split()) for x in re.split(r"\n\s*\n", text))
    return "\n\n".join(filter(None, paragraphs))


def load(path: str) -> str:
    """Reads a story, plain or compressed; see `clean`.

    Raises:
        UserError: the file cannot be read.
    """
    raw, plain = files.open_plain(path)
    with raw, plain:
        try:
            return clean(decode(files.read_whole(plain, path)))
        except compression.DAMAGES as error:
            raise UserError(
                f"{path} is cut off or damaged ({error}). Get the file again."
            ) from None
