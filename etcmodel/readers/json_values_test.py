"""Tests of JSON values; json_stream_test.py has files of them."""

from absl.testing import absltest

from etcmodel.readers import json_values


class JsonValuesTest(absltest.TestCase):
    def test_unique_keys(self):
        decode = json_values.TypedDecoder(dict)
        value = decode(b'{"a": 1, "b": {"c": 2, "c": 3}}')
        self.assertEqual({"a": 1, "b": {"c": 3}}, value)
        self.assertEqual("c", value["b"].repeated)
        self.assertNotIsInstance(value, json_values.UniqueKeys)

    def test_what_is_left_to_the_other_parser(self):
        decode = json_values.TypedDecoder(dict)
        for data in (
            b'{"a": "\\ud800"}',
            b'{"a": NaN}',
            b"{",
            b'{"a": "\xff"}',
        ):
            self.assertIsNone(decode(data))

    def test_invalid_utf8_in_nested_values(self):
        mark = json_values.INVALID_UTF8_MARK
        for value in ([{"a": [f"b{mark}"]}], {f"{mark}": 1}):
            self.assertTrue(json_values.has_invalid_utf8(value))
        self.assertFalse(json_values.has_invalid_utf8([{"a": ["b"]}, None, 1]))


if __name__ == "__main__":
    absltest.main()
