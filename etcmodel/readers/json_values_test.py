"""Tests of decoding JSON values; json_stream_test.py tests files."""

import subprocess
import sys

from absl.testing import absltest

from etcmodel.readers import json_values


class JsonValuesTest(absltest.TestCase):
    def test_unique_keys(self):
        decode = json_values.TypedDecoder(dict)
        value = decode(b'{"a": 1, "b": {"c": 2, "c": 3}}')
        self.assertEqual({"a": 1, "b": {"c": 3}}, value)
        self.assertEqual("c", value["b"].repeated)
        self.assertNotIsInstance(value, json_values.UniqueKeys)

    def test_values_for_the_slow_parser(self):
        decode = json_values.TypedDecoder(dict)
        for data in (
            b'{"a": "\\ud800"}',
            b'{"a": NaN}',
            b"{",
            b'{"a": "\xff"}',
        ):
            self.assertIsNone(decode(data))

    def test_text_in_chunks_of_any_size(self):
        mark = json_values.INVALID_UTF8_MARK
        for data, expected in (
            ("aé€😀".encode(), "aé€😀"),
            # Invalid bytes; characters without their last bytes; an overlong
            # slash; a lone surrogate.
            (b"a\xffb\x80", f"a{mark}b{mark}"),
            ("é€".encode()[:-1] + b"a", f"é{mark * 2}a"),
            ("😀".encode()[:-1], mark * 3),
            (b"\xc0\xaf", mark * 2),
            ("\udc80".encode("utf-8", "surrogatepass"), mark * 3),
            (b"", ""),
        ):
            self.assertEqual(expected, json_values.decode(data))
            for size in range(1, len(data) + 1):
                chunks = [data[i : i + size] for i in range(0, len(data), size)]
                self.assertEqual(expected, "".join(json_values.decoded(chunks)))

    def test_registers_no_codecs(self):
        script = (
            "import codecs\n"
            "def fail(*args): raise AssertionError(args)\n"
            "codecs.register = codecs.register_error = fail\n"
            "from etcmodel.readers import cells, json_values\n"
            "assert json_values.decode(b'\\xff') == cells.read_cell(b'\\xff')\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True)

    def test_invalid_utf8_in_nested_values(self):
        mark = json_values.INVALID_UTF8_MARK
        for value in ([{"a": [f"b{mark}"]}], {f"{mark}": 1}):
            self.assertTrue(json_values.has_invalid_utf8(value))
        self.assertFalse(json_values.has_invalid_utf8([{"a": ["b"]}, None, 1]))


if __name__ == "__main__":
    absltest.main()
