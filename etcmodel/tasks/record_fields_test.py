import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.record_fields import RecordFields


def _fields(value):
    return RecordFields("data.json", 3, value, "a record {...}")


class RecordFieldsTest(tf.test.TestCase, parameterized.TestCase):
    def test_reads_fields(self):
        fields = _fields({"id": "a", "text": "", "list": ["x", ""]})
        self.assertEqual("a", fields.identifier("id", set()))
        self.assertEqual("", fields.string("text"))
        self.assertEqual(("x", ""), fields.strings("list"))
        self.assertIn("text", fields)
        self.assertNotIn("other", fields)

    @parameterized.named_parameters(
        ("missing", {"id": "a"}, "string", "'x'.*missing.*has: id"),
        ("number", {"x": 3}, "string", "got 3, expected a string"),
        ("no_list", {"x": "y"}, "strings", "got 'y', expected a list"),
        ("mixed", {"x": ["y", 4]}, "strings", r"x\[1\].*got 4"),
        ("null", {"x": None}, "string", "got None"),
    )
    def test_wrong_fields(self, value, method, message):
        fields = _fields(value)
        with self.assertRaisesRegex(RecordError, message) as caught:
            getattr(fields, method)("x")
        self.assertIn("data.json, record 3", str(caught.exception))

    def test_not_an_object(self):
        with self.assertRaisesRegex(RecordError, "got 5, expected a record"):
            _fields(5)

    def test_invalid_utf8(self):
        with self.assertRaisesRegex(RecordError, "id 'a'.*'text'.*not UTF-8"):
            _fields({"id": "a", "text": ["\uffff"]})

    def test_identifiers_are_unique_and_not_empty(self):
        seen = set()
        _fields({"id": "a"}).identifier("id", seen)
        with self.assertRaisesRegex(RecordError, "the same"):
            _fields({"id": "a"}).identifier("id", seen)
        with self.assertRaisesRegex(RecordError, "empty"):
            _fields({"id": " "}).identifier("id", seen)
        with self.assertRaisesRegex(RecordError, "got 7"):
            _fields({"id": 7}).identifier("id", seen)


if __name__ == "__main__":
    tf.test.main()
