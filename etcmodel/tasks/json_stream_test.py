import gzip
import json
import os
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks import json_stream
from etcmodel.tasks.errors import UserError


class _FileTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, content: bytes) -> str:
        path = os.path.join(
            tempfile.mkdtemp(dir=self.get_temp_dir()), "data.json"
        )
        with open(path, "wb") as stream:
            stream.write(content)
        return path


class JsonArrayTest(_FileTest):
    def test_reads_values_in_order(self):
        path = self._write(b' [{"a": 1.5}, "x", [true, null]]\n')
        self.assertEqual(
            [(0, {"a": 1.5}), (1, "x"), (2, [True, None])],
            list(json_stream.read_json_array(path)),
        )

    def test_reads_gzip_whatever_the_name(self):
        path = self._write(gzip.compress(b"[1, 2]"))
        values = [value for _, value in json_stream.read_json_array(path)]
        self.assertEqual([1, 2], values)

    def test_skips_byte_order_mark(self):
        path = self._write(b"\xef\xbb\xbf[3]")
        self.assertEqual([(0, 3)], list(json_stream.read_json_array(path)))

    def test_empty_array(self):
        path = self._write(b"[]")
        self.assertEmpty(list(json_stream.read_json_array(path)))

    def test_values_larger_than_the_buffer(self):
        text = "\u00e9" * 400_001  # Two bytes each: cut at odd places.
        path = self._write(f'["a", "{text}"]'.encode())
        values = [value for _, value in json_stream.read_json_array(path)]
        self.assertEqual(["a", text], values)

    def test_reports_position(self):
        content = b"[" + b",".join([b"1"] * 100_000) + b"]"
        path = self._write(content)
        positions = []
        for _ in json_stream.read_json_array(path, positions.append):
            pass
        self.assertLen(positions, 100_000)
        self.assertEqual(sorted(positions), positions)
        self.assertLess(positions[0], len(content))
        self.assertEqual(len(content), positions[-1])

    def test_bytes_that_are_not_utf8_stay_in_their_record(self):
        path = self._write(
            b'[{"a": "x\xff\xfe"}, {"a": "\xc3\xa9"}, {"\xff": 1}]'
        )
        values = [value for _, value in json_stream.read_json_array(path)]
        self.assertEqual({"a": "\u00e9"}, values[1])
        self.assertEqual(
            [True, False, True],
            [json_stream.has_invalid_utf8(value) for value in values],
        )

    def test_escaped_lone_surrogate_can_be_encoded(self):
        path = self._write(b'["\\ud800 x"]')
        ((_, value),) = json_stream.read_json_array(path)
        value.encode("utf-8")

    @parameterized.named_parameters(
        ("empty", b"", "is empty"),
        ("blank", b" \n ", "is empty"),
        ("object", b'{"a": 1}', "JSON object"),
        ("text", b"hello", "is not JSON"),
        ("utf16", b"\xff\xfe[\x00{\x00", "is not JSON"),
        ("truncated", b'[{"a": 1}, {"b', "ends too early, after 1 whole"),
        ("no_end", b'[{"a": 1}', "ends too early, after 1 whole"),
        ("half", b'[1, "\\udfff"]', "after 1 whole records .* half of a char"),
        ("broken", b'[{"a": 1}, {"b" 2}]', "broken, after 1 whole"),
        ("garbage", b'[{"a": 1}] x', "broken, after 1 whole"),
        ("truncated_gzip", gzip.compress(b"[1, 2]" * 999)[:-9], "cut off"),
        ("damaged_gzip", b"\x1f\x8b" + b"x" * 99, "damaged"),
    )
    def test_unreadable_content(self, content, message):
        path = self._write(content)
        with self.assertRaisesRegex(UserError, message) as caught:
            list(json_stream.read_json_array(path))
        self.assertIn(path, str(caught.exception))

    @parameterized.named_parameters(
        ("truncated", b'[{"a": 1}, {"b'),
        ("broken", b'[{"a": 1}, {"b" 2}]'),
    )
    def test_whole_records_come_before_the_error(self, content):
        reader = json_stream.read_json_array(self._write(content))
        self.assertEqual((0, {"a": 1}), next(reader))
        with self.assertRaises(UserError):
            next(reader)

    def test_missing_file_and_directory(self):
        with self.assertRaisesRegex(UserError, "no such file"):
            next(json_stream.read_json_array("/no/such/file.json"))
        with self.assertRaisesRegex(UserError, "is a directory"):
            next(json_stream.read_json_array(self.get_temp_dir()))

    def test_whole_records_of_truncated_gzip(self):
        content = b'["a", "b", "' + os.urandom(9999).hex().encode() + b'"]'
        reader = json_stream.read_json_array(
            self._write(gzip.compress(content)[:-2000])
        )
        self.assertEqual([(0, "a"), (1, "b")], [next(reader), next(reader)])
        with self.assertRaisesRegex(UserError, "cut off.* after 2 whole"):
            next(reader)


class JsonLinesTest(_FileTest):
    def _read(self, content: bytes):
        return list(json_stream.read_json_lines(self._write(content)))

    @parameterized.named_parameters(
        ("plain", b'{"a": 1.5}\n{"b": [true, null]}\n'),
        ("no_last_newline", b'{"a": 1.5}\n{"b": [true, null]}'),
        ("blank_lines", b'\n \n{"a": 1.5}\n\n\t\n{"b": [true, null]}\n \n'),
        ("carriage_returns", b'{"a": 1.5}\r\n\r\n{"b": [true, null]}\r\n'),
        ("byte_order_mark", b'\xef\xbb\xbf{"a": 1.5}\n{"b": [true, null]}'),
        ("gzip", gzip.compress(b'{"a": 1.5}\n{"b": [true, null]}\n')),
        (
            "several_gzip_members",
            gzip.compress(b'{"a": 1.5}\n{"b"')
            + gzip.compress(b": [true, null]}\n"),
        ),
    )
    def test_reads_values_in_order(self, content):
        self.assertEqual(
            [(0, {"a": 1.5}), (1, {"b": [True, None]})], self._read(content)
        )

    def test_later_lines_may_be_no_objects(self):
        # Whether they are records is for others to say.
        self.assertEqual(
            [(0, {}), (1, 5), (2, [6])], self._read(b"{}\n5\n[6]\n")
        )

    def test_only_line_feeds_end_lines(self):
        text = "a\u2028b\u0085c\u000cd"
        content = json.dumps({"x": text}, ensure_ascii=False).encode()
        self.assertEqual([(0, {"x": text})], self._read(content))

    def test_lines_larger_than_the_buffer(self):
        text = "\u00e9" * 400_001  # Two bytes each: cut at odd places.
        line = f'{{"a": "{text}"}}\n'.encode()
        expected = [(i, {"a": text}) for i in range(3)]
        self.assertEqual(expected, self._read(line * 3))
        self.assertEqual(expected, self._read(gzip.compress(line * 3)))

    @parameterized.named_parameters(("plain", False), ("gzip", True))
    def test_reads_no_more_than_it_needs(self, zipped):
        content = b"".join(
            b'{"a": "%s"}\n' % os.urandom(500).hex().encode()
            for _ in range(1000)
        )
        if zipped:
            content = gzip.compress(content)
        positions = []
        path = self._write(content)
        for _ in json_stream.read_json_lines(path, positions.append):
            pass
        self.assertLen(positions, 1000)
        self.assertEqual(sorted(positions), positions)
        self.assertLess(positions[0], 200_000)
        self.assertEqual(len(content), positions[-1])

    def test_bytes_that_are_not_utf8_stay_in_their_record(self):
        values = [
            value
            for _, value in self._read(
                b'{"a": "x\xff\xfe"}\n{"a": "\xc3\xa9"}\n{"\xff": 1}\n'
                b'{"a": "cut \xc3"}\n{"a": "\xa9"}\n{"a": "z"}'
            )
        ]
        self.assertEqual({"a": "\u00e9"}, values[1])
        self.assertEqual({"a": "z"}, values[5])
        self.assertEqual(
            [True, False, True, True, True, False],
            [json_stream.has_invalid_utf8(value) for value in values],
        )

    def test_escaped_surrogates(self):
        ((_, value),) = self._read(
            b'{"a": ["\\ud800 x", "\\uD83D\\uDE00"], "\\udc00": 1}'
        )
        # A pair is a character; alone they could not be written as UTF-8.
        self.assertEqual({"a": ["? x", "\U0001f600"], "?": 1}, value)

    @parameterized.named_parameters(
        ("empty", b"", "is empty. Expected one JSON object a line"),
        ("blank", b" \n\n ", "is empty"),
        ("empty_gzip", gzip.compress(b""), "is empty"),
        ("array", b'[{"a": 1}]', r"JSON array \('\[' comes first\)"),
        ("array_of_lines", b'\n[\n{"a": 1},\n{"a": 2}\n]', "JSON array"),
        ("text", b"hello", "is not JSON: it begins with 'hello'"),
        ("utf16", '{"a": 1}\n'.encode("utf-16"), "is not JSON"),
        ("broken", b'{"a": 1}\n\n{"b" 2}\n{}', "line 3: the JSON is broken, "),
        ("where", b'{"a": 1}\n{"b" 2}\n', "after 1 whole.*at character 6 of"),
        ("truncated", b'{"a": 1}\n{"b', "line 2: the JSON ends too early, af"),
        ("many_lines", b'{\n  "a": 1\n}\n', "line 1.*Expected one whole"),
        ("two_a_line", b'{"a": 1}{"b": 2}\n', "line 1.*Extra data"),
        ("commas", b'{"a": 1},\n{"b": 2}\n', "line 1.*Extra data"),
        ("nan", b'{"a": 1}\n{"b": NaN}\n', "line 2.*NaN is no JSON value"),
        ("deep", b'{"a": ' + b"[" * 99_999 + b"\n", "line 1.*too deeply"),
        ("long_number", b'{"a": ' + b"9" * 9999 + b"}\n", "line 1.*broken"),
        (
            "truncated_gzip",
            gzip.compress(b'{"a": 1}\n{"a": 2}\n')[:-4],
            "gzip data are cut off or damaged, after 2 whole records",
        ),
        ("damaged_gzip", b"\x1f\x8b" + b"x" * 99, "damaged, after 0 whole"),
    )
    def test_unreadable_content(self, content, message):
        path = self._write(content)
        with self.assertRaisesRegex(UserError, message) as caught:
            list(json_stream.read_json_lines(path))
        self.assertStartsWith(str(caught.exception), path)
        self.assertLess(len(str(caught.exception)), len(path) + 400)

    def test_whole_records_of_truncated_gzip(self):
        content = b'{"a": 1}\n{"b": 2}\n{"c": "%s"}\n' % (
            os.urandom(100_000).hex().encode()
        )
        path = self._write(gzip.compress(content)[:-9999])
        reader = json_stream.read_json_lines(path)
        self.assertEqual((0, {"a": 1}), next(reader))
        self.assertEqual((1, {"b": 2}), next(reader))
        with self.assertRaisesRegex(UserError, "cut off.* after 2 whole"):
            next(reader)

    def test_broken_line_comes_after_the_records_before(self):
        path = self._write(b'{"a": 1}\n{"b" 2}\n{"c": 3}\n')
        reader = json_stream.read_json_lines(path)
        self.assertEqual((0, {"a": 1}), next(reader))
        with self.assertRaises(UserError):
            next(reader)

    def test_missing_file_and_directory(self):
        with self.assertRaisesRegex(UserError, "no such file"):
            next(json_stream.read_json_lines("/no/such/file.jsonl"))
        with self.assertRaisesRegex(UserError, "is a directory"):
            next(json_stream.read_json_lines(self.get_temp_dir()))


if __name__ == "__main__":
    tf.test.main()
