import io
import json
import math

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import classification
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from testing.helpers import real_data_path

# "Café" in two Unicode normal forms.
_NFC, _NFD = "Caf\u00e9", "Cafe\u0301"


def _labels(values, **reading):
    rows = [{"text": "a", "label": x} for x in values]
    read = classification.make_format(**reading).read_rows(rows, "predict")
    return [record.label for record in read]


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (
            *("auto", [" a ", 3, True, ["a", 2], [], 0.5, "", None]),
            ["a", "3", "true", ("a", "2"), (), 0.5, None, None],
        ),
        (
            *("single", ["a", 3, False, 3.0, 0.5, "0.5"]),
            ["a", "3", "false", "3", "0.5", "0.5"],
        ),
        (
            *("multiple", ["a", 3, 3.0, [], ["b", "a", "b", True]]),
            [("a",), ("3",), ("3",), (), ("b", "a", "true")],
        ),
        ("number", [3, 0.5, "-1e3", " 4 "], [3.0, 0.5, -1000.0, 4.0]),
    )
    def test_kinds(self, kind, values, expected):
        actual = _labels(values, label_kind=kind)
        self.assertEqual(expected, actual)
        self.assertEqual([*map(type, expected)], [*map(type, actual)])

    @parameterized.parameters(
        ("single", ["a"], "got .*, a list of 1, expected one label, a string"),
        *(
            ("number", x, "expected a finite number")
            for x in ("NaN", "a", "1_0", math.inf, True, ["1"], {})
        ),
        ("auto", math.inf, "got inf, expected a finite number"),
        ("auto", {"a": 1}, "expected a label: a string"),
        ("auto", ["a", ["b"]], r"\[1\]': got \['b'\], .* expected a label"),
        ("auto", ["a", " "], r"\[1\]': it is empty"),
    )
    def test_wrong_labels(self, kind, value, message):
        with self.assertRaisesRegex(RecordError, f"field 'label.*{message}"):
            _labels([value], label_kind=kind)

    @parameterized.parameters(
        (("0", "1"), ["1.0", 1, 1.0, "1", "2.0"], ["1"] * 4 + ["2.0"]),
        (("0.0", "1.0"), ["1.0", 1, 1.0, "1"], ["1.0"] * 4),
        (("1", "1.0"), ["1", "1.0", 1], ["1", "1.0", "1"]),
        (
            ("false", "true"),
            [True, "True", "TRUE", "yes"],
            ["true"] * 3 + ["yes"],
        ),
        (("False", "True"), [False, "false", "FALSE", "False"], ["False"] * 4),
        (("True", "true"), [True, "True"], ["true", "True"]),
        # A known label determines the spelling.
        ((_NFD, "New  York"), [_NFC, "New\u00a0\tYork"], [_NFD, "New  York"]),
        ((_NFC, _NFD), [_NFD, _NFC], [_NFD, _NFC]),
        # Letter case and compatibility forms distinguish labels.
        (("a1",), ["A1", "\uff411", "a\u00b9"], ["A1", "\uff411", "a\u00b9"]),
    )
    def test_known_labels(self, labels, values, expected):
        """Known labels match in any Unicode normal form."""
        for kind in ("single", "multiple"):
            found = _labels(values, label_kind=kind, labels=labels)
            if kind == "multiple":
                found = [x for (x,) in found]
            self.assertEqual(expected, found)

    def test_other_fields(self):
        row = {"key": 1, "body": "a", "topic": "b", "ask": "c", "label": [{}]}
        (record,) = classification.make_format(
            "body", "ask", "key", "topic"
        ).read_rows([row])
        self.assertEqual(
            ("1", (("a",),), ("c",), "b"),
            (record.id, record.paragraphs, record.query, record.label),
        )
        with self.assertRaisesRegex(ValueError, "label_kind is 'text'"):
            classification.make_format(label_kind="text")

    @parameterized.parameters(
        (["b", "c", "b", "b "], ("b", "c")),
        ([_NFD, "b c", _NFC, "b\n c", "B c"], (_NFD, "b c", "B c")),
    )
    def test_counts_repeated_labels(self, labels, expected):
        rows = [{"text": "a", "labels": labels}]
        (record,) = classification.FORMAT.read_rows(rows)
        self.assertEqual(expected, record.label)
        self.assertEqual({"labels_repeated": 2}, record.counts)

    def test_spellings_are_of_one_stratum(self):
        rows = [{"text": "a", "label": x} for x in (_NFC, _NFD, "Cafe")]
        records = classification.FORMAT.read_rows(rows)
        first, second, other = map(classification.stratum, records)
        self.assertEqual(first, second)
        self.assertNotEqual(first, other)

    def test_real_records(self):
        path = real_data_path("authors/dev.jsonl")
        read = list(classification.FORMAT.read(path))
        with open(path, encoding="utf-8") as stream:
            expected = [json.loads(line) for line in stream]
        self.assertEqual(
            [(x["id"], x["label"], len(x["paragraphs"])) for x in expected],
            [(x.id, x.label, len(x.paragraphs)) for x in read],
        )
        labels = classification.find_labels(read)
        self.assertEqual(("single", 12), (labels.kind, len(labels.names)))


class FindLabelsTest(tf.test.TestCase, parameterized.TestCase):
    def _find(self, values, **reading):
        rows = [{"text": "a", "label": x} for x in values]
        return classification.find_labels(
            classification.make_format(**reading).read_rows(rows, "predict"),
            **reading,
        )

    @parameterized.parameters(
        (["b", 10, "b", None], "single", ("10", "b"), ("10",)),
        # The most common spelling becomes the label; among equally common ones,
        # the first.
        ([_NFC, _NFD, "b", _NFD], "single", (_NFD, "b"), ("b",)),
        ([_NFC, "b", "b", _NFD], "single", (_NFC, "b"), ()),
        ([_NFD, "b", "b", _NFC], "single", (_NFD, "b"), ()),
        (
            [["c\u00a0 d", "c d"], ["c d", "e"]],
            *("multiple", ("c\u00a0 d", "e"), ("e",)),
        ),
        (["a1", "\uff411", "A1"], "single", ("A1", "a1", "\uff411"), None),
        ([["b", "a"], [], ["a"]], "multiple", ("a", "b"), ("b",)),
    )
    def test_names(self, values, kind, names, singletons):
        names = tuple(sorted(names))
        singletons = names if singletons is None else singletons
        self.assertEqual(
            classification.Labels(kind, names, singletons), self._find(values)
        )

    @parameterized.parameters(
        ([3, 10, 3, None], ("10", "3")),
        ([True, False], ("false", "true")),
        ([[3, "b"], [3]], ("3",)),
        (["3", "b"], ()),
        # 3 is a string in one record.
        ([3, "3", 4], ("4",)),
        ([3, "3.0", "b", 4], ("4",)),
        # 1 and True are equal in Python, but different labels.
        ([1, True, "a"], ()),
    )
    def test_labels_that_are_not_strings(self, values, expected):
        self.assertEqual(expected, self._find(values).as_json)

    def test_spellings_are_counted_together(self):
        """A document that repeats a label counts once."""
        values = [[_NFD, _NFC], [_NFC], [_NFC, "b"]]
        self.assertEqual({_NFC: 3, "b": 1}, self._find(values).counts)

    def test_one_label_in_two_spellings_is_one(self):
        with self.assertRaisesRegex(UserError, "all records have the label"):
            self._find([_NFC, _NFD])

    def test_numbers(self):
        labels = self._find([1.0, 2.0, 4.5])
        self.assertEqual(("number", ()), (labels.kind, labels.names))
        self.assertAlmostEqual(2.5, labels.mean)
        # The deviations from the mean are -1.5, -0.5 and 2.
        self.assertAlmostEqual(
            math.sqrt(6.5 / 3), labels.standard_deviation, places=12
        )

    @parameterized.parameters(
        # pandas writes integer classes as floats if a value is missing: in
        # JSON, in CSV, in one of two files.
        ([0.0, 1.0, None, 1.0], r"such as 0.0\.", ("0", "1")),
        (["0.0", "1.0", "", "1.0"], r"such as '0.0'\.", ("0", "1")),
        (["-2", "1.0", "-2.0", "1"], r"such as '1.0'\.", ("-2", "1")),
        # Strings such as versions, or numbers in a table without column types.
        (["1.0", "1.1", "2.0"], "", ("1.0", "1.1", "2.0")),
        (["4.5", "3"], "", ("3", "4.5")),
        (["1e-3", "2"], "", ("1e-3", "2")),
    )
    def test_classes_or_numbers(self, values, message, names):
        with self.assertRaisesRegex(
            UserError, f"{message}.*Set `label_kind` to single .* or number"
        ):
            self._find(values)
        labels = self._find(values, label_kind="single")
        self.assertEqual(("single", names), (labels.kind, labels.names))
        self.assertEqual("number", self._find(values, label_kind="number").kind)

    def test_whole_numbers(self):
        self.assertEqual(("1", "2"), self._find(["1", "2"]).names)

    @parameterized.parameters(
        ([None], "No record has a label"),
        (["a", "a"], "rows: all records have the label 'a'. .* least two"),
        ([[], []], "all records have no label. Expected at least one label"),
        ([[0, 1], [1, 0]], "all records have all labels: '0', '1'.*0 or 1 for"),
        ([["a"], ["a"]], "all records have all labels: 'a'. Expected a diff"),
        ([0.5, 0.5], "all records have the number 0.5"),
        (
            ["a", "b", ["b"]],
            r"rows, record 0 \(id '0'\) has one label, 'a', but rows, record 2 "
            r"\(id '2'\) has a list of labels, \('b',\). Set `label_k",
        ),
        ([3, 2.5], "has one label, '3', but .* has a number, 2.5"),
    )
    def test_errors(self, values, message):
        with self.assertRaisesRegex(UserError, message):
            self._find(values)


class PredictionsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("a", []),
        ("c", ["c"]),
        (("c", "a", "d"), ["c", "d"]),
        ((), []),
        (1.5, []),
    )
    def test_unknown_labels(self, label, expected):
        self.assertEqual(
            expected, classification.unknown_labels(label, ["a", "b"])
        )

    def test_write_predictions(self):
        stream = io.StringIO()
        predictions = {
            "1": {"label": "é", "probabilities": {"é": 0.75, "b": 0.25}},
            "2": {"label": 0.5},
        }
        classification.write_predictions(predictions, stream)
        self.assertEqual(
            '{"id": "1", "label": "é", "probabilities": {"é": 0.75, "b": 0.25}}'
            '\n{"id": "2", "label": 0.5}\n',
            stream.getvalue(),
        )


if __name__ == "__main__":
    tf.test.main()
