import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.record_fields import RecordFields


def _fields(value):
    return RecordFields("data.json", 3, value, "a record {...}")


def _nested(fields, key):
    return [x.mapping("b").strings("c") for x in fields.mappings(key)]


def _pairs(fields, key):
    pairs = fields.sequences(key, 2, "[name, names]")
    return [(pair.string(0), pair.strings(1)) for pair in pairs]


class RecordFieldsTest(tf.test.TestCase, parameterized.TestCase):
    def test_reads_fields(self):
        fields = _fields(
            {
                "id": "a",
                "text": "",
                "list": ["x", ""],
                "number": -3,
                "flag": False,
                "any": [1, "x", None],
                "object": {"a": {"b": 2}},
                "objects": [{"a": 1}, {"a": 2}],
                "pairs": [["x", 1], ["y", 2]],
            }
        )
        self.assertEqual("a", fields.identifier("id", set()))
        self.assertEqual("", fields.string("text"))
        self.assertEqual(("x", ""), fields.strings("list"))
        self.assertIn("text", fields)
        self.assertNotIn("other", fields)
        self.assertEqual(-3, fields.integer("number"))
        self.assertIs(False, fields.boolean("flag"))
        self.assertEqual([1, "x", None], fields.items("any"))
        self.assertEqual(2, fields.mapping("object").mapping("a").integer("b"))
        self.assertEqual(
            [1, 2], [item.integer("a") for item in fields.mappings("objects")]
        )
        pairs = fields.sequences("pairs", 2, "[name, age]")
        self.assertEqual(
            [("x", 1), ("y", 2)], [(x.string(0), x.integer(1)) for x in pairs]
        )

    @parameterized.parameters(
        ({"id": "a"}, "string", "x", "it is missing .*has: id"),
        ({"x": 3}, "string", "x", "got 3, expected a string"),
        ({"x": "y"}, "strings", "x", "got 'y', expected a list"),
        ({"x": ["y", 4]}, "strings", "x[1]", "got 4, expected a string"),
        ({"x": None}, "string", "x", "got None"),
        ({"x": "1"}, "integer", "x", "got '1', expected a whole"),
        ({"x": 1.0}, "integer", "x", "got 1.0, expected a whole"),
        ({"x": True}, "integer", "x", "got True, expected a whole"),
        ({"x": 1}, "boolean", "x", "got 1, expected true or"),
        ({"x": {}}, "items", "x", "got {}, expected a list"),
        ({"x": []}, "mapping", "x", r"got \[\], expected a JSON"),
        ({}, "mapping", "x", "it is missing .*has: none"),
        ({"x": 1}, _nested, "x", "expected a list of JSON objects"),
        ({"x": [{"b": {}}]}, _nested, "x[0].b.c", r"x\[0\].b has: none"),
        ({"x": [{"b": {"c": ["", 1]}}]}, _nested, "x[0].b.c[1]", "got 1"),
        ({"x": "x"}, _pairs, "x", r"expected a list of \[name, names\]"),
        ({"x": [["", []], "y"]}, _pairs, "x[1]", r"got 'y', .*\[name, n"),
        ({"x": [["x"]]}, _pairs, "x[0]", r"a list of 1, expected \[name"),
        ({"x": [["x", [], 1]]}, _pairs, "x[0]", "a list of 3, expected"),
        ({"x": [["", []], [1, []]]}, _pairs, "x[1][0]", "got 1, .* string"),
        ({"x": [["", ["", 2]]]}, _pairs, "x[0][1][1]", "got 2, .* string"),
    )
    def test_wrong_fields(self, value, read, place, message):
        """The message tells the record and the way to what is wrong."""
        fields = _fields(value)
        if isinstance(read, str):
            read = getattr(RecordFields, read)
        with self.assertRaisesRegex(RecordError, message) as caught:
            read(fields, "x")
        self.assertIn("data.json, record 3", str(caught.exception))
        self.assertIn(f"field '{place}':", str(caught.exception))

    def test_reasons_group_positions(self):
        value = {"a": [{"b": {"c": []}}, {"b": {"c": ["x", 1]}}]}
        with self.assertRaises(RecordError) as caught:
            _nested(_fields(value), "a")
        self.assertEqual(
            "'a[].b.c' holds other things than strings",
            caught.exception.reason,
        )

    def test_own_errors_of_a_part(self):
        (part,) = _fields({"id": "r", "a": [{"b": 1}]}).mappings("a")
        for field, place in ((None, "a[0]"), ("b", "a[0].b")):
            error = part.error("reason", field=field, problem="odd")
            self.assertIn(f"(id 'r'), field '{place}': odd", str(error))

    @parameterized.parameters(
        (5, "got 5, expected a record"),
        ({"id": "a", "text": ["\uffff"]}, "id 'a'.*'text'.*not UTF-8"),
        ({"id": "o", "key": "a1", "x": "\uffff"}, "id 'a1'.*not UTF-8"),
        ({"id": "o", "key": 41, "x": "\uffff"}, "id '41'.*not UTF-8"),
    )
    def test_unusable_records(self, value, message):
        id_field = "key" if "key" in str(value) else "id"
        with self.assertRaisesRegex(RecordError, message):
            RecordFields("data.json", 0, value, "a record", id_field)

    @parameterized.parameters(
        (False, "a", "a", ("a", "the same"), (" ", "empty"), (7, "got 7")),
        (
            True,
            -7,
            "-7",
            (-7, "the same"),
            *((value, "a whole number") for value in ("7", True, 7.0, None)),
        ),
    )
    def test_identifiers(self, integer, good, expected, *bad):
        """They are unique and not empty, strings or whole numbers."""
        seen = set()
        fields = _fields({"key": good})
        self.assertEqual(expected, fields.identifier("key", seen, integer))
        error = fields.error("reason", problem="odd")
        self.assertIn(f"(id '{expected}')", str(error))
        for value, message in bad:
            with self.assertRaisesRegex(RecordError, message):
                _fields({"key": value}).identifier("key", seen, integer)


if __name__ == "__main__":
    tf.test.main()
