"""Tests of `sectioned`: documents built from user rows."""

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.readers import sectioned
from etcmodel.readers.sectioned import Section
from testing.row_formats import make_format as _format


class DocumentTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ({"text": "One.\nTwo.\n\n \nThree. "}, ["One.\nTwo.", "Three."], False),
        ({"document": ["One.", "", "a\n\nb"]}, ["One.", "", "a\n\nb"], False),
        (
            {"paragraphs": [["One.", ""], [], ["Two."]]},
            [("One.", ""), (), ("Two.",)],
            True,
        ),
        ({"text": None, "context": "One."}, ["One."], False),
    )
    def test_paragraphs(self, row, expected, has_units):
        (record,) = _format().read_rows([row])
        expected = [(x,) if isinstance(x, str) else x for x in expected]
        self.assertEqual((Section("", tuple(expected)),), record.sections)
        self.assertEqual(tuple(expected), record.paragraphs)
        self.assertEqual(has_units, record.has_units)

    @parameterized.parameters(
        (
            {"sections": [{"title": "A", "text": "b\n\nc"}, {"text": "d"}]},
            (Section("A", (("b",), ("c",))), Section("", (("d",),))),
            False,
        ),
        (
            {
                "text": [
                    {"title": "A", "paragraphs": [["b", "c"], ["d"]]},
                    {"title": None, "paragraphs": []},
                ]
            },
            (Section("A", (("b", "c"), ("d",))), Section()),
            True,
        ),
        (
            {"context": [["A", ["b", " c"]], ["D", []]]},
            (Section("A", (("b", " c"),)), Section("D", ((),))),
            True,
        ),
    )
    def test_sections(self, row, expected, has_units):
        (record,) = _format().read_rows([row])
        self.assertEqual(expected, record.sections)
        self.assertEqual(has_units, record.has_units)

    def test_fields_of_other_names(self):
        """If other names are given, the default fields may hold any values."""
        (record,) = _format(text="body", query="topics", id="key").read_rows(
            [{"body": "a", "topics": ["b", "c"], "key": 7, "text": 1, "id": []}]
        )
        self.assertEqual(
            ("7", ("b", "c"), (("a",),)),
            (record.id, record.query, record.paragraphs),
        )

    @parameterized.parameters(
        (
            "b\n\nc",
            (Section("", (("b",), ("c",))),),
            (Section("T", (("b",), ("c",))),),
        ),
        (
            [{"title": "", "text": "b"}, {"title": "A", "text": "c"}],
            (Section("", (("b",),)), Section("A", (("c",),))),
            (Section("T", (("b",),)), Section("A", (("c",),))),
        ),
        (
            [{"title": "A", "text": "b"}],
            (Section("A", (("b",),)),),
            (Section("T"), Section("A", (("b",),))),
        ),
    )
    def test_title(self, text, expected, with_title):
        """The title changes no positions of paragraphs."""
        rows = [{"text": text, "subject": " T "}, {"text": text}]
        rows += [{"text": text, "subject": x} for x in ("", " ", None)]
        titled, *others = _format(title="subject").read_rows(rows)
        self.assertEqual(with_title, titled.sections)
        for record in others:
            self.assertEqual(expected, record.sections)
        # Without an option, the field is not read.
        (record,) = _format().read_rows([{"text": text, "title": [5]}])
        self.assertEqual(expected, record.sections)

    @parameterized.parameters(
        ({"question": "a?"}, ("a?",)),
        ({"query": ["a", "b"]}, ("a", "b")),
        ({"query": "", "question": None}, ()),
        ({"query": "", "question": "a?"}, ("a?",)),
        ({"query": "", "question": ""}, ()),
        ({}, ()),
    )
    def test_query(self, row, expected):
        (record,) = _format().read_rows([{"text": "a", **row}])
        self.assertEqual(expected, record.query)

    @parameterized.parameters(
        # One string is split into paragraphs.
        (" a\nb\n \n\nc", (1, 8)),
        ("a\r\n \r\nbc", (0, 6)),
        # The text is "a b\n\n\n\nc".
        ([["a", "b"], [], ["c"]], (0, 5, 7)),
        # The text is "a\n\n\nb\n\nc".
        ([{"text": "a\n\n\nb"}, {"text": "c"}], (0, 4, 7)),
    )
    def test_offsets(self, value, expected):
        source = sectioned.Source("rows", 0)
        row = sectioned.Row({"text": value}, source, sectioned.Fields())
        self.assertEqual(expected, row.document().offsets)


_TEXT = "field 'text"
_LIST = f"{_TEXT}': got .*expected a string, a list of paragraphs"


class ErrorsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ({}, f"{_TEXT}': it is missing, .*'context'.* record has nothing"),
        (
            {"body": "a"},
            f"{_TEXT}': it is missing.* has body, expected a.*set `text_field`",
        ),
        (
            {"text": "a", "sections": ["b"]},
            "'sections': the record also has 'text'",
        ),
        ({"text": True}, f"{_LIST}"),
        ({"text": {"title": "a"}}, f"{_LIST}"),
        ({"text": [["a"], "b"]}, r"'text\[1\]': got 'b', expected a list of s"),
        (
            {"text": ["a", ["b"]]},
            r"'text\[1\]': got \['b'\], .* a string, like",
        ),
        ({"text": [5]}, r"'text\[0\]': got 5, expected a paragraph"),
        ({"text": [["a", 5]]}, r"'text\[0\]\[1\]': got 5, expected a string"),
        ({"text": [{"title": "a"}]}, r"'text\[0\]': got .*\"paragraphs\" or"),
        ({"text": [{"title": 5, "text": "a"}]}, r"\[0\].title': got 5"),
        (
            {"text": [{"text": "a"}, {"paragraphs": [["b"]]}]},
            r"'text\[1\].paragraphs\[0\]': .*like the paragraph before it",
        ),
        *(
            ({"text": x}, f"{_TEXT}': it has no text")
            for x in ("", "\n\n ", [], [""], [[]], [["", " "]], [{"text": ""}])
        ),
        ({"text": "a\0b"}, "'text': the text has NUL characters"),
        (
            {"text": "a", "query": True},
            "'query': got True, expected a string or",
        ),
        (
            {"text": "a", "query": [5]},
            r"'query\[0\]': got 5, expected a string",
        ),
        ({"text": "a", "query": ["a", " "]}, r"'query\[1\]': it is empty"),
        (
            {"text": "a", "query": "b", "question": "c"},
            "the record also has 'query'",
        ),
        *(
            ({"text": "a", "id": x}, "'id': got .*, expected a string or a")
            for x in (True, [1])
        ),
        ({"text": "a", "id": " "}, "field 'id': it is empty"),
    )
    def test_rows(self, row, message):
        for split in _format().splits:
            with self.assertRaisesRegex(RecordError, message) as caught:
                list(_format().read_rows([{"text": "a"}, row], split))
            self.assertStartsWith(str(caught.exception), "rows, record 1")
        bad_records = BadRecords(skip=True)
        read = _format().read_rows([row, {"text": "a"}], None, bad_records)
        self.assertEqual(["1"], [record.id for record in read])
        self.assertEqual(1, bad_records.total)

    @parameterized.parameters(
        ({"text": "a", "head": ["b"]}, r"'head': got \['b'\], .*a string"),
        ({"text": " ", "head": "b"}, f"{_TEXT}': it has no text: got ' '"),
    )
    def test_title(self, row, message):
        with self.assertRaisesRegex(RecordError, message):
            list(_format(title="head").read_rows([row]))

    def test_numbers_as_text(self):
        """Numbers in text fields become strings, as in CSV."""
        read = _format().read_rows([{"text": 5, "id": 7.5}, {"text": "b"}])
        self.assertEqual(
            [("7.5", (("5",),)), ("1", (("b",),))],
            [(x.id, x.paragraphs) for x in read],
        )


if __name__ == "__main__":
    tf.test.main()
