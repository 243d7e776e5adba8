"""Reads documents of sections, paragraphs and texts from user rows.

A row (see `tables.read_rows` and `python_rows.rows_of`) has its document in one
field: `text`, `document`, `paragraphs`, `sections` or `context`. The value is

*   a string, with blank lines between paragraphs;
*   a list of paragraphs, each a string or a list of strings (its units); or
*   a list of sections, each `{"title": "...", "paragraphs": [...]}`,
    `{"title": "...", "text": "..."}` or HotpotQA's
    `["title", ["sentence", ...]]`.
"""

import dataclasses
import json
import re
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from etcmodel.errors import RecordError
from etcmodel.errors import show
from etcmodel.readers import cells
from etcmodel.readers.records import Record
from etcmodel.readers.records import Source
from etcmodel.readers.records import without_positions

TEXT_FIELDS = ("text", "document", "paragraphs", "sections", "context")
QUERY_FIELDS = ("query", "question")
_WHOLE = re.compile(r"-?[0-9]{1,18}(\.0{1,18})?")
_BLANK_LINES = re.compile(r"\n\s*\n")
_LINE_ENDS = re.compile(r"\r\n?")
_HEADING = re.compile(r"#{1,6}[ \t]\s*\S")
# What to do about a record without a label.
NO_LABEL = (
    "If the label is in another field, set `label_field`. If no record has a "
    "label, use `split=predict`"
)
_EXPECTED = (
    "a string, a list of paragraphs (each a string or a list of strings) or a "
    'list of sections {"title": "...", "paragraphs": [...]}'
)
_NUL_ADVICE = "Convert the file from UTF-16 to UTF-8, or remove the characters"


class Section(msgspec.Struct, frozen=True):
    """A part of a document under one heading.

    Attributes:
        title: the heading; empty if there is none.
        paragraphs: the texts of each paragraph. Empty paragraphs and texts are
            kept, so that positions are the same as in the file.
    """

    title: str = ""
    paragraphs: tuple[tuple[str, ...], ...] = ()


class DocumentRecord(Record, frozen=True):
    """A document, with or without a query.

    Attributes:
        id: the row's id. A row without one gets its position in its file, from
            0; `name:position` if several files are read.
        sections: the document's sections. A document without sections becomes
            one section without a title.
        query: a question as one text, or several texts such as labels.
        has_units: whether each paragraph is a list of texts in the file. If so,
            units are selected among these texts. If not, each paragraph is one
            text, to be split into sentences.
    """

    id: str
    sections: tuple[Section, ...]
    query: tuple[str, ...] = ()
    has_units: bool = False

    @property
    def paragraphs(self) -> tuple[tuple[str, ...], ...]:
        """Paragraphs of all sections, in order."""
        return tuple(x for section in self.sections for x in section.paragraphs)


class Document(NamedTuple):
    """The content of a row's document field.

    Attributes:
        sections: see `DocumentRecord`.
        has_units: see `DocumentRecord`.
        offsets: for each paragraph, the position of its first character in the
            document's text. That text joins the strings of the field by empty
            lines, and the texts of one paragraph by spaces.
    """

    sections: tuple[Section, ...]
    has_units: bool
    offsets: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Fields:
    """Names of a row's fields; None for the default names.

    Attributes:
        text: the document; by default, one of `TEXT_FIELDS`.
        query: the query; by default, one of `QUERY_FIELDS`.
        id: the id; by default, "id".
        label: labels, selections or answers; each dataset has its defaults.
        evidence: the evidence; each dataset has its defaults.
        title: the document's title; by default, no field.
    """

    text: str | None = None
    query: str | None = None
    id: str | None = None
    label: str | None = None
    evidence: str | None = None
    title: str | None = None

    @property
    def id_field(self) -> str:
        """Name of the field with the id."""
        return self.id or "id"

    def used(
        self, labels: Sequence[str], evidence: Sequence[str]
    ) -> frozenset[str]:
        """Returns the names of all fields that may be read.

        `labels` and `evidence` are the default names of these fields.
        """
        names = {
            *((self.text,) if self.text else TEXT_FIELDS),
            *((self.query,) if self.query else QUERY_FIELDS),
            *((self.label,) if self.label else labels),
            *((self.evidence,) if self.evidence else evidence),
            self.id_field,
            *((self.title,) if self.title else ()),
        }
        return frozenset(names)

    @property
    def named(self) -> frozenset[str]:
        """The given names of query, id, evidence and title.

        At least one record must have each of these fields.
        """
        names = (self.query, self.id, self.evidence, self.title)
        return frozenset(x for x in names if x)

    def example(self, rest: str) -> str:
        """Returns an example of a row that ends with `rest`, for messages."""
        return f'a row {{"{self.id_field}": "...", {rest}}}'


class Row:
    """A row that converts its fields; errors name the row and its place.

    Args:
        values: field -> value.
        source: where the row was read.
        fields: names of the row's fields.

    Attributes:
        id: the row's id, as a string.
    """

    def __init__(self, values: Mapping, source: Source, fields: Fields):
        self.values = values
        self.source = source
        self.fields = fields
        self.id = None
        self.id = self._read_id()

    def error(self, reason: str, **kwargs) -> RecordError:
        """Returns a `RecordError` about the row; `kwargs` are passed on."""
        return self.source.error(reason, record_id=self.id, **kwargs)

    def wrong(
        self, field: str, value: object, expected: str, group: str | None = None
    ) -> RecordError:
        """Returns the error of an unexpected value.

        `field` may contain positions, such as `answers[1].text`. Statistics
        group errors by `group`; by default, the field without positions.
        """
        got = show(value)
        if isinstance(value, list):
            got += f", a list of {len(value)}"
        group = group or without_positions(field)
        return self.error(
            f"wrong {group!r}",
            field=field,
            problem=f"got {got}, expected {expected}",
        )

    def find(self, name: str | None, defaults: Sequence[str]) -> str | None:
        """Returns the name of the field to use; None if the row lacks it.

        The field is `name` or, if that is None, the one of `defaults` that the
        row has.

        Raises:
            RecordError: the row has several of the defaults.
        """
        names = (name,) if name else defaults
        found = [x for x in names if self.values.get(x) is not None]
        if len(found) > 1:
            # In a table every row has all columns, so empty ones do not count.
            found = [x for x in found if self.values[x] != ""] or found[:1]
        if len(found) > 1:
            raise self.error(
                f"two fields: {found[0]!r} and {found[1]!r}",
                field=found[1],
                problem=f"the record also has {found[0]!r}; keep one of them",
            )
        return found[0] if found else None

    def missing(
        self, names: Sequence[str], expected: str, option: str
    ) -> RecordError:
        """Returns the error of a missing field that may have one of `names`.

        `option` is the option that sets another name.
        """
        present = [str(x) for x in self.values if x != self.fields.id_field]
        present = ", ".join(present[:8]) or "nothing"
        others = ", ".join(map(repr, names[1:]))
        others = others and f", as are {others}"
        return self.error(
            f"no field {names[0]!r}",
            field=names[0],
            problem=(
                f"it is missing{others}; the record has {present}, expected "
                f"{expected}"
            ),
            advice=f"If it has another name, set `{option}`. Otherwise fix the "
            "record, or leave it out",
        )

    def _read_id(self) -> str:
        field = self.fields.id_field
        value = self.values.get(field)
        if value is None:
            return str(self.source.index)
        if not isinstance(value, str):
            expected = "a string or a number"
            return self.text(field, value, is_cell=True, expected=expected)
        if not value.strip():
            raise self.error(
                f"empty {field!r}",
                field=field,
                problem=f"it is empty: got {show(value)}, expected some text",
            )
        return value

    def query(self) -> tuple[str, ...]:
        """Returns the texts of the query; empty if there is none.

        Raises:
            RecordError: the query is neither a string nor a list of strings.
        """
        field = self.find(self.fields.query, QUERY_FIELDS)
        value = "" if field is None else self.values[field]
        value = given_text(value)
        if not isinstance(value, list):
            expected = "a string or a list of strings"
            text = self.text(field, value, is_cell=True, expected=expected)
            return (text,) if text.strip() else ()
        return tuple(
            self.text(f"{field}[{i}]", x, may_be_empty=False)
            for i, x in enumerate(value)
        )

    def document(self) -> Document:
        """Returns the document of the row.

        The row's title, if any, becomes the title of the first section. If that
        section has a title, too, the row's title becomes a section before it.

        Raises:
            RecordError: the row has no document, or one that is empty or has
                the wrong type; or its title is not a string.
        """
        field = self.find(self.fields.text, TEXT_FIELDS)
        if field is None:
            names = (self.fields.text,) if self.fields.text else TEXT_FIELDS
            raise self.missing(names, _EXPECTED, "text_field")
        value = self.values[field]
        reader = _DocumentReader(self, field)
        document = reader.read(value)
        if not any(
            text.strip()
            for section in document.sections
            for paragraph in section.paragraphs
            for text in paragraph
        ):
            raise self.error(
                "empty document",
                field=field,
                problem=f"it has no text: got {show(value)}",
            )
        title = self.title()
        first, *others = document.sections
        if title and first.title:
            first, others = Section(title), document.sections
        elif title:
            first = Section(title, first.paragraphs)
        return document._replace(sections=(first, *others))

    def title(self) -> str:
        """Returns the title; empty if there is none.

        Raises:
            RecordError: the title is not a string.
        """
        field = self.fields.title
        value = given_text(self.values.get(field)) if field else None
        if value is None:
            return ""
        return self.text(field, value, is_cell=True).strip()

    def text(
        self,
        field: str,
        value: object,
        may_be_empty: bool = True,
        is_cell: bool = False,
        expected: str = "a string",
    ) -> str:
        """Checks that a value is a string, and returns it.

        With `is_cell`, numbers are converted to strings, the type that they
        have in a CSV file.

        Raises:
            RecordError: the value is not a string, has NUL characters, or is
                empty although `may_be_empty` is False.
        """
        if is_cell and is_number(value):
            return json.dumps(value)
        if not isinstance(value, str):
            raise self.wrong(field, value, expected)
        if "\0" in value:
            raise self.error(
                "NUL characters",
                field=field,
                problem="the text has NUL characters, as if it were UTF-16",
                advice=_NUL_ADVICE,
            )
        if not may_be_empty and not value.strip():
            raise self.error(
                f"empty {without_positions(field)!r}",
                field=field,
                problem=f"it is empty: got {show(value)}, expected some text",
            )
        return value

    def flag(self, field: str, value: object) -> bool:
        """Converts a value to a boolean; a missing value is False.

        CSV files store booleans as strings, so 1, 1.0, `"1"`, `"1.0"`, and
        `"true"` in any case mean true; the corresponding values mean false.
        """
        if isinstance(value, str):
            word = value.strip().lower()
            value = {"true": True, "false": False, "": None}.get(word, word)
        value = whole(value)
        if value not in (None, True, False):
            raise self.wrong(field, value, "true or false")
        return bool(value)


def given_text(value: object) -> object:
    """Returns the original string of a `Printed` list; keeps other values."""
    return value.text if isinstance(value, cells.Printed) else value


def is_number(value: object) -> bool:
    """Tells whether a value is a number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(value: object) -> object:
    """Converts 3.0, `"3"` and `"3.0"` to 3; returns other values unchanged.

    pandas converts integers to floats if values are missing.
    """
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def split_paragraphs(text: str) -> Iterator[tuple[int, str]]:
    r"""Splits a text into paragraphs at blank lines.

    Example: `" a\nb\n \n\nc"` gives `(1, "a\nb")` and `(8, "c")`.

    Yields:
        The position of each paragraph's first character, and the paragraph
        without surrounding white space.
    """
    start = 0
    ends = [x.span() for x in _BLANK_LINES.finditer(text)]
    for end, next_start in (*ends, (len(text), len(text))):
        part = text[start:end]
        stripped = part.lstrip()
        if stripped:
            yield start + len(part) - len(stripped), stripped.rstrip()
        start = next_start


def split_sections(text: str) -> str | list[dict]:
    r"""Splits a plain text at its headings; returns it if it has none.

    A heading is a line that begins with `# `, up to six of them, as in
    Markdown. Served models split the signature `text` in the same way.

    Example: `"# Jan\nJan paints.\n\nHe cooks."` gives one section with the
    title "Jan" and the paragraphs "Jan paints." and "He cooks.".
    """
    text = _LINE_ENDS.sub("\n", text)
    sections = [{"title": "", "paragraphs": []}]
    for _, paragraph in split_paragraphs(text):
        lines, follows = [], True
        for line in [*paragraph.split("\n"), None]:
            if line is not None and follows:
                line = line.lstrip()
            follows = line is None or bool(_HEADING.match(line))
            if not follows:
                lines.append(line)
                continue
            if body := "\n".join(lines).strip():
                sections[-1]["paragraphs"].append(body)
            lines = []
            if line is not None:
                title = line.lstrip("#").strip()
                sections.append({"title": title, "paragraphs": []})
    return sections if len(sections) > 1 else text


class _DocumentReader:
    """Converts the document's field to a `Document`."""

    def __init__(self, row: Row, field: str):
        self._row = row
        self._field = field
        # None until the first paragraph has been read.
        self._has_units: bool | None = None
        # Positions of the paragraphs read so far, and of the next string.
        self._offsets: list[int] = []
        self._end = 0

    def read(self, value: object) -> Document:
        """Converts the field's value to a document."""
        if not isinstance(value, list):
            text = self._row.text(
                self._field, value, is_cell=True, expected=_EXPECTED
            )
            sections = (Section(paragraphs=self._split(self._field, text)),)
        elif value and all(map(_is_section, value)):
            sections = tuple(
                self._section(f"{self._field}[{i}]", x)
                for i, x in enumerate(value)
            )
        else:
            paragraphs = self._paragraphs(self._field, value)
            sections = (Section(paragraphs=paragraphs),)
        return Document(sections, bool(self._has_units), tuple(self._offsets))

    def _section(self, place: str, value: object) -> Section:
        if isinstance(value, list):
            # HotpotQA's format: a title and the sentences of one paragraph.
            title = self._row.text(f"{place}[0]", value[0])
            return Section(title, (self._paragraph(f"{place}[1]", value[1]),))
        names = [x for x in ("paragraphs", "text") if value.get(x) is not None]
        if len(names) != 1:
            raise self._row.wrong(
                place, value, 'a section with "paragraphs" or "text"'
            )
        title = value.get("title")
        title = self._row.text(f"{place}.title", "" if title is None else title)
        place, content = f"{place}.{names[0]}", value[names[0]]
        if isinstance(content, str):
            return Section(title, self._split(place, content))
        if not isinstance(content, list):
            raise self._row.wrong(
                place, content, "a string or a list of paragraphs"
            )
        return Section(title, self._paragraphs(place, content))

    def _split(self, place: str, text: str) -> tuple[tuple[str, ...], ...]:
        self._row.text(place, text)
        self._check_kind(place, text)
        found = list(split_paragraphs(text))
        self._offsets += [self._end + start for start, _ in found]
        self._end += len(text) + 2
        return tuple((x,) for _, x in found)

    def _paragraphs(self, place: str, values: list):
        return tuple(
            self._paragraph(f"{place}[{i}]", x) for i, x in enumerate(values)
        )

    def _paragraph(self, place: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, str | list):
            raise self._row.wrong(
                place, value, "a paragraph: a string or a list of strings"
            )
        self._check_kind(place, value)
        if isinstance(value, str):
            texts = (self._row.text(place, value),)
        else:
            texts = tuple(
                self._row.text(f"{place}[{i}]", x) for i, x in enumerate(value)
            )
        self._offsets.append(self._end)
        self._end += len(" ".join(texts)) + 2
        return texts

    def _check_kind(self, place: str, value: str | list) -> None:
        """Raises an error if some paragraphs, but not all, have units."""
        has_units = isinstance(value, list)
        if self._has_units not in (None, has_units):
            expected = "a list of strings" if self._has_units else "a string"
            raise self._row.wrong(
                place, value, f"{expected}, like the paragraph before it"
            )
        self._has_units = has_units


def _is_section(value: object) -> bool:
    """Tells whether a value is a section, not a paragraph."""
    return isinstance(value, dict) or (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], list)
    )
