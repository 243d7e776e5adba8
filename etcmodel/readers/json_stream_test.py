import gzip
import io
import itertools
import json
import os
from unittest import mock

import hypothesis
import msgspec
import tensorflow as tf
from absl.testing import parameterized
from hypothesis import strategies as st

from etcmodel.errors import UserError
from etcmodel.readers import files
from etcmodel.readers import json_stream
from etcmodel.readers import json_values
from testing.helpers import write_file

# Texts include lone surrogates.
_TEXTS = st.text(
    st.characters(codec="utf-8") | st.sampled_from("\ud83d\ude00\udfff\\ud8")
)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    # ijson accepts only 64-bit integers.
    | st.integers(1 - 2**63, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda values: (
        st.lists(values, max_size=4)
        | st.dictionaries(_TEXTS, values, max_size=4)
    ),
    max_leaves=12,
)


def _whole_characters(value):
    """Replaces lone surrogates, which UTF-8 cannot encode, by "?"."""
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(text.encode("utf-8", "replace"))


class _CutFile(io.RawIOBase):
    """A file that returns a few bytes at a time, as many as `sizes` says."""

    def __init__(self, content, sizes):
        self._file = io.BytesIO(content)
        self._sizes = itertools.cycle(sizes)

    def readable(self):
        return True

    def seek(self, position, whence=os.SEEK_SET):
        return self._file.seek(position, whence)

    def read(self, size=-1):
        # Not cut: this call reads the bytes that show the compression.
        return self._file.read(size)

    def readinto(self, buffer):
        return self._file.readinto(memoryview(buffer)[: next(self._sizes)])

    def tell(self):
        return self._file.tell()


class RandomCutsTest(tf.test.TestCase):
    """The values equal those of `json.loads`, however the input is divided."""

    @hypothesis.settings(
        max_examples=100, deadline=None, derandomize=True, database=None
    )
    @hypothesis.given(
        values=st.lists(_VALUES, max_size=6),
        lines=st.booleans(),
        ensure_ascii=st.booleans(),
        indent=st.sampled_from([None, None, 0, 3]),
        zipped=st.booleans(),
        cut=st.integers(0, 200),
        sizes=st.lists(st.integers(1, 70), min_size=1, max_size=9),
    )
    @hypothesis.example(
        values=["\\" * 70 + "ud800"],
        lines=False,
        ensure_ascii=True,
        indent=None,
        zipped=False,
        cut=0,
        sizes=[1],
    )
    def test_equals_json_loads(
        self, values, lines, ensure_ascii, indent, zipped, cut, sizes
    ):
        if not ensure_ascii:
            # Lone surrogates can only be written as escapes.
            values = _whole_characters(values)
        if lines:
            values = [{"first": values}, *values]
            texts = [json.dumps(x, ensure_ascii=ensure_ascii) for x in values]
            text, read = "\n".join(texts), json_stream.read_json_lines
            expected = [
                _whole_characters(json.loads(x)) for x in text.split("\n")
            ]
        else:
            text = json.dumps(values, ensure_ascii=ensure_ascii, indent=indent)
            read = json_stream.read_json_array
            expected = _whole_characters(json.loads(text))
        content = text.encode()
        if zipped:
            # Two gzip members, as in concatenated files.
            pieces = content[:cut], content[cut:]
            content = b"".join(map(gzip.compress, pieces))
        with mock.patch.object(
            files,
            "open",
            lambda *_, **__: _CutFile(content, sizes),
            create=True,
        ):
            actual = list(read("x.json"))
        # Each line holds one value.
        places = [
            (index, index + 1 if lines else None)
            for index in range(len(expected))
        ]
        self.assertEqual(list(zip(places, expected, strict=True)), actual)


class _Typed(msgspec.Struct):
    """The record type of `TypedRecordsTest`; some elements do not match it."""

    id: int
    text: str | None = None


class TypedRecordsTest(tf.test.TestCase, parameterized.TestCase):
    """Reading gives the same records with a record type as without one."""

    _ELEMENTS = (
        b'{"id": 1, "text": "}, {\\"id\\": [", "x": {"id": [{}, {"id": 1}]}}',
        b' {"id": 2, "id": 3, "text": "\xc3\xa9\\ud83d\\ude00"}\n',
        b'{"text": "another name first, and long: %s", "id": 4}' % (b"x" * 900),
        # Elements that do not match the type, or that msgspec rejects.
        b'{"id": "5"}',
        b'{"id": 6, "text": "x\xff"}',
        b'{"id": 7, "other": "x\xff"}',
        b'{"id": 8, "text": "\\ud800"}',
        b"9",
        b"[{}]",
        b'{"id": 10}',
        b'{"id": 11}',
    )

    @parameterized.product(
        form=("array", "object", "lines"),
        size=(7, 1 << 16),
        max_size=(100, 1 << 20),
        cut=(None, 3),
        zipped=(False, True),
    )
    def test_equals_plain_json(self, form, size, max_size, cut, zipped):
        options = {"key": "A"} if form == "object" else {}
        read = json_stream.read_json_array
        if form == "lines":
            read = json_stream.read_json_lines
        for first in range(len(self._ELEMENTS)):
            elements = self._ELEMENTS[first:] + self._ELEMENTS[:first]
            if form == "lines":
                elements = [x.replace(b"\n", b"") for x in elements]
                content = b"\n".join([b"{}", *elements])
            else:
                content = b"[%s]" % b",".join(elements)
                if form == "object":
                    content = b'{"A" : %s, "B": 1}' % content
            content = gzip.compress(content, mtime=0) if zipped else content
            path = write_file(self, content[: cut and -cut])
            expected, error = self._read(read, path, **options)
            with mock.patch.multiple(
                json_stream, _CHUNK_BYTES=size, _MAX_ELEMENT_BYTES=max_size
            ):
                actual, actual_error = self._read(read, path, _Typed, **options)
            self.assertEqual((error, bool(cut)), (actual_error, bool(error)))
            for i, (plain, typed) in enumerate(
                zip(expected, actual, strict=True)
            ):
                self.assertEqual((i, plain[0]), (plain[0].index, typed[0]))
                value, typed = plain[1], typed[1]
                if isinstance(typed, _Typed):
                    self.assertFalse(json_values.has_invalid_utf8(value))
                    value = msgspec.convert(value, _Typed)
                self.assertEqual(value, typed)

    def _read(self, read, path, record=None, **options):
        """Returns a reader's pairs, and its error message or ""."""
        pairs = []
        try:
            for pair in read(path, None, record, **options):
                pairs.append(pair)
        except UserError as error:
            return pairs, str(error)
        return pairs, ""

    def test_deep_elements(self):
        def read(inner):
            """Returns the ids of records; the second has a long field."""
            text = b'[{"id": 1}, {"id": 2, "x": %s}, {"id": 3}]' % inner
            path = write_file(self, text)
            pairs, error = self._read(json_stream.read_json_array, path, _Typed)
            return [msgspec.convert(x, _Typed).id for _, x in pairs], error

        for size in (7, 1 << 16):
            with mock.patch.object(json_stream, "_CHUNK_BYTES", size):
                deep = b"[" * 900 + b"]" * 900
                # Brackets in strings are not nesting, and brackets side by side
                # are not deep.
                for fine in (
                    deep,
                    b'"%s\\""' % deep,
                    b'"\\\\", "y": %s' % deep,
                    b'"%s"' % (b"[" * 2000),
                    b"[%s1]" % (b"[], {}, " * 2000),
                ):
                    self.assertEqual(([1, 2, 3], ""), read(fine))
                for deep in (b"[" * 2000, b'{"a\\\\":' * 2000):
                    ids, error = read(deep)
                    self.assertEqual([1], ids)
                    self.assertRegex(
                        error, "1 whole records, the JSON is nested too deeply"
                    )

    @parameterized.parameters(
        json_stream.read_json_array, json_stream.read_json_lines
    )
    def test_most_records_are_read_typed(self, read):
        """msgspec decodes all matching records except the last."""
        elements = [b'{"id": %d, "x": {"id": [1, {}]}}' % i for i in range(99)]
        content = b"\n".join(elements)
        if read == json_stream.read_json_array:
            content = b"[" + b", ".join(elements) + b"]"
        path = write_file(self, content)
        with mock.patch.object(json_stream, "_CHUNK_BYTES", 100):
            values = [value for _, value in read(path, None, _Typed)]
        self.assertEqual([_Typed(i) for i in range(98)], values[:98])


_ARRAYS = json_stream.read_json_array
_LINES = json_stream.read_json_lines
_BOM = b"\xef\xbb\xbf"
_NUMBERED = b'{"a": 1}\n{"a": 2}\n'


class FilesTest(tf.test.TestCase, parameterized.TestCase):
    """Tests of both formats: order, streaming, encoding, damaged files."""

    def _read(self, read, content: bytes):
        return [value for _, value in read(write_file(self, content))]

    @parameterized.named_parameters(
        ("array", _ARRAYS, b' [{"a": 1.5}, {"b": [true, null]}]\n', None, None),
        (
            "bom",
            _ARRAYS,
            _BOM + b'[{"a": 1.5}, {"b": [true, null]}]',
            None,
            None,
        ),
        ("no_last_newline", _LINES, b'{"a": 1.5}\n{"b": [true, null]}', 1, 2),
        ("blank", _LINES, b'\n \n{"a": 1.5}\n\n{"b": [true, null]}\n \n', 3, 5),
        ("crlf", _LINES, b'{"a": 1.5}\r\n\r\n{"b": [true, null]}\r\n', 1, 3),
        ("lines_bom", _LINES, _BOM + b'{"a": 1.5}\n{"b": [true, null]}', 1, 2),
    )
    def test_reads_values_in_order(self, read, content, *lines):
        first, second = lines
        self.assertEqual(
            [((0, first), {"a": 1.5}), ((1, second), {"b": [True, None]})],
            list(read(write_file(self, content))),
        )

    def test_only_line_feeds_end_lines(self):
        value = {"x": "a\u2028b\u0085c\u000cd"}
        content = json.dumps(value, ensure_ascii=False).encode()
        self.assertEqual([value], self._read(_LINES, content))

    @parameterized.product(read=(_ARRAYS, _LINES), zipped=(False, True))
    def test_reads_no_more_than_it_needs(self, read, zipped):
        records = [b'{"a": "%s"}' % (b"x" * 1000)] * 1000
        content = b"\n".join(records)
        if read == _ARRAYS:
            content = b"[" + b",".join(records) + b"]"
        if zipped:
            # Level 0 stores the data, so the sizes are known. The checksum at
            # the end is read together with the last record.
            content = gzip.compress(content, 0)
        positions = []
        for _ in read(write_file(self, content), positions.append):
            pass
        self.assertLen(positions, 1000)
        self.assertEqual(sorted(positions), positions)
        self.assertLess(positions[0], 200_000)
        self.assertEqual(len(content), positions[-1])

    @parameterized.parameters((_ARRAYS, b"[%s]", b","), (_LINES, b"%s", b"\n"))
    def test_bytes_that_are_not_utf8_stay_in_their_record(
        self, read, whole, separator
    ):
        records = [
            b'{"a": "x\xff\xfe"}',
            b'{"a": "\xc3\xa9"}',
            b'{"\xff": 1}',
            b'{"a": "cut \xc3"}',
            b'{"a": "\xa9"}',
            b'{"a": "z"}',
        ]
        values = self._read(read, whole % separator.join(records))
        self.assertEqual({"a": "\u00e9"}, values[1])
        self.assertEqual({"a": "z"}, values[5])
        self.assertEqual(
            [True, False, True, True, True, False],
            [json_values.has_invalid_utf8(value) for value in values],
        )

    def test_escaped_surrogates(self):
        for read, content in ((_LINES, b"%s"), (_ARRAYS, b"[%s]")):
            (value,) = self._read(
                read,
                content % b'{"a": ["\\ud800 x", "\\uD83D\\uDE00", "\\\\ud800",'
                b'"\\ud83d\\ud83d\\ude00"], "\\udc00": 1}',
            )
            # A pair of surrogates is one character; a lone surrogate has no
            # UTF-8. After two backslashes, "u" does not begin an escape.
            self.assertEqual(
                {"a": ["? x", "\U0001f600", "\\ud800", "?\U0001f600"], "?": 1},
                value,
            )

    def test_noncharacters_are_valid(self):
        for text in ("\uffff", "\ufffe\uffff"):
            content = json.dumps([text], ensure_ascii=False).encode()
            (value,) = self._read(_ARRAYS, content)
            self.assertEqual(text, value)
            self.assertFalse(json_values.has_invalid_utf8(value))

    @parameterized.named_parameters(
        ("empty", b"", "is empty"),
        ("blank", b" \n ", "is empty"),
        ("object", b'{"a": 1}', "JSON object"),
        ("text", b"hello", "is not JSON"),
        ("utf16", b"\xff\xfe[\x00{\x00", "is not JSON"),
        ("truncated", b'[{"a": 1}, {"b', "ends too early, after 1 whole"),
        ("no_end", b'[{"a": 1}', "ends too early, after 1 whole"),
        ("long", b"[7, -9223372036854775808]", "after 1 whole .* 64 bits"),
        ("broken", b'[{"a": 1}, {"b" 2}]', "broken, after 1 whole"),
        ("garbage", b'[{"a": 1}] x', "broken, after 1 whole"),
        ("truncated_gzip", gzip.compress(b"[1, 2]" * 999)[:-9], "truncated"),
        ("damaged_gzip", b"\x1f\x8b" + b"x" * 99, "damaged"),
        (
            "no_lines",
            b"",
            "is empty. Expected one JSON object per line",
            _LINES,
        ),
        ("array", b'[{"a": 1}]', r"JSON array \(it begins with '\['\)", _LINES),
        ("words", b"hello", "is not JSON: it begins with 'hello'", _LINES),
        ("line", b'{}\n\n{"b" 2}\n{}', "line 3: the JSON is broken, ", _LINES),
        ("at", b'{}\n{"b" 2}\n', "after 1 whole.*at character 6 of", _LINES),
        ("cut", b'{}\n{"b', "line 2: the JSON ends too early, af", _LINES),
        ("many", b'{\n"a": 1\n}', "line 1.*spans several.*jq -c", _LINES),
        ("two_a_line", b'{"a": 1}{"b": 2}\n', "line 1.*Extra data", _LINES),
        ("nan", b'{}\n{"b": NaN}\n', "line 2.*NaN is not valid JSON", _LINES),
        ("deep", b'{"a": ' + b"[" * 99_999, "line 1.*too deeply", _LINES),
        ("number", b'{"a": %s}\n' % (b"9" * 9999), "line 1.*broken", _LINES),
        (
            "gzip_lines",
            gzip.compress(_NUMBERED)[:-4],
            "data are damaged or truncated after 2 whole records",
            _LINES,
        ),
    )
    def test_unreadable_content(self, content, message, read=_ARRAYS):
        path = write_file(self, content)
        with self.assertRaisesRegex(UserError, message) as caught:
            list(read(path))
        self.assertStartsWith(str(caught.exception), path)
        self.assertLess(len(str(caught.exception)), len(path) + 400)

    @parameterized.parameters((_ARRAYS, b'[1, 2, "'), (_LINES, b'{}\n2\n"'))
    def test_whole_records_of_truncated_gzip(self, read, content):
        content += os.urandom(100_000).hex().encode() + b'"]'
        reader = read(write_file(self, gzip.compress(content)[:-9999]))
        self.assertEqual([0, 1], [next(reader)[0].index, next(reader)[0].index])
        with self.assertRaisesRegex(UserError, "truncated after 2 whole"):
            next(reader)


if __name__ == "__main__":
    tf.test.main()
