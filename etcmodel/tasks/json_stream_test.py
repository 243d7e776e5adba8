import gzip
import os
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks import json_stream
from etcmodel.tasks.errors import UserError


class JsonStreamTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, content: bytes) -> str:
        path = os.path.join(
            tempfile.mkdtemp(dir=self.get_temp_dir()), "data.json"
        )
        with open(path, "wb") as stream:
            stream.write(content)
        return path

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


if __name__ == "__main__":
    tf.test.main()
