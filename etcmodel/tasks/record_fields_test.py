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

    def test_reads_nested_fields(self):
        fields = _fields(
            {
                "number": -3,
                "flag": False,
                "any": [1, "x", None],
                "object": {"a": {"b": 2}},
                "objects": [{"a": 1}, {"a": 2}],
                "pairs": [["x", 1], ["y", 2]],
            }
        )
        self.assertEqual(-3, fields.integer("number"))
        self.assertIs(False, fields.boolean("flag"))
        self.assertEqual([1, "x", None], fields.items("any"))
        inner = fields.mapping("object").mapping("a")
        self.assertIn("b", inner)
        self.assertEqual(2, inner.integer("b"))
        self.assertEqual(
            [1, 2], [item.integer("a") for item in fields.mappings("objects")]
        )
        self.assertEqual(
            [("x", 1), ("y", 2)],
            [
                (pair.string(0), pair.integer(1))
                for pair in fields.sequences("pairs", 2, "[name, age]")
            ],
        )

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

    @parameterized.named_parameters(
        ("no_integer", {"x": "1"}, "integer", "got '1', expected a whole"),
        ("float", {"x": 1.0}, "integer", "got 1.0, expected a whole"),
        ("bool_as_integer", {"x": True}, "integer", "got True, expected a"),
        ("integer_as_bool", {"x": 1}, "boolean", "got 1, expected true or"),
        ("no_items", {"x": {}}, "items", "got {}, expected a list"),
        ("list_as_object", {"x": []}, "mapping", r"got \[\], expected a JSON"),
        ("missing_object", {}, "mapping", "'x'.*missing.*has: none"),
    )
    def test_wrong_types(self, value, method, message):
        with self.assertRaisesRegex(RecordError, message):
            getattr(_fields(value), method)("x")

    def _mappings(self, value):
        return [item.mapping("b").strings("c") for item in value.mappings("a")]

    @parameterized.named_parameters(
        ("no_list", {"a": 1}, "a", "expected a list of JSON objects"),
        ("no_object", {"a": [{"b": {"c": []}}, 1]}, "a[1]", "JSON object"),
        ("missing", {"a": [{"b": {}}]}, "a[0].b.c", r"a\[0\].b has: none"),
        ("wrong", {"a": [{"b": {"c": ["x", 1]}}]}, "a[0].b.c[1]", "got 1"),
    )
    def test_tells_the_way_to_a_nested_field(self, value, place, message):
        with self.assertRaisesRegex(RecordError, message) as caught:
            self._mappings(_fields(value))
        self.assertIn(f"field '{place}':", str(caught.exception))

    @parameterized.named_parameters(
        ("no_list", {"a": "x"}, "a", r"expected a list of \[name, names\]"),
        ("inner", {"a": [["x", []], "y"]}, "a[1]", r"got 'y', .*\[name, n"),
        ("short", {"a": [["x"]]}, "a[0]", r"a list of 1, expected \[name"),
        ("long", {"a": [["x", [], 1]]}, "a[0]", "a list of 3, expected"),
        ("item", {"a": [["x", []], [1, []]]}, "a[1][0]", "got 1, .* string"),
        ("nested", {"a": [["x", ["y", 2]]]}, "a[0][1][1]", "got 2, .* string"),
    )
    def test_tells_the_way_to_an_inner_list(self, value, place, message):
        with self.assertRaisesRegex(RecordError, message) as caught:
            for pair in _fields(value).sequences("a", 2, "[name, names]"):
                pair.string(0)
                pair.strings(1)
        self.assertIn(f"field '{place}':", str(caught.exception))

    def test_reasons_group_positions(self):
        value = {"a": [{"b": {"c": []}}, {"b": {"c": ["x", 1]}}]}
        with self.assertRaises(RecordError) as caught:
            self._mappings(_fields(value))
        self.assertEqual(
            "'a[].b.c' holds other things than strings",
            caught.exception.reason,
        )

    def test_own_errors_of_a_part(self):
        (part,) = _fields({"id": "r", "a": [{"b": 1}]}).mappings("a")
        self.assertIn(
            "(id 'r'), field 'a[0]': odd",
            str(part.error("reason", problem="odd")),
        )
        self.assertIn(
            "field 'a[0].b': odd",
            str(part.error("reason", field="b", problem="odd")),
        )

    @parameterized.named_parameters(("string", "a1"), ("integer", 41))
    def test_names_the_record_by_its_own_id_field(self, record_id):
        with self.assertRaisesRegex(
            RecordError, f"id '{record_id}'.*not UTF-8"
        ):
            RecordFields(
                "data.json",
                0,
                {"id": "other", "key": record_id, "text": "\uffff"},
                "a record",
                id_field="key",
            )

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

    def test_integer_identifiers(self):
        seen = set()
        fields = _fields({"key": -7})
        self.assertEqual("-7", fields.identifier("key", seen, integer=True))
        self.assertIn("(id '-7')", str(fields.error("reason", problem="odd")))
        with self.assertRaisesRegex(RecordError, "the same"):
            _fields({"key": -7}).identifier("key", seen, integer=True)
        for value in ("7", True, 7.0, None):
            with self.assertRaisesRegex(RecordError, "a whole number"):
                _fields({"key": value}).identifier("key", seen, integer=True)


if __name__ == "__main__":
    tf.test.main()
