import hashlib
import json
import unittest

from absl.testing import parameterized

from etcmodel import json_objects


class JsonObjectsTest(parameterized.TestCase):
    def test_note_round_trip(self):
        text = json_objects.dump_note({"b": (1, 0.5), "a": {2: "caf\u00e9"}})
        plain = {"a": {"2": "caf\u00e9"}, "b": [1, 0.5]}
        digest = hashlib.sha256(
            b'{"a": {"2": "caf\\u00e9"}, "b": [1, 0.5]}'
        ).hexdigest()
        checksum = f"sha256:{digest[:16]}"
        self.assertEqual({**plain, "checksum": checksum}, json.loads(text))
        self.assertEqual("}\n", text[-2:])
        self.assertEqual(plain, json_objects.parse_note(text.encode()))
        # Formatting does not matter.
        self.assertEqual(
            plain, json_objects.parse_note(json.dumps(json.loads(text)))
        )

    @parameterized.parameters(
        '{"a": 1}', '{"a": 1, "checksum": 3}', '{"checksum": "of others"}'
    )
    def test_objects_without_our_checksum(self, text):
        self.assertEqual(json.loads(text), json_objects.parse_note(text))

    def test_wrong_checksum(self):
        text = json_objects.dump_note({"a": 1}).replace('"a": 1', '"a": 2')
        with self.assertRaisesRegex(ValueError, "checksum mismatch"):
            json_objects.parse_note(text)
        self.assertEqual(2, json_objects.parse(text)["a"])

    @parameterized.parameters(
        (b"", r"it is not JSON \("),
        (b"{", r"it is not JSON \("),
        (b"\xff", "it is not text: byte 0 is not UTF-8"),
        (b"[" * 100_000, "it is nested too deep"),
        (b"[]", "it holds a list, not an object"),
        (b"null", "it holds a null, not an object"),
        (b"3", "it holds a number, not an object"),
    )
    def test_other_content(self, content, message):
        with self.assertRaisesRegex(ValueError, message):
            json_objects.parse(content)

    @parameterized.parameters(
        (b'{"a": [NaN]}', "NaN is no number of JSON"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "the key 'b' twice"),
    )
    def test_strict(self, content, message):
        json_objects.parse(content)
        with self.assertRaisesRegex(ValueError, message):
            json_objects.parse(content, is_strict=True)


if __name__ == "__main__":
    unittest.main()
